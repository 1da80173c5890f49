"""One window's points as the spool keeps track of them, and the destination that they belong to."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from chipwatch.datapoint import Datapoint, Dimensions

NEWEST: Final = "newest"
"""Memo of when the newest point of all was measured (ns since the epoch, 8 bytes)."""
STATE: Final = "sink"
"""Memo of what the sink must know after a restart; the destination follows if it is known."""


def place_of(destination: Mapping[str, str]) -> dict[str, str]:
    """Return a destination with its addresses cut to host and path: user, password and query may be secrets."""
    return {
        word: re.split(r"[?#]", re.sub("//[^/?#]*@", "//", value))[0] if "://" in f"{value}" else value
        for word, value in destination.items()
    }


def label_of(destination: Mapping[str, str]) -> bytes:
    """Return a destination as the spool's file stores it."""
    return json.dumps(place_of(destination), sort_keys=True).encode()


def relabelled(label: bytes) -> bytes:
    """Return a label of an older version, which may hold queries, as this version stores it."""
    return label_of(json.loads(label))


def shown(label: bytes) -> str:
    """Return a destination for people, without its empty values."""
    return ", ".join(f"{word}={value}" for word, value in place_of(json.loads(label)).items() if value) or "not known"


def fits(label: bytes, destination: Mapping[str, str]) -> bool:
    """Return whether every value that the label has is that of `destination`."""
    place = place_of(destination)
    return all(place.get(word) == value for word, value in place_of(json.loads(label)).items())


@dataclass(slots=True, eq=False)
class Chunk:
    """One window's points; the first `done` of them have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    """Bytes on disk, or about as many in memory."""
    newest: int
    """When its newest point was measured (ns since the epoch)."""
    destination: bytes
    done: int = 0
    failed_reads: int = 0
    stored: bool = False
    points: list[Datapoint] | None = None
    common: Dimensions | None = None

    @property
    def left(self) -> int:
        """Number of points that have not ended."""
        return self.count - self.done
