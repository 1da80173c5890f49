"""AMD GPUs, through sysfs, and AMD's own tools for the rest; docs/amd.md tells what is read and how."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from agent.collector import Collector
from agent.collectors.amd import card as sysfs
from agent.collectors.amd.card import Card
from agent.collectors.amd.metrics import METRICS, Readings, Teller
from agent.datapoint import Datapoint, Level
from agent.errors import PartlyCollected, Unavailable
from agent.host.oneshot import Trouble

if TYPE_CHECKING:
    from agent.collectors.amd.gaps import Gaps
    from agent.collectors.amd.library import Library
    from agent.collectors.amd.share import Share
    from agent.collectors.amd.tools import Cards, Program

SECOND: Final = 1_000_000_000
SELDOM: Final = 9_500 * SECOND // 1000
"""So often what is dear is read: a little under 10 s, for ticks that come a little early."""
REFRESH: Final = 300 * SECOND
"""So often it is looked whether there are more cards."""


class AmdCollector(Collector):
    """
    Reads every card that amdgpu drives from files that are kept open; a card that sleeps is left asleep.

    What they do not tell the library amdsmi, then amd-smi, then rocm-smi are asked for, seldom, and never waited for.
    `gpu` is the number that the kernel gave the card (/sys/class/drm/cardN), which no card of another vendor has, too.

    Where the kernel shows a driver and no card, the first of the three that tells of a card is kept; from there, `gpu`
    is the tool's own number.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where things are, and how often a tool is asked for what is missing."""

        path: str | None = None
        """Folders to look for amd-smi and rocm-smi in, as in $PATH; /opt/rocm/bin and $PATH unless set."""
        pace: float = 15.0
        """Seconds between two questions to a tool."""
        patience: float = 10.0
        """Seconds that an answer may take before a program is told to end."""
        pid: int | None = None
        """First process of the tree whose own share is told; filled from --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; filled from --root."""

    metrics = METRICS

    def __init__(self, config: Config) -> None:
        """Take the configuration."""
        self._config, self._clock = config, time.monotonic_ns
        self._cards: dict[str, Card] = {}
        self._tool: Library | Program | None = None
        self._library: Library | None = None
        self._gaps: Gaps | None = None
        self._tellers: dict[str, Teller] = {}
        self._told: Cards | None = None
        self._share: Share | None = None
        self._looks = self._looked = self._find_at = 0

    def open(self) -> None:
        """Find the cards; raise Unavailable where there is none."""
        self.close()
        self._looks = 0
        self._find(self._clock())
        if not self._cards:
            self._ask()
        elif self._config.pid is not None:
            from agent.collectors.amd.share import Share  # noqa: PLC0415  only where somebody is watched
            from agent.host.process_tree import ProcTree  # noqa: PLC0415  the same

            with suppress(ProcessLookupError):  # it has ended; the process collector says so
                self._share = Share(self._config, ProcTree(self._config, self._config.pid, detailed=False))

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield what can be read now; the share of the tree, errors and energy every ten seconds."""
        return self._from_tool(at) if self._tool else self._from_sysfs(at)

    def describe(self) -> str:
        """Say how many cards there are and by what they are read."""
        if self._tool:
            return f"{len(self._tellers)} GPUs, {self._tool}"
        asleep = sum(card.suspended for card in self._cards.values())
        tools = f", {filled}" if (filled := str(self._gaps or "")) else ""
        return f"{len(self._cards)} GPUs, {self._config.sys}{tools}{f', {asleep} asleep' if asleep else ''}"

    def close(self) -> None:
        """Close the files, or end the tool."""
        for card in self._cards.values():
            card.close()
        for tool in (self._tool, self._gaps):
            if tool:
                tool.close()
        self._cards, self._tool, self._gaps, self._share, self._told = {}, None, None, None, None

    def _find(self, now: int) -> None:
        self._find_at = now + REFRESH
        for index, device in sysfs.find(self._config.sys):
            known = self._cards.get(index)
            if known is None or known.lost:  # what came back has other files
                with suppress(LookupError):  # it has no sensors that we may read
                    self._cards[index] = Card(index, device, detailed=self.level >= Level.DETAILED)
                    if known:
                        known.close()

    def _from_sysfs(self, at: int) -> Iterable[Datapoint]:
        now = self._clock()
        if now >= self._find_at:
            self._find(now)
        seldom = self._looks < 2 or now - self._looked >= SELDOM  # twice at first: a rate needs two readings
        if seldom:
            self._looks, self._looked = self._looks + 1, now
        problems: list[str] = []
        read: list[tuple[Card, Readings]] = []
        for card in self._cards.values():
            readings = card.read(seldom=seldom)
            if readings is not None:
                read.append((card, readings))
                problems += card.problems.values()
        told = self._fill(now / SECOND)
        for card, readings in read:
            card.complete(readings, told.get(card.slot, {}))
            yield from card.teller.points(at, readings)
        if self._gaps:
            problems += self._gaps.problems
        if seldom and self._share:
            yield from self._share.read(at, self._cards.values())
        if problems:
            raise PartlyCollected(problems)

    def _fill(self, now: float) -> Mapping[str, Readings]:
        """Return what a tool has just told of what is missing; none is asked while a card sleeps: it would wake."""
        cards = self._cards.values()
        asleep = any(card.suspended for card in cards)
        missing = {card.slot: card.gaps for card in cards if card.gaps and card.slot and not asleep}
        if self._gaps is None:
            if not missing:
                return {}
            from agent.collectors.amd.gaps import Gaps  # noqa: PLC0415  only where something is missing

            self._gaps = Gaps(self._config, self._asked_library())
        return self._gaps.fill(missing, now)

    def _asked_library(self) -> Library:
        """Return the one library: a call of it that hangs costs one thread, and not one each time we are opened."""
        from agent.collectors.amd.library import Library  # noqa: PLC0415  only where it is needed

        self._library = self._library or Library(self._config)
        return self._library

    def _ask(self) -> None:
        """Take the first tool that tells of a card; raise Unavailable."""
        config = self._config
        signs = config.sys / "module/amdgpu", config.root / "dev/kfd", config.root / "dev/dxg"
        where = f"no card of AMD's in {config.sys / 'class/drm'}"
        if not any(sign.exists() for sign in signs):
            raise Unavailable(f"{where}; {', '.join(map(str, signs))} are absent")
        from agent.collectors.amd.tools import first, programs  # noqa: PLC0415  only where they are needed

        found: list[Library | Program] = [self._asked_library(), *programs(config)]
        said = []
        for tool in found:
            try:
                self._told = first(tool)
            except Trouble as trouble:
                tool.close()
                said.append(str(trouble))
            else:
                self._tool = tool
                self._tellers = {index: Teller(index) for index in self._told}
                return
        raise Unavailable(f"{where}; {'; '.join(said)}; programs found: {len(found) - 1}")

    def _from_tool(self, at: int) -> Iterable[Datapoint]:
        """Yield an answer once, in the tick that finds it."""
        assert self._tool is not None
        told, self._told = self._told, None
        try:
            told = told or self._tool.poll(self._clock() / SECOND)
        except Trouble as trouble:
            raise PartlyCollected([str(trouble)]) from None
        for index, readings in (told or {}).items():
            teller = self._tellers.setdefault(index, Teller(index))
            for point in teller.points(at, dict(readings)):
                if point.metric.level <= self.level:
                    yield point
