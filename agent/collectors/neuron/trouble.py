"""What was wrong with the input, each kind once a tick."""

from __future__ import annotations

import re
from typing import Final

MOST: Final = 32
"""Kinds that are kept of one tick."""
DIGITS: Final = re.compile(r"\d+")


class Trouble:
    """Collects kinds of trouble; a kind is a sentence without numbers, so that the same one is said only once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._kinds: dict[str, None] = {}
        self._once: set[str] = set()

    def add(self, kind: str) -> None:
        """Note a kind of trouble."""
        if len(self._kinds) < MOST:
            self._kinds[kind] = None

    def once(self, kind: str) -> None:
        """Note something odd that is no news when it comes again."""
        if kind not in self._once and len(self._once) < MOST:
            self._once.add(kind)
            self.add(kind)

    def take(self) -> list[str]:
        """Return what was noted since the last call."""
        kinds, self._kinds = list(self._kinds), {}
        return kinds


def quoted(text: str, most: int = 120) -> str:
    """Return foreign text as part of a kind: on one line, cut, with N for each number (pids, addresses, times)."""
    return DIGITS.sub("N", " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * most]).split()))[:most]
