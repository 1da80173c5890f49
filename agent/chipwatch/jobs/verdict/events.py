"""The series that the verdict's rules look at: last values, increases of the last hour, changes of the last tick."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.window import Window
from chipwatch.jobs.verdict.expect import COUNTS
from chipwatch.jobs.verdict.rules import RULES, SIGNS, Seen

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
KEPT: Final = ANSWERED | SIGNS.keys()
SETTLED: Final = 60 * 10**9
"""Nanoseconds after the start; a gauge that appears later counts as a change."""
JOBS: Final = "job.gpus"
MOST_JOBS: Final = 3
"""Most jobs that an event names if its series has no job."""


class EventHistory:
    """The series that decide a verdict. The clock's thread calls `take`, another thread calls `answer`."""

    def __init__(self, samplers: Sequence[Sampler], born: int, interval: float = 0.0) -> None:
        """Start at `born` (ns since the epoch), with a tick every `interval` seconds."""
        self._samplers, self._window, self._last, self._born = samplers, Window(0, born=born), born, born
        self._stale = max(STALE, int(3e9 * interval))
        self._points: dict[tuple[str, Dimensions], Datapoint] = {}
        self._changed: list[Datapoint] = []
        """Points of the last tick: counters that grew, and gauges with a new value."""
        self._rises: dict[tuple[str, Dimensions], deque[tuple[int, float]]] = {}

    def take(self, points: Iterable[Datapoint], at: int) -> None:
        """Remember the points of a tick."""
        self._last, self._changed = at, []
        for point in self._window.add([point for point in points if point.metric.name in KEPT], at):
            key = point.metric.name, point.dims
            before = self._points.get(key)
            if before is None and len(self._points) >= MAX_SERIES:
                continue
            self._points[key] = point
            if point.metric.kind is Kind.GAUGE:
                is_other = at >= self._born + SETTLED if before is None else point.value != before.value
            else:
                is_other = bool(point.increase)
            if is_other:
                self._changed.append(point)
            if point.increase:
                rises = self._rises.setdefault(key, deque(maxlen=MAX_RISES))
                earlier = rises.pop()[1] if rises and at // MINUTE == rises[-1][0] // MINUTE else 0.0
                rises.append((at, earlier + point.increase))

    def events(self, points: Iterable[Datapoint]) -> Iterator[tuple[int, str, str, dict[str, str]]]:
        """
        Yield the changes of the last tick that begin an incident: its time, its cause, a sentence, and dimensions.

        `points`: all of that tick, to name its jobs.
        """
        for point in self._changed:
            seen = Seen(point.metric.name, point.dims, point.value, rose=1.0)
            rule = next((rule for rule in SIGNS.get(seen.metric, ()) if rule.reason(seen)), None)
            reason = rule and rule.reason(seen)
            if rule and reason and rule.incident:
                jobs = sorted({other.dims.get("job", "") for other in points if other.metric.name == JOBS} - {""})
                job = point.dims.get("job") or ", ".join(jobs[:MOST_JOBS])
                yield point.at, rule.incident, f"{reason.about} {reason.says}", {"job": job} if job else {}

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
