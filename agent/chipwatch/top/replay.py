"""Plays a recording as if it happened now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from chipwatch.recording.reader import Recording
from chipwatch.top.live import Frame

SEEKS: Final = {"left": -10.0, "right": 10.0, "[": -60.0, "]": 60.0}
"""Keys that wind, in seconds of the recording."""
SPEEDS: Final = {"<": 0.5, ">": 2.0}
LONGEST_PAUSE: Final = 5.0
"""Seconds that a gap in the recording lasts at most, at speed 1."""
BEFORE: Final = 600.0
"""Seconds of the recording that are read before a place that is wound back to, for the graphs."""


class Player:
    """Gives the frames of a recording at their times, or faster, or from another place on."""

    def __init__(self, recording: Recording) -> None:
        """Read the first frame; raise NotARecording."""
        self._recording = recording
        self._index: list[tuple[int, int]] = []
        """Time and place of each frame so far."""
        self._frames = recording.frames()
        self._next: Frame | None = None
        self._speed, self._due = 1.0, 0.0
        self._at = 0
        self._skip_to: int | None = None
        self.rewound = False
        """Whether the frames that come are older than those before; whoever takes them sets it back."""
        self._advance()

    def start(self) -> None:
        """Do nothing: the first frame has been read."""

    def new(self) -> Iterator[Frame]:
        """Yield the frames whose time has come."""
        while (frame := self._next) and (self._is_skipped(frame) or time.monotonic() >= self._due):
            self._at = frame.at
            self._advance()
            yield frame
        self._skip_to = None

    def press(self, key: str) -> None:
        """Wind, or change the speed."""
        if key in SPEEDS:
            self._speed = min(max(self._speed * SPEEDS[key], 1 / 8), 256.0)
            self._due = time.monotonic()
        elif key in SEEKS:
            self._wind(self._at + int(SEEKS[key] * 1e9))

    def due(self) -> float:
        """Return the seconds until the next frame."""
        return max(0.0, self._due - time.monotonic()) if self._next else 60.0

    def mode(self) -> str:
        """Return place, speed, whether it has ended, and whether lines are missing."""
        end = "" if self._next else ", ended"
        broken = ", some lines are broken" if self._recording.broken else ""
        return f"recording {self._recording.share:.0%}, x{self._speed:g}{end}{broken}"

    def close(self) -> None:
        """Close the file."""
        self._recording.close()

    def _is_skipped(self, frame: Frame) -> bool:
        return self._skip_to is not None and frame.at <= self._skip_to

    def _advance(self) -> None:
        read = next(self._frames, None)
        if read is None:
            self._next = None
            return
        place, at, points = read
        if not self._index or at > self._index[-1][0]:
            self._index.append((at, place))
        gap = (at - self._at) / 1e9 if self._at else 0.0
        self._due = time.monotonic() + min(max(gap, 0.0), LONGEST_PAUSE) / self._speed
        self._next = Frame(at, points)

    def _wind(self, to: int) -> None:
        """Go on from the time `to`; backwards that begins some minutes earlier, so that the graphs have a past."""
        if to < self._at:
            start = next((place for at, place in reversed(self._index) if at <= to - BEFORE * 1e9), self._index[0][1])
            self._frames, self.rewound = self._recording.frames(start), True
            self._advance()
            to = max(to, self._index[0][0])
        self._skip_to = to
