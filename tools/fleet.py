"""Makes the table by which `chipwatch top HOST` knows our metrics on a page of Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill

from chipwatch.advisor.catalogue import catalogue
from chipwatch_sinks.prometheus.names import family_of

TABLE = Path(__file__).parents[1] / "agent/chipwatch/show/fleet/names.json"


def table() -> str:
    """Return the table: rows of an ending of names on a page, kind, factor to our unit, and unit -> our names."""
    rows: dict[tuple[str, str, float], dict[str, list[str]]] = {}
    for _, metric in sorted({one.name: one for metrics in catalogue().values() for one in metrics}.items()):
        family, base = family_of(metric), metric.name.replace(".", "_")
        key = family.name.removeprefix(base), metric.kind.value, family.over / family.times
        rows.setdefault(key, {}).setdefault(metric.unit, []).append(metric.name)
    lines = (fill(json.dumps([*key, units], sort_keys=True), 120) for key, units in sorted(rows.items()))
    return "[\n" + ",\n".join(lines) + "\n]\n"
