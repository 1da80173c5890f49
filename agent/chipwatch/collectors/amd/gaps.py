"""Fills values that sysfs lacks from AMD's tools; cards are matched by PCI address."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from chipwatch.collectors.amd.metrics import Readings, possible
from chipwatch.collectors.amd.tools import CardReadings, Program, find_programs
from chipwatch.datapoint import Metric
from chipwatch.host import gpu_metrics
from chipwatch.host.oneshot import QueryFailed

if TYPE_CHECKING:
    from chipwatch.collectors.amd import AmdCollector

HOUR: Final = 3600.0
"""Seconds after which a tool that lacked a metric is tried again."""
NOT_ZERO: Final = frozenset({gpu_metrics.MEMORY_TOTAL, gpu_metrics.POWER_LIMIT})
"""Metrics for which 0 means absent."""
Gap = tuple[str, Metric]
"""PCI address of a card, and a metric that sysfs lacks."""


class GapSource:
    """One tool, and the metrics that it lacks."""

    def __init__(self, tool: Program, interval: float) -> None:
        """`interval`: seconds between two runs of the tool."""
        self.tool, self._interval = tool, interval
        self._lacks: dict[Gap, float] = {}
        self._failures, self._retry_at = 0, 0.0
        self.useful = False
        """True once it has filled a gap."""

    def fillable(self, gaps: Iterable[Gap], now: float) -> set[Gap]:
        """Return the gaps that the tool may be able to fill."""
        return {gap for gap in gaps if self._lacks.get(gap, 0) <= now} if now >= self._retry_at else set()

    def poll(self, gaps: set[Gap], now: float) -> Mapping[Gap, float]:
        """Return the values of gaps if there is an answer; start a query if there are gaps; raise QueryFailed."""
        try:
            cards = self.tool.poll(now, start=bool(gaps))
        except QueryFailed:
            self._failures += 1
            self._retry_at = now + min(HOUR, self._interval * 2.0 ** min(self._failures, 16))
            raise
        if cards is None:
            return {}
        self._failures = 0
        by_slot = _by_slot(cards, self.tool.slots)
        filled = {(slot, metric): by_slot[slot][metric] for slot, metric in gaps if metric in by_slot.get(slot, ())}
        self.useful = self.useful or bool(filled)
        self._lacks |= dict.fromkeys(gaps - filled.keys(), now + HOUR)
        return filled


class Gaps:
    """
    Fills gaps from amd-smi, then rocm-smi, which is asked for what the first lacks.

    No tool is started while nothing is missing, and no call waits. A metric that a tool lacked is requested again in an
    hour, and a tool that fails is retried with back-off: a card that has no such sensor costs little.
    """

    def __init__(self, config: AmdCollector.Config) -> None:
        self._sources = [GapSource(tool, config.tool_interval) for tool in find_programs(config, listed=True)]
        self.problems: list[str] = []
        """Errors of the last call."""

    def fill(self, missing: Mapping[str, Iterable[Metric]], now: float) -> Mapping[str, Readings]:
        """Return new readings of the `missing` metrics, both by PCI address; `now` in monotonic s."""
        self.problems = []
        gaps = {(slot, metric) for slot, metrics in missing.items() for metric in metrics}
        readings: dict[str, Readings] = {}
        for source in self._sources:
            fillable = source.fillable(gaps, now)
            gaps -= fillable
            try:
                for (slot, metric), value in source.poll(fillable, now).items():
                    readings.setdefault(slot, {})[metric] = value
            except QueryFailed as error:
                self.problems.append(str(error))
        return readings

    def close(self) -> None:
        """Release the tools."""
        for source in self._sources:
            source.tool.close()

    def __str__(self) -> str:
        return ", ".join(str(source.tool) for source in self._sources if source.useful)


def _by_slot(cards: CardReadings, slots: Mapping[str, str]) -> Mapping[str, Readings]:
    """Return the possible readings by PCI address; a divided card has the readings of its first part."""
    by_slot: dict[str, Readings] = {}
    for index, readings in cards.items():
        if slot := slots.get(index):
            by_slot.setdefault(slot, {m: v for m, v in readings.items() if possible(m, v) and (v or m not in NOT_ZERO)})
    for readings in by_slot.values():
        gpu_metrics.add_shares(readings)
    return by_slot
