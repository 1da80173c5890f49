"""What sysfs does not tell of a card, asked of AMD's tools: at a pace of their own, and joined by PCI address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agent.collectors.amd.library import Library
from agent.collectors.amd.metrics import Readings, possible
from agent.collectors.amd.tools import Cards, Tool, Wanted, programs
from agent.datapoint import Metric
from agent.host import gpu_metrics
from agent.host.oneshot import QueryFailed

HOUR: Final = 3600.0
"""Seconds after which a tool is asked again for what it did not know."""
WHOLE: Final = frozenset({gpu_metrics.MEMORY_TOTAL, gpu_metrics.POWER_LIMIT})
"""What is absent where it is 0."""
Gap = tuple[str, Metric]
"""PCI address of a card, and what sysfs does not tell of it."""


class Source:
    """One tool, and what it does not know."""

    def __init__(self, tool: Tool, pace: float) -> None:
        """Take the tool, and the seconds between two questions."""
        self._tool, self._pace = tool, pace
        self._lacks: dict[Gap, float] = {}
        self._failures, self._rests = 0, 0.0
        self.useful = False
        """Whether it has ever filled a gap."""

    def able(self, gaps: Iterable[Gap], now: float) -> set[Gap]:
        """Return the gaps that it may fill."""
        return {gap for gap in gaps if self._lacks.get(gap, 0) <= now} if now >= self._rests else set()

    def poll(self, gaps: set[Gap], now: float) -> Mapping[str, Readings]:
        """Return readings by PCI address if there is an answer; start a query if there are gaps; raise QueryFailed."""
        try:
            cards = self._tool.poll(now, start=bool(gaps))
        except QueryFailed:
            self._failures += 1
            self._rests = now + min(HOUR, self._pace * 2.0 ** min(self._failures, 16))
            raise
        if cards is None:
            return {}
        self._failures = 0
        told = _by_slot(cards, self._tool.slots)
        for slot, metric in gaps:
            if metric in told.get(slot, {}):
                self.useful = True
            else:
                self._lacks[slot, metric] = now + HOUR
        return told

    def close(self) -> None:
        """Let go of the tool."""
        self._tool.close()

    def __str__(self) -> str:
        """Return the tool's name, or its command."""
        return str(self._tool)


class Gaps:
    """
    Asks the library amdsmi, then amd-smi, then rocm-smi for what is missing: each for what those before it lack.

    Where nothing is missing none is looked for. None is waited for. What a tool did not know it is asked for again
    in an hour, and one that fails rests, each time for longer: so a card that has no such thing costs little.
    """

    def __init__(self, config: Wanted, library: Library) -> None:
        """Take how to ask, and the library."""
        self._config, self._library = config, library
        self._sources: list[Source] | None = None
        self.problems: list[str] = []
        """Of the last call."""

    def fill(self, missing: Mapping[str, Iterable[Metric]], now: float) -> Mapping[str, Readings]:
        """Take what is missing by PCI address, and the time (s, monotonic); return what was just told, likewise."""
        self.problems = []
        if self._sources is None:
            if not any(missing.values()):
                return {}
            self._sources = self._found()
        gaps = {(slot, metric) for slot, metrics in missing.items() for metric in metrics}
        filled: dict[str, Readings] = {}
        for source in self._sources:
            mine = source.able(gaps, now)
            gaps -= mine
            try:
                told = source.poll(mine, now)
            except QueryFailed as error:
                self.problems.append(str(error))
                continue
            for slot, metric in mine:
                if (value := told.get(slot, {}).get(metric)) is not None:
                    filled.setdefault(slot, {})[metric] = value
        return filled

    def close(self) -> None:
        """Let go of the tools."""
        for source in self._sources or ():
            source.close()
        self._sources = None

    def __str__(self) -> str:
        """Return the names of those that filled a gap."""
        return ", ".join(str(source) for source in self._sources or () if source.useful)

    def _found(self) -> list[Source]:
        tools: list[Tool] = [self._library] if self._library.present() else []
        return [Source(tool, self._config.pace) for tool in (*tools, *programs(self._config, placed=True))]


def _by_slot(cards: Cards, slots: Mapping[str, str]) -> Mapping[str, Readings]:
    """Return what can be true of what a tool told; of the parts of a divided card the first speaks for it."""
    told: dict[str, Readings] = {}
    for index, readings in cards.items():
        if slot := slots.get(index):
            told.setdefault(slot, {m: v for m, v in readings.items() if possible(m, v) and (v or m not in WHOLE)})
    for readings in told.values():
        used, total = readings.get(gpu_metrics.MEMORY_USED), readings.get(gpu_metrics.MEMORY_TOTAL)
        if used is not None and total and used <= total:
            readings[gpu_metrics.MEMORY_UTILIZATION] = 100 * used / total
    return told
