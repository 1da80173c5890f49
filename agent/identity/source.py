"""The contract of a source of identity values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple, Protocol

MAX_LENGTH: Final = 1024
"""Characters of a value: the limit of CloudWatch's API_Dimension."""


class Word(NamedTuple):
    """The value of a dimension, and its origin for messages."""

    value: str
    origin: str


NOTHING: Final[Mapping[str, Word]] = MappingProxyType({})


class Answer(NamedTuple):
    """The values that a source has now."""

    words: Mapping[str, Word] = NOTHING
    trouble: str = ""
    """Why values are missing: what is missing, where it was looked for, what to do."""
    retry: bool = False
    """Whether the platform was detected and a later request may return more."""


class Source(Protocol):
    """A source of values for some dimensions of the identity."""

    name: ClassVar[str]
    words: ClassVar[Collection[str]]
    """The dimensions that it may have values for."""
    remote: bool = False
    """Whether `ask` makes a network request; it then runs on a thread."""

    def is_here(self) -> bool:
        """Return whether the platform is detected on this machine, without a network request."""
        return False

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return the values that it has now, at least of the dimensions `wanted`; raises nothing."""
        ...


def fit(values: Mapping[str, object], origin: str) -> dict[str, Word]:
    """Return the `values` that a dimension may have: printable texts, not blank, at most MAX_LENGTH long."""
    return {
        word: Word(value.strip(), origin)
        for word, value in values.items()
        if isinstance(value, str) and value.strip().isprintable() and 0 < len(value.strip()) <= MAX_LENGTH
    }
