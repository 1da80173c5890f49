"""Finds the classes of plugins by name, imports them only when needed, and blames a plugin for its own faults."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from configparser import ConfigParser, Error
from functools import lru_cache, reduce
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Metric
from chipwatch.contract.errors import ConfigError, text_of
from chipwatch.contract.plugin import fault_of, hides
from chipwatch.contract.processor import Processor
from chipwatch.contract.sink import Limits, Sink

COLLECTORS: Final = "chipwatch.collectors"
PROCESSORS: Final = "chipwatch.processors"
SINKS: Final = "chipwatch.sinks"
ADVISORS: Final = "chipwatch.advisors"
FAMILIES: Final[Mapping[str, list[str]]] = json.loads(Path(__file__).with_name("families.json").read_text("utf-8"))
"""Words that stand for several collectors, wherever a user names collectors."""
CONTRACTS: Final[Mapping[str, type]] = {COLLECTORS: Collector, PROCESSORS: Processor, SINKS: Sink}
"""The base class of each group of plugins."""


class EntryPoint(NamedTuple):
    """An object that a distribution offers: `module:attribute`, perhaps with extras in brackets after it."""

    value: str

    def load(self) -> Any:
        """Import and return the object; raise ImportError, also where its module has no such name."""
        module, _, attributes = self.value.partition("[")[0].partition(":")
        imported = import_module(module.strip())
        try:
            return reduce(getattr, filter(None, attributes.strip().split(".")), imported)
        except AttributeError as problem:
            raise ImportError(str(problem)) from problem


def installed(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name, sorted; files are read again when a folder of `sys.path` changes."""
    places = [place or "." for place in dict.fromkeys(sys.path) if os.path.isdir(place or ".")]  # noqa: PTH112  # quicker
    points = _entry_points(tuple((place, Path(place).stat().st_mtime_ns) for place in places))
    return {name: EntryPoint(value) for name, value in sorted(points[group].items())} if group in points else {}


@lru_cache(maxsize=1)
def _entry_points(places: tuple[tuple[str, int], ...]) -> ConfigParser:
    """Return the entry points of all distributions, each by its first copy; importlib.metadata would take 1.9 MB."""
    points = ConfigParser(delimiters="=", interpolation=None, strict=False, default_section="")
    points.optionxform = str  # type: ignore[assignment,method-assign]  # names have their case
    folders: dict[str, Path] = {}
    for folder in (folder for place, _ in places for folder in sorted(Path(place).glob("*.*-info"))):
        folders.setdefault(folder.stem.partition("-")[0].lower().replace(".", "_"), folder)
    for folder in folders.values():
        with contextlib.suppress(OSError, ValueError, Error):  # such a file costs its own plugins alone
            points.read_string((folder / "entry_points.txt").read_text(encoding="utf-8"))
    return points


def spelt_out(words: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the names that `words` stand for, each once. A word is a name, a family, or `all` for all `known`."""
    families = {**FAMILIES, "all": [*known]}
    return [*dict.fromkeys(name for word in words for name in families.get(word, [word]))]


def load(group: str, name: str, registry: Mapping[str, EntryPoint] | None = None, contract: type | None = None) -> Any:
    """
    Import the class of an installed plugin, check it and return it; raise ImportError or ConfigError.

    `contract` is the base class for a group that is not in CONTRACTS; its classes need no Config.
    """
    registry = installed(group) if registry is None else registry
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
    """Build a plugin of the class `cls` with the options `config`, and check it; raise ConfigError."""
    with blamed(group, name, "it cannot be built"):
        plugin = cls(config)
        if fault := hides(plugin, CONTRACTS[group]):
            raise TypeError(f"it {fault}")
        if group == SINKS:
            limits = getattr(plugin, "limits", None)
            if not (isinstance(limits, Limits) and limits.max_points > 0):
                raise TypeError(f"limits: expected Limits with max_points from 1, got {limits!r:.27}")
            plugin.waits()
            return plugin
        metrics = plugin.metrics
        if not (isinstance(metrics, Sequence) and all(isinstance(metric, Metric) for metric in metrics)):
            raise TypeError(f"metrics: expected a tuple of Metric, got {metrics!r:.60}")
        if group == COLLECTORS:
            plugin.yields_others()
    return plugin


@contextlib.contextmanager
def blamed(group: str, name: str, what: str, spared: tuple[type[Exception], ...] = ()) -> Iterator[None]:
    """Turn an exception of a plugin's code in the block into ConfigError with `what`; let `spared` types pass."""
    try:
        yield
    except BaseException as bug:
        if isinstance(bug, (ConfigError, MemoryError, KeyboardInterrupt, *spared)):
            raise
        raise ConfigError(f"{_where(group, name)}: {what}: {type(bug).__name__}: {text_of(bug)}") from bug


def _where(group: str, name: str) -> str:
    return f"{group.removeprefix('chipwatch.')}.{name}"
