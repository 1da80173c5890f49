"""Logs faults of GPUs: a loss, a request for a recovery, an Xid error; and the end of the first two."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.jobs.verdict.callers import NOT_FIT

if TYPE_CHECKING:
    from chipwatch.jobs.verdict.rules import Reason

log = logging.getLogger(__name__)

STATE: Final = "gpu.state"
XID: Final = "gpu.xid"
RECOVERY: Final = "gpu.recovery_action"
DIMS: Final = {STATE: ("gpu",), RECOVERY: ("gpu",), XID: ("gpu", "xid", "action")}
"""Metric -> dimensions that it needs here; points of plugins may lack them."""
WELL: Final = {(STATE, 1), (RECOVERY, 0)}
"""Metric and value that end a fault: the GPU works, or it no longer asks for a recovery."""


def gpu_troubles(points: Iterable[Datapoint]) -> list[Reason]:
    """Return a reason for each GPU that is lost or asks for a recovery, from the points of a tick."""
    from chipwatch.jobs.verdict.rules import Seen, reasons

    gauges = (point for point in points if point.metric.name in {STATE, RECOVERY})
    return reasons(Seen(point.metric.name, point.dims, point.value) for point in gauges)


class DeviceLog:
    """Listens to the points of a run; logs each fault of a GPU at most once an hour, and its end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: returns seconds; it times the hour between repeats."""
        self._logger = cache(lambda about: ThrottledLogger(log, about, clock))
        self._troubles: dict[tuple[str, str], Reason] = {}
        """GPU and text of a fault -> the fault, while it lasts."""
        self._now: dict[tuple[str, Dimensions], float] = {}
        """The last value of each series."""

    def take(self, points: Sequence[Datapoint], _: int) -> None:
        """Log what is new in the points of a tick."""
        points = [p for p in points if p.metric.name in DIMS and all(key in p.dims for key in DIMS[p.metric.name])]
        before, self._now = self._now, self._now | {(point.metric.name, point.dims): point.value for point in points}
        if self._now == before and not self._troubles:  # as a rule
            return
        now = {(reason.about, reason.says): reason for reason in gpu_troubles(points)}
        for (about, says), reason in now.items():
            self._say(about, says, reason)
        well = {(_name(point), point.metric.name) for point in points if (point.metric.name, point.value) in WELL}
        for (about, says), reason in [*self._troubles.items()]:
            if (about, says) not in now and reason.shown_by and (about, reason.shown_by.metric) in well:
                del self._troubles[about, says]
                self._logger(about).log(logging.INFO, f"over: {says}", f"no longer {says}")
        self._troubles |= now
        for point in points:
            if point.metric.name == XID and point.value != before.get((XID, dims := point.dims), 0):
                from chipwatch.jobs.verdict.rules import Seen, reasons

                found = next(iter(reasons([Seen(XID, dims, point.value, rose=1)])), None)
                self._say(_name(point), f"had Xid {dims['xid']}", found, f"NVIDIA's catalogue: {dims['action']}")

    def _say(self, about: str, says: str, reason: Reason | None, note: str = "") -> None:
        """Log a fault of a GPU with what to do, or with `note` if nobody has to do anything."""
        level = logging.ERROR if reason and reason.severity == NOT_FIT else logging.WARNING
        self._logger(about).log(level, says, f"{says}. {reason.do}" if reason else f"{says} ({note})")


def _name(point: Datapoint) -> str:
    return f"gpu {point.dims['gpu']}"
