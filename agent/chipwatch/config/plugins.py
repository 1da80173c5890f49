"""Names -> classes, by entry point; a plugin is imported only when it is asked for."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from chipwatch.config.entry_points import EntryPoint, entry_points
from chipwatch.contract import extensions
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Metric
from chipwatch.contract.errors import ConfigError, text_of
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Limits, Sink

COLLECTORS: Final = "chipwatch.collectors"
PROCESSORS: Final = "chipwatch.processors"
SINKS: Final = "chipwatch.sinks"
ADVISORS: Final = "chipwatch.advisors"
FAMILIES: Final[Mapping[str, list[str]]] = json.loads(Path(__file__).with_name("families.json").read_text("utf-8"))
"""Word -> the collectors that it stands for, wherever collectors are named."""
CONTRACTS: Final[Mapping[str, type]] = {COLLECTORS: Collector, PROCESSORS: Processor, SINKS: Sink}
"""Group -> the contract of its classes, which need not derive from it."""
_protocols: Final = [shape for shape in vars(extensions).values() if getattr(shape, "_is_protocol", False)]
_members: Final = {name for shape in _protocols for name in (*shape.__annotations__, *vars(shape))}
ABILITIES: Final = sorted(name for name in _members if not name.startswith("_"))
"""The members of all extensions."""


class LeftOut(ConfigError):
    """An attribute of a plugin cannot be read, so the agent goes on without the plugin."""


class UnknownPlugin(LookupError):
    """No plugin of that name is installed; the message lists those that are."""


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of `group` by name, sorted."""
    return {point.name: point for point in sorted(entry_points(group), key=lambda p: p.name)}


def spelt_out(words: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the names that `words` stand for: names, families, or `all` for all `known` ones; each once."""
    families = {**FAMILIES, "all": [*known]}
    return [*dict.fromkeys(name for word in words for name in families.get(word, [word]))]


def load(group: str, name: str, registry: Mapping[str, EntryPoint] | None = None) -> Any:
    """Import and return the class `name` of the installed ones; raise UnknownPlugin, ImportError, or ConfigError."""
    registry = installed(group) if registry is None else registry
    if name not in registry:
        kind = group.removeprefix("chipwatch.").removesuffix("s")
        raise UnknownPlugin(f"no {kind} {name!r}; installed: {', '.join(registry) or 'none'}")
    with blamed(group, name, "its import fails", (ImportError,)):
        return registry[name].load()


def check(group: str, name: str, cls: Any) -> None:
    """Raise ConfigError unless `cls` fits its contract."""
    shape = getattr(cls, "Config", None)
    if not isinstance(cls, type):
        fault = "is not a class"
    elif not (isinstance(shape, type) and dataclasses.is_dataclass(shape)):
        fault = "has no dataclass Config"
    elif missing := [name for name in _methods(CONTRACTS[group]) if not callable(getattr(cls, name, None))]:
        fault = f"has no method {missing[0]}; chipwatch.{CONTRACTS[group].__name__} says what it does"
    else:
        with blamed(group, name, "its Config cannot be read"):
            typing.get_type_hints(shape)
        return
    raise ConfigError(f"{_where(group, name)}: not a plugin: {cls!r} {fault}")


def build(group: str, name: str, cls: Any, config: Any) -> Any:
    """Return a plugin of a class that was checked; raise ConfigError, LeftOut for a property that fails."""
    with blamed(group, name, "it cannot be built"):
        plugin = cls(config)
        if group == SINKS and not (
            isinstance(limits := getattr(plugin, "limits", None), Limits) and limits.max_points > 0
        ):
            raise TypeError(f"limits: expected Limits with max_points from 1, got {limits!r:.27}")
        if group == COLLECTORS and (wrong := [metric for metric in plugin.metrics if not isinstance(metric, Metric)]):
            raise TypeError(f"metrics: expected Metric, got {wrong[0]!r}")
    for ability in ABILITIES:
        try:
            with blamed(group, name, f"it is left out, since {ability} fails"):
                _try_ability(plugin, ability)
        except ConfigError as problem:
            raise LeftOut(str(problem)) from problem
    return plugin


def _try_ability(plugin: Any, name: str) -> None:
    """Use a member of an extension as the agent will; raise what the plugin raises."""
    if hasattr(type(plugin), name) or hasattr(plugin, name):
        value = getattr(plugin, name)
        if name in ("level", "state", "zeros"):
            setattr(plugin, name, value)
        elif name in ("always", "events"):
            frozenset(value)


@contextlib.contextmanager
def blamed(group: str, name: str, what: str, spared: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise ConfigError, which says `what` failed, for exceptions of a plugin's code except `spared` ones."""
    try:
        yield
    except BaseException as bug:
        if isinstance(bug, (ConfigError, MemoryError, KeyboardInterrupt, *spared)):
            raise
        raise ConfigError(f"{_where(group, name)}: {what}: {type(bug).__name__}: {text_of(bug)}") from bug


def _methods(contract: type) -> list[str]:
    """Return the names of the methods of a contract."""
    return [name for name, member in vars(contract).items() if callable(member) and not name.startswith("_")]


def _where(group: str, name: str) -> str:
    return f"{group.removeprefix('chipwatch.')}.{name}"
