"""Finds in the points of ticks what an incident begins with: Xid errors, kills for lack of memory, faults."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind
from chipwatch.recording.event import Event
from chipwatch.verdict.callers import NOT_FIT
from chipwatch.verdict.rules import RULES, Seen, reasons

KERNEL, XID, STATE, JOBS = "kernel.events", "gpu.xid", "gpu.state", "job.gpus"
OOM_KILLS: Final = ("container.memory.oom_kills", "job.oom_kills")
WATCHED: Final = frozenset({KERNEL, XID, *OOM_KILLS, *(rule.metric for rule in RULES)})
LOST: Final = "gpu-lost"
SETTLED: Final = 60 * 10**9
"""Nanoseconds after the start from which a gauge that was not there before counts as a change."""
MOST_SERIES: Final = 20_000


class Detector:
    """Remembers the last value of each series that may show a fault; used by one thread."""

    def __init__(self, born: int) -> None:
        """Report changes since `born` (ns since the epoch) only."""
        self._born = born
        self._last: dict[tuple[str, Dimensions], float] = {}

    def take(self, points: Iterable[Datapoint]) -> Iterator[Event]:
        """Yield the events of a tick."""
        changed = [point for point in points if point.metric.name in WATCHED and self._has_changed(point)]
        jobs: list[str] | None = None
        for point in changed:
            if (happened := _event(point)) is not None:
                if jobs is None:
                    jobs = sorted({other.dims.get("job", "") for other in points if other.metric.name == JOBS} - {""})
                if job := point.dims.get("job") or ", ".join(jobs[:3]):
                    happened.dims["job"] = job
                yield happened

    def _has_changed(self, point: Datapoint) -> bool:
        """Return whether a counter rose, or a gauge changed, since the last tick or since the start."""
        key, value = (point.metric.name, point.dims), point.value
        before = self._last.get(key)
        if before == value or (before is None and len(self._last) >= MOST_SERIES):
            return False
        self._last[key] = value
        if point.metric.kind is Kind.COUNTER:
            began = point.start_time is not None and point.start_time >= self._born
            return value > (before if before is not None else 0.0 if began else value)
        return before is not None or point.at >= self._born + SETTLED


def _event(point: Datapoint) -> Event | None:
    """Return the event that a changed point shows; None if nobody has to look."""
    metric, value, dims, at, *_ = point
    kind = dims.get("kind", "") if metric.name == KERNEL else ""
    shown = next(iter(reasons([Seen(metric.name, dims, value, rose=1.0)])), None)
    text = f"{shown.about} {shown.says}" if shown else f"kernel: {kind.replace('_', ' ')}"
    if metric.name == XID:
        return Event(at, "xid", f"gpu {dims.get('gpu')} had Xid {dims.get('xid')}")
    if kind.startswith("xid"):
        return Event(at, "xid", text)
    if kind == "oom_kill" or metric.name in OOM_KILLS:
        return Event(at, "oom", "a process was killed for lack of memory")
    if shown is None or shown.severity != NOT_FIT:
        return None
    return Event(at, LOST if metric.name == STATE or kind == "gpu_lost" else "not-fit", text)
