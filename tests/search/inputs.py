"""Every parser and every answer's reader, with captures that were changed: only errors that are documented, in time."""

import math
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.search import clouds, parsers, trees
from tests.search.figures import Figures
from tests.search.mutants import Mutator

from chipwatch.contract.datapoint import Datapoint, Metric

SLOWEST = 2.0
"""Seconds of work that any input may cost."""
AT_ONCE = 200
"""Inputs of one trial."""


class Target(NamedTuple):
    """A reader of what comes from outside."""

    name: str
    seeds: list[bytes]
    feed: Callable[[bytes], Iterable[object] | None]
    """Reads, and may return what it found: points, or pairs of a metric and a value."""
    errors: tuple[type[Exception], ...] = ()
    """The errors that it is documented to raise."""


def check(found: object) -> None:
    """Raise AssertionError where a point says what cannot be."""
    if isinstance(found, Datapoint):
        metric, value = found.metric, found.value
        assert all(type(text) is str for text in found.dims.values()), f"{found} has dimensions that are no text"
    elif isinstance(found, tuple) and len(found) >= 2 and isinstance(found[0], Metric):
        metric, value = found[0], found[-1]
    else:
        return
    assert type(value) in {int, float}, f"{metric.name} is {value!r:.50}"
    if metric.unit == "%" and math.isfinite(value):
        assert 0 <= value <= 100, f"{metric.name} is {value} %"


def feed(target: Target, data: bytes) -> str:
    """Give it one input; return what is wrong with how it was taken, if anything."""
    begun = time.thread_time()
    try:
        for found in target.feed(data) or ():
            check(found)
    except target.errors:
        pass
    except Exception as problem:  # noqa: BLE001  # the finding
        return f"{type(problem).__name__}: {str(problem)[:150]}"
    spent = time.thread_time() - begun
    return f"took {spent:.1f} s" if spent > SLOWEST else ""


def trial(dice: Random, targets: list[Target], mutators: dict[str, Mutator], inputs: int, figures: Figures) -> None:
    """Give a target some inputs, and note the first one of each kind of failure, on disk too where KEEP names a folder."""
    group = dice.choice(sorted({target.name.partition(" ")[0] for target in targets}))
    target = dice.choice([target for target in targets if target.name.startswith(f"{group} ")])
    known: set[str] = set()
    for n in range(inputs):
        data = mutators[target.name].mutant(dice)
        figures.counts[target.name.partition(" ")[0]] += 1
        if (wrong := feed(target, data)) and (kind := wrong[:40]) not in known:
            known.add(kind)
            figures.fail(f"{target.name}, input {n}: {wrong}; {data[:80]!r}")
            if folder := os.environ.get("KEEP"):
                (Path(folder) / f"{re.sub('[ /]', '-', target.name)}.{figures.trial}.{n}").write_bytes(data)


def targets(stack: ExitStack) -> list[Target]:
    """Return all readers; readers of files have a folder in memory where possible."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = Path(tempfile.mkdtemp(dir=memory))
    stack.callback(shutil.rmtree, folder, ignore_errors=True)
    return [Target(*row) for part in (parsers, trees, clouds) for row in part.targets(stack, folder)]


def run(figures: Figures) -> None:
    """Feed mutants until that is done or the time is over; `wanted` is in inputs."""
    figures.wanted = math.ceil(figures.wanted / AT_ONCE)
    with ExitStack() as stack:
        found = targets(stack)
        mutators = {target.name: Mutator(target.seeds) for target in found}
        for dice in figures.trials():
            trial(dice, found, mutators, AT_ONCE, figures)
    figures.wanted *= AT_ONCE
    figures.done *= AT_ONCE
