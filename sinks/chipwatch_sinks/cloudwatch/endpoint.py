"""CloudWatch's address, as botocore finds it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import botocore

from chipwatch.errors import Refused

if TYPE_CHECKING:
    from chipwatch_sinks.cloudwatch import CloudwatchSink
    from chipwatch_sinks.common.aws_session import Session


def endpoint_of(config: CloudwatchSink.Config, session: Session, region: str) -> str:
    """Return the address to send to; raise Refused if the region has no such endpoint."""
    if given := config.endpoint_url or session.endpoint("cloudwatch"):
        if not re.match(r"https?://[^/]", given):
            raise Refused(f"endpoint_url: expected an address such as https://HOST, got {given!r}")
        return given.rstrip("/")
    fips = config.use_fips or bool(session.get_config_variable("use_fips_endpoint"))
    dual = config.use_dualstack or bool(session.get_config_variable("use_dualstack_endpoint"))
    partition = _partition(region)
    its = partition["outputs"]
    if (fips and not its["supportsFIPS"]) or (dual and not its["supportsDualStack"]):
        kinds = " and ".join(kind for kind, wanted in (("FIPS", fips), ("dual-stack", dual)) if wanted)
        raise Refused(f"use_fips, use_dualstack: the region {region} has no {kinds} endpoint")
    infix = "-fips" if fips and partition["id"] != "aws-us-gov" else ""  # whose ordinary endpoints are FIPS
    return f"https://monitoring{infix}.{region}.{its['dualStackDnsSuffix' if dual else 'dnsSuffix']}"


def _partition(region: str) -> dict[str, Any]:
    """Return the partition of a region by botocore's list; an unknown region is one of `aws`, the first."""
    assert botocore.__file__ is not None
    partitions = json.loads((Path(botocore.__file__).parent / "data/partitions.json").read_bytes())["partitions"]
    known = (one for one in partitions if region in one["regions"] or re.match(one["regionRegex"], region))
    found: dict[str, Any] = next(known, partitions[0])
    return found
