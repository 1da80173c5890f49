"""`chipwatch list`: the metrics of every collector and processor."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from chipwatch.advisor.discovery import discover
from chipwatch.base.redaction import one_line
from chipwatch.base.table import TableColumn
from chipwatch.base.table import table as aligned
from chipwatch.base.text import nearest
from chipwatch.config import plugins
from chipwatch.config.load import load
from chipwatch.contract.datapoint import Level, Metric
from chipwatch.contract.errors import ConfigError
from chipwatch.engine.self_metrics import AgentCollector

log = logging.getLogger(__name__)

HEADS: Final = ("name", "kind", "unit", "level", "dimensions", "collector", "help")
SPARE: Final = ("dimensions", "kind", "collector", "level", "unit")
"""Columns to leave out on a narrow terminal, in this order."""
Row = tuple[str, ...]


def loaded(group: str, only: str | None = None) -> Iterator[tuple[str, Any, str]]:
    """Yield (name, class, "") for each plugin, or for `only` one; (name, None, reason) if it cannot be loaded."""
    entries = plugins.installed(f"chipwatch.{group}")
    for name in entries if only is None else entries.keys() & {only}:
        try:
            cls = plugins.load(f"chipwatch.{group}", name, entries)
            yield name, cls, ""
        except (ImportError, ConfigError) as problem:
            yield name, None, f"it cannot be loaded: {one_line(str(problem))}"


def catalogue() -> dict[str, list[Metric]]:
    """Return collector or processor -> its metrics, for all that are installed, with or without the hardware."""
    metrics: dict[str, list[Metric]] = {}
    for group in ("collectors", "processors"):
        for name, cls, problem in loaded(group):
            if cls is None:
                log.warning("%s.%s is left out: %s", group, name, problem)
            else:
                metrics[name] = [*metrics.get(name, ()), *cls.metrics]
    return {**metrics, "agent": list(AgentCollector.metrics)}


def rows(metrics: Mapping[str, Iterable[Metric]]) -> list[Row]:
    """Return a row of text for each metric, with the columns HEADS."""
    return [
        (m.name, m.kind.value, m.unit, m.level.name.lower(), ",".join(m.dims), collector, m.help)
        for collector, ours in metrics.items()
        for m in ours
    ]


def listing(
    format: str = "text",  # noqa: A002  # as the option is called
    word: str | None = None,
    level: str = "all",
    *,
    here: bool = False,
    width: int | None = None,
) -> str:
    """
    Return the catalogue of metrics in the `format` text, markdown or json; raise ConfigError if no metric fits.

    `word`: a part of a metric's name, a collector or a family; `level`: the highest level of metrics; `here`: only
    metrics that this machine has; `width`: most characters in a line of text.
    """
    metrics, names = catalogue(), None
    if here:
        machine = discover(load(None, {}), {})
        metrics = {name: ours for name, ours in metrics.items() if name not in machine.absent}
        names = {point.metric.name for point in machine.points}
    word = word and word.lower()
    family = plugins.FAMILIES.get(word or "", (word,))
    table = rows({
        name: [
            metric for metric in ours
            if metric.level <= Level[level.upper()] and (names is None or metric.name in names)
            and (not word or word in metric.name or name in family)
        ]
        for name, ours in metrics.items()
    })  # fmt: skip
    if not table:
        known = {*metrics, *plugins.FAMILIES, *(metric.name for ours in metrics.values() for metric in ours)} - {word}
        hint = nearest(word or "", known, "; `chipwatch list` prints all")
        raise ConfigError(f"list {word or ''}: no metric {'of this machine ' * here}fits{hint}")
    if format == "json":
        return json.dumps([dict(zip(HEADS, row, strict=True)) for row in table], indent=1)
    if format == "markdown":
        body = "\n".join(f"| {' | '.join(row)} |" for row in table)
        return f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}\n{body}"
    return columns([HEADS, *table], width)


def columns(table: Sequence[Row], width: int | None = None) -> str:
    """Return rows as aligned text; to fit into `width`, columns of SPARE are left out and the last one is cut."""
    lines = aligned(map(TableColumn, zip(*table, strict=True)), width=width or 10**6, spare=SPARE)
    return "\n".join(dict.fromkeys(lines))  # rows that differ only in a column that was left out are now equal
