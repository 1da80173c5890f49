"""One window's points as the spool keeps track of them, and where they are to go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from agent.datapoint import Datapoint, Dimensions
from agent.spool import codec

UNWRITABLE: Final = (TypeError, ValueError, OverflowError)
"""What points raise that no chunk can hold."""


def is_writable(point: Datapoint, common: Dimensions | None) -> bool:
    """Tell whether a chunk can hold `point`."""
    try:
        codec.encode([point], common)
    except UNWRITABLE:
        return False
    return True


def label_of(destination: Mapping[str, str]) -> bytes:
    """Return a destination as the spool's file holds it."""
    return json.dumps(dict(destination), sort_keys=True).encode()


def shown(label: bytes) -> str:
    """Return a destination for people, without its empty values."""
    return ", ".join(f"{word}={value}" for word, value in json.loads(label).items() if value) or "not known"


def fits(label: bytes, destination: Mapping[str, str]) -> bool:
    """Tell whether every value that the label knows is that of `destination`."""
    return all(destination.get(word) == value for word, value in json.loads(label).items())


@dataclass(slots=True, eq=False)
class Chunk:
    """One window's points, of which the first `done` have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    newest: int
    destination: bytes
    done: int = 0
    withheld: int = 0
    stored: bool = False
    points: list[Datapoint] | None = None
    common: Dimensions | None = None

    @property
    def left(self) -> int:
        """How many points have not ended."""
        return self.count - self.done
