"""Plays a recording on the screen. A recording does not say which devices a job held, so jobs are lines of text."""

from __future__ import annotations

import time
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.contract.datapoint import Datapoint
from chipwatch.engine.window import Window
from chipwatch.history.columns import Recorded
from chipwatch.show.top.live import Frame, Source

SEEKS: Final = {"left": -10.0, "right": 10.0, "[": -60.0, "]": 60.0}
"""Key that winds -> seconds of the recording."""
SPEEDS: Final = {"<": 0.5, ">": 2.0}
LONGEST_PAUSE: Final = 5.0
"""Most seconds that a gap in the recording lasts at speed 1."""
BEFORE: Final = 600.0
"""Seconds before the new position that are read when winding back, so that the graphs are filled."""
GPUS, GPU_TIME = "job.gpus", "job.gpu.time"
MOST: Final = 5
"""Most jobs that are listed."""
LONGEST: Final = 40
"""Most characters of a job's name."""
Job = tuple[str, ...]
"""A job: its name, user, partition and namespace."""


def frames(recorded: Recorded, start: int = 0) -> Iterator[Frame]:
    """Yield a frame for each tick of a recording, from the tick `start` on; counters have their increase."""
    window = Window(0, born=recorded.started, increases=True)
    for at, points in recorded.ticks(start):
        yield Frame(at, window.add(points, at))


class Player(Source):
    """A source that yields the frames of a recording in their time; keys change speed and position."""

    def __init__(self, recorded: Recorded) -> None:
        self._recorded, self._times = recorded, recorded.times()
        self._frames = frames(recorded)
        self._next: Frame | None = None
        self._speed, self._due = 1.0, 0.0
        self._at = 0
        self._skip_to: float = -inf
        """Time (ns) up to which frames are yielded without waiting."""
        self.rewound = False
        """True if the next frames are older than the last ones; the reader of the frames resets it."""
        self._advance()

    def new(self) -> Iterator[Frame]:
        """Yield the frames whose time has come."""
        while (frame := self._next) and (frame.at <= self._skip_to or time.monotonic() >= self._due):
            self._at = frame.at
            self._advance()
            yield frame
        self._skip_to = -inf

    def press(self, key: str) -> None:
        """Wind, or change the speed."""
        if key in SPEEDS:
            self._speed = min(max(self._speed * SPEEDS[key], 1 / 8), 256.0)
            self._due = time.monotonic()
        elif key in SEEKS:
            self._skip_to = self._at + SEEKS[key] * 1e9
            if SEEKS[key] < 0:
                self._wind_back()

    def due(self) -> float:
        """Return the seconds until the next frame."""
        return max(0.0, self._due - time.monotonic()) if self._next else 60.0

    def mode(self) -> str:
        """Return a text for the header: position, speed, and if the recording has ended or has broken lines."""
        share = bisect(self._times, self._next.at if self._next else inf) / len(self._times)
        end = "" if self._next else ", ended"
        broken = ", some lines are broken" if self._recorded.broken else ""
        return f"recording {share:.0%}, x{self._speed:g}{end}{broken}"

    def _advance(self) -> None:
        self._next = next(self._frames, None)
        if self._next:
            gap = (self._next.at - self._at) / 1e9 if self._at else 0.0
            self._due = time.monotonic() + min(max(gap, 0.0), LONGEST_PAUSE) / self._speed

    def _wind_back(self) -> None:
        """Go back to BEFORE seconds before the new position."""
        start = max(0, bisect(self._times, self._skip_to - BEFORE * 1e9) - 1)
        self._frames, self.rewound = frames(self._recorded, start), True
        self._advance()
        self._skip_to = max(self._skip_to, self._times[0])


def jobs(points: Iterable[Datapoint]) -> list[str]:
    """Return a line for each job of a tick: its accelerators, and their states since the tick before."""
    gpus: defaultdict[Job, float] = defaultdict(float)
    spent: defaultdict[Job, dict[str, float]] = defaultdict(dict)
    for point in points:
        if point.metric.name not in (GPUS, GPU_TIME) or "job" not in point.dims:
            continue
        job = tuple(point.dims.get(name, "") for name in ("job", "user", "partition", "namespace"))
        if point.metric.name == GPUS:
            gpus[job] += point.value
        elif point.increase:
            spent[job][point.dims.get("state", "")] = point.increase
    order = sorted(gpus, key=lambda job: (-gpus[job], job))
    more = [f"{len(order) - MOST} more jobs"] if len(order) > MOST else []
    return [_line(job, gpus[job], spent[job]) for job in order[:MOST]] + more


def _line(job: Job, gpus: float, spent: Mapping[str, float]) -> str:
    name, *more = (one_line(word, LONGEST) for word in job if word)
    total = sum(spent.values())
    most = sorted(spent.items(), key=lambda item: -item[1])[:3]
    states = "".join(f", {state} {100 * time / total:.0f} %" for state, time in most if total > 0)
    owner = f" ({', '.join(more)})" if more else ""
    number = f"{gpus:.2f}".rstrip("0").rstrip(".")
    return f"job {name}{owner}: {number} accelerator{'' if number == '1' else 's'}{states}"
