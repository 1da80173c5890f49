"""Sends one signed request with a body that is ready, classifies the answer, and compares the clocks."""

from __future__ import annotations

import gzip
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from chipwatch.base.version import USER_AGENT
from chipwatch.contract.errors import Refused
from chipwatch.net.aws_answers import AwsError, Stale
from chipwatch.net.aws_regions import partitions
from chipwatch.net.aws_signer import AwsAccess, Login, Signer
from chipwatch.net.http_client import ClientTls, HttpClient, date_of

if TYPE_CHECKING:
    from chipwatch_sinks.cloudwatch import CloudwatchSink

log = logging.getLogger(__name__)

HEADERS: Final = {
    "Content-Type": "application/x-amz-json-1.0",
    "X-Amz-Target": "GraniteServiceVersion20100801.PutMetricData",
    "X-Amzn-Query-Mode": "true",
    "User-Agent": USER_AGENT,
}
"""Headers of AWS JSON 1.0: botocore/data/cloudwatch/2010-08-01/service-2.json, metadata."""
COMPRESS_FROM: Final = 10_240
"""Bytes from which a body is compressed: botocore's threshold."""
MAX_ANSWER: Final = 1 << 20
"""Size limit of an answer; the service's answers are smaller than a tenth of it."""
MAX_SKEW: Final = 60.0
"""Seconds between this clock and the service's that cause a warning; from 300 on the service refuses signatures."""


class CloudwatchClient:
    """Sends signed requests over an HTTP client of our own, which limits time and bytes."""

    def __init__(self, config: CloudwatchSink.Config, clock: Callable[[], int], on_time: Callable[[int], None]) -> None:
        """Take the wall clock (ns since the epoch), and a function to call with the service's time (ns)."""
        self._config, self._clock, self._on_time = config, clock, on_time
        login = Login(config.region, config.endpoint_url, config.profile, config.role_arn, config.external_id)
        self._signer = Signer(login)
        self._http: HttpClient | None = None
        self._compress = True
        self._skew_logged = False
        self.endpoint = self.region = ""
        """The service's address, and the region, once they are known."""

    def connect(self) -> None:
        """Find region, credentials and address; raise Refused or Retryable."""
        access = self._signer.open()
        self.region, self._compress = access.region, not access.uncompressed
        self.endpoint = endpoint_of(self._config, access)
        tls = ClientTls(ca_file=access.ca_bundle, ca_option="AWS_CA_BUNDLE")
        self._http = HttpClient(f"{self.endpoint}/", timeout=self._config.timeout, max_bytes=MAX_ANSWER, tls=tls)

    def put(self, body: bytes, count: int) -> dict[int, str]:
        """
        Send `body` in one request; raise Retryable, Refused or BadBatch.

        Return which of its `count` datums the service names as refused, with reasons; then it has stored none.
        """
        assert self._http is not None
        headers = HEADERS
        if self._compress and len(body) >= COMPRESS_FROM:
            body, headers = gzip.compress(body, 1, mtime=0), {**HEADERS, "Content-Encoding": "gzip"}
        signed = self._signer.sign(f"{self.endpoint}/", body, headers)
        answer = self._http.post(body, signed)
        judged = AwsError.of_json(answer)
        self._compare_clocks(answer.headers)
        if judged is None:
            self._signer.worked()
            return {}
        if named := judged.members(count):
            return named
        blame = judged.blame()
        raise self._signer.expired(str(blame)) if isinstance(blame, Stale) else blame

    def close(self) -> None:
        """Drop the connection; the next `put` makes another."""
        if self._http is not None:
            self._http.close()

    def _compare_clocks(self, headers: Mapping[str, str]) -> None:
        """Report the service's time; warn once if this clock differs much."""
        if (service_time := date_of(headers.get("date", ""))) is None:
            return
        self._on_time(int(service_time * 1e9))
        skew = self._clock() / 1e9 - service_time
        if abs(skew) > MAX_SKEW and not self._skew_logged:
            self._skew_logged = True
            way = "ahead of" if skew > 0 else "behind"
            log.warning(
                "cloudwatch: the clock of this machine is %.0f s %s the service's; synchronise it", abs(skew), way
            )


def endpoint_of(config: CloudwatchSink.Config, access: AwsAccess) -> str:
    """Return the address to send to; raise Refused if the region has no such endpoint."""
    if given := config.endpoint_url or access.endpoint:
        if not re.match(r"https?://[^/]", given):
            raise Refused(f"endpoint_url: expected an address such as https://HOST, got {given!r}")
        return given.rstrip("/")
    fips, dual = config.use_fips or access.use_fips, config.use_dualstack or access.use_dualstack
    region, partition = access.region, _partition(access.region)
    its = partition["outputs"]
    if (fips and not its["supportsFIPS"]) or (dual and not its["supportsDualStack"]):
        kinds = " and ".join(kind for kind, wanted in (("FIPS", fips), ("dual-stack", dual)) if wanted)
        raise Refused(f"use_fips, use_dualstack: the region {region} has no {kinds} endpoint")
    infix = "-fips" if fips and partition["id"] != "aws-us-gov" else ""  # whose ordinary endpoints are FIPS
    return f"https://monitoring{infix}.{region}.{its['dualStackDnsSuffix' if dual else 'dnsSuffix']}"


def _partition(region: str) -> dict[str, Any]:
    """Return the partition of a region by botocore's list; an unknown region is one of `aws`, the first."""
    known = partitions()
    fitting = (each for each in known if region in each["regions"] or re.match(each["regionRegex"], region))
    return next(fitting, known[0])
