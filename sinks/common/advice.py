"""What advisors share: price tiers, and the layout of a dashboard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from agent.advice import Chart, Cost

Tier = tuple[int | None, float]
"""How much is in it (None: no end), and dollars for each."""


def tiers(item: str, amount: float, prices: Iterable[Tier], *, unit: str = "", as_of: str = "") -> Iterator[Cost]:
    """Yield the cost of each price tier."""
    begun = 0
    for size, price in prices:
        count = amount if size is None else min(amount, size)
        which = f"beyond {begun:,}" if size is None else f"{'next' if begun else 'first'} {size:,}"
        yield Cost(f"{item}, {which}" if begun or size else item, count, price, unit=unit, as_of=as_of)
        amount, begun = amount - count, begun + (size or 0)


def placed(charts: Sequence[Chart], wide: int, high: int) -> Iterator[tuple[str | Chart, int, int]]:
    """Yield section titles, one row high, and graphs, three beside each other, each with its column and row."""
    y = 0
    for section, graphs in groupby(charts, key=lambda chart: chart.section):
        yield section, 0, y
        for n, chart in enumerate(graphs):
            column = n % 3
            yield chart, column * wide, y + 1 + n // 3 * high
        y += 1 + (n // 3 + 1) * high
