"""Makes the graphs of a dashboard from the metrics that are sent, by the tables of panels.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.advice import MACHINE, Chart, Drawn, SentMetric
from chipwatch.contract.datapoint import Kind, Metric

TABLES: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("panels.toml").read_text("utf-8"))
LISTS: Final[Mapping[str, list[str]]] = TABLES["lists"]
SECTIONS, ROWS = ({word: title for title, words in TABLES[of].items() for word in words} for of in ("sections", "rows"))
TITLES: Final = {name: title for title, names in TABLES["graphs"].items() for name in names}
BOARDS: Final[Mapping[str, Any]] = TABLES["boards"]
SHORT: Final = {word.lower(): word for word in LISTS["short"]}


def charts(sent: Iterable[SentMetric], most: int) -> list[Chart]:
    """Return graphs of all metrics, sorted by section, level and title, each with at most `most` lines."""
    groups: dict[tuple[str, str], list[SentMetric]] = {}
    ways = [*sent]
    copied = {way.metric.name for way in ways if way.copy}
    for metric in (way for way in ways if way.copy == (way.metric.name in copied)):
        name = metric.metric.name
        title = TITLES.get(name) or title_of(name)
        section = _longest(name, SECTIONS) or name.partition(".")[0]
        groups.setdefault((section, title), []).append(metric._replace(drawn=_drawn(metric.metric)))
    whole = [_chart(section, title, group) for (section, title), group in groups.items()]
    return [part for chart in sorted(whole, key=_place) for part in _parts(chart, most)]


def board(name: str, sent: Sequence[SentMetric], most: int, *, machines: bool) -> list[Chart]:
    """Return the graphs of the dashboard `name` (--board); `machines`: lines can be grouped by machine."""
    extra = {MACHINE} if machines else set()
    rows, sections = BOARDS[name].get("graphs", {}), BOARDS[name]["sections"]
    graphs = [_folded(name.capitalize(), title, rule.split(), sent, extra) for title, rule in rows.items()]
    return [*filter(None, graphs), *(chart for chart in charts(sent, most) if chart.section in sections)]


def _folded(section: str, title: str, rule: list[Any], sent: Iterable[SentMetric], extra: set[str]) -> Chart | None:
    """Return a graph of a metric by groups; None if it is not sent under exactly one name with one of the keys."""
    fold, _, metric, *keys = rule
    ways = [way for way in sent if way.metric.name == metric and not way.copy]
    by = tuple(key for key in keys[1:] if key in extra.union(*(way.dims for way in ways)))
    if len({way.name for way in ways}) != 1 or (keys and not by):
        return None
    drawn = _drawn(ways[0].metric)
    chart = _chart(section, title, [ways[0]._replace(drawn="mean" if drawn == "peaks" else drawn)])
    if fold in {"sum", "count"}:
        chart = chart._replace(label="" if fold == "count" else chart.label, top=None, bottom=0)
    return chart._replace(fold=fold, by=by)


def in_rows(charts: Sequence[Chart]) -> list[Chart]:
    """Return the graphs; last are those that a plain machine leaves empty, in rows whose titles say why."""
    rows = ["", *TABLES["rows"]]
    numbers = [min(rows.index(_longest(way.metric.name, ROWS)) for way in chart.series) for chart in charts]
    placed = sorted(zip(numbers, charts, strict=True), key=lambda pair: pair[0])
    return [chart._replace(section=rows[number], aside=True) if number else chart for number, chart in placed]


def _longest(name: str, titles: Mapping[str, str]) -> str:
    """Return the title of the longest beginning of a metric's name that has one, or ""."""
    words = name.split(".")
    beginnings = (".".join(words[:count]) for count in range(len(words), 0, -1))
    return next((titles[beginning] for beginning in beginnings if beginning in titles), "")


def _parts(chart: Chart, most: int) -> list[Chart]:
    """Split a graph with more than `most` lines; a metric drawn with peaks has two lines."""
    step = max(1, most // (2 if any(line.drawn == "peaks" for line in chart.series) else 1))
    if len(chart.series) <= step:
        return [chart]
    cuts = [chart.series[at : at + step] for at in range(0, len(chart.series), step)]
    return [chart._replace(title=f"{chart.title} ({n})", series=cut) for n, cut in enumerate(cuts, 1)]


def _place(chart: Chart) -> tuple[int, str, int, str]:
    *sections, last = TABLES["sections"]
    rank = sections.index(chart.section) if chart.section in sections else len(sections) + (chart.section == last)
    return rank, chart.section, min(line.metric.level for line in chart.series), chart.title


def title_of(name: str) -> str:
    """Make a title of a metric's name: `gpu.memory.used` -> `GPU memory used`."""
    text = " ".join(SHORT.get(word, word) for word in name.replace("_", ".").split("."))
    return text[:1].upper() + text[1:]


def _drawn(metric: Metric) -> Drawn:
    if metric.kind is Kind.COUNTER:
        return "increase" if metric.unit in LISTS["rare"] else "rate"
    return "peaks" if metric.name in LISTS["peaks"] else "mean"


def _chart(section: str, title: str, series: list[SentMetric]) -> Chart:
    sent, metric = series[0], series[0].metric
    is_counter = metric.kind is Kind.COUNTER
    thing = f"{sent.unit.strip('{}')}s" if sent.unit.startswith("{") else sent.unit
    label = TABLES["rates" if is_counter else "units"].get(sent.unit, f"{thing}/s" if is_counter else thing)
    label = f"{thing} per dot" if sent.drawn == "increase" else label
    top = 100 * sent.factor if metric.unit == "%" and not is_counter else None
    return Chart(section, title, tuple(series), label, top, None if metric.unit == "Cel" else 0)
