"""
The table of notices: all that can happen to a part of the agent, with its log level and the metric that counts it.

The log, the agent's own metrics and the lines at the end of a run come from this table.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping
from logging import ERROR, INFO, WARNING
from typing import Final, NamedTuple

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import Level, Metric, counter

LEVEL: Final = Level.DETAILED
"""Level of the agent's own metrics."""


class Notice(NamedTuple):
    """Something that happens to a part of the agent, or to points."""

    level: int
    """Level of its line in the log; WARNING and above mean that something is wrong."""
    metric: Metric | None = None
    """Counter of it, by the name of the part; a second dimension is a detail, such as a reason."""
    over: str = ""
    """The line of the log when it is over."""


def _of(kind: str, notice: str, unit: str, text: str, *detail: str) -> Metric:
    """Return the counter of a notice, for one kind of part."""
    return counter(f"agent.{kind}.{notice}", unit, text, LEVEL, tuple(sorted((kind, *detail))))


# fmt: off
C, D, S = "collector", "processor", "sink"
FAILED = _of(D, "failed", "{call}", "Calls that ended in a bug.")
LEFT_OUT = _of(D, "left_out", "{point}", "Derived points left out: malformed, NaN or infinite.")
SENT = _of(S, "sent", "{point}", "Points delivered.")
FAULTS = counter("agent.spool.file.faults", "{fault}", "Times that the spool's file failed.", LEVEL, (S,))
MISSED = counter("agent.ticks.missed", "{tick}", "Ticks that came too late to be made.", LEVEL)
TICK_FAILED = counter("agent.ticks.failed", "{failure}", "Parts of ticks that ended in a bug of the agent.", LEVEL)
INCIDENTS = counter("agent.incidents", "{incident}", "Incidents recorded, by cause.", dims=("cause",))
NOTICES: Final[Mapping[str, Mapping[str, Notice]]] = {
    C: {
        "failed": Notice(ERROR, _of(C, "failed", "{reading}", "Readings that ended in a bug.")),
        "partial": Notice(WARNING, _of(C, "partial", "{problem}", "Things that a reading could not read.")),
        "skipped": Notice(WARNING, _of(C, "skipped", "{tick}", "Ticks passed over while a reading hung."),
                         "its readings return again"),
        "not finite": Notice(WARNING, _of(C, "not_finite", "{point}", "Values dropped as NaN or infinite.")),
        "malformed": Notice(ERROR, _of(C, "malformed", "{point}", "Points left out for a part that is malformed.",
                                      "part")),
        "breach": Notice(WARNING),
    },
    D: {
        "failed": Notice(ERROR, FAILED),
        "partial": Notice(WARNING),
        "not finite": Notice(WARNING, LEFT_OUT),
        "malformed": Notice(ERROR, LEFT_OUT),
        "breach": Notice(WARNING),
    },
    S: {
        "collected": Notice(INFO),
        "sent": Notice(INFO, SENT),
        "rejected": Notice(ERROR, _of(S, "rejected", "{point}", "Points that the far side will never take.", "reason")),
        "dropped": Notice(ERROR, _of(S, "dropped", "{point}", "Points lost before they were sent.", "reason")),
        "kept": Notice(WARNING),
        "retried": Notice(WARNING, _of(S, "retried", "{request}", "Requests that failed and are tried again.")),
        "refused": Notice(ERROR, _of(S, "refused", "{request}", "Requests refused for the set-up.")),
        "bug": Notice(ERROR),
        "disk": Notice(WARNING, FAULTS, "points are written to disk again"),
        "busy": Notice(WARNING, FAULTS, "no other agent uses the spool any more"),
        "corrupt": Notice(ERROR, FAULTS),
        "unreadable": Notice(ERROR, FAULTS),
        "unwritable": Notice(ERROR, FAULTS),
    },
    "tick": {
        "missed": Notice(INFO, MISSED),
        "failed": Notice(ERROR, TICK_FAILED),
    },
    "incident": {"incident": Notice(WARNING, INCIDENTS)},
}
"""The notices of each kind of part. The names for a sink are also the entries of its ledger."""
# fmt: on


class Notices(ThrottledLogger):
    """Counts and logs the notices of one part of the agent. One thread writes, others read the counts."""

    def __init__(self, log: logging.Logger, kind: str, who: str) -> None:
        """Log the notices of a part of the given `kind` to `log`; each message begins with `who`."""
        super().__init__(log, who)
        self._notices = NOTICES[kind]
        self.counts: Counter[str] = Counter()
        """Number of notices by name, or by name and detail, such as `malformed:value`."""

    def tell(self, notice: str, text: str, *, cause: str = "", detail: str = "", traceback: bool = False) -> None:
        """Count a notice, and log `text` unless this cause was logged less than an hour ago."""
        self.counts[f"{notice}:{detail}" if detail else notice] += 1
        self.log(self._notices[notice].level, cause or notice, text, traceback=traceback)

    def over(self, notice: str) -> None:
        """Log that a notice is over, if it was logged."""
        self.resolved(notice, self._notices[notice].over)
