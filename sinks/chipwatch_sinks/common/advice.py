"""Code that the sinks' advisors share: price tiers, PromQL for dashboards, and the layout of a dashboard."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.advice import MAX_GROUPS, Chart, Cost, Drawn, SentMetric, Shown
from chipwatch.contract.errors import Refused

Tier = tuple[int | None, float]
"""A price tier: how many units it covers (None: all further ones), and the dollars for each of them."""
WIDTH, HEIGHT = 8, 6
"""Size of a graph in units of CloudWatch's grid, which is 24 wide."""
MAX_WIDGETS: Final = 500
"""Most widgets: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/cloudwatch_limits.html."""
OF_ALL: Final[Mapping[Shown, str]] = {"mean": "avg({})", "p95": "quantile(0.95, {})"}


def tiers(item: str, amount: float, prices: Iterable[Tier], *, unit: str = "", as_of: str = "") -> Iterator[Cost]:
    """Yield the cost of the part of `amount` that falls into each price tier."""
    begun = 0
    for size, price in prices:
        count = amount if size is None else min(amount, size)
        which = f"beyond {begun:,}" if size is None else f"{'next' if begun else 'first'} {size:,}"
        yield Cost(f"{item}, {which}" if begun or size else item, count, price, unit=unit, as_of=as_of)
        amount, begun = amount - count, begun + (size or 0)


def read_prices(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file with prices."""
    return tomllib.loads(path.read_text(encoding="utf-8"))


def dated(prices: Mapping[str, Any]) -> str:
    """Return the date and the source of prices as a text, and the page with today's prices."""
    return f"{prices['date']}, {prices['source']}; {prices['page']} has today's"


def placed(
    charts: Sequence[Chart], width: int, height: int, *, service: str, limit: int, note: str = ""
) -> list[tuple[str | Chart, int, int]]:
    """
    Return the widgets of a dashboard from top to bottom, each with its column and row.

    A widget is a text (the `note`, or a section's title), one row high, or a graph; graphs stand three in a row.

    Raises Refused if there are more widgets than the service's `limit`.
    """
    placed: list[tuple[str | Chart, int, int]] = [(note, 0, 0)] if note else []
    y = len(placed)
    for section, graphs in groupby(charts, key=lambda chart: chart.section):
        placed.append((section, 0, y))
        for n, chart in enumerate(graphs):
            placed.append((chart, n % 3 * width, y + 1 + n // 3 * height))
        y += 1 + (n // 3 + 1) * height
    if len(placed) > limit:
        fault = f"the dashboard needs {len(placed)} widgets, and {service} allows {limit}"
        raise Refused(f"{fault}; choose fewer metrics with --for or --level")
    return placed


def fold_of(chart: Chart) -> str:
    """Return PromQL's operator that makes one value of a group of series."""
    return "avg" if chart.fold == "mean" else chart.fold


def promql(
    chart: Chart, shown: Shown, sent: SentMetric, series: str, keys: Sequence[str], *, drawn: Mapping[Drawn, str]
) -> str:
    """
    Return PromQL for a line of a graph; it shows the groups with the largest values, for minima the smallest.

    `series` selects the series, `keys` are the labels of groups, and `drawn` has the PromQL for each way to draw.
    """
    series = series if chart.fold == "count" else drawn.get(sent.drawn, "{}").format(series)
    if shown != "groups":
        return OF_ALL.get(shown, "{}").format(series)
    fold = fold_of(chart)
    which = "bottomk" if chart.fold == "min" else "topk"
    return f"{which}({MAX_GROUPS}, {fold} by ({', '.join(keys)}) ({series}))" if keys else f"{fold}({series})"


def whole_minutes(seconds: float) -> int:
    """Return the seconds of a period that clouds have: whole minutes, at least one."""
    return 60 * max(1, math.ceil(seconds / 60))


def document(content: object) -> tuple[str]:
    """Return `content` as one JSON document."""
    return (json.dumps(content, indent=2, ensure_ascii=False),)


def widgets(
    charts: Sequence[Chart],
    region: str | None,
    kind: str,
    properties: Callable[[Chart], dict[str, Any]],
    note: str = "",
) -> Iterator[dict[str, Any]]:
    """Yield a widget of this `kind` for each graph, and text widgets: the note and the sections' titles."""
    if not region:
        raise Refused("no AWS region, and each graph needs one: set --region or AWS_REGION")
    for what, x, y in placed(charts, WIDTH, HEIGHT, service="CloudWatch", limit=MAX_WIDGETS, note=note):
        if isinstance(what, str):
            text = {"markdown": what if what == note else f"## {what}"}
            yield {"type": "text", "x": 0, "y": y, "width": 3 * WIDTH, "height": 1, "properties": text}
        else:
            size = {"type": kind, "x": x, "y": y, "width": WIDTH, "height": HEIGHT}
            yield {**size, "properties": {**properties(what), "region": region}}
