"""The commands and their options, from the tables of cli_options.json, and the converters of their values."""

from __future__ import annotations

import json
import math
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.config import duration

MAX_SECONDS: Final = 1e9
"""Longest duration, 31 years; system calls accept it."""


def _wrong(text: str, expected: str) -> ArgumentTypeError:
    """Return an error of the one kind whose text argparse shows."""
    return ArgumentTypeError(f"{text or repr(text)}: expected {expected}")


def whole(most: int) -> Callable[[str], int]:
    """Return a function that converts a text to a whole number from 1 to `most`."""

    def convert(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) < 20 and 1 <= int(text) <= most):
            raise _wrong(text, f"a whole number from 1 to {most}")
        return int(text)

    return convert


def price(text: str) -> float:
    """Convert a text to dollars; raise ArgumentTypeError."""
    if not 0 <= (number := _number(text)) < math.inf:
        raise _wrong(text, "a number of dollars")
    return number


def seconds(text: str) -> float:
    """Convert a text such as 500ms to seconds; raise ArgumentTypeError."""
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
    """Split words separated by commas; raise ArgumentTypeError if there are none."""
    if not (found := tuple(filter(None, map(str.strip, text.split(","))))):
        raise _wrong(text, "words separated by commas")
    return found


def pair(text: str) -> tuple[str, float]:
    """Split ALARM=NUMBER into name and number; raise ArgumentTypeError."""
    name, _, number = text.partition("=")
    if not (name and 0 <= (value := _number(number)) < math.inf):
        raise _wrong(text, "ALARM=NUMBER")
    return name, value


class OptionRow(NamedTuple):
    """An option of a command, or one of its positional arguments."""

    flags: Sequence[str]
    metavar: str
    """Name of its value in the help; "" for a switch; `NAME,...` for a list, which may be repeated."""
    help: str
    settings: Mapping[str, Any] = {}
    """Further arguments for argparse."""

    @property
    def dest(self) -> str:
        """The attribute with its value after parsing."""
        return str(self.settings.get("dest") or max(self.flags, key=len).lstrip("-").replace("-", "_"))

    @property
    def action(self) -> str:
        """The action for argparse."""
        kind = "append" if self.metavar.endswith(",...") else "store"
        return str(self.settings.get("action", kind if self.metavar else "store_true"))


CONVERTERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "path": Path, "seconds": seconds, "price": price, "pair": pair, "words": words,
}  # fmt: skip
TABLES: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
COMMANDS: Final[Mapping[str, Sequence[str]]] = TABLES["commands"]
"""Command -> what it does, and an example. The main help explains the FIRST ones, and names the others."""
FIRST: Final = slice(6)
OTHER_WORDS: Final[Mapping[str, str]] = TABLES["gone"]
"""Word that people may type instead of a command -> the right command."""


def _rows(table: Iterable[Any]) -> Iterator[OptionRow]:
    """Yield the rows of a table; a text in it includes another table, `most` makes a whole number up to that."""
    for row in table:
        if isinstance(row, str):
            yield from _rows(TABLES["tables"][row])
            continue
        flags, metavar, text, *more = row
        settings = dict(*more)
        if "most" in settings:
            settings["type"] = whole(settings.pop("most"))
        elif "type" in settings:
            settings["type"] = CONVERTERS[settings["type"]]
        yield OptionRow(flags.split(), metavar, text, settings)


EVERYDAY: Final[Sequence[OptionRow]] = tuple(_rows(["everyday", *TABLES["own"]["run"][:1]]))
"""The options that the main help shows beside --help and --version."""
OPTIONS: Final[Sequence[OptionRow]] = tuple(_rows(["options"]))
"""Options that are also keys of the configuration. `load` converts their values and names them in errors."""
OWN: Final[Mapping[str, Sequence[OptionRow]]] = {name: tuple(_rows(table)) for name, table in TABLES["own"].items()}
CONFIGURED: Final = ("run", "record", "check", "plan", "dashboard", "top")
"""Commands that accept every option of the configuration."""
