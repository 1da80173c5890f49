"""The parts of the search, what runs beside what, and the command."""

import logging
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.search import configurations, corruptions, deliveries, inputs, lives
from tests.search.figures import Figures, line


class Part(NamedTuple):
    """A part of the search."""

    run: Callable[[Figures], None]
    wanted: int
    share: float
    """Of the time of its group."""


GROUPS = (
    {"lives": Part(lives.run, 10**6, 1.0)},
    {
        "corruptions": Part(corruptions.run, 10**6, 0.2),
        "deliveries": Part(deliveries.run, 10**6, 0.2),
        "configurations": Part(configurations.run, 10**6, 0.2),
        "inputs": Part(inputs.run, 10**9, 0.4),
    },
)
"""Parts that run at the same time."""


def run_group(number: int, seed: int, first: int, chosen: list[str], seconds: float) -> list[Figures]:
    """Run the parts of a group one after the other."""
    logging.getLogger("chipwatch").addHandler(logging.NullHandler())  # what it logs of odd input is not read
    done = []
    for name, part in GROUPS[number].items():
        if chosen and name not in chosen:
            continue
        figures = Figures(name, seed, part.wanted, seconds * part.share, first)
        try:
            part.run(figures)
        except Exception:  # noqa: BLE001  # the other parts have figures, too
            figures.fail(traceback.format_exc())
        done.append(figures)
    return done


def main() -> int:
    """Run all groups; print the table, what no life has reached, and the failures."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    seconds = float(os.environ.get("SECONDS") or 600)
    chosen = os.environ.get("PARTS", "").split()
    first = int(os.environ.get("AT") or 0)
    begun = time.monotonic()
    sys.stderr.write(f"SEED={seed} SECONDS={seconds:.0f}\n")
    with ProcessPoolExecutor(len(GROUPS), mp_context=multiprocessing.get_context("spawn")) as pool:
        groups = [pool.submit(run_group, n, seed, first, chosen, seconds) for n in range(len(GROUPS))]
        parts = [figures for each in groups for figures in each.result()]
    failures = [text for part in parts for text in part.failures]
    sys.stdout.write("\n".join([*map(line, parts), f"SEED={seed}, {time.monotonic() - begun:.0f} seconds\n"]))
    for part in (part for part in parts if part.part == "lives"):
        never = [word for word in lives.SOMETIMES if not part.counts[word]]
        sys.stdout.write(f"never reached: {'; '.join(never) or 'nothing'}\n")
    for text in failures:
        sys.stdout.write(f"{text}\n".encode(errors="backslashreplace").decode())
    return 1 if failures else 0
