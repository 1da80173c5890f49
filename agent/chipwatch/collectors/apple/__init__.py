"""
Collects metrics of the GPU of Apple silicon, by the program macmon or by a child process of the agent; docs/apple.md.

It was tested with a fake macmon that prints documented records, and a fake of macOS's functions, but never on a Mac.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.collectors.apple.source import METRICS, READER, HardwareReader, Macmon
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.gpu_metrics import MEMORY_USED, UNIFIED
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

    metrics = tuple(METRICS.values())

    def __init__(
        self, config: Config, *, clock: Callable[[], float] = time.monotonic, reader: Sequence[str | Path] | None = None
    ) -> None:
        """`clock`: returns monotonic seconds; `reader`: command to run instead of our hardware reader."""
        self._config, self._clock, self._reader = config, clock, reader
        self._source: Macmon | HardwareReader | None = None

    def open(self, given: Given) -> None:
        self.close()
        if sys.platform != "darwin" and self._config.path is None and self._reader is None:
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

    def _find(self) -> Macmon | HardwareReader:
        config = self._config
        try:
            return Macmon(find_program("macmon", config.path, *MACMON), config.interval, self._clock)
        except Unavailable as absent:
            if config.path is not None:
                raise
            if self._reader is None and platform.machine() != "arm64":
                raise Unavailable(f"{absent}; and no Apple silicon: this is {platform.machine()}") from None
        command = [*(self._reader or READER), str(max(1.0, config.interval))]
        return HardwareReader(command, config.interval, self._clock)
