"""What a source is: somebody who knows some of the words."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, Protocol

LONGEST: Final = 1024
"""Characters that a value may have: the most that a cloud takes (CloudWatch's API_Dimension)."""


class Word(NamedTuple):
    """A value for a word, and where it was read, for people."""

    value: str
    origin: str


NOTHING: Final[Mapping[str, Word]] = MappingProxyType({})


class Answer(NamedTuple):
    """What a source knows now."""

    words: Mapping[str, Word] = NOTHING
    trouble: str = ""
    """Why it knows no more: what is missing, where it looked, what to do."""
    retry: bool = False
    """Its platform is there, and may know more later."""


class Source(Protocol):
    """Somebody who knows some of the words."""

    name: ClassVar[str]
    words: ClassVar[Collection[str]]
    """All that it may ever know."""
    remote: bool = False
    """To ask takes a request over the network: it is done on a thread."""

    def is_here(self) -> bool:
        """Tell whether something on this machine shows that its platform is there, whatever the network says."""
        return False

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return what it knows now, at least of the words `wanted`; raises nothing."""
        ...


def fit(values: Mapping[str, object], origin: str) -> dict[str, Word]:
    """Return those of `values` that are fit to be a dimension's: a text, printable, neither blank nor endless."""
    return {
        word: Word(value.strip(), origin)
        for word, value in values.items()
        if isinstance(value, str) and value.strip().isprintable() and 0 < len(value.strip()) <= LONGEST
    }
