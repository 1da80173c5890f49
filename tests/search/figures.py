"""Results of one part of the search, and its time limit."""

import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

TELLS = 5.0
"""Seconds between two lines of progress."""


@dataclass
class Figures:
    """The counts of one part; each trial has separate dice, so that it can be repeated alone."""

    part: str
    seed: int
    wanted: int
    seconds: float
    """Time limit of the part."""
    first: int = 0
    """The trial to begin with."""
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    took: float = 0.0
    told: float = 0.0
    """When progress was last told (s)."""
    trial: int = 0
    done: int = 0

    def trials(self) -> Iterator[Random]:
        """Yield dice for each trial, as long as there is time."""
        begun = time.monotonic()
        for trial in range(self.first, self.first + self.wanted):
            self.trial = trial
            yield Random(f"{self.part} {self.seed} {self.trial}")
            self.done += 1
            self.took = time.monotonic() - begun
            if self.took > self.told + TELLS:
                self.told = self.took
                sys.stderr.write(f"{progress(self)}\n")
            if self.took > self.seconds:
                break

    def fail(self, text: str) -> None:
        """Note a failure, with how to repeat it."""
        self.failures.append(f"SEED={self.seed} AT={self.trial} PARTS={self.part}: {text}")


def progress(part: Figures) -> str:
    """Return what a person who waits wants to know."""
    return f"{part.part}: {part.done:,} trials in {part.took:.0f} s, {len(part.failures)} failures"


def line(part: Figures) -> str:
    """Return the figures of a part as a line."""
    counted = ", ".join(f"{name} {count:,}" for name, count in sorted(part.counts.items()) if part.part != "lives")
    return f"{progress(part)}; {counted}".removesuffix("; ")
