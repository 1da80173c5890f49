"""
`make perturb`: what a computing job feels of a monitor on its core.

A loop pinned to one core takes steps of 0.1 ms beside one program at a time on the same core, in an order that each round
shuffles. A whole run writes the table and the picture of docs/benchmarks.md. `--training` takes the steps of a small
training with PyTorch instead, on a GPU if there is one, with and without the agent, and only prints.
"""

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from tests.bench.child import ROOT, environment
from tests.bench.figure import CannotMeasure
from tests.peers import chart, page
from tests.peers.programs import BY_NAME, Place, Program, agent, system
from tests.peers.running import Scraper, Started
from tests.ports import free_port

PAGE, PICTURE = ROOT / "docs/benchmarks.md", ROOT / "docs/media/perturb.svg"
HERE = Path(__file__).parent
OURS = (
    agent("1s", "JSON lines, each second", "--format json"),
    agent("0.1s", "JSON lines, each 0.1 s", "--interval 0.1 --format json"),
)
PROGRAMS = (None, BY_NAME["psutil"], BY_NAME["node_exporter"], *OURS)
ALONE = "no program"
QUANTILES = (5000, 9900, 9990, 9999)
"""In ten-thousandths."""
STEPS_A_SECOND = 10_000
WARM = 3.0
"""Seconds from a program's start to the first step."""
HEAD = (
    "| beside | p50, µs | p99, µs | p99.9, µs | p99.99, µs | longest, µs | steps a second, of those without a program |"
)


class Felt(NamedTuple):
    """The times of a job's steps: at each of QUANTILES and the longest (µs), and steps a second."""

    times: tuple[float, ...]
    rate: float


def felt(steps: Sequence[float]) -> Felt:
    """Return what steps of these lengths (ns) show."""
    ordered = sorted(steps)
    at = (ordered[-(-share * len(ordered) // 10_000) - 1] for share in QUANTILES)
    return Felt((*(time / 1e3 for time in at), ordered[-1] / 1e3), len(ordered) / (sum(ordered) / 1e9))


def title(program: Program | None) -> str:
    """Return the name of a program for a reader."""
    return ALONE if program is None else program.title


def beside(program: Program | None, cores: set[int], warm: float, job: Callable[[], list[float]]) -> list[float]:
    """Return the steps of a job while a program runs on these cores; raise CannotMeasure where it cannot run."""
    with ExitStack() as stack:
        if program is None:
            return job()
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = Started(program, Place(folder, f"127.0.0.1:{free_port()}", environment() | {"HOME": str(folder)}))
        stack.callback(started.stop)
        os.sched_setaffinity(started.run.pid, cores)
        if program.receiver == "scraped":
            stack.callback(Scraper(started.place.address).stop)
        time.sleep(warm)
        steps = job()
        if fault := started.fault():
            raise CannotMeasure(fault)
        return steps


def rounds(
    programs: Sequence[Program | None], many: int, cores: set[int], warm: float, job: Callable[[], list[float]]
) -> tuple[dict[str, list[Felt]], dict[str, str]]:
    """Return what the job felt in each round, by title, and why other programs could not run."""
    results: dict[str, list[Felt]] = {}
    absent: dict[str, str] = {}
    for number in range(many):
        for program in random.Random(number).sample(programs, len(programs)):
            name = title(program)
            if name not in absent:
                sys.stderr.write(f"perturb: round {number + 1} of {many}, {name}\n")
                try:
                    results.setdefault(name, []).append(felt(beside(program, cores, warm, job)))
                except CannotMeasure as reason:
                    absent[name] = str(reason)
    return {title(one): results[title(one)] for one in programs if results.get(title(one))}, absent


def table(results: Mapping[str, Sequence[Felt]], absent: Mapping[str, str]) -> str:
    """Return the medians of the rounds, and what is left out and why."""
    lines = [HEAD, "|---" * (HEAD.count("|") - 1) + "|"]
    for name, all_felt in results.items():
        times = [statistics.median(each) for each in zip(*(one.times for one in all_felt), strict=True)]
        shares = [one.rate / alone.rate for one, alone in zip(all_felt, results[ALONE], strict=False)]
        cells = " | ".join(f"{value:,.0f}" for value in times)
        bold = "**" if name.startswith("chipwatch") else ""
        lines.append(f"| {bold}{name}{bold} | {cells} | {100 * statistics.median(shares):.2f} % |")
    return "\n".join(lines + [f"\nLeft out: {name}: {reason}." for name, reason in absent.items()])


def picture(results: Mapping[str, Sequence[Felt]]) -> str:
    """Draw the time of the steps at p99.9 and p99.99."""
    bars = []
    for name, all_felt in results.items():
        worst = [one.times[3] for one in all_felt]
        rare = statistics.median(one.times[2] for one in all_felt)
        spread = min(worst), max(worst)
        bars.append(chart.Bar(name, "beside", name.startswith("chipwatch"), statistics.median(worst), spread, rare))
    columns = ("p99.99", "µs of a step, lowest to highest round"), ("p99.9", "µs of a step")
    return chart.svg(bars, "Time of a job's steps beside a monitor on its core", columns)


def loop(core: int, seconds: float, folder: Path) -> Callable[[], list[float]]:
    """Compile the computing loop; return a function that runs it and gives its steps (ns)."""
    program = folder / "victim"
    subprocess.run([system("cc", "cc", "gcc", "clang"), "-O2", "-o", program, HERE / "victim.c"], check=True)

    def run(steps: int, work: int) -> list[float]:
        words = [program, str(core), str(steps), str(work)]
        return [*map(float, subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.split())]

    work = int(run(0, 0)[0])
    return lambda: run(int(seconds * STEPS_A_SECOND), work)


def training(steps: int, python: str) -> Callable[[], list[float]]:
    """Return a function that trains for so many steps in a separate process and gives their times (ns)."""

    def run() -> list[float]:
        words = [python, str(HERE / "training.py"), str(steps)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CannotMeasure(done.stderr.strip().rpartition("\n")[2])
        return [*map(float, done.stdout.split())]

    return run


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print; a whole run writes the page and the picture, too."""
    parser = argparse.ArgumentParser(prog="make perturb", description=__doc__)
    parser.add_argument("--rounds", type=int, default=8, help="rounds (8)")
    parser.add_argument("--seconds", type=float, default=8, help="length of the loop beside each program (8)")
    parser.add_argument("--training", type=int, metavar="STEPS", help="so many steps of a training with PyTorch")
    parser.add_argument("--python", default=sys.executable, metavar="PATH", help="the Python that has PyTorch")
    options = parser.parse_args(argv)
    if options.rounds < 1 or options.seconds < 0.1:
        parser.error("--rounds must be 1 or more, --seconds 0.1 or more")
    every = os.sched_getaffinity(0)
    if options.training:
        results, absent = rounds(
            (None, OURS[0]), options.rounds, every, WARM, training(options.training, options.python)
        )
        if ALONE not in results:
            sys.exit(f"perturb: no training: {absent[ALONE]}")
        sys.stdout.write(table(results, absent) + "\n")
        return
    core = max(every)
    with tempfile.TemporaryDirectory() as folder:
        job = loop(core, options.seconds, Path(folder))
        results, absent = rounds(PROGRAMS, options.rounds, {core}, WARM, job)
    measured = table(results, absent)
    sys.stdout.write(measured + "\n")
    if options.rounds >= 8:
        PAGE.write_text(page.replaced(PAGE.read_text(), "perturb", measured, "make perturb"))
        PICTURE.write_text(picture(results))
        sys.stdout.write(f"written: {PAGE.relative_to(ROOT)}, {PICTURE.relative_to(ROOT)}\n")


if __name__ == "__main__":
    main()
