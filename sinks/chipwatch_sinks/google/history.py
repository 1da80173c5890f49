"""The last sent point of each series: end times must increase, and a counter's start time outlives restarts."""

from __future__ import annotations

from math import isclose
from typing import Final, NamedTuple

import msgspec

from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch.contract.sink import SLACK

SPACING: Final = 10 * 10**9
"""Least nanoseconds between two points of a series: Google documents 5 s, but has refused 5.5 s."""
MOMENT: Final = 10**6
"""Shortest interval of a cumulative point: a millisecond, in nanoseconds."""
MAX_AGE: Final = 25 * 3600 * 10**9
"""Nanoseconds without a point after which a series is forgotten; Google rejects points of that age anyway."""
GAUGE: Final = Kind.GAUGE
NOT_NEWER: Final = "not newer than the last point of its series"
TOO_SOON: Final = "less than 10 s after the last point of its series"


class Last(NamedTuple):
    """A series' last point: its interval (ns), and for a counter its reading and the reading that counts as 0."""

    end: int
    start: int = 0
    start_time: int = 0
    value: float = 0.0
    base: float = 0.0

    @property
    def begins_here(self) -> bool:
        """True if the counter starts at this reading."""
        return self.start == self.end - MOMENT


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(dict[bytes, tuple[int, int, int, float, float]]).decode


def _next_of_counter(last: Last | None, end: int, point: Datapoint) -> Last:
    """Return the entry for a counter's next point, which ends at `end`."""
    start_time, value = point.start_time or 0, point.value
    if last is None or not last.start:
        if 0 < start_time < end and (last is None or start_time != last.start_time):
            return Last(end, min(_zero(point), end - MOMENT), start_time, value, _base(point))
        return Last(end, end - MOMENT, start_time, value, value)  # its start is unknown: it starts here
    # The counter was reset after the last point, whose end may have been moved to after the reset.
    if start_time > last.start_time and (start_time >= last.end or value < last.value):
        return Last(end, min(max(_zero(point), last.end + MOMENT), end - MOMENT), start_time, value, _base(point))
    if value < last.value:  # the counter was reset at an unknown time: it starts here
        return Last(end, last.end + MOMENT, start_time, value, value)
    return Last(end, last.start, last.start_time, value, last.base)


def _zero(point: Datapoint) -> int:
    """Return when a counter was last known to be 0; Google spreads its first value evenly from that start time on."""
    start_time, start = point.start_time or 0, point.window_start or 0
    rose_from_zero = point.increase is not None and isclose(point.increase, point.value)
    return max(start_time, start) if rose_from_zero and start < point.at else start_time


def _base(point: Datapoint) -> float:
    """Return a counter's reading at its start time: 0 unless it starts at its first reading."""
    start_time, start = point.start_time or 0, point.window_start
    if point.increase is not None and start is not None and start <= start_time:
        return point.value - point.increase  # below 0 if it rose before it was reset in the same window
    return point.value if start_time == point.at else 0.0


class SentHistory:
    """Digest of a series' name -> its last point; `keep` is called once a point is delivered."""

    def __init__(self) -> None:
        self._known: dict[bytes, Last] = {}
        self._is_changed = False

    def follow(self, series: bytes, point: Datapoint) -> Last | str:
        """Return the entry for `point`, the next one of its series, or why it is rejected."""
        last, end = self._known.get(series), point.at
        if last is not None and end < last.end + SPACING:
            if end < last.end + SPACING - int(SLACK * 1e9):
                return TOO_SOON if end > last.end else NOT_NEWER
            end = last.end + SPACING
        return Last(end) if point.metric.kind is GAUGE else _next_of_counter(last, end, point)

    def keep(self, series: bytes, last: Last) -> None:
        """Remember `last` as the last point of its series."""
        self._known[series] = last
        self._is_changed = True

    def restart(self, series: bytes, last: Last) -> None:
        """Restart a counter after its point `last`, which Google refused for its times."""
        if last.start:
            self.keep(series, last._replace(start=last.end, base=last.value))

    def restart_at_next(self, series: bytes, last: Last) -> None:
        """Let a counter begin again at its next reading: Google has a start time of it that is later than ours."""
        self._known[series] = Last(self._known.get(series, last._replace(end=0)).end, start_time=last.start_time)

    def dump(self) -> bytes | None:
        """Return all entries as bytes, or None if nothing has changed since the last call."""
        if not self._is_changed:
            return None
        self._is_changed = False
        horizon = max(last.end for last in self._known.values()) - MAX_AGE
        self._known = {series: last for series, last in self._known.items() if last.end > horizon}
        return _encode(self._known)

    def load(self, state: bytes) -> None:
        """Restore what `dump` returned; invalid data counts as empty."""
        try:
            self._known = {series: Last(*last) for series, last in _decode(state).items()}
        except msgspec.MsgspecError:
            self._known = {}
