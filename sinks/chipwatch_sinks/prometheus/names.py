"""Turns metrics' names, dimensions and units into Prometheus': https://prometheus.io/docs/practices/naming/."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Kind, Metric

VALID: Final = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
UNITS: Final[Mapping[str, tuple[str, float, float]]] = json.loads(Path(__file__).with_name("units.json").read_bytes())
"""UCUM unit -> Prometheus' base unit, and the factor and divisor that convert values to it."""
COUNTED: Final = re.compile(r"\{(\w+)\}/s")
"""Unit of things per second, such as {flop}/s."""
PER_SECOND: Final = "_per_second"


class Family(NamedTuple):
    """All series of one name, as the page groups them."""

    name: str
    """Name of the samples in all formats."""
    base: str
    """Name of the family in OpenMetrics, which lacks the suffix _total."""
    kind: Kind
    unit: str
    """The unit, as `base` ends with it; empty for none."""
    help: str
    times: float
    over: float

    @property
    def reserved(self) -> tuple[str, ...]:
        """Names that no other metric may have while this family exists."""
        counters = (self.name, self.base, f"{self.base}_total", f"{self.base}_created")
        return counters if self.kind is Kind.COUNTER else (self.name,)


@lru_cache(5000)  # all series of a metric share its family
def family_of(metric: Metric) -> Family:
    """
    Return the family for a metric: its names and unit, and the factors that convert its values.

    A name that Prometheus already allows comes from another tool (a naming profile or a scraped page). It is kept,
    and its values are not converted.
    """
    if VALID.fullmatch(metric.name):
        unit = UNITS.get(metric.unit, ("", 1, 1))[0]
        base = metric.name.removesuffix("_total") if metric.kind is Kind.COUNTER else metric.name
        return Family(metric.name, base, metric.kind, unit if base.endswith(f"_{unit}") else "", metric.help, 1, 1)
    base = _sanitised(metric.name)
    counted = COUNTED.fullmatch(metric.unit)
    unit, times, over = (f"{counted[1]}s{PER_SECOND}", 1, 1) if counted else UNITS.get(metric.unit, ("", 1, 1))
    if unit and not base.endswith(f"_{unit}"):
        base = f"{base.removesuffix(f'_{unit.removesuffix(PER_SECOND)}')}_{unit}"
    name = f"{base}_total" if metric.kind is Kind.COUNTER else base
    return Family(name, base, metric.kind, unit, metric.help, times, over)


def _sanitised(name: str) -> str:
    """Return `name` with each forbidden character as an underscore, and one in front of a leading digit."""
    text = re.sub("[^a-zA-Z0-9_]+", "_", name)
    return text if VALID.match(text) else f"_{text}"


def label_name(key: str) -> str:
    """Return `key` as a label's name, which never begins with two underscores: Prometheus keeps these for itself."""
    text = _sanitised(key)
    return f"_{text.lstrip('_')}" if text.startswith("__") else text


def labels(pairs: Iterable[tuple[str, str]]) -> dict[str, str] | None:
    """Return dimensions as labels with escaped values, without empty ones; None if two keys become one label."""
    escaped: dict[str, str] = {}
    for key, value in pairs:
        if not value:
            continue
        name = label_name(key)
        if name in escaped:
            return None
        escaped[name] = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return escaped


def flat_name(name: str, values: Iterable[str]) -> str:
    """Return `name` with the labels' values added, for readers that drop labels."""
    parts = (re.sub("[^a-zA-Z0-9_]+", "_", value).strip("_") for value in values)
    return "_".join([name, *filter(None, parts)])
