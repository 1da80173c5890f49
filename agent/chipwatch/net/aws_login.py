"""
Finds the AWS region, credentials and settings with botocore, in a process that ends with its answer.

The agent starts it (`aws_signer.ask`), so that it holds botocore's 10 MB only for half a second every few hours.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final

from botocore import exceptions as failures
from botocore.config import Config as Options
from botocore.configprovider import ConfiguredEndpointProvider
from botocore.parsers import ResponseParserError
from botocore.session import Session
from botocore.utils import IMDSRegionProvider, validate_region_name

from chipwatch.contract.errors import Refused, Retryable, os_text
from chipwatch.net.aws_answers import AwsError, Stale
from chipwatch.net.aws_regions import region_fault
from chipwatch.net.aws_signer import LIMIT, STAMP, AwsAccess, Login
from chipwatch.net.faults import UNEXPECTED

PRINTABLE: Final = re.compile("[!-~]+")
STS: Final = Options(connect_timeout=5, read_timeout=10, retries={"total_max_attempts": 1}, parameter_validation=False)
"""Seconds for a connection and for an answer (botocore's default: 60), and one try: the frame tries again."""
SETTINGS: Final = ("use_fips_endpoint", "use_dualstack_endpoint", "ca_bundle", "disable_request_compression")
"""Names of the last fields of AwsAccess."""
RENEW_BEFORE: Final = timedelta(minutes=5)
"""Time before their end at which credentials are renewed; an instance has the next ones by then."""
NO_REGION: Final = "no AWS region, nor does instance metadata name one: set --region, AWS_REGION or a profile"
NO_CREDENTIALS: Final = (
    "no AWS credentials in the environment, the shared files, or the metadata of the container or the instance: "
    "attach a role to this machine (a container on EC2 needs a hop limit of 2 to use it), or set a profile"
)


@contextmanager
def reading_credentials(who: str = "") -> Iterator[None]:
    """
    Raise Retryable or Refused if a source of credentials fails; `who` is botocore's name for the source.

    The message does not repeat a program's output or a server's answer, which may hold a secret.
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
        is_quoted = type(problem) is failures.HTTPClientError  # it quotes an address, such as a proxy's with a password
        text = "no request can be made; check HTTPS_PROXY, HTTP_PROXY and addresses of endpoints"
        raise Retryable(f"{says}: {text if is_quoted else problem}") from None
    except failures.BotoCoreError as problem:
        raise Refused(f"{says}: {problem}") from None
    except OSError as problem:
        if problem.filename:
            raise Refused(f"{says}: {problem.filename}: {os_text(problem)}") from None
        raise Retryable(f"{says}: {os_text(problem)}") from None
    except (*UNEXPECTED, ResponseParserError) as problem:
        raise Retryable(f"{says}: invalid; check their source by hand ({type(problem).__name__})") from None


def find(login: Login) -> AwsAccess:
    """
    Find region, credentials and settings in botocore's order: given, environment, profile, metadata.

    Raises Refused if there are none, Retryable if their source does not answer.
    """
    session = Session(profile=login.profile)
    setting = session.get_config_variable
    try:
        endpoint = ConfiguredEndpointProvider(session.full_config, session.get_scoped_config(), "cloudwatch").provide()
        region = login.region or os.environ.get("AWS_REGION") or setting("region")
        if region and not login.endpoint_url and (fault := region_fault(region)):
            raise Refused(f"AWS_REGION, or the profile's region: {fault}")
        if not region:  # botocore takes the zone without its last letter, which is wrong for local zones
            if not (match := re.match(r"[a-z]+(-[a-z]+)+-\d+", IMDSRegionProvider(session).provide() or "")):
                raise Refused(NO_REGION)
            region = match[0]
        validate_region_name(region)
        ignored = setting("ignore_configured_endpoint_urls")
        return AwsAccess(region, *_keys(session, login, region), None if ignored else endpoint, *map(setting, SETTINGS))
    except (failures.BotoCoreError, ValueError, OSError) as problem:
        raise Refused(str(problem)) from problem


def _keys(session: Session, login: Login, region: str) -> tuple[str, str, str, str]:
    """Return access key, secret key, token or "", and the time to find them again (STAMP) or "" if they never end."""
    with reading_credentials():
        credentials = session.get_credentials()
    if credentials is None:
        raise Refused(NO_CREDENTIALS)
    with reading_credentials("assume-role" if login.role_arn else credentials.method):
        if login.role_arn:
            role = {"RoleArn": login.role_arn, "RoleSessionName": "chipwatch"}
            role |= {"ExternalId": login.external_id} if login.external_id else {}
            answer = session.create_client("sts", region, config=STS).assume_role(**role)["Credentials"]
            key, secret, token, end = map(answer.get, ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration"))
        else:
            key, secret, token, *_ = credentials.get_frozen_credentials()
            end = getattr(credentials, "_expiry_time", None)  # which botocore does not tell otherwise
        if not all(PRINTABLE.fullmatch(word) for word in (key, secret, token or "none")):
            raise ValueError
        return key, secret, token or "", f"{end - RENEW_BEFORE:{STAMP}}" if end else ""


def main() -> None:
    """Answer a Login on standard input by a list: `access` and an AwsAccess, or an error's class and its text."""
    signal.signal(signal.SIGALRM, lambda *_: os.killpg(0, signal.SIGKILL))  # with a program that gives credentials
    signal.alarm(LIMIT)
    try:
        answer = ["access", *find(Login(*json.load(sys.stdin)))]
    except (Refused, Retryable) as problem:
        answer = [type(problem).__name__, str(problem)]
    json.dump(answer, sys.stdout)
