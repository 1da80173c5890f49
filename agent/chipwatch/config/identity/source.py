"""The contract of a source of identity values, and of one that asks the metadata service of a platform."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from chipwatch.config.identity.names import known_by
from chipwatch.net.metadata_service import NoMetadata, NoService, decode

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


class RemoteSource(IdentitySource):
    """A source that reads a service of its platform."""

    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        try:
            words, origin = self.read(wanted)
        except NoService as problem:
            return IdentityAnswer(trouble=str(problem))
        except NoMetadata as problem:
            return IdentityAnswer(trouble=str(problem), retry=problem.retry or self.is_here())
        missing = [word for word in self.words if word in wanted and word not in words]
        return IdentityAnswer(words, f"{origin} lacks {', '.join(missing)}" if missing else "")

    @abstractmethod
    def read(self, wanted: Collection[str]) -> tuple[Mapping[str, Word], str]:
        """Return the values and, for messages, their origin; raise NoService or NoMetadata."""


def fit(values: Mapping[str, object], origin: str) -> dict[str, Word]:
    """Return the `values` that a dimension may have: printable texts, not blank, at most MAX_LENGTH long."""
    return {
        word: Word(value.strip(), origin)
        for word, value in values.items()
        if isinstance(value, str) and value.strip().isprintable() and 0 < len(value.strip()) <= MAX_LENGTH
    }


def values_of(body: bytes, paths: Mapping[str, str], origin: str, what: str) -> dict[str, Word]:
    """
    Return the values that stand at `paths` (dimension -> keys with dots between) of a JSON document.

    Of a value that is a path itself, such as an ARN or projects/NUMBER/zones/ZONE, the last part counts. Raise
    NoMetadata if the document is not `what` it should be.
    """
    wrong = f"{origin} is not {what}"
    document, values = decode(body, dict[str, Any], wrong), dict[str, str]()
    for word, path in paths.items():
        value: Any = document
        for key in path.split("."):
            value = {} if value is None else value
            if not isinstance(value, dict):
                raise NoMetadata(wrong)
            value = value.get(key)
        if not isinstance(value, str | None) and not (key == "id" and isinstance(value, int)):  # Google's is a number
            raise NoMetadata(wrong)
        values[word] = str(value or "").rpartition("/")[2]
    return fit(values, origin)
