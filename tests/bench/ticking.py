"""Cost of a whole tick, from the clock to the printed line; many ticks must leave nothing behind."""

import json
import subprocess
import sys
import time
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from tests.bench.child import ROOT, ask, command, environment
from tests.bench.figure import CannotMeasure, Effort, Figure, rss

from chipwatch.commands.cli import main
from chipwatch.config.plugins import COLLECTORS, installed
from chipwatch.engine.clock import Pipeline
from chipwatch_sinks.stdout import StdoutSink

GROWTH_RUNS = 3
WARM = 3
"""So many times the ticks that count go before: caches are full then, and what is done each 5 or 10 s has been done."""
PAGES = 64e3
"""Bytes (16 pages) that the allocator may move over the whole run before it is called growth."""


def run_agent(*words: str) -> None:
    """Run the whole program in this process, as the command would."""
    if not installed(COLLECTORS):
        raise CannotMeasure("the project is not installed in this environment")
    with suppress(SystemExit):
        main(["--interval", "1", "--format", "json", "--log-level", "error", *words])


# -- one tick ---------------------------------------------------------------------------------------------------


def whole_tick(effort: Effort) -> list[Figure]:
    """Let a child tick once a second into a pipe that is drained here."""
    words = command("ticking", "tick", str(effort.tick_seconds))
    with subprocess.Popen(words, cwd=ROOT, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        lines = sum(1 for _ in run.stdout)
        said = run.stderr.read().decode().splitlines() or [""]
    if run.returncode:
        raise RuntimeError(f"the child ended with {run.returncode}: {said[-1]}")
    told = json.loads(said[-1])
    assert lines >= len(told["wall"]), "fewer lines than ticks"
    n = len(told["wall"])
    what = f"the real pipeline at 1 s, all default collectors, json into a pipe that another process drains; {n} ticks"
    return [
        Figure(
            "whole tick, wall", "ms", 2.0, told["wall"],
            f"from the call of Pipeline.tick by its clock to the return of the last write of that tick; {what}",
            noise=5.0,
        ),
        Figure("whole tick, CPU to the printed line", "ms", 2.0, told["cpu"], "CPU of the process between the same"),
        Figure("whole tick, CPU to the next tick", "ms", None, told["second"], "CPU of the process from tick to tick"),
    ]  # fmt: skip


def tick_child(seconds: int) -> None:
    """Tick for that many seconds; print on standard error what each tick took."""
    begun, ended, written = [], [], [(0, 0)]
    original, send = Pipeline.tick, StdoutSink._send

    def tick(pipeline, *words, **options):
        if begun:
            ended.append(written[-1])
        begun.append((time.perf_counter_ns(), time.process_time_ns()))
        return original(pipeline, *words, **options)

    def stamped(sink, text):
        send(sink, text)
        written.append((time.perf_counter_ns(), time.process_time_ns()))

    Pipeline.tick, StdoutSink._send = tick, stamped
    run_agent("--duration", str(seconds + 0.5))
    begun, ended = begun[2:], ended[2:]  # the first ones open files and have no rates yet; the last one has no next
    told = {
        "wall": [(end[0] - begin[0]) / 1e6 for begin, end in zip(begun, ended, strict=False)],
        "cpu": [(end[1] - begin[1]) / 1e6 for begin, end in zip(begun, ended, strict=False)],
        "second": [(after[1] - before[1]) / 1e6 for before, after in pairwise(begun)][:-1],
    }
    sys.stderr.write(json.dumps(told))


# -- many ticks -------------------------------------------------------------------------------------------------


def growth(effort: Effort) -> list[Figure]:
    """Tick as fast as it goes in a child; compare its memory before the last quarter with that at the end."""
    ticks = effort.growth_ticks
    runs = [json.loads(ask("ticking", "growth", str(ticks))) for _ in range(GROWTH_RUNS if ticks >= 10_000 else 1)]
    grown = [(run[-1] - run[0]) / 1e3 for run in runs]
    course = "; ".join(" ".join(f"{n / 1e6:.2f}" for n in run) for run in runs)
    how = (
        f"RSS after {ticks} ticks less RSS before, after {WARM * ticks} others: the real pipeline, json to /dev/null, ticked"
        f" without a pause; up to {PAGES / 1e3:.0f} kB count as none. MB from there on: {course}"
    )
    return [Figure(f"growth over {ticks} ticks", "kB", PAGES / 1e3, grown, how)]


def growth_child(ticks: int) -> None:
    """Tick three times so often, then so often; print the resident bytes before these ticks and nine times until the end."""
    told, sys.stdout = sys.stdout, Path("/dev/null").open("w")  # noqa: SIM115  until the end
    seen = []

    def run(pipeline, duration):
        for n in range(-WARM * ticks, ticks + 1):
            if n >= 0 and n % max(1, ticks // 9) == 0:
                seen.append(rss())
            pipeline.tick()
            while any(route.spool.ledger.spooled for route in pipeline.routes):
                time.sleep(0.0002)  # at 1 s nothing is left for the next tick either

    Pipeline.run = run
    run_agent()
    json.dump(seen, told)


def child(what: str, amount: str) -> None:
    """Measure in this process."""
    (tick_child if what == "tick" else growth_child)(int(amount))
