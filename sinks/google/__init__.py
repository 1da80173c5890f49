"""Google Cloud Monitoring, by CreateTimeSeries."""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from agent.datapoint import HIDDEN, Datapoint, Dimensions, Metric
from agent.errors import Refused, Retryable
from agent.net.trusted_clock import TRUSTED_CLOCK
from agent.sink import Limits, Rejected, Sink
from sinks.google.history import SPACING, History
from sinks.google.rules import DOMAINS, WORDS, metric_type, series_fault

if TYPE_CHECKING:
    from sinks.google.answers import Answer
    from sinks.google.client import Client
    from sinks.google.wire import Encoder, Sent

log = logging.getLogger(__name__)

PROJECT: Final = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,20}")
"""A project's id, optionally with an organisation's domain, or its number."""
PREFIX: Final = re.compile(r"[a-z.]+/([A-Za-z][A-Za-z0-9_]*/)*")
MOST_UNSURE: Final = 20_000
"""Limit of points remembered as perhaps stored: a hundred requests."""
REWARN: Final = 3600.0
"""Seconds between two warnings about another writer."""


class GoogleSink(Sink):
    """
    Sends each batch by CreateTimeSeries, through the official client: one point for each series in a request.

    Gauges are GAUGE, counters CUMULATIVE with a start time that is kept over restarts; every value is a DOUBLE.
    """

    limits = Limits(
        max_points=200,
        max_age=24 * 3600.0,  # the service's 25 hours, less an hour for delivery
        one_per_series=True,
        max_series=500,
        spacing=SPACING / 1e9,
    )
    hints = WORDS
    needs = ("google.cloud.monitoring_v3",)

    @dataclass(frozen=True, slots=True)
    class Config:
        """
        What may be set. Credentials are google-auth's to find: GOOGLE_APPLICATION_CREDENTIALS, gcloud's, the machine's.

        The proxies of HTTPS_PROXY and NO_PROXY hold.
        """

        project: str | None = None
        """Project to write to; unless set: GOOGLE_CLOUD_PROJECT, the credentials', the machine's own."""
        prefix: str = "custom.googleapis.com/chipwatch/"
        """What the metrics' types begin with."""
        resource: Literal[
            "auto", "gce_instance", "k8s_container", "k8s_node", "k8s_pod",
            "generic_node", "generic_task", "aws_ec2_instance",
        ] = "auto"  # fmt: skip
        """Monitored resource; auto chooses by what this machine is."""
        location: str = "global"
        """Region or zone that generic_node and generic_task name."""
        namespace: str = "chipwatch"
        """Namespace that generic_node and generic_task name."""
        statistic: Mapping[str, Literal["mean", "max", "min", "last"]] = field(default_factory=dict)
        """Value sent for a gauge's window, by glob of metric names; the first match counts, the default is mean."""
        endpoint: str | None = None
        """HOST[:PORT] to send to instead of monitoring.googleapis.com."""
        insecure: bool = False
        """Send without TLS and without credentials; to a loopback address only."""
        timeout: float = 12.0
        """Seconds to wait for an answer."""

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid value."""
            if self.project is not None and not PROJECT.fullmatch(self.project):
                raise ValueError(f"project: {self.project!r} is no project's id")
            if not (self.prefix.startswith(DOMAINS) and PREFIX.fullmatch(self.prefix)):
                raise ValueError(f"prefix: expected {' or '.join(DOMAINS)} and parts that end with /")
            if self.insecure and not is_loopback(self.endpoint or ""):
                raise ValueError("insecure: only with an endpoint on a loopback address, such as 127.0.0.1:8080")
            if not self.timeout > 0:
                raise ValueError("timeout: expected a number above 0")

    def __init__(
        self, config: Config, clock: Callable[[], int] = time.time_ns, steady: Callable[[], int | None] = TRUSTED_CLOCK
    ) -> None:
        """Take the wall clock (ns since the epoch), and the trusted clock that judges the age of points."""
        self._config, self._steady = config, steady
        self._history = History()
        self._encoder: Encoder | None = None
        self._client: Client | None = None
        self._born = clock()
        self._unsure: set[tuple[bytes, int]] = set()
        self._warned: float | None = None

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why Cloud Monitoring rejects every point of this series, or None."""
        return series_fault(metric_type(self._config.prefix, metric.name), dims)

    def recall(self, state: bytes) -> None:
        """Restore the last sent point of each series."""
        self._history.load(state)

    def state(self) -> bytes | None:
        """Return the last sent point of each series as bytes."""
        return self._history.dump()

    def open(self) -> None:
        """Find credentials and project; raise Refused if there are none, Retryable if their source does not answer."""
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it prints, a line a connection, its answers say too
        from sinks.google.client import Client  # noqa: PLC0415  # 50 MB, and only where this sink is at work
        from sinks.google.wire import Encoder  # noqa: PLC0415

        client = Client(self._config)
        client.connect()
        self._client = client
        self._encoder = Encoder(
            self._history,
            prefix=self._config.prefix,
            resource=self._config.resource,
            location=self._config.location,
            namespace=self._config.namespace,
            statistic=self._config.statistic,
        )

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Send the batch; return the points that Cloud Monitoring rejects."""
        assert self._client is not None
        assert self._encoder is not None
        project = self._client.project or batch[0].dims.get(f"{HIDDEN}gcp_project", "")
        if not project:
            raise Refused("no project: give it with --project or GOOGLE_CLOUD_PROJECT; the credentials name none")
        sent, rejected = self._encoder.encode(batch, self._steady())
        if not sent:
            return rejected
        answer = self._client.send(project, sent)
        refused = {} if answer is None else self._judge(answer, sent, project)
        for n, one in enumerate(sent):
            if n in refused:
                rejected.append(Rejected(one.point, refused[n]))
            else:
                self._history.keep(one.series.digest, one.last)
        self._unsure.difference_update([one.name for one in sent])
        return rejected

    def _judge(self, answer: Answer, sent: Sequence[Sent], project: str) -> dict[int, str]:
        """Return the rejected points, each with its reason; raise if the batch must be retried or is refused."""
        from sinks.google.answers import DESCRIBED, ORDER, RESET, RESOURCE  # noqa: PLC0415  # loaded by now

        found = answer.refused()
        if found is None:
            if answer.perhaps_stored:
                self._doubt(sent)
            raise answer.blame(project)
        if described := [sent[n].series for n, reason in found.items() if reason == DESCRIBED and sent[n].is_described]:
            assert self._encoder is not None
            self._encoder.undescribe(described)
            self._doubt([one for n, one in enumerate(sent) if n not in found])
            raise Retryable("Cloud Monitoring has another unit or description of a metric", after=0.1)
        if reset := [sent[n] for n, reason in found.items() if reason == RESET and not sent[n].last.begins_here]:
            for one in reset:
                self._history.disown(one.series.digest, one.last)
            self._doubt([one for n, one in enumerate(sent) if n not in found])
            raise Retryable("Cloud Monitoring knows a later start of a counter", after=0.1)
        if {*found.values()} == {RESOURCE} and len(found) == len(sent):
            of = sent[0].message.resource
            raise Refused(
                f"Cloud Monitoring takes nothing of the resource {of.type} {dict(of.labels)}: {answer.message[:200]};"
                " choose another: sinks.google.resource, sinks.google.location"
            )
        refused: dict[int, str] = {}
        for n, reason in found.items():
            one = sent[n]
            if reason not in ORDER:
                refused[n] = reason
            elif one.name not in self._unsure and one.point.at >= self._born:
                refused[n] = f"{reason}: another writer of the same series"
                self._tell_of_another_writer(one)
                self._history.begin_anew(one.series.digest, one.last)
        return refused

    def _doubt(self, sent: Sequence[Sent]) -> None:
        """Remember that these points may have been stored."""
        if len(self._unsure) > MOST_UNSURE:
            self._unsure.clear()
        self._unsure.update([one.name for one in sent])

    def _tell_of_another_writer(self, one: Sent) -> None:
        """Log, at most every REWARN, which series another writer sends too."""
        now = time.monotonic()
        if self._warned is not None and now - self._warned < REWARN:
            return
        self._warned = now
        message = one.message
        log.error(
            "sink google: somebody else writes the series %s %s of %s %s: is there a second agent under this identity,"
            " a copy of this machine, or a spool that was deleted? Give each writer its own: --dim writer=NAME, or"
            " sinks.google.resource",
            message.metric.type,
            dict(message.metric.labels),
            message.resource.type,
            dict(message.resource.labels),
        )

    def destination(self) -> Mapping[str, str]:
        """Return the project if it is known, the prefix and the endpoint."""
        config = self._config
        if self._client:
            project = self._client.project or "the machine's"
        else:
            names = () if config.insecure else ("GOOGLE_CLOUD_PROJECT", "GCLOUD_PROJECT")
            project = config.project or next(filter(None, map(os.environ.get, names)), "")
        found = {"prefix": config.prefix, "endpoint": config.endpoint or ""}
        return found | ({"project": project} if project else {})

    def find(self, dims: Sequence[str]) -> str:
        """Return where Metrics Explorer has the metrics."""
        del dims
        return f"Monitoring > Metrics Explorer > {self._config.prefix}"

    def describe(self) -> str:
        """Return the project, the prefix and the endpoint."""
        project = self._client.project if self._client else self._config.project
        at = f" at {self._config.endpoint}" if self._config.endpoint else ""
        return f"project {project or 'of the machine'}, {self._config.prefix}*{at}"

    def close(self) -> None:
        """Close the channel."""
        if self._client is not None:
            self._client.close()


def is_loopback(endpoint: str) -> bool:
    """Return whether HOST[:PORT] is on this machine."""
    host = endpoint.rpartition(":")[0] if re.search(r":\d+$", endpoint) else endpoint
    host = host.strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
