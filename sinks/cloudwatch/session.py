"""What botocore is to know: region, credentials, time-outs; and what it need not."""

from __future__ import annotations

import logging
import os
import re
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import botocore.session
from botocore.config import Config as Options
from botocore.credentials import AssumeRoleCredentialFetcher, CredentialProvider, DeferredRefreshableCredentials
from botocore.loaders import Loader
from botocore.utils import IMDSRegionProvider

from agent.errors import Refused

if TYPE_CHECKING:
    from sinks.cloudwatch import CloudwatchSink

# At DEBUG botocore logs what it signs, session tokens too; at INFO where it found credentials, each time.
logging.getLogger("botocore").setLevel(logging.WARNING)

CONNECT: Final = 5.0
"""Seconds to wait for a connection; botocore's own 60 would hold up the stop of the agent."""
NO_REGION: Final = "no AWS region: give one by --region, AWS_REGION or a profile; nor did instance metadata name one"
NO_CREDENTIALS: Final = (
    "no AWS credentials in the environment, the shared files, the container's or the instance's metadata: "
    "give this machine a role (a container on EC2 needs a hop limit of 2 to see it), or name a profile"
)


def make_client(config: CloudwatchSink.Config) -> tuple[Any, bool]:
    """
    Return a client of CloudWatch that sends once and waits briefly, and whether requests may be compressed.

    Raises Refused where there is no region or nobody to be, and what botocore raises.
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
    if config.role_arn:
        _assume(session, config, region, options)
    if session.get_credentials() is None:
        raise Refused(NO_CREDENTIALS)
    client = session.create_client("cloudwatch", region, endpoint_url=config.endpoint_url, config=options)
    return client, not session.get_config_variable("disable_request_compression")


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
