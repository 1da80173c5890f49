"""Helpers for the words and numbers in messages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

SINGULAR: Final = {"are": "is", "were": "was", "wait": "waits"}


def line_width(most: int) -> int:
    """Return the width of a line on standard output: that of its terminal, but at most `most`."""
    try:
        return min(most, os.get_terminal_size(sys.stdout.fileno()).columns or most)
    except (AttributeError, OSError, ValueError):  # there is no terminal, or no standard output
        return most


def similar(word: str, words: Iterable[str]) -> list[str]:
    """Return at most two of `words`, the most similar one first."""
    from difflib import get_close_matches

    by_lower = {text.lower(): text for text in words}
    return [by_lower[near] for near in get_close_matches(word.lower(), by_lower, 2)]


def nearest(word: str, words: Iterable[str], otherwise: str | None = None) -> str:
    """Return the end of a message: the words most similar to `word`; if none is, `otherwise`, or all of them."""
    words = words if isinstance(words, Sequence) else sorted(words)
    if near := similar(word, words):
        return f"; did you mean {' or '.join(near)}?"
    return f"; choose from: {', '.join(words)}" if otherwise is None else otherwise


def nearest_file(path: Path) -> str:
    """Return the end of a message about a file that cannot be read: the files beside it with a similar name."""
    beside = () if os.path.lexists(path) else path.parent.glob("*")
    return nearest(path.name, (each.name for each in beside), "")


def in_case_of(word: str, words: Iterable[str]) -> str:
    """Return the one of `words` that equals `word` if case is ignored; if there is none, return `word`."""
    known = [*words]
    return word if word in known else next((text for text in known if text.lower() == word.lower()), word)


def is_lacking(reason: str) -> bool:
    """Return whether the message of an Unavailable says that the machine lacks the device, and so nothing is wrong."""
    return reason.startswith(("no ", "not in ")) or reason.endswith(" on Linux only")


def duration(seconds: float, units: int = 4) -> str:
    """Return seconds as 8.3 s, 12 s or 1 h 12 min 8 s; use only the first `units` units, and leave out zeros."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    left = round(seconds)
    parts: list[tuple[int, str]] = []
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
        number, left = divmod(left, size)
        if number or parts:
            parts.append((number, unit))
    return " ".join(f"{number} {unit}" for number, unit in parts[:units] if number)


def count(number: int, verb: str = "") -> str:
    """Return a number of points in words; a `verb` is changed to fit it: `1 point is`, `2 points are`."""
    return (f"1 point {SINGULAR.get(verb, verb)}" if number == 1 else f"{number:,} points {verb}").rstrip()
