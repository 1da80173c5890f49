"""
The GPU of Apple silicon: what macmon tells of it or, where that is not installed, what macOS tells us; docs/apple.md.

Tested with a fake macmon that prints documented records, and with a fake of the functions of macOS: neither way has
ever run on a Mac.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from agent.collector import Collector
from agent.collectors.apple.macmon import PLACES, Macmon
from agent.collectors.apple.metrics import METRICS, Values
from agent.datapoint import Datapoint, Dimensions
from agent.errors import PartlyCollected, Unavailable
from agent.host.supervised_process import find

if TYPE_CHECKING:
    from agent.collectors.apple.foundation import Libraries

GPU: Final = Dimensions(gpu="0")
"""There is one: that of an Ultra, which has two dies, counts as one."""


class Source(Protocol):
    """Where the values come from."""

    def read(self, problems: list[str]) -> Values:
        """Return what is known now; add to `problems` what went wrong."""
        ...

    def close(self) -> None:
        """Release it."""


class AppleCollector(Collector):
    """Reads the GPU of Apple silicon; a limit of its power is not known of any chip, so there is no share of it."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where macmon is, and how often it prints."""

        path: Path | None = None
        """The program macmon; looked for in PATH and where Homebrew puts it unless set."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval: the period over which macmon takes its means."""

    metrics = METRICS

    def __init__(
        self, config: Config, *, clock: Callable[[], float] = time.monotonic, libraries: Libraries | None = None
    ) -> None:
        """Take the configuration, a clock (s) that never goes back, and libraries to be used in place of macOS's."""
        self._config, self._clock, self._libraries = config, clock, libraries
        self._source: Source | None = None

    def open(self) -> None:
        """Start macmon, or find the hardware; raise Unavailable where there is neither."""
        self.close()
        if sys.platform != "darwin" and self._config.path is None and self._libraries is None:
            raise Unavailable(f"no Apple GPU: this is {sys.platform}, not macOS")
        self._source = self._find()

    def collect(self, at: int) -> Iterator[Datapoint]:
        """Yield what is known now."""
        assert self._source is not None
        problems: list[str] = []
        for metric, value in self._source.read(problems):
            yield metric.point(at, value, GPU)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        """Say what is asked."""
        return str(self._source) if self._source else ""

    def close(self) -> None:
        """End macmon, or let go of the hardware."""
        source, self._source = self._source, None
        if source:
            source.close()

    def _find(self) -> Source:
        try:
            path = find("macmon", self._config.path, *PLACES)
        except Unavailable as absent:
            if self._config.path is not None:
                raise
            return self._hardware(str(absent))
        return Macmon(path, self._config.interval, self._clock)

    def _hardware(self, why: str) -> Source:
        """Return the hardware itself; raise Unavailable, with why there is no macmon."""
        libraries = self._libraries
        if libraries is None and platform.machine() != "arm64":
            raise Unavailable(f"{why}; and no Apple silicon: this is {platform.machine()}")
        from agent.collectors.apple.foundation import LIBRARIES  # noqa: PLC0415  # ctypes is for where it is needed
        from agent.collectors.apple.hardware import Hardware  # noqa: PLC0415

        try:
            return Hardware(libraries or LIBRARIES, self._clock)
        except Unavailable as problem:
            raise Unavailable(f"{why}; {problem}") from problem
