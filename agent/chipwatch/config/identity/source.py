"""The base classes of sources, which find values of the machine's dimensions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Final, NamedTuple

from chipwatch.config.identity.names import NAMES
from chipwatch.net.metadata_service import NoMetadata, NoService, parse_json

MAX_LENGTH: Final = 1024
"""Most characters of a value: the limit of CloudWatch (API_Dimension)."""


class Word(NamedTuple):
    """The value of a dimension, and its origin, for messages."""

    value: str
    origin: str


class IdentityAnswer(NamedTuple):
    """The answer of a source: the values that it has now."""

    words: Mapping[str, Word] = MappingProxyType({})
    trouble: str = ""
    """Reason why values are missing: which, where the source looked, and what to do; "" if all are there."""
    retry: bool = False
    """True if the platform was detected, and a later request may return more values."""


class IdentitySource(ABC):
    """Finds the values of some dimensions of the machine, in one place."""

    name: ClassVar[str]
    """The source's name in the table of dimensions, and in messages."""
    remote: bool = False
    """True if `ask` makes a network request; it is then called on a separate thread."""

    @cached_property
    def words(self) -> Collection[str]:
        """The dimensions that it may find values for."""
        return tuple(row.name for row in NAMES if self.name in row.sources)

    def is_here(self) -> bool:
        """Return whether this machine is known to be on the source's platform; make no network request."""
        return False

    @abstractmethod
    def ask(self, wanted: Collection[str]) -> IdentityAnswer:
        """Return the values that can be found now: of the dimensions `wanted`, and perhaps of others. Raise nothing."""


class RemoteSource(IdentitySource):
    """A source that reads the metadata service of its platform."""

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
        """Return the values, and their origin for messages; raise NoService or NoMetadata."""


def fit(values: Mapping[str, object], origin: str) -> dict[str, Word]:
    """Return the `values` that fit a dimension: printable texts, not blank, at most MAX_LENGTH long."""
    return {
        word: Word(value.strip(), origin)
        for word, value in values.items()
        if isinstance(value, str) and value.strip().isprintable() and 0 < len(value.strip()) <= MAX_LENGTH
    }


def read_text(file: Path, most: int) -> str:
    """Return the text of a file, of which at most `most` bytes are read; "" if it cannot be read."""
    try:
        with file.open("rb") as opened:
            return opened.read(most).decode(errors="replace").strip()
    except OSError:
        return ""


def values_in(body: bytes, paths: Mapping[str, str], origin: str, what: str) -> dict[str, Word]:
    """
    Return values in a JSON document; `paths` has the path of each dimension's value, keys with dots between them.

    If a value is itself a path, such as an ARN or projects/NUMBER/zones/ZONE, its last part counts. Raise NoMetadata if
    the document is not `what` it should be.
    """
    wrong = f"{origin} is not {what}"
    document, values = parse_json(body, dict[str, Any], wrong), dict[str, str]()
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
