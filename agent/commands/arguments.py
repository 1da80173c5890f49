"""What a word of the command line must look like: each takes the text, and says in our words what is wrong with it."""

from __future__ import annotations

import argparse
import math
from typing import Final

LONGEST: Final = 1e9
"""Seconds that a duration may have: what the system's clocks can wait for, and 31 years."""
MOST_HOSTS: Final = 1_000_000
MOST: Final = 86_400


def hosts(text: str) -> int:
    """Return how many hosts; raise ArgumentTypeError."""
    if not 1 <= (number := whole(text)) <= MOST_HOSTS:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST_HOSTS}, got {text!r}")
    return number


def price(text: str) -> float:
    """Return dollars; raise ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not (math.isfinite(number) and number >= 0):
        raise argparse.ArgumentTypeError(f"expected a number of dollars, got {text!r}")
    return number


def seconds(text: str) -> float:
    """Return seconds; raise ArgumentTypeError."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 <= number <= LONGEST:
        raise argparse.ArgumentTypeError(f"expected a number of seconds, got {text!r}")
    return number


def whole(text: str) -> int:
    """Return a whole number; raise ArgumentTypeError."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected a whole number, got {text!r}") from None


def count(text: str) -> int:
    """Return a whole number from 1; raise ArgumentTypeError."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= MOST):
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 to {MOST}, got {text!r}")
    return int(text)


def words(text: str) -> tuple[str, ...]:
    """Return words that commas separate; raise ArgumentTypeError."""
    found = tuple(word.strip() for word in text.split(",") if word.strip())
    if not found:
        raise argparse.ArgumentTypeError(f"expected words separated by commas, got {text!r}")
    return found


def pair(text: str) -> tuple[str, float]:
    """Return a name and its number; raise ArgumentTypeError."""
    name, equals, number = text.partition("=")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not (name and equals and 0 <= value < math.inf):
        raise argparse.ArgumentTypeError(f"expected ALARM=NUMBER, got {text!r}")
    return name, value
