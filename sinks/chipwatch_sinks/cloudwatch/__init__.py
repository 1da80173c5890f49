"""Amazon CloudWatch, by PutMetricData."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.errors import BadBatch
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.contract.trusted_clock import TRUSTED_CLOCK, TrustedClock
from chipwatch.net.aws_regions import region_fault
from chipwatch.net.faults import check_timeout
from chipwatch_sinks.cloudwatch.wire import ALLOWED, DatumEncoder, body, dims_fault, name_fault, namespace_fault

if TYPE_CHECKING:
    from chipwatch_sinks.cloudwatch.client import CloudwatchClient

ROUNDS: Final = 5
"""Requests in one write: the first, and one more each time the service names refused datums."""


class CloudwatchSink(Sink):
    """
    Sends each batch by PutMetricData: gauges with all their values, counters by their increase.

    A write makes one request. If the service names refused datums, it has stored none, so the others are sent again at
    once. Points beyond the documented limits are rejected without a request.
    """

    needs = Needs(libraries=("botocore",))
    limits = Limits(
        max_points=1000,
        max_bytes=950_000,  # of the 1 MB that a request may have uncompressed
        max_age=14 * 86_400.0 - 3_600.0,  # two weeks, less an hour for delivery
        increases=True,
        zeros=False,
        max_series=500,
    )

    @dataclass(frozen=True, slots=True)
    class Config:
        """
        The options; all others come from the environment and the shared files, as botocore reads them.

        For instance AWS_PROFILE, HTTPS_PROXY and NO_PROXY, AWS_CA_BUNDLE, AWS_DISABLE_REQUEST_COMPRESSION.
        """

        namespace: str = "Chipwatch"
        """CloudWatch's namespace."""
        region: str | None = None
        """AWS region; unless set: AWS_REGION, AWS_DEFAULT_REGION, the profile's, the instance's own."""
        high_resolution: bool = False
        """CloudWatch stores a point for each second instead of each minute."""
        endpoint_url: str | None = None
        """Address to use instead of the region's endpoint: a VPC endpoint, or a server for tests."""
        use_fips: bool = False
        """Send to the FIPS endpoint."""
        use_dualstack: bool = False
        """Send to the endpoint that also has IPv6 addresses."""
        profile: str | None = None
        """Profile of ~/.aws/config."""
        role_arn: str | None = None
        """Role to assume for sending."""
        external_id: str | None = None
        """External id that the role requires."""
        timeout: float = 10.0
        """Seconds to wait for an answer."""

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid value."""
            if fault := namespace_fault(self.namespace):
                raise ValueError(f"namespace: {fault}, got {self.namespace!r}")
            if self.region and not self.endpoint_url and (fault := region_fault(self.region)):
                raise ValueError(f"region: {fault}")
            check_timeout(self.timeout)

    def __init__(
        self, config: Config, clock: Callable[[], int] = time.time_ns, steady: TrustedClock = TRUSTED_CLOCK
    ) -> None:
        """Take the wall clock (ns since the epoch), and the trusted clock that judges the age of points."""
        self._config, self._clock, self._steady = config, clock, steady
        self._encoder = DatumEncoder(high_resolution=config.high_resolution)
        self._client: CloudwatchClient | None = None

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        fault = name_fault(metric.name) or dims_fault(dims)
        return fault and f"{fault}: {ALLOWED}"

    def open(self) -> None:
        from chipwatch_sinks.cloudwatch.client import CloudwatchClient

        client = CloudwatchClient(self._config, self._clock, self._steady.compare)
        client.connect()
        self._client = client

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        assert self._client is not None
        good, texts, rejected = self._encoder.encode(batch, self._steady())
        for _ in range(ROUNDS):
            if not good:
                return rejected
            if not (named := self._client.put(body(self._config.namespace, texts), len(good))):
                return rejected
            rejected += [Rejected(good[n], reason) for n, reason in named.items()]
            good = [point for n, point in enumerate(good) if n not in named]
            texts = [text for n, text in enumerate(texts) if n not in named]
        raise BadBatch(f"CloudWatch refused different datums in each of {ROUNDS} requests")

    def size(self, point: Datapoint) -> int:
        return self._encoder.size(point)

    def destination(self) -> Mapping[str, str]:
        """Return namespace, region, endpoint, role and profile; the account is unknown without a request."""
        config, env = self._config, os.environ
        endpoint = config.endpoint_url or env.get("AWS_ENDPOINT_URL_CLOUDWATCH") or env.get("AWS_ENDPOINT_URL") or ""
        place = {"namespace": config.namespace, "endpoint": re.sub("//[^/]*@", "//", endpoint.partition("?")[0])}
        place |= {"role": config.role_arn or "", "profile": config.profile or env.get("AWS_PROFILE") or ""}
        region = self._client.region if self._client else config.region or env.get("AWS_REGION")
        return place | ({"region": region} if region else {})

    def check_start(self, dims: Collection[str]) -> str | None:
        """Return a warning where points of several machines would be one series."""
        return None if dims else "points do not say which machine they are of; add --common-dims instance_id"

    def find(self, dims: Sequence[str]) -> str:
        """Return the path in CloudWatch's console, which groups metrics by their dimensions."""
        group = ", ".join(dims) or "Metrics with no dimensions"
        return f"CloudWatch > All metrics > {self._config.namespace} > {group}"

    def describe(self) -> str:
        endpoint = self._client and self._client.endpoint
        return f"namespace {self._config.namespace}{f' at {endpoint}' if endpoint else ''}"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
