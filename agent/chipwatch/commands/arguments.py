"""Converters of command-line arguments; each raises ValueError with the given text and the expected form."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from chipwatch.config import duration

MAX_SECONDS: Final = 1e9
"""Longest duration, 31 years: the system's clocks can wait as long."""


def _wrong(text: str, expected: str) -> ValueError:
    return ValueError(f"{text or repr(text)}: expected {expected}")


def whole(most: int) -> Callable[[str], int]:
    """Return a converter to a whole number from 1 to `most`."""

    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
            raise _wrong(text, f"a whole number from 1 to {most}")
        return int(text)

    return convert


def price(text: str) -> float:
    """Return dollars."""
    if not 0 <= (number := _number(text)) < math.inf:
        raise _wrong(text, "a number of dollars")
    return number


def seconds(text: str) -> float:
    """Return seconds."""
    try:
        number = duration.seconds(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= MAX_SECONDS:
        raise _wrong(text, "a time such as 5, 500ms, 1m or 7d")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def words(text: str) -> tuple[str, ...]:
    """Return words separated by commas."""
    if not (found := tuple(filter(None, map(str.strip, text.split(","))))):
        raise _wrong(text, "words separated by commas")
    return found


def pair(text: str) -> tuple[str, float]:
    """Return the name and the number of ALARM=NUMBER."""
    name, _, number = text.partition("=")
    if not (name and 0 <= (value := _number(number)) < math.inf):
        raise _wrong(text, "ALARM=NUMBER")
    return name, value
