"""Imports the program once, with a wall clock that a life can set; lives are forked from this process."""

import time
from contextlib import suppress
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from types import SimpleNamespace

REAL, REAL_SECONDS = time.time_ns, time.time


class Clock:
    """The wall clock: it may go faster from some time ago on, and jump by the seconds that a file has."""

    began, ago, pace = 0, 0, 1
    ahead = Path("none")

    def __call__(self) -> int:
        """Return the time (ns since the epoch)."""
        try:
            jump = int(self.ahead.read_text() or 0)
        except OSError:
            jump = 0
        return self.began - self.ago + (REAL() - self.began) * self.pace + jump * 10**9


CLOCK = Clock()
time.time_ns, time.time = CLOCK, lambda: CLOCK() / 1e9

from tests.forked import LOADED, PLUGINS  # noqa: E402  # the clock comes before all that takes it as a default

for name in LOADED:
    import_module(name)
# gRPC adds a time-out to this clock, and compares the sum with the system's.
import_module("grpc._channel").time = SimpleNamespace(time=REAL_SECONDS, perf_counter=time.perf_counter)  # type: ignore[attr-defined]
for group in PLUGINS:
    for point in entry_points(group=group):
        with suppress(ImportError):
            point.load()
