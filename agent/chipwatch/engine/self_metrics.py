"""The collector of the agent's metrics about itself, such as failed readings and kept points."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric, counter, gauge
from chipwatch.contract.plugin import Given, Needs
from chipwatch.engine.notices import LEVEL, NOTICES, SENT
from chipwatch.host.pace import CALM, ZEROS, Pace

if TYPE_CHECKING:
    from chipwatch.engine.clock import Pipeline
    from chipwatch.engine.route import Route

STATM: Final = Path("/proc/self/statm")
PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")

# fmt: off
SECONDS = gauge("agent.collector.seconds", "s", "How long the last reading took.", LEVEL, ("collector",))
OK = gauge("agent.collector.ok", "1", "1: the last reading came in time; 0: it failed or hangs.", LEVEL, ("collector",))
DERIVED_SECONDS = gauge("agent.processor.seconds", "s", "How long the last call took.", LEVEL, ("processor",))
SINK_SECONDS = gauge("agent.sink.seconds", "s", "How long the last request took.", LEVEL, ("sink",))
SPOOL_BYTES = gauge("agent.spool.bytes", "By", "Bytes that wait for the sink.", LEVEL, ("sink",))
SPOOL_OLDEST = gauge("agent.spool.oldest", "s", "Age of the oldest points that wait for the sink.", LEVEL, ("sink",))
INCIDENT = gauge("incident.recorded", "1", "1 for two minutes: an incident is in this file.", dims=("cause", "file"))
RSS = gauge("agent.memory.rss", "By", "Resident memory of the agent.", LEVEL)
CPU = counter("agent.cpu", "s", "CPU time of the agent, all threads.", LEVEL)
# fmt: on


SHOWN: Final = 120.0
"""Seconds for which a point names the file of an incident; a scraper usually comes sooner."""


class Incident(NamedTuple):
    """An incident that was recorded in a file."""

    cause: str
    file: str
    until: float
    """Time (monotonic seconds) until which a point names its file."""

    def point(self, at: int) -> Datapoint:
        """Return a point that names the file."""
        return INCIDENT.point(at, 1.0, _named(cause=self.cause, file=self.file))


def counters_of(kind: str) -> dict[Metric, None]:
    """Return the counters of one kind of part; a dict, for its order."""
    return dict.fromkeys(notice.metric for notice in NOTICES[kind].values() if notice.metric)


def is_steady(metric: Metric, kind: str) -> bool:
    """Return whether each part has exactly one series of this counter, so that it can be yielded before an event."""
    return metric is not SENT and {*metric.dims} <= {kind}


class AgentCollector(Collector):
    """
    Yields the agent's own metrics. It always runs, whatever collectors the user chose.

    Only incidents are of level basic. It reads the counts of the other parts without a lock: each is one integer that
    one thread writes.
    """

    metrics = (
        SECONDS, OK, *counters_of("collector"), DERIVED_SECONDS, *counters_of("processor"), *counters_of("sink"),
        SINK_SECONDS, SPOOL_BYTES, SPOOL_OLDEST, *counters_of("tick"), *counters_of("incident"), INCIDENT, RSS, CPU,
    )  # fmt: skip
    every = CALM
    needs = Needs(
        level=True,
        events=frozenset(metric.name for kind in NOTICES for metric in counters_of(kind) if is_steady(metric, kind)),
    )

    def __init__(self, start_time: int) -> None:
        """Take the agent's start (ns since the epoch)."""
        self._start_time, self._zeros_pace, self._with_zeros = start_time, Pace(ZEROS), True
        self._given = Given()
        self._read_at, self._cpu_before = start_time, time.process_time()
        """Time of the last reading (ns since the epoch), and CPU time (s) of this process before the start."""
        self._starts: dict[tuple[str, Dimensions], int] = {}
        """Start time of each counter of events: the last reading before its first event. So its increase is known."""
        self._pipeline: Pipeline | None = None
        self._before: dict[tuple[str, str], int] = {}
        self._incidents, self._files_due = 0, 0.0

    def watch(self, pipeline: Pipeline) -> None:
        """Set the pipeline whose counts to read. Counts in spools include earlier runs, whose share is subtracted."""
        self._pipeline = pipeline
        for route in pipeline.routes:
            self._before |= {(route.name, entry): n for entry, n in route.spool.ledger.ended().items()}

    def open(self, given: Given) -> None:
        self._given = given

    def waits(self) -> bool:
        return False

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the current counts; below level detailed, only incidents."""
        pipeline = self._pipeline
        if pipeline and pipeline.incidents:
            yield from self._of_incidents(pipeline.incidents[:], at)
        if self._given.level < LEVEL:
            self._read_at = at
            return
        self._with_zeros = self._given.zeros and self._zeros_pace.is_due(at)
        yield RSS.point(at, _resident_bytes())
        yield CPU.point(at, time.process_time() - self._cpu_before, start_time=self._start_time)
        if pipeline:
            yield from self._counted(at, "tick", "", {"missed": pipeline.missed, "failed": pipeline.failed})
            for sampler in pipeline.samplers:
                if sampler.ok is not None:
                    dims = _named(collector=sampler.name)
                    yield SECONDS.point(at, sampler.seconds, dims)
                    yield OK.point(at, 1.0 if sampler.ok else 0.0, dims)
                    yield from self._counted(at, "collector", sampler.name, sampler.counts)
            for derivation in pipeline.derivations:
                if derivation.ok is not None:
                    yield DERIVED_SECONDS.point(at, derivation.seconds, _named(processor=derivation.name))
                    yield from self._counted(at, "processor", derivation.name, derivation.counts)
            for route in pipeline.routes:
                yield from self._of_sink(route, at)
        self._read_at = at

    def _counted(self, at: int, kind: str, name: str, counts: Mapping[str, int]) -> Iterator[Datapoint]:
        """Yield the counters of a part that are not 0, and at times all of them if a sink needs zeros."""
        if not (counts or self._with_zeros):
            return
        totals: Counter[tuple[Metric, Dimensions]] = Counter()
        if self._with_zeros:
            steady = (metric for metric in counters_of(kind) if is_steady(metric, kind))
            totals.update({(metric, _dims(metric, kind, name)): 0 for metric in steady})
        for entry, count in [*counts.items()]:  # a copy, since another thread may add an entry
            notice, _, detail = entry.partition(":")
            if metric := NOTICES[kind][notice].metric:
                totals[metric, _dims(metric, kind, name, detail)] += count
        for (metric, dims), count in totals.items():
            if metric is SENT:
                yield metric.point(at, count, dims, start_time=self._start_time)
            elif count or self._with_zeros:
                start_time = self._starts.setdefault((metric.name, dims), min(self._read_at, at - 1))
                yield metric.point(at, count, dims, start_time=start_time)

    def _of_incidents(self, incidents: Sequence[Incident], at: int) -> Iterator[Datapoint]:
        """Yield the number of incidents by cause; every 15 s, and for a new incident, also points that name files."""
        causes = Counter(f"incident:{incident.cause}" for incident in incidents)
        yield from self._counted(at, "incident", "", causes)
        if len(incidents) > self._incidents or time.monotonic() >= self._files_due:
            self._incidents, self._files_due = len(incidents), (now := time.monotonic()) + ZEROS
            yield from (incident.point(at) for incident in incidents if now < incident.until)

    def _of_sink(self, route: Route, at: int) -> Iterator[Datapoint]:
        dims, worker, spool = _named(sink=route.name), route.worker, route.spool
        ended = {entry: n - self._before.get((route.name, entry), 0) for entry, n in spool.ledger.ended().items()}
        ended.pop("rejected:", None)  # rejected without a reason
        yield from self._counted(at, "sink", route.name, {**ended, **worker.health.counts, **spool.file.faults})
        yield SPOOL_BYTES.point(at, spool.bytes, dims)
        yield SINK_SECONDS.point(at, worker.seconds, dims)
        oldest = spool.oldest()
        yield SPOOL_OLDEST.point(at, 0.0 if oldest is None else max(0.0, (at - oldest) / 1e9), dims)


def _dims(metric: Metric, kind: str, name: str, detail: str = "") -> Dimensions:
    """Return the dimensions of a part's counter: the part's name, and the detail if the metric has one."""
    return _named(**{word: name if word == kind else detail for word in metric.dims})


@lru_cache(1000)
def _named(**pairs: str) -> Dimensions:
    return Dimensions(pairs)


def _resident_bytes() -> float:
    try:
        with STATM.open("rb", buffering=0) as file:
            return int(file.read(256).split()[1]) * PAGE_SIZE
    except FileNotFoundError:
        import psutil

        return float(psutil.Process().memory_info().rss)
