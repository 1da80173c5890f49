"""What botocore is to know: region, credentials, time-outs; and what it need not."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import botocore.session
from botocore import exceptions as failures
from botocore.awsrequest import AWSResponse
from botocore.config import Config as Options
from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, DeferredRefreshableCredentials
from botocore.loaders import Loader
from botocore.parsers import ResponseParserError
from botocore.utils import IMDSRegionProvider
from urllib3.exceptions import HTTPError

from agent.errors import Refused, Retryable
from sinks.cloudwatch.answers import Answer, Stale

if TYPE_CHECKING:
    from sinks.cloudwatch import CloudwatchSink

# At DEBUG botocore logs what it signs, session tokens too; at INFO where it found credentials, each time.
logging.getLogger("botocore").setLevel(logging.WARNING)
# At WARNING it logs a refresh that fails with a traceback and what a program printed; the sink says it without.
logging.getLogger("botocore.credentials").setLevel(logging.CRITICAL)
# And urllib3 logs headers that it cannot read with a traceback.
logging.getLogger("urllib3").setLevel(logging.ERROR)

ODD: Final = (
    ValueError, TypeError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError, ResponseParserError,
)  # fmt: skip
"""What botocore raises for answers and files that it cannot make sense of."""
MOST_ANSWER: Final = 1 << 20
"""Bytes of an answer that are read; one of the service has less than a tenth of it."""
PRINTABLE: Final = re.compile("[!-~]+")
CONNECT: Final = 5.0
"""Seconds to wait for a connection; botocore's own 60 would hold up the stop of the agent."""
NO_REGION: Final = "no AWS region: give one by --region, AWS_REGION or a profile; nor did instance metadata name one"
NO_CREDENTIALS: Final = (
    "no AWS credentials in the environment, the shared files, the container's or the instance's metadata: "
    "give this machine a role (a container on EC2 needs a hop limit of 2 to see it), or name a profile"
)


@contextmanager
def credentials_asked(who: str = "") -> Iterator[None]:
    """
    Raise Retryable or Refused where those who hand out credentials (`who`, botocore's word) fail.

    What a program printed, or a server answered, is not repeated: it may hold a secret.
    """
    says = f"AWS credentials{f' of {who}' if who else ''}"
    try:
        yield
    except failures.ClientError as error:
        blame = Answer(error.response, error.operation_name).blame()
        raise (Refused(f"{says}: {blame}") if isinstance(blame, Stale) else blame) from None
    except (failures.CredentialRetrievalError, failures.MetadataRetrievalError) as problem:
        source = problem.kwargs.get("provider", "a metadata service")
        raise Retryable(f"{says}: {source} fails, or hands out what is none; try it by hand") from None
    except (failures.ConnectionError, failures.HTTPClientError) as problem:
        raise Retryable(f"{says}: {problem}") from None
    except failures.BotoCoreError as problem:
        raise Refused(f"{says}: {problem}") from None
    except OSError as problem:
        text = f"{says}: {problem.filename}: {problem.strerror}"
        raise (Refused(text) if problem.filename else Retryable(f"{says}: {problem.strerror}")) from None
    except ODD as problem:
        raise Retryable(f"{says}: what is handed out is none ({type(problem).__name__}); try it by hand") from None


def renew(credentials: Any) -> None:
    """Fetch credentials anew if they are about to expire; raise Retryable or Refused."""
    with credentials_asked(credentials.method):
        found = credentials.get_frozen_credentials()
        for word in (found.access_key, found.secret_key, found.token or "none"):
            if not PRINTABLE.fullmatch(word):
                raise ValueError(word)


def make_client(config: CloudwatchSink.Config) -> tuple[Any, Any, bool]:
    """
    Return a client of CloudWatch that sends once and waits briefly, its credentials, and whether it may compress.

    Raises Refused where there is no region or nobody to be, Retryable, and what botocore raises for a wrong set-up.
    """
    session = botocore.session.Session(profile=config.profile)
    session.register_component("data_loader", _SmallLoader())
    region = config.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
    region = region or _region_of_instance(session)
    if not region:
        raise Refused(NO_REGION)
    options = Options(
        connect_timeout=CONNECT,
        read_timeout=config.timeout,
        retries={"total_max_attempts": 1, "mode": "standard"},
        parameter_validation=False,
        disable_request_compression=True,  # the sink does it, at a fraction of the cost
        use_fips_endpoint=config.use_fips or None,  # None: as the environment or the profile says
        use_dualstack_endpoint=config.use_dualstack or None,
        max_pool_connections=1,
        user_agent_extra="chipwatch",
    )
    with credentials_asked():
        if config.role_arn:
            _assume(session, config, region, options)
        credentials = session.get_credentials()
    if credentials is None:
        raise Refused(NO_CREDENTIALS)
    client = session.create_client("cloudwatch", region, endpoint_url=config.endpoint_url, config=options)
    return client, credentials, not session.get_config_variable("disable_request_compression")


def bounded(client: Any) -> None:
    """Let `client` read no more than MOST_ANSWER bytes of an answer: botocore itself reads without end."""
    http = client._endpoint.http_session  # noqa: SLF001  # nothing public leads there
    send = http.send

    def send_and_read(request: Any) -> AWSResponse:
        request.stream_output = True
        answer = send(request)
        return AWSResponse(answer.url, answer.status_code, answer.headers, _Body(answer.raw))

    http.send = send_and_read


class _Body:
    """The first bytes of an answer, read at once."""

    def __init__(self, raw: Any) -> None:
        try:
            self._bytes = raw.read(MOST_ANSWER)
            if len(self._bytes) == MOST_ANSWER:
                raw.close()
            else:
                raw.release_conn()
        except (HTTPError, OSError) as problem:
            raise failures.HTTPClientError(error=type(problem).__name__) from problem

    def stream(self) -> Iterator[bytes]:
        yield self._bytes


class _SmallLoader(Loader):  # type: ignore[misc]  # botocore has no types
    """
    Does not load botocore's list of every endpoint of every service, which takes 8 MB for as long as a client lives.

    CloudWatch and STS have rules from which botocore reckons their endpoints; of the list it asks the partitions only.
    """

    def load_data_with_path(self, name: str) -> tuple[Any, str]:
        if name != "endpoints":
            return super().load_data_with_path(name)  # type: ignore[no-any-return]
        data, path = super().load_data_with_path("partitions")
        return {"version": 3, "partitions": [*map(_partition, data["partitions"])]}, path


def _partition(known: dict[str, Any]) -> dict[str, Any]:
    """Return a partition as the list of endpoints has it, without services."""
    outputs = known["outputs"]
    kinds = [(["fips"], "-fips", outputs["dnsSuffix"])]
    if outputs["supportsDualStack"]:
        suffix = outputs["dualStackDnsSuffix"]
        kinds += [(["dualstack"], "", suffix), (["dualstack", "fips"], "-fips", suffix)]
    variants = [
        {"tags": tags, "hostname": f"{{service}}{infix}.{{region}}.{{dnsSuffix}}", "dnsSuffix": suffix}
        for tags, infix, suffix in kinds
    ]
    return {
        "partition": known["id"],
        "dnsSuffix": outputs["dnsSuffix"],
        "regionRegex": known["regionRegex"],
        "regions": known["regions"],
        "services": {},
        "defaults": {
            "hostname": "{service}.{region}.{dnsSuffix}",
            "protocols": ["https"],
            "signatureVersions": ["v4"],
            "variants": variants,
        },
    }


class _Given(CredentialProvider):  # type: ignore[misc]
    """Provides the credentials that it was given."""

    METHOD = "chipwatch"

    def __init__(self, credentials: Any) -> None:
        super().__init__()
        self._credentials = credentials

    def load(self) -> Any:
        return self._credentials


def _assume(session: Any, config: CloudwatchSink.Config, region: str, options: Options) -> None:
    """Make `session` use the credentials of a role, assumed with its own, and renewed before they expire."""
    resolver = session.get_component("credential_provider")
    source = resolver.load_credentials()
    if source is None:
        raise Refused(NO_CREDENTIALS)
    extra = {"RoleSessionName": "chipwatch"}
    if config.external_id:
        extra["ExternalId"] = config.external_id
    make_client = partial(session.create_client, region_name=region, config=options)
    fetcher = AssumeRoleCredentialFetcher(make_client, source, config.role_arn, extra)
    role = _Given(DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role"))
    resolver.insert_before(resolver.providers[0].METHOD, role)


def _region_of_instance(session: Any) -> str | None:
    """Return the region of the EC2 instance; botocore takes the last letter off its zone, which a local zone defies."""
    found = re.match(r"[a-z]+(-[a-z]+)+-\d+", IMDSRegionProvider(session).provide() or "")
    return found[0] if found else None
