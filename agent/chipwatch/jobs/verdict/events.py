"""The series that the verdict's rules look at: last values, increases of the last hour, what began in the last tick."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.window import Window
from chipwatch.host.failures import Failure
from chipwatch.jobs.verdict.callers import NOT_FIT
from chipwatch.jobs.verdict.expect import COUNTS
from chipwatch.jobs.verdict.rules import LOGGED, RULES, SIGNS, TABLE, Seen, found

log = logging.getLogger(__name__)

MINUTE: Final = 60 * 10**9
HOUR: Final = 60 * MINUTE
STALE: Final = 120 * 10**9
"""Age (ns) at which a series is stale, or more with a long interval; collectors read at least every 15 s."""
MAX_SERIES: Final = 5000
MAX_RISES: Final = 120
"""Most increases that are kept of a series; all increases of a minute are one."""
WATCHED: Final = frozenset({rule.metric for rule in RULES}.union(*(metrics for metrics, _ in COUNTS.values())))

BESIDE: Final = {"rdma.rate": "rdma.state"}
"""Metric -> metric that is read together with it. If only the other has a newer value, the first cannot be read."""
ANSWERED: Final = WATCHED | {"cpu.utilization", "gpu.power"}
"""Metrics in an answer; the last two are for `chipwatch top --once`."""
KEPT: Final = ANSWERED | SIGNS
SETTLED: Final = 60 * 10**9
"""Nanoseconds after the start; a gauge that appears later counts as a change. What is older begins no incident."""
JOBS: Final = "job.gpus"
MOST_JOBS: Final = 3
"""Most jobs that an event names if its series has no job."""


class EventHistory:
    """The series that decide a verdict. The clock's thread calls `take`, another thread calls `answer`."""

    def __init__(self, samplers: Sequence[Sampler], born: int, interval: float = 0.0, past: Path | None = None) -> None:
        """Start at `born` (ns since the epoch), a tick every `interval` seconds; `past`: see `failures.file_of`."""
        self._samplers, self._window, self._last, self._born = samplers, Window(0, born=born), born, born
        self._stale, self._past = max(STALE, int(3e9 * interval)), past
        self._points: dict[tuple[str, Dimensions], Datapoint] = {}
        self._rises: dict[tuple[str, Dimensions], deque[tuple[int, float]]] = {}
        self._say = cache(lambda about: ThrottledLogger(log, about).log)
        self.begun: list[tuple[Failure, Path | None]] = []
        """Begins of incidents in the last tick, each with the file to note it in; None unless the machine failed."""

    def take(self, points: Sequence[Datapoint], at: int) -> None:
        """Remember the points of a tick, and see what began; log a fault of a GPU at most once an hour."""
        self._last, changed = at, []
        for point in self._window.add([point for point in points if point.metric.name in KEPT], at):
            key = point.metric.name, point.dims
            before = self._points.get(key)
            if before is None and len(self._points) >= MAX_SERIES:
                continue
            self._points[key] = point
            if key[0] in SIGNS and (point.increase or not before or point.value != before.value):
                is_dated = before or at >= self._born + SETTLED if point.metric.kind is Kind.GAUGE else point.increase
                rose = point.increase or (0.0 if before else point.value)
                changed.append(Seen(*key, point.value, rose, point.at if is_dated else None))
            if point.increase:
                rises = self._rises.setdefault(key, deque(maxlen=MAX_RISES))
                earlier = rises.pop()[1] if rises and at // MINUTE == rises[-1][0] // MINUTE else 0.0
                rises.append((at, earlier + point.increase))
        self.begun = []
        for place, (about, severity, says, do, seen) in found(changed):
            if seen and seen.metric in LOGGED:
                self._say(about)(logging.ERROR if severity == NOT_FIT else logging.WARNING, says, f"{says}. {do}")
            if seen and seen.last and (kind := TABLE[place].incident):
                jobs = sorted({other.dims.get("job", "") for other in points if other.metric.name == JOBS} - {""})
                job = seen.dims.get("job") or ", ".join(jobs[:MOST_JOBS])
                self.begun.append((Failure(seen.last, kind, f"{about} {says}", job), self._past if severity else None))

    def series(self, now: int, *, watched: bool = True) -> list[Seen]:
        """
        Return the series at `now` (ns since the epoch), with increases of the last hour.

        Without `watched`, nobody read the machine before the start: increases are then those since the start.
        """
        seconds = HOUR / 1e9 if watched else (self._last - self._born) / 1e9
        shown = {}
        for sampler in self._samplers:
            names = {metric.name for metric in sampler.collector.metrics} & WATCHED
            evidence = sampler.knowledge.evidence
            shown.update({(name, dims): why for dims, why in evidence.items() for name in names})
        series = []
        for key, point in self._points.copy().items():
            beside = self._points.get((BESIDE.get(key[0], ""), key[1]))
            if key[0] not in ANSWERED or now - point.at >= self._stale or (beside and beside.at > point.at):
                continue
            rises = [(at, rise) for at, rise in self._rises.get(key, deque()).copy() if now - at < HOUR]
            last, text = shown.get(key, (None, ""))
            last = last if last is not None and now - last < HOUR else rises[-1][0] if rises else None
            rose = sum(rise for _, rise in rises) if rises or (watched and last is None) else None
            series.append(Seen(key[0], dict(point.dims), point.value, rose, last, text, seconds))
        return series

    def answer(self, *, watched: bool = True) -> dict[str, Any]:
        """Return the series, and the state of the collectors that yield them."""
        now = time.time_ns()  # compared with the points' time
        stopped = {"state": "failing", "error": "the agent has read nothing for minutes"}
        stopped = stopped if now - self._last >= self._stale else {}
        return {
            "collectors": {
                sampler.name: {**_state(sampler), **stopped, "metrics": names}
                for sampler in self._samplers
                if (names := sorted({metric.name for metric in sampler.collector.metrics} & WATCHED))
            },
            "series": self.series(now, watched=watched),
        }


def _state(sampler: Sampler) -> Mapping[str, Any]:
    collector = sampler.collector
    if sampler.unavailable:
        flags = {word: getattr(sampler.absence, word, False) for word in ("is_counted", "is_silent")}
        return {"state": "absent", "error": sampler.unavailable, **flags}
    if sampler.ok:
        silent = collector.silent()
        known = {} if silent is None else {"silent": [(dict(dims), why) for dims, why in silent.items()]}
        return {"state": "ok", "error": sampler.trouble, **known}
    asked = collector.asking() if sampler.is_busy else ""
    hangs = f"{asked} did not answer in time" if asked else "no answer: a driver or a file server may hang"
    return {"state": "failing", "error": hangs if asked else sampler.trouble or hangs}
