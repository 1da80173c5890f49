"""
Starts the slowest tests first, so that no worker ends long after the others.

`pytest --durations 60 --durations-min 1.5 ... | python -m tests.slowest` writes the list again, from what pytest prints.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

LIST = Path(__file__).with_suffix(".txt")
DURATION = re.compile(r"\s*([\d.]+)s (?:call|setup) +(\S[^\[\n]*)")


def listed() -> list[str]:
    """Return the ids of the slowest test functions, the slowest first."""
    return LIST.read_text().split("\n")[:-1]


def first(ids: Sequence[str], slowest: Iterable[str]) -> list[int]:
    """Return the order of tests by their index: the listed ones as they are listed, then the others as they were."""
    rank = {name: n for n, name in enumerate(slowest)}
    return sorted(range(len(ids)), key=lambda n: rank.get(ids[n].partition("[")[0], len(rank)))


def from_durations(lines: Iterable[str]) -> list[str]:
    """Return the ids of the functions that pytest's lines of durations name, the slowest first."""
    seconds: dict[str, float] = {}
    for line in lines:
        if match := DURATION.match(line):
            name = match[2].strip()
            seconds[name] = max(seconds.get(name, 0.0), float(match[1]))
    return sorted(seconds, key=lambda name: -seconds[name])


if __name__ == "__main__":
    LIST.write_text("".join(f"{name}\n" for name in from_durations(sys.stdin)))
