"""Cost of 10,000 series in one tick, through window and spool; in a separate process, to measure its memory."""

import gc
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.bench.child import ask
from tests.bench.figure import MB, Effort, Figure, forget_peak, peak_rss, rss
from tests.doubles.frame import MemorySink

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

SERIES = 10_000
METRICS = 10
WINDOW = 60
SECOND = 1_000_000_000
BATCH = 1000
START = 1_800_000_000 * SECOND
SHAPE = f"{METRICS} metrics (half counters) x {SERIES // METRICS} sets of 2 dimensions"


def many_series(effort: Effort) -> list[Figure]:
    """Run the measurement in several fresh processes."""
    runs = [json.loads(ask("series", str(2 * effort.rounds))) for _ in range(max(2, effort.rounds // 2))]
    joined = {key: [value for run in runs for value in run[key]] for key in runs[0]}
    taken = f"take {BATCH} + settle until it is empty"
    return [
        Figure(
            "10,000 series, CPU", "ms", 60.0, joined["append"],
            f"CPU of the tick that ends a window of {WINDOW} s: filter, window, close, durable spool; {SHAPE}",
        ),
        Figure("10,000 series, CPU, taken too", "ms", None, joined["all"], f"the same, then {taken}"),
        Figure("10,000 series, CPU, no window ends", "ms", None, joined["plain"], "CPU of a tick within a window"),
        Figure(
            "10,000 series, CPU, 12 samples each", "ms", None, joined["full"],
            "CPU of the tick that ends a window in which there were 12",
        ),
        Figure(
            "10,000 series, memory", "MB", 25.0, joined["memory"],
            f"peak RSS less that of the idle parts, the points included, in {len(runs)} processes: one tick a window,"
            f" {taken}",
        ),
        Figure(
            "10,000 series, memory, 12 samples each", "MB", None, joined["memory full"], "the same, 12 ticks a window",
        ),
    ]  # fmt: skip


def metrics() -> list[Metric]:
    """Return as many gauges as counters."""
    pairs = [(gauge, counter)[n % 2] for n in range(METRICS)]
    return [made(f"bench.metric{n}.value", "By", "A reading of the bench.", dims=("device", "port")) for n, made in
            enumerate(pairs)]  # fmt: skip


def readings(at: int, of: Sequence[Metric], dims: Sequence[Dimensions]) -> list[Datapoint]:
    """Return what collectors give in one tick: one point a series."""
    tick = at // SECOND
    return [
        metric.point(at, tick * 7 + n + m / 8, each, start_time=START - SECOND if m % 2 else None)
        for m, metric in enumerate(of)
        for n, each in enumerate(dims)
    ]


class SeriesPath:
    """One outlet with a durable spool in `folder`; its worker is not started, the bench takes its place."""

    def __init__(self, folder: Path) -> None:
        self.spool = Spool("bench", folder / "bench.db")
        worker = Worker("bench", MemorySink(), self.spool)
        self.route = Route(MetricFilter(Level.ALL), Window(WINDOW, born=START), self.spool, worker, Dimensions)
        self.metrics = metrics()
        self.dims: list[Dimensions] = []
        self.at = START

    def tick(self, seconds: int) -> float:
        """Pass one tick, `seconds` after the last one; return its CPU time (ms) without that of making the points."""
        self.at += seconds * SECOND
        points = readings(self.at, self.metrics, self.dims)
        before = time.process_time_ns()
        self.route.take(points, self.at)
        return (time.process_time_ns() - before) / 1e6

    def empty(self) -> float:
        """Deliver all that is spooled to nobody; return the CPU time (ms)."""
        before = time.process_time_ns()
        while parts := self.spool.take(BATCH):
            self.spool.acknowledge({"sent": sum(len(points) for points, _ in parts)})
        return (time.process_time_ns() - before) / 1e6


def child(rounds: str) -> None:
    """Measure in this process and print the result as JSON."""
    result: dict[str, list[float]] = {key: [] for key in ("append", "all", "plain", "full", "memory", "memory full")}
    with tempfile.TemporaryDirectory() as folder:
        path = SeriesPath(Path(folder))
        path.dims = [Dimensions(device="0", port="0")]
        for _ in range(3):
            path.tick(WINDOW)
            path.empty()
        gc.collect()
        gc.freeze()  # as `agent` does
        idle = rss()
        forget_peak()
        path.dims = [Dimensions(device=f"device-{n // 8}", port=str(n % 8)) for n in range(SERIES // METRICS)]
        path.tick(WINDOW)
        for _ in range(int(rounds)):
            result["append"].append(path.tick(WINDOW))
            assert path.spool.ledger.spooled >= SERIES, path.spool.ledger
            result["all"].append(result["append"][-1] + path.empty())
        result["memory"].append((peak_rss() - idle) / MB)
        path.tick(WINDOW)
        for _ in range(max(2, int(rounds) // 4)):
            path.empty()
            result["plain"] += [path.tick(5) for _ in range(WINDOW // 5 - 1)]
            result["full"].append(path.tick(5))
        result["memory full"].append((peak_rss() - idle) / MB)
        path.empty()
        assert path.spool.ledger.balance() == 0, path.spool.ledger
        path.spool.close()
    sys.stdout.write(json.dumps(result))
