"""Sends points to Google Cloud Monitoring by its CreateTimeSeries request."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions, Metric
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.contract.trusted_clock import TRUSTED_CLOCK
from chipwatch.net import address
from chipwatch.net.faults import check_timeout
from chipwatch_sinks.google.history import SPACING, SentHistory
from chipwatch_sinks.google.rules import DOMAINS, WORDS, metric_type, series_fault

if TYPE_CHECKING:
    from chipwatch_sinks.google.client import GoogleClient, MonitoringError
    from chipwatch_sinks.google.wire import GoogleEncoder, SentPoint

log = logging.getLogger(__name__)

PROJECT: Final = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,20}")
"""A Google project: its id, which may begin with an organisation's domain, or its number."""
PREFIX: Final = re.compile(r"[a-z.]+/([A-Za-z][A-Za-z0-9_]*/)*")
MAX_UNSURE: Final = 20_000
"""Most points that are remembered as perhaps stored: a hundred requests."""


class GoogleSink(Sink):
    """
    Sends each batch by CreateTimeSeries through Google's client; a request has at most one point of each series.

    Gauges are sent as GAUGE, counters as CUMULATIVE with a start time that outlives restarts, all values as DOUBLE.
    """

    needs = Needs(state=True, words=WORDS, libraries=("google.cloud.monitoring_v3",))
    limits = Limits(
        max_points=200,
        max_age=24 * 3600.0,  # the service's 25 hours, less an hour for delivery
        one_per_series=True,
        max_series=500,
        zeros=False,
        spacing=SPACING / 1e9,
    )

    @dataclass(frozen=True, slots=True)
    class Config:
        """
        The options; google-auth finds credentials: GOOGLE_APPLICATION_CREDENTIALS, gcloud's, or the machine's.

        The proxy settings HTTPS_PROXY and NO_PROXY apply.
        """

        project: str | None = None
        """Project to write to; unless set: GOOGLE_CLOUD_PROJECT, the credentials', the machine's own."""
        prefix: str = "custom.googleapis.com/chipwatch/"
        """Start of every metric type."""
        resource: Literal[
            "auto", "gce_instance", "k8s_container", "k8s_node", "k8s_pod",
            "generic_node", "generic_task", "aws_ec2_instance",
        ] = "auto"  # fmt: skip
        """Monitored resource; auto chooses it by the platform of this machine."""
        location: str = "global"
        """Label `location` of generic_node and generic_task: a region or zone."""
        namespace: str = "chipwatch"
        """Label `namespace` of generic_node and generic_task."""
        statistic: Mapping[str, Literal["mean", "max", "min", "last"]] = field(default_factory=dict)
        """Value sent for a gauge's window, by glob of metric names; the first match wins, the default is mean."""
        endpoint: str | None = None
        """HOST[:PORT] to send to instead of monitoring.googleapis.com."""
        insecure: bool = False
        """Send without TLS and without credentials; only to a loopback address."""
        timeout: float = 12.0
        """Seconds to wait for an answer."""

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid value."""
            if self.project is not None and not PROJECT.fullmatch(self.project):
                raise ValueError(f"project: expected a project id or number, got {self.project!r}")
            if not (self.prefix.startswith(DOMAINS) and PREFIX.fullmatch(self.prefix)):
                allowed = " or ".join(DOMAINS)
                raise ValueError(f"prefix: expected {allowed} and names that each end with /, got {self.prefix!r}")
            if self.insecure and not is_loopback(self.endpoint or ""):
                raise ValueError("insecure: expected an endpoint on a loopback address, such as 127.0.0.1:8080")
            check_timeout(self.timeout)

    def __init__(
        self, config: Config, clock: Callable[[], int] = time.time_ns, steady: Callable[[], int | None] = TRUSTED_CLOCK
    ) -> None:
        """Take the wall clock (ns since the epoch), and the checked clock by which a point's age is judged."""
        self._config, self._steady = config, steady
        self._history = SentHistory()
        self._encoder: GoogleEncoder
        self._client: GoogleClient | None = None
        self._started_at = clock()
        self._unsure: set[tuple[bytes, int]] = set()
        self._logger = ThrottledLogger(log, "google")

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        return series_fault(metric_type(self._config.prefix, metric.name), dims)

    def restore(self, saved: bytes) -> None:
        self._history.load(saved)

    def saved(self) -> bytes | None:
        return self._history.dump()

    def open(self) -> None:
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # else gRPC prints errors that its answers contain too
        from chipwatch_sinks.google.client import GoogleClient
        from chipwatch_sinks.google.wire import GoogleEncoder

        client = GoogleClient(self._config)
        client.connect()
        self._client = client
        self._encoder = GoogleEncoder(self._history, self._config)

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        assert self._client is not None
        if not (project := self._client.project or batch[0].dims.get(f"{HIDDEN}gcp_project", "")):
            raise Refused("no Google Cloud project: set --project or GOOGLE_CLOUD_PROJECT; the credentials name none")
        sent, rejected = self._encoder.encode(batch, self._steady())
        if not sent:
            return rejected
        answer = self._client.send(project, sent)
        refused = {} if answer is None else self._classify(answer, sent, project)
        for n, item in enumerate(sent):
            if n in refused:
                rejected.append(Rejected(item.point, refused[n]))
            else:
                self._history.keep(item.series.digest, item.last)
        self._unsure.difference_update([item.name for item in sent])
        return rejected

    def _classify(self, answer: MonitoringError, sent: Sequence[SentPoint], project: str) -> dict[int, str]:
        """Return the points that an error rejects, with reasons; raise if all are refused or to be retried."""
        from chipwatch_sinks.google.client import DESCRIBED, FREQUENT, ORDER, RESET, RESOURCE

        if (reasons := answer.refused()) is None:
            if answer.perhaps_stored:
                self._note_unsure(sent)
            raise answer.blame(project)
        stored = [item for n, item in enumerate(sent) if n not in reasons]
        differing = [sent[n] for n, reason in reasons.items() if reason == DESCRIBED]
        if described := [item.series for item in differing if item.message.unit or item.message.description]:
            self._encoder.undescribe(described)
            self._note_unsure(stored)
            raise Retryable("Cloud Monitoring has another unit or description for a metric", after=0.1)
        if reset := [sent[n] for n, reason in reasons.items() if reason == RESET and not sent[n].last.begins_here]:
            for item in reset:
                self._history.restart_at_next(item.series.digest, item.last)
            self._note_unsure(stored)
            raise Retryable("Cloud Monitoring has a later start time for a counter", after=0.1)
        if {*reasons.values()} == {RESOURCE} and not stored:
            resource = sent[0].message.resource
            raise Refused(
                "Cloud Monitoring rejects every point of the monitored resource"
                f" {resource.type} {dict(resource.labels)}; set sinks.google.resource or sinks.google.location"
                f" ({answer.message[:200]})"
            )
        # This process, or an earlier one that was killed, may have sent a point that is out of order.
        refused: dict[int, str] = {}
        for n, reason in reasons.items():
            item = sent[n]
            if reason not in ORDER:
                refused[n] = reason
            elif reason == FREQUENT or not (item.name in self._unsure or item.point.at < self._started_at):
                refused[n] = f"{reason}: another writer of the same series"
                self._log_other_writer(item.message)
                self._history.restart(item.series.digest, item.last)
        return refused

    def _note_unsure(self, sent: Sequence[SentPoint]) -> None:
        """Remember that Google may have stored these points."""
        if len(self._unsure) > MAX_UNSURE:
            self._unsure.clear()
        self._unsure.update([one.name for one in sent])

    def _log_other_writer(self, series: Any) -> None:
        """Log, at most once an hour, which series another writer sends too."""
        metric, resource = series.metric, series.resource
        name = f"{metric.type} {dict(metric.labels)} of the resource {resource.type} {dict(resource.labels)}"
        self._logger.log(
            logging.ERROR,
            "another writer",
            f"another writer sends the series {name}: a second agent with this identity, a copy of this machine, or"
            " this agent before its spool was deleted. Give each writer its own series: --dim writer=NAME, or"
            " sinks.google.resource",
        )

    def destination(self) -> Mapping[str, str]:
        config, env = self._config, os.environ
        facts = {"prefix": config.prefix, "endpoint": config.endpoint or ""}
        if self._client:
            return facts | {"project": self._client.project or "the machine's"}
        given = "" if config.insecure else env.get("GOOGLE_CLOUD_PROJECT") or env.get("GCLOUD_PROJECT")
        project = config.project or given
        return facts | ({"project": project} if project else {})

    def find(self, dims: Sequence[str]) -> str:
        return f"Monitoring > Metrics Explorer > {self._config.prefix}"

    def describe(self) -> str:
        project = self._client.project if self._client else self._config.project
        at = f" at {self._config.endpoint}" if self._config.endpoint else ""
        return f"project {project or 'of the machine'}, {self._config.prefix}*{at}"

    def close(self) -> None:
        if self._client is not None:
            self._client.close()


def is_loopback(endpoint: str) -> bool:
    """Return True if HOST[:PORT] is on this machine."""
    return address.is_loopback(re.sub(r":\d+$", "", endpoint).strip("[]"))
