"""The contract of a source of identity values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import ClassVar, Final, NamedTuple

from chipwatch.identity.names import known_by

MAX_LENGTH: Final = 1024
"""Characters of a value: the limit of CloudWatch's API_Dimension."""


class Word(NamedTuple):
    """The value of a dimension, and its origin for messages."""

    value: str
    origin: str


class IdentityAnswer(NamedTuple):
    """The values that a source has now."""

    words: Mapping[str, Word] = MappingProxyType({})
    trouble: str = ""
    """Why values are missing: what is missing, where it was looked for, what to do."""
    retry: bool = False
    """True if the platform was detected and a later request may return more."""


class IdentitySource(ABC):
    """A source of values for some dimensions of the identity."""

    name: ClassVar[str]
    """The name in the table of dimensions, and in messages."""
    remote: bool = False
    """True if `ask` makes a network request; it then runs on a thread."""

    @cached_property
    def words(self) -> Collection[str]:
        """The dimensions that it may have values for."""
        return known_by(self.name)

    def is_here(self) -> bool:
        """Return whether the platform is detected on this machine, without a network request."""
        return False

    @abstractmethod
    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        """Return the values that it has now, at least of the dimensions `wanted`; raises nothing."""


def fit(values: Mapping[str, object], origin: str) -> dict[str, Word]:
    """Return the `values` that a dimension may have: printable texts, not blank, at most MAX_LENGTH long."""
    return {
        word: Word(value.strip(), origin)
        for word, value in values.items()
        if isinstance(value, str) and value.strip().isprintable() and 0 < len(value.strip()) <= MAX_LENGTH
    }
