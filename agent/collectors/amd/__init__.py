"""AMD GPUs, from sysfs and, for the rest, AMD's own tools; docs/amd.md."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agent.collector import Collector
from agent.collectors.amd import card as sysfs
from agent.collectors.amd.card import Card
from agent.collectors.amd.metrics import METRICS, CardPoints, Readings
from agent.datapoint import Datapoint, Dimensions, Level
from agent.errors import PartlyCollected, Unavailable
from agent.host.drm import SECOND, Cards, SlowPath
from agent.host.oneshot import QueryFailed

if TYPE_CHECKING:
    from agent.collectors.amd.gaps import Gaps
    from agent.collectors.amd.library import Library
    from agent.collectors.amd.share import Share
    from agent.collectors.amd.tools import CardReadings, Program


class AmdCollector(Collector):
    """
    Reads every card that amdgpu drives from files that are kept open; does not wake a card that sleeps.

    What sysfs lacks is read, on the slow path and without waiting, by the library amdsmi, then amd-smi, then rocm-smi.
    `gpu` is the kernel's number of the card (/sys/class/drm/cardN), which no card of another vendor has.

    Where the kernel shows a driver and no card, the first of the three that knows a card is used; `gpu` is then the
    tool's own number.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where things are, and how often a tool is run for what sysfs lacks."""

        path: str | None = None
        """Folders to look for amd-smi and rocm-smi in, as in $PATH; /opt/rocm/bin and $PATH unless set."""
        tool_interval: float = 15.0
        """Seconds between two runs of a tool."""
        tool_timeout: float = 10.0
        """Seconds that a run may take before it gets SIGTERM."""
        pid: int | None = None
        """First process of the tree whose share is reported; filled from --pid."""
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
        self._cards: Cards[Card] = Cards(lambda: sysfs.find(config.sys), self._open_card)
        self._tool: Library | Program | None = None
        self._library: Library | None = None
        self._gaps: Gaps | None = None
        self._points: dict[str, CardPoints] = {}
        self._answer: CardReadings | None = None
        self._share: Share | None = None
        self._slow = SlowPath()

    def open(self) -> None:
        """Find the cards; raise Unavailable where there is none."""
        self.close()
        self._slow = SlowPath()
        self._cards.search(self._clock(), force=True)
        if not self._cards:
            self._find_tool()
        elif self._config.pid is not None:
            from agent.collectors.amd.share import Share  # noqa: PLC0415  only where a process tree is watched
            from agent.host.process_tree import ProcTree  # noqa: PLC0415  the same

            with suppress(ProcessLookupError):  # it has ended; the process collector reports that
                self._share = Share(self._config, ProcTree(self._config, self._config.pid, detailed=False))

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield what can be read now; the tree's share, errors and energy on the slow path."""
        return self._from_tool(at) if self._tool else self._from_sysfs(at)

    def describe(self) -> str:
        """Say how many cards there are and by what they are read."""
        if self._tool:
            return f"{len(self._points)} GPUs, {self._tool}"
        asleep = sum(card.suspended for card in self._cards.values())
        tools = f", {used}" if (used := str(self._gaps or "")) else ""
        return f"{len(self._cards)} GPUs, {self._config.sys}{tools}{f', {asleep} asleep' if asleep else ''}"

    def close(self) -> None:
        """Close the files, or end the tool."""
        self._cards.close()
        for tool in (self._tool, self._gaps):
            if tool:
                tool.close()
        self._tool, self._gaps, self._share, self._answer = None, None, None, None

    def _open_card(self, index: str, device: Path) -> Card:
        return Card(index, device, detailed=self.level >= Level.DETAILED)

    def _from_sysfs(self, at: int) -> Iterable[Datapoint]:
        now = self._clock()
        self._cards.search(now)
        slow = self._slow.is_due(now)
        problems: list[str] = []
        read: list[tuple[Card, Readings]] = []
        for card in self._cards.values():
            readings = card.read(slow=slow)
            if readings is not None:
                read.append((card, readings))
                problems += card.problems.values()
        further = self._fill(now / SECOND)
        for card, readings in read:
            card.complete(readings, further.get(card.slot, {}))
            yield from card.points.make(at, readings)
        if self._gaps:
            problems += self._gaps.problems
        if slow and self._share:
            yield from self._share.read(at, self._cards.values())
        if problems:
            raise PartlyCollected(problems)

    def _fill(self, now: float) -> Mapping[str, Readings]:
        """Return a tool's new readings of what is missing; no tool runs while a card sleeps: it would wake the card."""
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
        """Return the one instance of the library: a call that hangs costs one thread, not one each `open`."""
        from agent.collectors.amd.library import Library  # noqa: PLC0415  only where it is needed

        self._library = self._library or Library(self._config)
        return self._library

    def _find_tool(self) -> None:
        """Take the first tool that knows a card; raise Unavailable."""
        config = self._config
        signs = config.sys / "module/amdgpu", config.root / "dev/kfd", config.root / "dev/dxg"
        where = f"no card of AMD's in {config.sys / 'class/drm'}"
        if not any(sign.exists() for sign in signs):
            raise Unavailable(f"{where}; {', '.join(map(str, signs))} are absent")
        from agent.collectors.amd.tools import first, programs  # noqa: PLC0415  only where they are needed

        tools: list[Library | Program] = [self._asked_library(), *programs(config)]
        errors = []
        for tool in tools:
            try:
                self._answer = first(tool)
            except QueryFailed as error:
                tool.close()
                errors.append(str(error))
            else:
                self._tool = tool
                self._points = {index: CardPoints(Dimensions(gpu=index)) for index in self._answer}
                return
        raise Unavailable(f"{where}; {'; '.join(errors)}; programs found: {len(tools) - 1}")

    def _from_tool(self, at: int) -> Iterable[Datapoint]:
        """Yield each answer once, in the tick that finds it."""
        assert self._tool is not None
        answer, self._answer = self._answer, None
        try:
            answer = answer or self._tool.poll(self._clock() / SECOND)
        except QueryFailed as error:
            raise PartlyCollected([str(error)]) from None
        for index, readings in (answer or {}).items():
            points = self._points.setdefault(index, CardPoints(Dimensions(gpu=index)))
            for point in points.make(at, dict(readings)):
                if point.metric.level <= self.level:
                    yield point
