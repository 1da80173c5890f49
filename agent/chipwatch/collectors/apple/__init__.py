"""
Collects metrics of the GPU of Apple silicon, by the programs macmon or ioreg; docs/apple.md.

It was tested with programs that print what others have published of macmon and ioreg, but never on a Mac.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.collectors.apple.source import IOREG, Ioreg, Macmon
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.gpu_metrics import CLOCK_GRAPHICS, MEMORY_USED, POWER, TEMPERATURE, UNIFIED, UTILIZATION
from chipwatch.host.supervised_process import find_program

GPU: Final = Dimensions(gpu="0")
"""A Mac has one GPU; an Ultra's two dies count as one."""
MACMON: Final = Path("/opt/homebrew/bin/macmon"), Path("/usr/local/bin/macmon")


class AppleCollector(Collector):
    """Reads the GPU of Apple silicon; its power limit is unknown, so gpu.power.utilization is absent."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where macmon is, and how often it prints."""

        path: Path | None = None
        """The program macmon; searched in PATH and Homebrew's folders unless set."""
        interval: float = 5.0
        """Seconds between two ticks, from --interval; macmon's means are over this period."""

    metrics = (UTILIZATION, MEMORY_USED, UNIFIED, TEMPERATURE, POWER, CLOCK_GRAPHICS)

    def __init__(
        self, config: Config, *, clock: Callable[[], float] = time.monotonic, ioreg: Sequence[str | Path] = IOREG
    ) -> None:
        """`clock`: returns monotonic seconds; `ioreg`: command that prints the statistics of the GPU's driver."""
        self._config, self._clock, self._ioreg = config, clock, ioreg
        self._source: Macmon | Ioreg | None = None

    def open(self, given: Given) -> None:
        self.close()
        if sys.platform != "darwin" and self._config.path is None:
            raise Unavailable(f"no Apple GPU: this is {sys.platform}, not macOS")
        self._source = self._find()
        try:
            self._source.open()
        except Unavailable:
            self.close()
            raise

    def collect(self, at: int) -> Iterator[Datapoint]:
        assert self._source is not None
        problems: list[str] = []
        readings = self._source.read(problems)
        for metric, value in (readings | ({UNIFIED: 1} if MEMORY_USED in readings else {})).items():
            yield metric.point(at, value, GPU)
        if problems:
            raise PartlyCollected(list(dict.fromkeys(problems)))

    def describe(self) -> str:
        return self._source.description if self._source else ""

    def close(self) -> None:
        source, self._source = self._source, None
        if source:
            source.close()

    def _find(self) -> Macmon | Ioreg:
        config = self._config
        try:
            return Macmon(find_program("macmon", config.path, *MACMON), config.interval, self._clock)
        except Unavailable as absent:
            if config.path is not None:
                raise
            if platform.machine() != "arm64":
                raise Unavailable(f"{absent}; and no Apple silicon: this is {platform.machine()}") from None
        return Ioreg(self._ioreg)
