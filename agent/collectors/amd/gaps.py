"""Fills what sysfs lacks from AMD's tools; readings are joined by PCI address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from agent.collectors.amd.library import Library
from agent.collectors.amd.metrics import Readings, possible
from agent.collectors.amd.tools import CardReadings, Tool, ToolConfig, programs
from agent.datapoint import Metric
from agent.host import gpu_metrics
from agent.host.oneshot import QueryFailed

HOUR: Final = 3600.0
"""Seconds after which a tool that lacked a metric is tried again."""
WHOLE: Final = frozenset({gpu_metrics.MEMORY_TOTAL, gpu_metrics.POWER_LIMIT})
"""Metrics for which 0 means absent."""
Gap = tuple[str, Metric]
"""PCI address of a card, and a metric that sysfs lacks."""


class Source:
    """One tool, and what it lacks."""

    def __init__(self, tool: Tool, interval: float) -> None:
        """Take the tool, and the seconds between two runs."""
        self._tool, self._interval = tool, interval
        self._lacks: dict[Gap, float] = {}
        self._failures, self._retry_at = 0, 0.0
        self.useful = False
        """Whether it has ever filled a gap."""

    def able(self, gaps: Iterable[Gap], now: float) -> set[Gap]:
        """Return the gaps that it may fill."""
        return {gap for gap in gaps if self._lacks.get(gap, 0) <= now} if now >= self._retry_at else set()

    def poll(self, gaps: set[Gap], now: float) -> Mapping[str, Readings]:
        """Return readings by PCI address if there is an answer; start a query if there are gaps; raise QueryFailed."""
        try:
            cards = self._tool.poll(now, start=bool(gaps))
        except QueryFailed:
            self._failures += 1
            self._retry_at = now + min(HOUR, self._interval * 2.0 ** min(self._failures, 16))
            raise
        if cards is None:
            return {}
        self._failures = 0
        found = _by_slot(cards, self._tool.slots)
        for slot, metric in gaps:
            if metric in found.get(slot, {}):
                self.useful = True
            else:
                self._lacks[slot, metric] = now + HOUR
        return found

    def close(self) -> None:
        """Release the tool."""
        self._tool.close()

    def __str__(self) -> str:
        """Return the tool's name, or its command."""
        return str(self._tool)


class Gaps:
    """
    Fills gaps from the library amdsmi, then amd-smi, then rocm-smi: each gets what the ones before it lack.

    Nothing is started where nothing is missing, and nothing is waited for. What a tool lacked is requested again in an
    hour, and a tool that fails is retried with back-off: a card that has no such sensor costs little.
    """

    def __init__(self, config: ToolConfig, library: Library) -> None:
        """Take the configuration, and the library."""
        self._config, self._library = config, library
        self._sources: list[Source] | None = None
        self.problems: list[str] = []
        """Of the last call."""

    def fill(self, missing: Mapping[str, Iterable[Metric]], now: float) -> Mapping[str, Readings]:
        """Return new readings of what is `missing`, both by PCI address; `now` in monotonic s."""
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
                found = source.poll(mine, now)
            except QueryFailed as error:
                self.problems.append(str(error))
                continue
            for slot, metric in mine:
                if (value := found.get(slot, {}).get(metric)) is not None:
                    filled.setdefault(slot, {})[metric] = value
        return filled

    def close(self) -> None:
        """Release the tools."""
        for source in self._sources or ():
            source.close()
        self._sources = None

    def __str__(self) -> str:
        """Return the names of tools that filled a gap."""
        return ", ".join(str(source) for source in self._sources or () if source.useful)

    def _found(self) -> list[Source]:
        tools: list[Tool] = [self._library] if self._library.present() else []
        return [Source(tool, self._config.tool_interval) for tool in (*tools, *programs(self._config, placed=True))]


def _by_slot(cards: CardReadings, slots: Mapping[str, str]) -> Mapping[str, Readings]:
    """Return the possible readings by PCI address; of the parts of a divided card the first one's."""
    found: dict[str, Readings] = {}
    for index, readings in cards.items():
        if slot := slots.get(index):
            found.setdefault(slot, {m: v for m, v in readings.items() if possible(m, v) and (v or m not in WHOLE)})
    for readings in found.values():
        used, total = readings.get(gpu_metrics.MEMORY_USED), readings.get(gpu_metrics.MEMORY_TOTAL)
        if used is not None and total and used <= total:
            readings[gpu_metrics.MEMORY_UTILIZATION] = 100 * used / total
    return found
