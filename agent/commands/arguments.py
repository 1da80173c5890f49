"""Converters of command-line arguments; each raises ArgumentTypeError with the expected form and the given text."""

from __future__ import annotations

import argparse
import math
from typing import Final

MAX_SECONDS: Final = 1e9
"""Longest duration, 31 years: the system's clocks can wait as long."""
MAX_HOSTS: Final = 1_000_000
MAX_COUNT: Final = 86_400


def hosts(text: str) -> int:
    """Return a number of hosts."""
    if not 1 <= (number := whole(text)) <= MAX_HOSTS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MAX_HOSTS}, got {text!r}")
    return number


def price(text: str) -> float:
    """Return dollars."""
    if not 0 <= (number := _number(text)) < math.inf:
        raise argparse.ArgumentTypeError(f"expected a number of dollars, got {text!r}")
    return number


def seconds(text: str) -> float:
    """Return seconds."""
    if not 0 <= (number := _number(text)) <= MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return number


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def whole(text: str) -> int:
    """Return a whole number."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def count(text: str) -> int:
    """Return a whole number from 1 to MAX_COUNT."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MAX_COUNT):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MAX_COUNT}, got {text!r}")
    return int(text)


def words(text: str) -> tuple[str, ...]:
    """Return words separated by commas."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"expected words separated by commas, got {text!r}")
    return found


def pair(text: str) -> tuple[str, float]:
    """Return the name and the number of ALARM=NUMBER."""
    name, equals, number = text.partition("=")
    value = _number(number)
    if not (name and equals and 0 <= value < math.inf):
        raise argparse.ArgumentTypeError(f"expected ALARM=NUMBER, got {text!r}")
    return name, value
