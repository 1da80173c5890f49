"""Makes the table by which `chipwatch top HOST` knows our metrics on a page of Prometheus."""

from __future__ import annotations

import json
from pathlib import Path

from chipwatch.advisor.catalogue import catalogue
from chipwatch_sinks.prometheus.names import family_of

TABLE = Path(__file__).parents[1] / "agent/chipwatch/show/fleet/names.json"


def table() -> str:
    """Return the table: name on a page -> our name, unit, and whether it is a counter, and the factor to our unit."""
    rows = {}
    for metric in (metric for metrics in catalogue().values() for metric in metrics):
        family = family_of(metric)
        rows[family.name] = [metric.name, metric.unit, metric.kind.value, family.over / family.times]
    lines = (f" {json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(rows.items()))
    return "{\n" + ",\n".join(lines) + "\n}\n"
