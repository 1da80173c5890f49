"""The collector of the agent's own metrics, read from the counts that its parts keep."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Level, Metric, counter, gauge

if TYPE_CHECKING:
    from chipwatch.pipeline.clock import Pipeline
    from chipwatch.pipeline.derivation import Derivation
    from chipwatch.pipeline.route import Route
    from chipwatch.pipeline.sampler import Sampler

C, S, R = ("collector",), ("sink",), ("reason", "sink")
P = ("collector", "part")
D = ("processor",)
LEVEL: Final = Level.DETAILED
STATM: Final = Path("/proc/self/statm")
PAGE_SIZE: Final = os.sysconf("SC_PAGE_SIZE")
ZEROS: Final = 14.5
"""Least seconds between two readings that have counters without events, too: 15, by a tick that may be early."""

# fmt: off
SECONDS = gauge("agent.collector.seconds", "s", "How long the last reading took.", LEVEL, C)
OK = gauge("agent.collector.ok", "1", "1: the last reading came in time; 0: it failed or hangs.", LEVEL, C)
FAILED = counter("agent.collector.failed", "{reading}", "Readings that ended in a bug.", LEVEL, C)
PARTIAL = counter("agent.collector.partial", "{problem}", "Things that a reading could not read.", LEVEL, C)
SKIPPED = counter("agent.collector.skipped", "{tick}", "Ticks passed over while a reading hung.", LEVEL, C)
NOT_FINITE = counter("agent.collector.not_finite", "{point}", "Values dropped as NaN or infinite.", LEVEL, C)
MALFORMED = counter("agent.collector.malformed", "{point}", "Points left out for a part that is malformed.", LEVEL, P)
DERIVED_SECONDS = gauge("agent.processor.seconds", "s", "How long the last call took.", LEVEL, D)
DERIVED_FAILED = counter("agent.processor.failed", "{call}", "Calls that ended in a bug.", LEVEL, D)
DERIVED_LEFT_OUT = counter(
    "agent.processor.left_out", "{point}", "Derived points left out: malformed, NaN or infinite.", LEVEL, D
)
SENT = counter("agent.sink.sent", "{point}", "Points delivered.", LEVEL, S)
REJECTED = counter("agent.sink.rejected", "{point}", "Points that the far side will never take.", LEVEL, R)
DROPPED = counter("agent.sink.dropped", "{point}", "Points lost before they were sent.", LEVEL, R)
RETRIED = counter("agent.sink.retried", "{request}", "Requests that failed and are tried again.", LEVEL, S)
REFUSED = counter("agent.sink.refused", "{request}", "Requests refused for the set-up.", LEVEL, S)
SINK_SECONDS = gauge("agent.sink.seconds", "s", "How long the last request took.", LEVEL, S)
SPOOL_BYTES = gauge("agent.spool.bytes", "By", "Bytes that wait for the sink.", LEVEL, S)
SPOOL_OLDEST = gauge("agent.spool.oldest", "s", "Age of the oldest points that wait for the sink.", LEVEL, S)
SPOOL_FAULTS = counter("agent.spool.file.faults", "{fault}", "Times that the spool's file failed.", LEVEL, S)
MISSED = counter("agent.ticks.missed", "{tick}", "Ticks that came too late to be made.", LEVEL)
TICKS_FAILED = counter("agent.ticks.failed", "{failure}", "Parts of ticks that ended in a bug of the agent.", LEVEL)
INCIDENTS = counter("agent.incidents", "{incident}", "Incidents recorded, by cause.", dims=("cause",))
INCIDENT = gauge("incident.recorded", "1", "1 for two minutes: an incident is in this file.", dims=("cause", "file"))
RSS = gauge("agent.memory.rss", "By", "Resident memory of the agent.", LEVEL)
CPU = counter("agent.cpu", "s", "CPU time of the agent, all threads.", LEVEL)
# fmt: on


SHOWN: Final = 120.0
"""Seconds for which a file is named: longer than between two scrapes, as a rule."""


class Incident(NamedTuple):
    """An incident that is recorded."""

    cause: str
    file: str
    until: float
    """Monotonic seconds until which its file is named."""

    def point(self, at: int) -> Datapoint:
        """Return the point that names its file."""
        return INCIDENT.point(at, 1.0, _named(cause=self.cause, file=self.file))


class AgentCollector(Collector):
    """
    Always collected, whatever was chosen; of level `detailed`, so that a paid sink gets only the files of incidents.

    It reads the counts of the other parts without a lock: each is one integer with one writer.
    """

    metrics = (
        SECONDS, OK, FAILED, PARTIAL, SKIPPED, NOT_FINITE, MALFORMED, DERIVED_SECONDS, DERIVED_FAILED,
        DERIVED_LEFT_OUT, SENT, REJECTED, DROPPED, RETRIED, REFUSED, SINK_SECONDS, SPOOL_BYTES,
        SPOOL_OLDEST, SPOOL_FAULTS, MISSED, TICKS_FAILED, INCIDENTS, INCIDENT, RSS, CPU,
    )  # fmt: skip
    never_waits = True
    level: Level = Level.ALL
    events = frozenset(
        {
            *(FAILED.name, PARTIAL.name, SKIPPED.name, NOT_FINITE.name, DERIVED_FAILED.name, DERIVED_LEFT_OUT.name),
            *(RETRIED.name, REFUSED.name, SPOOL_FAULTS.name, MISSED.name, TICKS_FAILED.name),
        }
    )
    zeros: bool = True

    def __init__(self, start_time: int) -> None:
        """Count from `start_time` (ns since the epoch), when the agent began."""
        self._start_time, self._zeros_due, self._with_zeros = start_time, 0.0, True
        self._read_at = start_time
        """Time of the last reading."""
        self._starts: dict[tuple[str, Dimensions], int] = {}
        """Start times of the counters of events: the last reading without them, so that their increase is known."""
        self._pipeline: Pipeline | None = None
        self._before: dict[tuple[str, str], int] = {}
        self._incidents, self._files_due = 0, 0.0

    def watch(self, pipeline: Pipeline) -> None:
        """Set whose counts to read. A spool's counts include earlier processes, whose share is subtracted."""
        self._pipeline = pipeline
        for route in pipeline.routes:
            self._before |= {(route.name, entry): n for entry, n in route.spool.ledger.ended().items()}

    def open(self) -> None:
        """Do nothing."""

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield the current counts; below level `detailed` incidents only."""
        pipeline = self._pipeline
        yield from self._of_incidents(pipeline.incidents[:] if pipeline else [], at)
        if self.level < LEVEL:
            self._read_at = at
            return
        now = time.monotonic()
        self._with_zeros = self.zeros and now >= self._zeros_due
        if self._with_zeros:
            self._zeros_due = now + ZEROS
        yield RSS.point(at, _resident_bytes())
        yield CPU.point(at, time.process_time(), start_time=self._start_time)
        missed, failed = (pipeline.missed, pipeline.failed) if pipeline else (0, 0)
        yield from self._counted(at, NO_DIMENSIONS, (MISSED, missed), (TICKS_FAILED, failed))
        if pipeline:
            for sampler in pipeline.samplers:
                if sampler.ok is not None:
                    yield from self._of_collector(sampler, at)
            for derivation in pipeline.derivations:
                yield from self._of_processor(derivation, at)
            for route in pipeline.routes:
                yield from self._of_sink(route, at)
        self._read_at = at

    def _counted(self, at: int, dims: Dimensions, *counts: tuple[Metric, int]) -> Iterator[Datapoint]:
        """Yield counters of events: the ones that had any, now and then all if a sink needs that."""
        for metric, count in counts:
            if count or self._with_zeros:
                start_time = self._starts.setdefault((metric.name, dims), min(self._read_at, at - 1))
                yield metric.point(at, count, dims, start_time=start_time)

    def _of_incidents(self, incidents: Sequence[Incident], at: int) -> Iterator[Datapoint]:
        """Yield the number by cause, and each 15 s the files of new ones."""
        for cause, number in Counter(incident.cause for incident in incidents).items():
            yield from self._counted(at, _named(cause=cause), (INCIDENTS, number))
        if len(incidents) > self._incidents or (incidents and time.monotonic() >= self._files_due):
            self._incidents, self._files_due = len(incidents), (now := time.monotonic()) + ZEROS
            yield from (incident.point(at) for incident in incidents if now < incident.until)

    def _of_collector(self, sampler: Sampler, at: int) -> Iterator[Datapoint]:
        dims = _named(collector=sampler.name)
        yield SECONDS.point(at, sampler.seconds, dims)
        yield OK.point(at, 1.0 if sampler.ok else 0.0, dims)
        failed, partial, skipped, lost = sampler.failed, sampler.partial, sampler.skipped, sampler.validation.not_finite
        if self._with_zeros or failed or partial or skipped or lost:
            counts = (FAILED, failed), (PARTIAL, partial), (SKIPPED, skipped), (NOT_FINITE, lost)
            yield from self._counted(at, dims, *counts)
        for part, points in tuple(sampler.validation.malformed.items()):
            yield from self._counted(at, _named(collector=sampler.name, part=part), (MALFORMED, points))

    def _of_processor(self, derivation: Derivation, at: int) -> Iterator[Datapoint]:
        if derivation.ok is None:
            return
        dims, checked = _named(processor=derivation.name), derivation.validation
        yield DERIVED_SECONDS.point(at, derivation.seconds, dims)
        left_out = checked.not_finite + checked.malformed.total()
        yield from self._counted(at, dims, (DERIVED_FAILED, derivation.failed), (DERIVED_LEFT_OUT, left_out))

    def _of_sink(self, route: Route, at: int) -> Iterator[Datapoint]:
        dims, worker, spool = _named(sink=route.name), route.worker, route.spool
        for entry, points in spool.ledger.ended().items():
            kind, _, reason = entry.partition(":")
            ours = points - self._before.get((route.name, entry), 0)
            if kind == "sent":
                yield SENT.point(at, ours, dims, start_time=self._start_time)
            elif reason:
                metric = REJECTED if kind == "rejected" else DROPPED
                yield from self._counted(at, _named(reason=reason, sink=route.name), (metric, ours))
        counts = (RETRIED, worker.health.counts["retried"]), (REFUSED, worker.health.counts["refused"])
        yield from self._counted(at, dims, *counts, (SPOOL_FAULTS, spool.file.faults.total()))
        yield SPOOL_BYTES.point(at, spool.bytes, dims)
        yield SINK_SECONDS.point(at, worker.seconds, dims)
        oldest = spool.oldest()
        yield SPOOL_OLDEST.point(at, 0.0 if oldest is None else max(0.0, (at - oldest) / 1e9), dims)

    def close(self) -> None:
        """Do nothing."""


@lru_cache(1000)
def _named(**pairs: str) -> Dimensions:
    return Dimensions(pairs)


def _resident_bytes() -> float:
    try:
        with STATM.open("rb", buffering=0) as file:
            return int(file.read(256).split()[1]) * PAGE_SIZE
    except FileNotFoundError:
        import psutil  # noqa: PLC0415  # 4 MB, only without /proc

        return float(psutil.Process().memory_info().rss)
