"""Naming profiles: tables of the names that other tools have for our metrics. The module rename applies them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from chipwatch.contract.datapoint import Dimensions

PROFILES: Final = (
    "native", "wandb", "wandb-docs", "mlflow", "cwagent", "neuron-prometheus", "dcgm", "dcgm4.7", "node", "otel",
)  # fmt: skip
TABLES: Final = Path(__file__).with_name("tables")
PLACEHOLDER: Final = re.compile(r"\{(\w+)\}")
NONE: Final[Mapping[str, str]] = MappingProxyType({})
FACTORS: Final[Mapping[str | None, float]] = {"MiBy": 2.0**-20, "GiBy": 2.0**-30, "MBy": 1e-6}
"""Default of `ToolName.factor` for units of other tools; 1 for units that are not here."""


class ToolName(NamedTuple):
    """
    Another tool's name for a metric.

    It may have placeholders such as `{gpu}`: our dimension's value replaces it, and the dimension is dropped.
    """

    template: str
    unit: str | None = None
    """The other tool's unit; None: ours."""
    factor: float = 1.0
    dims: Mapping[str, str] = NONE
    """
    The other tool's dimensions: their keys, and values with placeholders.

    A dimension is left out if a placeholder has no value. A value may have alternatives with `|` between them: the
    first one whose placeholders have values counts.
    """
    words: Mapping[str, str] = NONE
    """The other tool's words for our values of placeholders."""
    only: Mapping[str, str] = NONE
    """Dimensions that a series must have to get this name; other series keep ours."""
    help: str = ""
    """Help for a name that several of our metrics share; "": ours."""

    def fits(self, dims: Dimensions) -> bool:
        """Return whether a series with these dimensions can have the name."""
        return {*PLACEHOLDER.findall(self.template)} <= {*dims} and self.only.items() <= dims.items()


class Copy(NamedTuple):
    """A second metric that another tool makes of one of ours: a copy of its points, or a value computed from them."""

    name: ToolName
    of_tree: bool = False
    """True to copy only points of GPUs that the watched process tree uses."""
    mean_over: str = ""
    """Dimension over which the points are averaged, which leaves one point for all devices; "": no mean."""
    last_of: str = ""
    """Dimension whose value is sent: of several counters, that of the one that rose last. "": none."""
    drops: tuple[str, ...] = ()
    """Dimensions to leave out, since they depend on `last_of`."""
    rate: bool = False
    """True for a gauge with the counter's increase per second."""
    limited: bool | None = None
    """True: copy only if the container's memory is limited; False: only if it is not; None: always."""


class Profile(NamedTuple):
    """The names that one other tool uses."""

    names: Mapping[str, ToolName] = MappingProxyType({})
    """Our name of a metric -> the tool's name of it."""
    copies: Mapping[str, Copy] = MappingProxyType({})
    """Our name of a metric -> the tool's second metric with the same values, which is sent in addition."""
    machine: Mapping[str, str] = NONE
    """The tool's keys for the machine's dimensions. They are used for all metrics, renamed or not."""
    scraped: str = ""
    """
    The tool's name for a scraped metric, with placeholders.

    `{endpoint}` is the page, `{metric}` the name on the page, and `{index}` numbers the series of this name.
    """
    cumulative: bool = False
    """True if the tool's counters include what was counted before it started; False if they begin at 0."""
    version: str = ""
    """Version of the tool's conventions."""
    others: Mapping[str, str] = NONE
    """Like `ToolName.dims`, for metrics that have no name in this profile."""
    owners: tuple[str, ...] = ()
    """The labels that the tool puts on a device's metrics to say who holds the device."""
    adds: tuple[str, ...] = ()
    """Further dimensions that the tool's attributes need; collectors add them, unless their options forbid it."""

    def meanings(self) -> Iterator[tuple[str, tuple[str, str | None, float]]]:
        """Yield each name with its meaning: our metric, the tool's unit and the factor to it."""
        for metric, name in (*self.names.items(), *((metric, copy.name) for metric, copy in self.copies.items())):
            yield name.template, (metric, name.unit, name.factor)


def placeholders(dims: Mapping[str, str]) -> set[str]:
    """Return the keys of our dimensions whose values another tool's `dims` need."""
    return {*PLACEHOLDER.findall(" ".join(dims.values()))}


@cache
def profile(name: str) -> Profile:
    """
    Return a profile of PROFILES. A table with a `base` adds to another profile, and may rename its names.

    `of_tree` lists metrics of GPUs with a copy for the process tree: `gpu.process.{gpu}.x` of `gpu.{gpu}.x`.
    """
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
    for metric in table.get("of_tree", ()):
        whole = names[metric]
        copies[metric] = Copy(whole._replace(template=whole.template.replace("gpu.", "gpu.process.", 1)), of_tree=True)
    return Profile(
        {metric: new for metric, new in names.items() if metric not in table.get("without", ())},
        copies,
        table.get("machine") or {key: renamed.get(theirs, theirs) for key, theirs in base.machine.items()},
        table.get("scraped", base.scraped),
        table.get("cumulative", base.cumulative),
        table.get("version", ""),
        table.get("others") or {renamed.get(key, key): value for key, value in base.others.items()},
        tuple(table.get("owners", base.owners)),
        tuple(table.get("adds", base.adds)),
    )


@cache
def profiles(names: str) -> tuple[tuple[Profile, ...], tuple[str, ...]]:
    """
    Return the profiles of a list such as `dcgm,dcgm4.7`, for names side by side, and a sentence for each name left out.

    A name that several profiles have is sent once, as the first of them has it. If it means something else in a later
    one (another metric, unit or factor), a sentence says so.
    """
    first, *others = names.split(",")
    tools, lost = [profile(first)], dict[str, None]()
    sent = dict.fromkeys(tools[0].names, (first, ("", None, 0.0))) | {
        template: (first, meaning) for template, meaning in tools[0].meanings()
    }
    for word in others:
        tool, again = profile(word), set[str]()
        for template, meaning in tool.meanings():
            same_as_ours = (first, (template, None, 1.0)) if template == meaning[0] else None
            if held := sent.get(template) or same_as_ours:
                again.add(template)
                if held[1] != meaning:
                    lost[f"names: {template} is sent as {held[0]} has it, not as {word}, which stands later"] = None
        names_left = {metric: name for metric, name in tool.names.items() if name.template not in again}
        copies_left = {metric: copy for metric, copy in tool.copies.items() if copy.name.template not in again}
        tools.append(tool._replace(names=names_left, copies=copies_left))
        sent |= {template: (word, meaning) for template, meaning in tools[-1].meanings()}
    return tuple(tools), tuple(lost)


def _renamed(old: ToolName, renamed: Mapping[str, Any]) -> ToolName:
    labels = {renamed.get(key, key): value for key, value in old.dims.items()}
    new = renamed.get(old.template, old.template)
    return old._replace(dims=labels, **(new if isinstance(new, dict) else {"template": new}))


def _copy(entry: Mapping[str, Any], table: Mapping[str, Any]) -> Copy:
    options = {key: value for key, value in entry.items() if key in Copy._fields and key != "name"}
    return Copy(_name(entry, table), **options | {"drops": tuple(entry.get("drops", ()))})


def _name(entry: str | Mapping[str, Any], table: Mapping[str, Any]) -> ToolName:
    """Return the ToolName in an entry, a text or a table, which may refer to shared dims, words and help of `table`."""
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
