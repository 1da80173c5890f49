"""Sends points to any receiver of OTLP over HTTP: OpenTelemetry's collector, CloudWatch, Google and others."""

from __future__ import annotations

import logging
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from chipwatch.base.version import USER_AGENT
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric, gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable, get_extra
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.net.faults import check_timeout, url_fault
from chipwatch.net.http_client import HttpClient
from chipwatch_sinks.otlp.answers import PROTOBUF, judge
from chipwatch_sinks.otlp.encoding import Gauges, OtlpEncoder, labels
from chipwatch_sinks.otlp.flavours import BOUNDS, CLOUDWATCH, FLAVOURS, LOCAL, Name, headers_fault, settings_of
from chipwatch_sinks.otlp.resource import WORDS

log = logging.getLogger(__name__)

MAX_ANSWER: Final = 4 << 20
"""Most bytes of an answer, as opentelemetry-proto 1.11 recommends."""
ROOM: Final = 20
"""One in so many points of a request is reserved for marking series that have ended."""
UNNAMED: Final = gauge("a point that the receiver does not name", "1", "Stands for a point of a partial success.")


class OtlpSink(Sink):
    """
    Sends each batch as one ExportMetricsServiceRequest over HTTP, in protobuf.

    A gauge is sent as its window's mean unless `gauges` says more; a counter as a sum with a start, or an increase.
    """

    needs = Needs(words=WORDS)
    limits = Limits(max_points=BOUNDS["plain"].points)

    @dataclass(frozen=True, slots=True)
    class Config:
        """
        The options; where one is not set, the variables OTEL_EXPORTER_OTLP_* apply (flavour plain only).

        OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME always apply. HTTPS_PROXY, HTTP_PROXY and NO_PROXY are obeyed.
        """

        flavour: Name = "plain"
        """The receiver: plain is any; cloudwatch signs for AWS, as its address alone has it too; google has a token."""
        endpoint_url: str | None = None
        """Address of the receiver, to which /v1/metrics is added; http://localhost:4318 or the cloud's unless set."""
        headers: Mapping[str, str] = field(default_factory=dict, repr=False)
        """Headers to send, such as api keys; never logged."""
        bearer_token_file: Path | None = None
        """File with a bearer token, read for each request."""
        compression: Literal["gzip", "none"] | None = None
        """Compression of the body; gzip unless set."""
        timeout: float | None = None
        """Seconds to wait for an answer; 10 unless set."""
        ca_file: Path | None = None
        """CA certificates to trust, in PEM; the system's unless set."""
        cert_file: Path | None = None
        """Client certificate, in PEM."""
        key_file: Path | None = None
        """Key of cert_file, unless that contains it."""
        temporality: Literal["cumulative", "delta"] | None = None
        """Counters as totals since their start, or as increases of each window; cumulative unless set."""
        gauges: Gauges = "mean"
        """A gauge's window as its mean; as mean, minimum and maximum; or as an exponential histogram."""
        resource_attributes: Mapping[str, str] = field(default_factory=dict)
        """Further attributes of the resource; they win over the machine's."""
        machine_attributes: bool = False
        """Put the machine's dimensions on every point too, for receivers that drop resource attributes."""
        mark_ended: bool | None = None
        """Send the end of each series once (no recorded value); unless set, only with flavour plain."""
        region: str | None = None
        """AWS region (flavour cloudwatch); the environment's, else the instance's own, unless set."""
        profile: str | None = None
        """Profile of ~/.aws/config (flavour cloudwatch)."""
        role_arn: str | None = None
        """Role to assume for sending (flavour cloudwatch)."""
        project: str | None = None
        """Google Cloud project (flavour google); the credentials', else the machine's own, unless set."""

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid value."""
            if self.endpoint_url and (fault := url_fault(self.endpoint_url)):
                raise ValueError(f"endpoint_url: {fault}")
            if self.flavour != "google" and (aws := CLOUDWATCH.fullmatch(self.endpoint_url or "")):
                object.__setattr__(self, "flavour", "cloudwatch")
                object.__setattr__(self, "region", aws[1])
            if fault := headers_fault(self.headers):
                raise ValueError(f"headers: {fault}")
            check_timeout(self.timeout)
            if self.key_file and not self.cert_file:
                raise ValueError("key_file: cert_file is not set; set it too")
            if self.bearer_token_file and "authorization" in map(str.lower, self.headers):
                raise ValueError("bearer_token_file: the header Authorization is set too; remove one of them")

    def __init__(self, config: Config, env: Mapping[str, str] | None = None) -> None:
        """Take the environment; raise ConfigError for an invalid address in it."""
        self._config, bounds = config, BOUNDS[config.flavour]
        self._settings = settings_of(config, os.environ if env is None else env)
        self._flavour = FLAVOURS[config.flavour](config, self._settings)
        self._url = self._settings.url
        self._encoder = OtlpEncoder(
            self._settings.resource,
            gauges=config.gauges,
            delta=self._settings.is_delta,
            on_points=config.machine_attributes,
            needs_start=config.flavour == "google",
        )
        marks_ended = config.flavour == "plain" if config.mark_ended is None else config.mark_ended
        self._client: HttpClient | None = None
        self._warned = False
        self._ignored = self._settings.ignored
        parts = 3 if config.gauges == "mean-min-max" else 1
        most = bounds.points // parts
        self._room = most // ROOM if marks_ended else 0
        self.limits = Limits(
            max_points=most - self._room,
            max_bytes=bounds.bytes * 9 // 10,
            max_age=bounds.age and bounds.age - 3600.0,  # an hour is left for delivery
            increases=self._settings.is_delta,
            max_series=bounds.series,
        )

    def open(self) -> None:
        self.close()
        ignored, self._ignored = self._ignored, {}
        for variable, fault in ignored.items():
            log.warning("otlp: %s is ignored: %s", variable, fault)
        try:
            self._url = self._flavour.open()
        except ModuleNotFoundError as missing:
            raise Refused(f"{missing}; {get_extra(self._config.flavour)}") from missing
        self._encoder.given |= self._flavour.resource()
        self._client = HttpClient(
            self._url, timeout=self._settings.timeout, max_bytes=MAX_ANSWER, tls=self._settings.tls
        )

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Send the batch; return some of its points, as many as the receiver rejected, since it names none."""
        assert self._client is not None
        self._flavour.check(batch[0].dims, self._encoder.given)
        ended = self._encoder.ended(self._room) if self._room else []
        body = self._encoder.encode(batch, ended)
        headers = {"Content-Type": PROTOBUF, "User-Agent": USER_AGENT}
        if self._settings.is_zipped:
            packer = zlib.compressobj(level=1, wbits=31)
            body = packer.compress(body) + packer.flush()
            headers["Content-Encoding"] = "gzip"
        sent = self._flavour.headers(body, headers)
        answer = self._client.post(body, sent)
        try:
            partial = judge(answer, self._flavour.advice)
        except (Retryable, Refused, BadBatch) as problem:
            if isinstance(problem, BadBatch):
                self._encoder.forget(ended)  # the receiver may reject their points, which have no value
            raise self._flavour.judge(problem) from None
        self._flavour.worked()
        self._encoder.forget(ended)
        if partial.rejected:
            reason = f"by the receiver: {partial.words or 'it does not say why'}"
            return [Rejected(UNNAMED.point(batch[0].at, 0.0), reason)] * min(partial.rejected, len(batch))
        if partial.words and not self._warned:
            self._warned = True
            log.warning("otlp: the receiver says: %s", partial.words)
        return []

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        most = BOUNDS[self._config.flavour].labels
        count = len(labels(metric, dims, self._settings.resource, on_points=self._config.machine_attributes))
        return f"{count} labels, and the receiver takes {most}" if most and count > most else None

    def size(self, point: Datapoint) -> int:
        return self._encoder.size(point)

    def destination(self) -> Mapping[str, str]:
        """Return the flavour, the address without its query, and region or project if they are known."""
        config = self._config
        facts = {"flavour": config.flavour, "endpoint": self.shown or (LOCAL if config.flavour == "plain" else "")}
        if config.flavour == "plain" or self._client is None:
            facts = {key: value for key, value in facts.items() if value}
        return facts | ({"project": config.project} if config.project else {})

    @property
    def shown(self) -> str:
        """The address to show, without its query, which may hold a secret."""
        return self._url.partition("?")[0]

    def find(self, dims: Sequence[str]) -> str:
        """Return the place in CloudWatch's console; of other receivers the address, since no more is known."""
        return self._flavour.place or self.shown

    def describe(self) -> str:
        return f"protobuf to {self.shown or f'the endpoint of {self._config.flavour}'}"

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()


class CloudwatchOtlpSink(OtlpSink):
    """The sink otlp with CloudWatch as its receiver, for which one word is enough."""

    limits = Limits(max_points=BOUNDS["cloudwatch"].points)

    @dataclass(frozen=True, slots=True)
    class Config(OtlpSink.Config):
        """The options of [sinks.cloudwatch-otlp]; they are the same as of [sinks.otlp]."""

        flavour: Name = "cloudwatch"
        """The receiver: cloudwatch signs for AWS."""
