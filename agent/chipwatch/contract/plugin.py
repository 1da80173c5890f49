"""The needs of a plugin, the agent's gifts to it, and whether its class keeps the contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipwatch.contract.datapoint import Level

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The agent gives this to `open`: the needs of the class, and defaults for all else."""

    level: Level = Level.ALL
    """The highest level that any sink wants; points above it are dropped in any case."""
    state: Path | None = None
    """Folder for files that outlast a restart; None: keep nothing."""
    zeros: bool = True
    """Yield counters of events also at 0."""
    append: Callable[[Sequence[Record]], bool] = lambda _: False
    """Adds records to the state folder; returns False while there is none, raises OSError."""
    note: Callable[[str, str, bool], None] = lambda *_: None
    """Takes a job, a sentence and whether it is slow, for recordings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """Needs of a plugin: `needs = Needs(level=True)` in its class."""

    level: bool = False
    """To skip costly work below a level: `Given.level`."""
    state: bool = False
    """To know something after a restart: a collector by files in `Given.state`, others by `saved` and `restore`."""
    events: Collection[str] = ()
    """Names of counters that are points only once there was an event, unless a sink needs them at 0: `Given.zeros`."""
    always: Collection[str] = ()
    """Names of metrics that `chipwatch verdict` needs at any level; a sink gets only what its level asks for."""
    pids: bool = False
    """A collector: the processes on the devices of others, by `follow`; it is read after those."""
    facts: bool = False
    """A processor: the facts of collectors in each tick."""
    records: bool = False
    """A processor: to write down what has ended, and why a job is slow: `Given.append` and `Given.note`."""
    words: Sequence[str] = ()
    """
    A sink: words of `--common-dims`, as far as they can be known.

    Each comes as a dimension of every point, under `@` and the word: never a part of what is sent as dimensions.
    """
    libraries: Sequence[str] = ()
    """Modules that `open` imports: looked for before the plugin is built."""
    devices: Level | None = None
    """Up to this level it does nothing where no collector finds a device: it is not called, or read only once."""

    def of(self, given: Given) -> Given:
        """Return what is needed of `given`."""
        return Given(
            level=given.level if self.level else Level.ALL,
            state=given.state if self.state else None,
            zeros=given.zeros or not self.events,
            append=given.append if self.records else Given().append,
            note=given.note if self.records else Given().note,
        )


def fault_of(cls: Any, contract: Any) -> str | None:
    """Return how a class breaks the contract from which it has to derive, in words that follow its name; or None."""
    name = contract.__name__
    if not issubclass(cls, contract):
        return f"does not derive from {name}: write `from chipwatch import {name}` and `class {cls.__name__}({name}):`"
    for word in methods_of(contract):
        if not callable(getattr(cls, word)):
            return f"has {word} = {getattr(cls, word)!r:.40}, which hides a method of {name}: give it another name"
        if word in cls.__abstractmethods__:
            return f"has no method {word}; chipwatch.{name} says what it does"
    own = vars(contract)
    for word, kind in ("needs", Needs), ("knows", tuple):
        if word in own and not isinstance(getattr(cls, word), kind):
            return f"has {word} = {getattr(cls, word)!r:.40}, where {name} has a {kind.__name__}: give it another name"
    if "knows" in own and not cls.knows and cls.facts is not contract.facts:
        return "has a method facts, and `knows` does not say of what kinds: write knows = (Device, ...)"
    return None


def methods_of(contract: type) -> list[str]:
    """Return the names of the public methods of a contract."""
    return [name for name, member in vars(contract).items() if callable(member) and not name.startswith("_")]


def hidden_methods(plugin: object, contract: type) -> list[str]:
    """Return the methods of a contract that attributes of this plugin hide; `facts` is asked by its class."""
    return [name for name in methods_of(contract) if not callable(getattr(plugin, name)) and name != "facts"]
