"""Intel GPUs, driven by i915 or xe: sysfs, hwmon and fdinfo, and xpu-smi; docs/intel.md tells what is read and how."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.collector import Collector
from agent.collectors.intel import card as sysfs
from agent.collectors.intel.card import Card, wanted
from agent.collectors.intel.metrics import METRICS, Readings
from agent.datapoint import Datapoint
from agent.errors import PartlyCollected, Unavailable
from agent.host.drm import cards
from agent.host.oneshot import Trouble

if TYPE_CHECKING:
    from agent.collectors.intel.share import Share
    from agent.collectors.intel.xpu_smi import XpuSmi

SECOND: Final = 1_000_000_000
SELDOM: Final = 9_500 * SECOND // 1000
"""So often the share of the tree is read: a little under 10 s, for ticks that come a little early."""
REFRESH: Final = 300 * SECOND
"""So often it is looked whether there are more cards, and whether one that was lost is back."""


class IntelCollector(Collector):
    """
    Reads every card of Intel's from files that are kept open; a card that sleeps is left asleep.

    What sysfs did not tell in a tick, xpu-smi may, where it is installed. `gpu` is the number that the kernel gave the
    card (/sys/class/drm/cardN), which no card of another vendor has, too.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where things are, and how often xpu-smi is run."""

        path: str | None = None
        """Folders to look for xpu-smi in, as in $PATH, which it is unless set."""
        pace: float = 15.0
        """Seconds between two runs of xpu-smi."""
        patience: float = 10.0
        """Seconds that xpu-smi may take before it is told to end."""
        pid: int | None = None
        """First process of the tree whose own share is told; filled from --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""

    metrics = METRICS

    def __init__(self, config: Config) -> None:
        """Take the configuration."""
        self._config, self._clock = config, time.monotonic_ns
        self._cards: dict[str, Card] = {}
        self._xpu: XpuSmi | None = None
        self._share: Share | None = None
        self._looks = self._looked = self._find_at = 0

    def open(self) -> None:
        """Find the cards; raise Unavailable where there is none."""
        self.close()
        self._looks = 0
        self._find(self._clock())
        if not self._cards:
            raise Unavailable(f"no card of Intel's with sensors in {self._config.sys / 'class/drm'}")
        if program := shutil.which("xpu-smi", path=self._config.path):
            from agent.collectors.intel.xpu_smi import XpuSmi  # noqa: PLC0415  only where it is installed

            self._xpu = XpuSmi(program, self._config.pace, self._config.patience)
        if self._config.pid is not None:
            from agent.collectors.intel.share import Share  # noqa: PLC0415  only where somebody is watched
            from agent.host.process_tree import ProcTree  # noqa: PLC0415  the same

            with suppress(ProcessLookupError):  # it has ended; the process collector says so
                self._share = Share(self._config.proc, ProcTree(self._config, self._config.pid, detailed=False))

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield what can be read now; rates from the second reading on, the share of the tree every ten seconds."""
        now = self._clock()
        if now >= self._find_at:
            self._find(now)
        awake = [card for card in self._cards.values() if not card.asleep()]
        problems: list[str] = []
        told: dict[str, Readings] = {}
        if self._xpu:
            try:
                told = dict(self._xpu.poll(now / SECOND, start=len(awake) == len(self._cards)))
            except Trouble as trouble:
                problems.append(str(trouble))
        for card in awake:
            readings = card.read(self._clock())
            # A counter is one source's or the other's, never both in turn: they need not begin at the same moment.
            further = told.get(card.slot, {})
            yield from wanted(self.level, card.points(at, card.completed(readings, further)))
            problems += card.problems
        if self._share and (self._looks < 2 or now - self._looked >= SELDOM):  # twice at first: rates need two
            self._looks, self._looked = self._looks + 1, now
            yield from self._share.read(at, self._cards.values())
        if problems:
            raise PartlyCollected(problems)

    def describe(self) -> str:
        """Say how many cards there are and by what they are read."""
        return f"{len(self._cards)} GPUs, {self._config.sys}{', xpu-smi' if self._xpu else ''}"

    def close(self) -> None:
        """Close the files, and end xpu-smi."""
        for card in self._cards.values():
            card.close()
        if self._xpu:
            self._xpu.close()
        self._cards, self._xpu, self._share = {}, None, None

    def _find(self, now: int) -> None:
        self._find_at = now + REFRESH
        for index, folder in cards(self._config.sys, sysfs.INTEL):
            known = self._cards.get(index)
            if known is None or known.lost:  # what came back has other files
                with suppress(LookupError):  # it has no sensors that we may read
                    self._cards[index] = Card(index, folder)
                    if known:
                        known.close()
