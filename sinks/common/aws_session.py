"""A session of botocore: region and credentials, and what is wrong with them."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, NamedTuple

import botocore.session
from botocore import exceptions as failures
from botocore.config import Config as Options
from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, DeferredRefreshableCredentials
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError
from botocore.utils import IMDSRegionProvider

from agent.errors import Refused, Retryable
from sinks.common.aws_answers import Answer, Stale
from sinks.common.aws_regions import region_fault

# At DEBUG botocore logs session tokens; at INFO it logs each time where it found credentials.
logging.getLogger("botocore").setLevel(logging.WARNING)
# At WARNING it logs a failed refresh with a traceback and the output of a program; the sink reports it without these.
logging.getLogger("botocore.credentials").setLevel(logging.CRITICAL)
# urllib3 logs unreadable headers with a traceback.
logging.getLogger("urllib3").setLevel(logging.ERROR)

UNEXPECTED: Final = (
    ValueError, TypeError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError, ResponseParserError,
)  # fmt: skip
"""Exceptions of botocore for malformed answers and files."""
PRINTABLE: Final = re.compile("[!-~]+")
CONNECT_TIMEOUT: Final = 5.0
"""Seconds to wait for a connection; botocore's default of 60 would delay the stop of the agent."""
NO_REGION: Final = "no AWS region, nor does instance metadata name one: set --region, AWS_REGION or a profile"
NO_CREDENTIALS: Final = (
    "no AWS credentials in the environment, the shared files, or the metadata of the container or the instance: "
    "attach a role to this machine (a container on EC2 needs a hop limit of 2 to use it), or set a profile"
)


class Login(NamedTuple):
    """The options of a sink that say who it is to AWS; None: as botocore's chain has it."""

    region: str | None = None
    endpoint_url: str | None = None
    profile: str | None = None
    role_arn: str | None = None
    external_id: str | None = None


@contextmanager
def reading_credentials(who: str = "") -> Iterator[None]:
    """
    Raise Retryable or Refused if a source of credentials (`who`, botocore's name) fails.

    The output of a program or the answer of a server is not repeated, since it may hold a secret.
    """
    says = f"AWS credentials{f' of {who}' if who else ''}"
    try:
        yield
    except failures.ClientError as error:
        blame = Answer(error.response, error.operation_name).blame()
        raise (Refused(f"{says}: {blame}") if isinstance(blame, Stale) else blame) from None
    except (failures.CredentialRetrievalError, failures.MetadataRetrievalError) as problem:
        source = problem.kwargs.get("provider", "a metadata service")
        raise Retryable(f"{says}: {source} fails or returns invalid credentials; run it by hand") from None
    except (failures.ConnectionError, failures.HTTPClientError) as problem:
        raise Retryable(f"{says}: {problem}") from None
    except failures.BotoCoreError as problem:
        raise Refused(f"{says}: {problem}") from None
    except OSError as problem:
        if problem.filename:
            raise Refused(f"{says}: {problem.filename}: {problem.strerror}") from None
        raise Retryable(f"{says}: {problem.strerror}") from None
    except UNEXPECTED as problem:
        raise Retryable(f"{says}: invalid; check their source by hand ({type(problem).__name__})") from None


def renew(credentials: Any) -> None:
    """Refresh credentials that are about to expire; raise Retryable or Refused."""
    with reading_credentials(credentials.method):
        found = credentials.get_frozen_credentials()
        for word in (found.access_key, found.secret_key, found.token or "none"):
            if not PRINTABLE.fullmatch(word):
                raise ValueError(word)


def open_session(login: Login, timeout: float) -> tuple[Any, str, Any]:
    """
    Return a session, its region, and its credentials, those of the role if there is one.

    Raises Refused without a region or credentials, Retryable, and botocore's exceptions for a wrong configuration.
    """
    session = botocore.session.Session(profile=login.profile)
    session.register_component("data_loader", _SmallLoader())
    region = login.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    if region and not login.endpoint_url and (fault := region_fault(region)):
        raise Refused(f"AWS_REGION, or the profile's region: {fault}")
    region = region or _region_of_instance(session)
    if not region:
        raise Refused(NO_REGION)
    with reading_credentials():
        if login.role_arn:
            _assume(session, login, region, timeout)
        credentials = session.get_credentials()
    if credentials is None:
        raise Refused(NO_CREDENTIALS)
    return session, region, credentials


def options(timeout: float, **more: Any) -> Options:
    """Return botocore's options for one attempt of `timeout` seconds."""
    return Options(
        connect_timeout=CONNECT_TIMEOUT,
        read_timeout=timeout,
        retries={"total_max_attempts": 1, "mode": "standard"},
        user_agent_extra="chipwatch",
        max_pool_connections=1,
        parameter_validation=False,
        **more,
    )


class _SmallLoader(Loader):  # type: ignore[misc]  # botocore has no types
    """
    Does not load botocore's list of the endpoints of all services, which would take 8 MB while the client exists.

    botocore computes the endpoints of CloudWatch and STS from rules; it uses only the partitions of the list.
    """

    def load_data_with_path(self, name: str) -> tuple[Any, str]:
        if name != "endpoints":
            return super().load_data_with_path(name)  # type: ignore[no-any-return]
        data, path = super().load_data_with_path("partitions")
        return {"version": 3, "partitions": [*map(_partition, data["partitions"])]}, path


def _partition(known: dict[str, Any]) -> dict[str, Any]:
    """Return a partition in the format of the list of endpoints, without services."""
    outputs = known["outputs"]
    kinds = [(["fips"], "-fips", outputs["dnsSuffix"])]
    if outputs["supportsDualStack"]:
        suffix = outputs["dualStackDnsSuffix"]
        kinds += [(["dualstack"], "", suffix), (["dualstack", "fips"], "-fips", suffix)]
    variants = [
        {"tags": tags, "hostname": f"{{service}}{infix}.{{region}}.{{dnsSuffix}}", "dnsSuffix": suffix}
        for tags, infix, suffix in kinds
    ]
    defaults = {"hostname": "{service}.{region}.{dnsSuffix}", "protocols": ["https"], "signatureVersions": ["v4"]}
    return {
        "partition": known["id"],
        "dnsSuffix": outputs["dnsSuffix"],
        "regionRegex": known["regionRegex"],
        "regions": known["regions"],
        "services": {},
        "defaults": {**defaults, "variants": variants},
    }


class _Given(CredentialProvider):  # type: ignore[misc]
    """Provides fixed credentials."""

    METHOD = "chipwatch"

    def __init__(self, credentials: Any) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials


def _assume(session: Any, login: Login, region: str, timeout: float) -> None:
    """Make `session` assume a role with its credentials, and refresh the role's before they expire."""
    resolver = session.get_component("credential_provider")
    source = resolver.load_credentials()
    if source is None:
        raise Refused(NO_CREDENTIALS)
    extra = {"RoleSessionName": "chipwatch"}
    if login.external_id:
        extra["ExternalId"] = login.external_id
    make_client = partial(session.create_client, region_name=region, config=options(timeout))
    fetcher = AssumeRoleCredentialFetcher(make_client, source, login.role_arn, extra)
    role = _Given(DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role"))
    resolver.insert_before(resolver.providers[0].METHOD, role)


def _region_of_instance(session: Any) -> str | None:
    """Return the region of the EC2 instance; botocore cuts the zone's last letter, which is wrong for local zones."""
    found = re.match(r"[a-z]+(-[a-z]+)+-\d+", IMDSRegionProvider(session).provide() or "")
    return found[0] if found else None
