"""Region and credentials by botocore, what is wrong with them, and signed requests, which the caller sends."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property, partial
from typing import Any, Final, NamedTuple

from botocore import exceptions as failures
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config as Options
from botocore.configloader import load_config, raw_config_parse
from botocore.configprovider import ConfiguredEndpointProvider, ConfigValueStore, create_botocore_default_config_mapping
from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials, create_credential_resolver
from botocore.utils import IMDSRegionProvider, validate_region_name

from chipwatch.contract.errors import Refused, Retryable, os_text
from chipwatch.net.faults import UNEXPECTED
from chipwatch_sinks.common.aws_answers import AwsError, Stale
from chipwatch_sinks.common.aws_regions import region_fault

# At DEBUG botocore logs session tokens; at INFO it logs each time where it found credentials.
logging.getLogger("botocore").setLevel(logging.WARNING)
# At WARNING it logs a failed refresh with a traceback and the output of a program; the sink reports it without these.
logging.getLogger("botocore.credentials").setLevel(logging.CRITICAL)
# urllib3 logs unreadable headers with a traceback.
logging.getLogger("urllib3").setLevel(logging.ERROR)

PRINTABLE: Final = re.compile("[!-~]+")
CONNECT_TIMEOUT: Final = 5.0
"""Seconds to wait for a connection; botocore's default of 60 would delay the stop of the agent."""
NO_REGION: Final = "no AWS region, nor does instance metadata name one: set --region, AWS_REGION or a profile"
NO_CREDENTIALS: Final = (
    "no AWS credentials in the environment, the shared files, or the metadata of the container or the instance: "
    "attach a role to this machine (a container on EC2 needs a hop limit of 2 to use it), or set a profile"
)


class Login(NamedTuple):
    """Options of a sink for its identity at AWS; None: by botocore's chain."""

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
        blame = AwsError(error.response, error.operation_name).blame()
        raise (Refused(f"{says}: {blame}") if isinstance(blame, Stale) else blame) from None
    except (failures.CredentialRetrievalError, failures.MetadataRetrievalError) as problem:
        source = problem.kwargs.get("provider", "a metadata service")
        raise Retryable(f"{says}: {source} fails or returns invalid credentials; run it by hand") from None
    except (failures.ConnectionError, failures.HTTPClientError) as problem:
        is_quoted = type(problem) is failures.HTTPClientError  # what cannot be parsed may be a proxy with its password
        text = "no request can be made; check HTTPS_PROXY, HTTP_PROXY and addresses of endpoints"
        raise Retryable(f"{says}: {text if is_quoted else problem}") from None
    except failures.BotoCoreError as problem:
        raise Refused(f"{says}: {problem}") from None
    except OSError as problem:
        if problem.filename:
            raise Refused(f"{says}: {problem.filename}: {os_text(problem)}") from None
        raise Retryable(f"{says}: {os_text(problem)}") from None
    except Exception as problem:
        parsers = sys.modules.get("botocore.parsers")  # which only a client loads
        if not isinstance(problem, (*UNEXPECTED, *((parsers.ResponseParserError,) if parsers else ()))):
            raise
        raise Retryable(f"{says}: invalid; check their source by hand ({type(problem).__name__})") from None


def renew(credentials: Any) -> Any:
    """Refresh credentials that are about to expire, and return the current ones; raise Retryable or Refused."""
    with reading_credentials(credentials.method):
        frozen = credentials.get_frozen_credentials()
        for word in (frozen.access_key, frozen.secret_key, frozen.token or "none"):
            if not PRINTABLE.fullmatch(word):
                raise ValueError(word)
    return frozen


class Session:
    """
    The methods of a session that botocore's credentials and settings call.

    botocore's own imports the whole client, which takes 12 MB; it is made only if a source of credentials calls AWS.
    """

    def __init__(self, profile: str | None) -> None:
        """Take the profile; None: the environment's."""
        self._own = {"profile": profile} if profile else {}
        self._values = ConfigValueStore(mapping=create_botocore_default_config_mapping(self))

    def instance_variables(self) -> dict[str, str]:
        """Return what was given to this session."""
        return dict(self._own)

    def get_config_variable(self, name: str) -> Any:
        """Return a setting by botocore's order: given, environment, profile, default."""
        return self._values.get_config_variable(name)

    @cached_property
    def full_config(self) -> dict[str, Any]:
        """The shared files: the profiles of both the configuration and the credentials file."""
        try:
            config = load_config(self.get_config_variable("config_file"))
        except failures.ConfigNotFound:
            config = {"profiles": {}}
        try:
            credentials = raw_config_parse(self.get_config_variable("credentials_file"))
        except failures.ConfigNotFound:
            credentials = {}
        for name, values in credentials.items():
            config["profiles"].setdefault(name, {}).update(values)
        return config  # type: ignore[no-any-return]

    def get_scoped_config(self) -> dict[str, Any]:
        """Return the profile's settings; raise ProfileNotFound."""
        profile, profiles = self.get_config_variable("profile"), self.full_config["profiles"]
        if profile is not None and profile not in profiles:
            raise failures.ProfileNotFound(profile=profile)
        return profiles.get(profile or "default", {})  # type: ignore[no-any-return]

    def user_agent(self) -> str:
        """Return the name for the metadata service."""
        return "chipwatch"

    def create_client(self, *words: Any, **more: Any) -> Any:
        """Return a client of botocore, for STS and SSO."""
        from botocore.session import Session as Whole

        return Whole(profile=self._own.get("profile")).create_client(*words, **more)

    def endpoint(self, service: str) -> str | None:
        """Return the address that the environment or the profile sets for `service`, or None."""
        if self.get_config_variable("ignore_configured_endpoint_urls"):
            return None
        return ConfiguredEndpointProvider(self.full_config, self.get_scoped_config(), service).provide()  # type: ignore[no-any-return]


class Signer:
    """Signature Version 4 for one service; credentials are refreshed before they expire."""

    def __init__(self, service: str, login: Login, timeout: float) -> None:
        """Take the service's name in signatures, and the seconds for a source of credentials to answer."""
        self._service, self._login, self._timeout = service, login, timeout
        self._credentials: Any = None
        self._renewed = False
        self.region = login.region or ""

    def open(self) -> Session:
        """
        Find region and credentials, the role's if one is configured, and return where they were found.

        Raises Refused if there are none, Retryable if their source does not answer.
        """
        login, session = self._login, Session(self._login.profile)
        try:
            session.get_scoped_config()  # raises for a profile that does not exist
            region = login.region or os.environ.get("AWS_REGION") or session.get_config_variable("region")
            if region and not login.endpoint_url and (fault := region_fault(region)):
                raise Refused(f"AWS_REGION, or the profile's region: {fault}")
            region = region or _region_of_instance(session)
            if not region:
                raise Refused(NO_REGION)
            validate_region_name(region)
            with reading_credentials():
                credentials = create_credential_resolver(session, region_name=region).load_credentials()
                if credentials is not None and login.role_arn:
                    credentials = self._assumed(session, region, credentials)
        except (failures.BotoCoreError, ValueError, OSError) as problem:
            raise Refused(str(problem)) from problem
        if credentials is None:
            raise Refused(NO_CREDENTIALS)
        self.region, self._credentials = region, credentials
        return session

    def _assumed(self, session: Session, region: str, source: Any) -> Any:
        """Return the credentials of the role, requested with `source` and refreshed before they expire."""
        options = Options(
            connect_timeout=CONNECT_TIMEOUT,
            read_timeout=self._timeout,
            retries={"total_max_attempts": 1, "mode": "standard"},
            user_agent_extra="chipwatch",
            max_pool_connections=1,
            parameter_validation=False,
        )
        extra = {"RoleSessionName": "chipwatch"}
        if self._login.external_id:
            extra["ExternalId"] = self._login.external_id
        make_client = partial(session.create_client, region_name=region, config=options)
        fetcher = AssumeRoleCredentialFetcher(make_client, source, self._login.role_arn, extra)
        return DeferredRefreshableCredentials(fetcher.fetch_credentials, "assume-role")

    def sign(self, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return `headers` and the signature of this request; raise Retryable or Refused without credentials."""
        if self._credentials is None:
            self.open()
        try:
            now = renew(self._credentials)
        except (Retryable, Refused):  # the next call reads the credentials again
            self._credentials = None
            raise
        request = AWSRequest("POST", url, data=body, headers=dict(headers))
        SigV4Auth(now, self._service, self.region).add_auth(request)
        return dict(request.headers.items())

    def worked(self) -> None:
        """Note that the service took a signature."""
        self._renewed = False

    def expired(self, why: str) -> Exception:
        """Drop credentials that the service calls expired or unknown; return the exception to raise."""
        self._credentials = None
        if self._renewed:
            return Refused(
                "the AWS credentials are expired or unknown, and no valid ones are found; log in again"
                f" (`aws sso login`), or set new keys ({why})"
            )
        self._renewed = True
        return Retryable(f"the AWS credentials are read again ({why})")


def _region_of_instance(session: Session) -> str | None:
    """Return the region of the EC2 instance; botocore cuts the zone's last letter, which is wrong for local zones."""
    found = re.match(r"[a-z]+(-[a-z]+)+-\d+", IMDSRegionProvider(session).provide() or "")
    return found[0] if found else None
