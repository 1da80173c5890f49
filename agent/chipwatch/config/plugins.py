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
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Metric
from chipwatch.contract.errors import ConfigError, text_of
from chipwatch.contract.plugin import fault_of, hidden_methods
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Limits, Sink

COLLECTORS: Final = "chipwatch.collectors"
PROCESSORS: Final = "chipwatch.processors"
SINKS: Final = "chipwatch.sinks"
ADVISORS: Final = "chipwatch.advisors"
FAMILIES: Final[Mapping[str, list[str]]] = json.loads(Path(__file__).with_name("families.json").read_text("utf-8"))
"""Word -> the collectors that it stands for, wherever collectors are named."""
CONTRACTS: Final[Mapping[str, type]] = {COLLECTORS: Collector, PROCESSORS: Processor, SINKS: Sink}
"""Group -> the base of its classes."""


class UnknownPlugin(LookupError):
    """No plugin of that name is installed; the message lists those that are."""


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of `group` by name, sorted."""
    return {point.name: point for point in sorted(entry_points(group), key=lambda p: p.name)}


def spelt_out(words: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the names that `words` stand for: names, families, or `all` for all `known` ones; each once."""
    families = {**FAMILIES, "all": [*known]}
    return [*dict.fromkeys(name for word in words for name in families.get(word, [word]))]


def load(group: str, name: str, registry: Mapping[str, EntryPoint] | None = None, contract: type | None = None) -> Any:
    """
    Import, check and return the class `name` of the installed ones; raise UnknownPlugin, ImportError, or ConfigError.

    `contract` is its base where the group has none in CONTRACTS: such a class needs no Config.
    """
    registry = installed(group) if registry is None else registry
    if name not in registry:
        kind = group.removeprefix("chipwatch.").removesuffix("s")
        raise UnknownPlugin(f"no {kind} {name!r}; installed: {', '.join(registry) or 'none'}")
    with blamed(group, name, "its import fails", (ImportError,)):
        cls = registry[name].load()
    fault = fault_of(cls, contract or CONTRACTS[group]) if isinstance(cls, type) else "is not a class"
    shape = getattr(cls, "Config", None)
    if not (fault or contract) and not (isinstance(shape, type) and dataclasses.is_dataclass(shape)):
        fault = "has no dataclass Config"
    if fault:
        raise ConfigError(f"{_where(group, name)}: not a plugin: {cls!r} {fault}")
    with blamed(group, name, "its Config cannot be read"):
        typing.get_type_hints(shape or object)
    return cls


def build(group: str, name: str, cls: Any, config: Any) -> Any:
    """Return a plugin of a class that was loaded; raise ConfigError."""
    with blamed(group, name, "it cannot be built"):
        plugin = cls(config)
        if hidden := hidden_methods(plugin, CONTRACTS[group]):
            raise TypeError(f"its attribute {hidden[0]} hides a method of {CONTRACTS[group].__name__}: rename it")
        if group == SINKS and not (
            isinstance(limits := getattr(plugin, "limits", None), Limits) and limits.max_points > 0
        ):
            raise TypeError(f"limits: expected Limits with max_points from 1, got {limits!r:.27}")
        if group == COLLECTORS:
            if wrong := [metric for metric in plugin.metrics if not isinstance(metric, Metric)]:
                raise TypeError(f"metrics: expected Metric, got {wrong[0]!r}")
            plugin.yields_others()
        elif group == SINKS:
            plugin.waits()
    return plugin


@contextlib.contextmanager
def blamed(group: str, name: str, what: str, spared: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Raise ConfigError, which says `what` failed, for exceptions of a plugin's code except `spared` ones."""
    try:
        yield
    except BaseException as bug:
        if isinstance(bug, (ConfigError, MemoryError, KeyboardInterrupt, *spared)):
            raise
        raise ConfigError(f"{_where(group, name)}: {what}: {type(bug).__name__}: {text_of(bug)}") from bug


def _where(group: str, name: str) -> str:
    return f"{group.removeprefix('chipwatch.')}.{name}"
