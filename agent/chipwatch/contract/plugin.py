"""The things that plugins need and the agent gives them, and the check that a class keeps its contract."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chipwatch.contract.datapoint import Level

Record = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The agent passes this to `open`. Things that the class does not need have their defaults."""

    level: Level = Level.ALL
    """The highest level that any sink wants. The agent drops points above it anyway."""
    state: Path | None = None
    """Folder for files that outlast a restart; None if there is none."""
    zeros: bool = True
    """True to yield counters of events also while they are 0."""
    append: Callable[[Sequence[Record]], bool] = lambda _: False
    """Call it to add records to a file of the state folder. Returns False if there is no folder; may raise OSError."""
    note: Callable[[str, str, bool], None] = lambda *_: None
    """Call it to write a sentence about a job into recordings. Takes the job, the sentence, and whether it is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needs:
    """The things that a plugin needs. Write, for example, `needs = Needs(level=True)` in its class."""

    level: bool = False
    """It gets `Given.level`, to skip costly work below a level."""
    state: bool = False
    """It keeps state over a restart: a collector in files below `Given.state`, others by `saved` and `restore`."""
    events: Collection[str] = ()
    """Names of counters that it yields only after their first event, unless `Given.zeros` is set."""
    always: Collection[str] = ()
    """Names of metrics that are collected at any level, for `chipwatch verdict`. Sinks still get only their level."""
    pids: bool = False
    """A collector gets the processes on other collectors' devices by `follow`, and is read after these."""
    facts: bool = False
    """A processor gets the facts of collectors in each tick."""
    records: bool = False
    """A processor gets `Given.append` and `Given.note`."""
    words: Sequence[str] = ()
    """
    A sink gets these words of `--common-dims`, as far as they are known.

    Each is a dimension of every point, with the key `@` and the word. The sink must not send it as a dimension.
    """
    libraries: Sequence[str] = ()
    """Modules that `open` imports. The agent looks for them before it builds the plugin."""
    devices: Level | None = None
    """Up to this level, it has nothing to do on a host without a device: the agent reads it once, or never calls it."""

    def __post_init__(self) -> None:
        """Raise TypeError for a single text where names are expected: its letters would count as names."""
        for field in ("events", "always", "words", "libraries"):
            names = getattr(self, field)
            if isinstance(names, str) or not all(isinstance(name, str) for name in names):
                raise TypeError(f"Needs.{field}: expected names, such as ('a',), got {names!r:.40}")

    def of(self, given: Given) -> Given:
        """Return `given` with defaults in place of what the plugin does not need."""
        level, state = given.level if self.level else Level.ALL, given.state if self.state else None
        told = given if self.records else Given()
        return Given(level=level, state=state, zeros=given.zeros or not self.events, append=told.append, note=told.note)


def fault_of(cls: Any, contract: Any) -> str | None:
    """Return how a class breaks the contract (its base class), in words that follow the class's name; None if not."""
    name = contract.__name__
    if not issubclass(cls, contract):
        return f"does not derive from {name}: write `from chipwatch import {name}` and `class {cls.__name__}({name}):`"
    for word in methods_of(contract):
        if not callable(getattr(cls, word)):
            return f"has {word} = {getattr(cls, word)!r:.40}, which hides a method of {name}: give it another name"
        if word in cls.__abstractmethods__:
            return f"has no method {word}; chipwatch.{name} says what it does"
    for word, kind in ("needs", Needs), ("knows", tuple):
        if hasattr(contract, word) and not isinstance(getattr(cls, word), kind):
            return f"has {word} = {getattr(cls, word)!r:.40}: write a {kind.__name__}, or give it another name"
    if hasattr(contract, "knows") and not cls.knows and cls.facts is not contract.facts:
        return "has a method facts, and `knows` does not say of what kinds: write knows = (Device, ...)"
    return None


def methods_of(contract: type) -> list[str]:
    """Return the names of the public methods of a contract."""
    return [name for name, member in vars(contract).items() if callable(member) and not name.startswith("_")]


def hides(plugin: object, contract: type) -> str | None:
    """
    Return which attribute of a plugin hides what its class has, in words that follow the plugin's name; None if none.

    `facts` may be hidden: the agent asks the class.
    """
    for name in methods_of(contract):
        if not callable(getattr(plugin, name)) and name != "facts":
            return f"sets {name}, which hides a method of {contract.__name__}: give it another name"
    is_late = isinstance(getattr(plugin, "__dict__", {}).get("needs"), Needs)
    return "sets needs, which the agent reads from the class: write it there" if is_late else None
