"""The parts of the campaign, what runs beside what, and the command."""

import multiprocessing
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from tests.faults import configurations, corruptions, inputs, kills, soak
from tests.faults.figures import Figures, table


class Part(NamedTuple):
    """A part of the campaign."""

    run: Callable[[Figures], None]
    wanted: int
    seconds: float
    """Its share of the ten minutes."""


def cloudwatch(figures: Figures) -> None:
    """Kill agents that send to CloudWatch."""
    kills.run(figures, kills.cloudwatch)


def google(figures: Figures) -> None:
    """Kill agents that send to Cloud Monitoring."""
    kills.run(figures, kills.google)


GROUPS = (
    {"cloudwatch": Part(cloudwatch, 20, 210), "google": Part(google, 20, 210), "soak": Part(soak.run, 10_000, 120)},
    {
        "corruptions": Part(corruptions.run, 2_000, 100),
        "configurations": Part(configurations.run, 12_000, 200),
        "inputs": Part(inputs.run, 1_000_000, 240),
    },
)
"""Parts that run at the same time; a trial of kills has ten."""


def run_group(number: int, seed: int, first: int, chosen: list[str], *, full: bool) -> list[Figures]:
    """Run the parts of a group one after the other."""
    done = []
    for name, part in GROUPS[number].items():
        if chosen and name not in chosen:
            continue
        figures = Figures(name, seed, part.wanted, 1e9 if full else part.seconds, first)
        try:
            part.run(figures)
        except Exception:  # noqa: BLE001  # the other parts have figures, too
            figures.fail(traceback.format_exc())
        sys.stderr.write(f"{name}: {figures.done:,} of {figures.wanted:,}, {len(figures.failures)} failures\n")
        done.append(figures)
    return done


def main() -> int:
    """Run all groups; print the table and the failures."""
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    full = os.environ.get("FULL") == "1"
    chosen = os.environ.get("PARTS", "").split()
    first = int(os.environ.get("AT") or 0)
    begun = time.monotonic()
    sys.stderr.write(f"SEED={seed}{' FULL=1' if full else ''}\n")
    with ProcessPoolExecutor(len(GROUPS), mp_context=multiprocessing.get_context("spawn")) as pool:
        groups = [pool.submit(run_group, n, seed, first, chosen, full=full) for n in range(len(GROUPS))]
        parts = [figures for each in groups for figures in each.result()]
    failures = [text for part in parts for text in part.failures]
    sys.stdout.write(f"{table(parts)}\n\nSEED={seed}, {time.monotonic() - begun:.0f} seconds\n")
    for text in failures:
        sys.stdout.write(f"{text}\n".encode(errors="backslashreplace").decode())
    return 1 if failures else 0
