"""Naming profiles: the names of other tools for our metrics, read from `tables/`; rename.py applies them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from chipwatch.contract.datapoint import Dimensions

PROFILES: Final = (
    "native", "wandb", "wandb-docs", "mlflow", "cwagent", "neuron-prometheus", "dcgm", "dcgm4.6", "node", "otel",
)  # fmt: skip
TABLES: Final = Path(__file__).with_name("tables")
PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
FACTORS: Final[Mapping[str | None, float]] = {"MiBy": 2.0**-20, "GiBy": 2.0**-30, "MBy": 1e-6}
"""Unit of another tool -> its factor, unless the table names one; 1 for other units."""


class ToolName(NamedTuple):
    """A name of another tool; the value of a dimension replaces its `{placeholder}`, and the dimension is dropped."""

    template: str
    unit: str | None = None
    """None: our unit."""
    factor: float = 1.0
    dims: Mapping[str, str] = NONE
    """
    Dimensions of the other tool: key -> value with placeholders; left out if a placeholder has no value.

    Of alternatives, with `|` between them, the first one whose placeholders have values counts.
    """
    words: Mapping[str, str] = NONE
    """Our value of a placeholder -> the other tool's value."""
    only: Mapping[str, str] = NONE
    """Dimensions that a series must have to get the name; other series keep ours."""
    help: str = ""
    """Description of a name that several of our metrics share; empty: ours."""

    def fits(self, dims: Dimensions) -> bool:
        """Return whether a series with these dimensions can have the name."""
        return {*PLACEHOLDER.findall(self.template)} <= {*dims} and self.only.items() <= dims.items()


class Copy(NamedTuple):
    """A second name of another tool for a metric: for the same points, or for their mean."""

    name: ToolName
    of_tree: bool = False
    """Only for GPUs that the watched process tree uses."""
    mean_over: str = ""
    """Dimension over which to take the mean, one point for all devices; empty: no mean."""
    last_of: str = ""
    """Dimension whose value becomes the point's: the value of the counter that rose last; empty: no such value."""
    drops: tuple[str, ...] = ()
    """Dimensions that depend on `last_of`."""
    rate: bool = False
    """A gauge of the counter's increase a second."""
    limited: bool | None = None
    """Only if the container's memory is limited (True) or is not (False)."""


class Profile(NamedTuple):
    """The names of one tool."""

    names: Mapping[str, ToolName] = MappingProxyType({})
    """Our metric -> the tool's name."""
    copies: Mapping[str, Copy] = MappingProxyType({})
    """Our metric -> its second name."""
    machine: Mapping[str, str] = NONE
    """The tool's keys for the dimensions of the machine; they apply to every metric, renamed or not."""
    scraped: str = ""
    """
    Name of scraped metrics, which have the dimension `endpoint`.

    `metric` is the name on the page, `index` the number of the series of this name, in order of appearance.
    """
    cumulative: bool = False
    """Counters keep what they counted before the agent began, as the other tool's do."""
    version: str = ""
    """Release of the conventions."""
    others: Mapping[str, str] = NONE
    """Like `dims` of a name, for the metrics that have none."""
    adds: tuple[str, ...] = ()
    """Our dimensions that its attributes need; collectors have them where their own options do not say otherwise."""


def placeholders(dims: Mapping[str, str]) -> set[str]:
    """Return our dimensions of which the values are in `dims` of another tool."""
    return {*PLACEHOLDER.findall(" ".join(dims.values()))}


@cache
def profile(name: str) -> Profile:
    """Return a profile of PROFILES; a table with a `base` adds to another one, and may rename what that has."""
    if name == "native":
        return Profile()
    from tomllib import loads

    table = loads((TABLES / f"{name}.toml").read_text(encoding="utf-8"))
    base = profile(table["base"]) if "base" in table else Profile()
    renamed = table.get("renamed", {})
    names = {metric: _renamed(old, renamed) for metric, old in base.names.items()}
    names |= {metric: _name(entry, table) for metric, entry in table.get("names", {}).items()}
    if "copies" in table:
        copies = {metric: _copy(entry, table) for metric, entry in table["copies"].items()}
    else:
        copies = {metric: copy._replace(name=_renamed(copy.name, renamed)) for metric, copy in base.copies.items()}
    return Profile(
        {metric: new for metric, new in names.items() if metric not in table.get("without", ())},
        copies,
        table.get("machine", base.machine),
        table.get("scraped", base.scraped),
        table.get("cumulative", base.cumulative),
        table.get("version", ""),
        table.get("others") or {renamed.get(key, key): value for key, value in base.others.items()},
        tuple(table.get("adds", base.adds)),
    )


def _renamed(old: ToolName, renamed: Mapping[str, str]) -> ToolName:
    labels = {renamed.get(key, key): value for key, value in old.dims.items()}
    return old._replace(template=renamed.get(old.template, old.template), dims=labels)


def _copy(entry: Mapping[str, Any], table: Mapping[str, Any]) -> Copy:
    options = {key: value for key, value in entry.items() if key in Copy._fields and key != "name"}
    return Copy(_name(entry, table), **options | {"drops": tuple(entry.get("drops", ()))})


def _name(entry: str | Mapping[str, Any], table: Mapping[str, Any]) -> ToolName:
    """Return the name of an entry: a text, or a table whose dims, words and help may be keys of the shared ones."""
    if isinstance(entry, str):
        return ToolName(entry)

    def shared(kind: str, default: Any) -> Any:
        value = entry.get(kind, default)
        return table.get(kind, {}).get(value, value) if isinstance(value, str) else value

    unit = entry.get("unit")
    factor = entry.get("factor", FACTORS.get(unit, 1.0))
    return ToolName(
        entry["name"], unit, factor, shared("dims", NONE), shared("words", NONE), entry.get("only", NONE),
        shared("help", ""),
    )  # fmt: skip
