"""Makes the table by which `chipwatch top HOST` knows our metrics on a page of Prometheus."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill

from chipwatch.advisor.catalogue import catalogue
from chipwatch_sinks.prometheus.names import family_of

TABLE = Path(__file__).parents[1] / "agent/chipwatch/show/fleet/names.json"


def table() -> str:
    """Return the table: rows of an ending of names on a page, kind, unit, factor to our unit, and our names."""
    rows: dict[tuple[str, str, str, float], set[str]] = {}
    for metric in (metric for metrics in catalogue().values() for metric in metrics):
        family, base = family_of(metric), metric.name.replace(".", "_")
        key = family.name.removeprefix(base), metric.kind.value, metric.unit, family.over / family.times
        rows.setdefault(key, set()).add(metric.name)
    lines = (fill(json.dumps([*key, *sorted(names)]), 120) for key, names in sorted(rows.items()))
    return "[\n" + ",\n".join(lines) + "\n]\n"
