"""CPU time of a tick by the size of a machine, and its slope: 1 is linear, 2 quadratic."""

import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.bench import jobs, nvidia
from tests.bench.figure import CannotMeasure, Effort, Figure, cpu_ms
from tests.bench.neuron import CORES, Fed
from tests.bench.reading import ticking_cores
from tests.bench.series import METRICS, START, WINDOW, SeriesPath, metrics, readings
from tests.doubles.fake_neuron_monitor import line
from tests.doubles.frame import MemorySink

from chipwatch.collectors.jobs import JobsCollector
from chipwatch.collectors.process import ProcessCollector
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.facts import DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.plugin import Given
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch.jobs.processor import JobsProcessor

STEEPEST = 1.45
"""
Largest slope that counts as linear; a square has 2.

100,000 series fit into no cache of a CPU, and Python's cyclic collector looks at more of them: that alone is 1.3.
"""
WARM = 2
"""Ticks that are not counted: they open files and fill caches."""
SPENT = 1.5
"""Seconds after which a size has been measured often enough."""
Tick = Callable[[], float]
"""Returns the CPU time (ms) of one tick."""


@dataclass(frozen=True)
class Course:
    """The cost of a tick at each size."""

    name: str
    sizes: Sequence[int]
    values: Sequence[Sequence[float]]
    """CPU time (ms) of some ticks, for each size."""

    @property
    def medians(self) -> list[float]:
        return [statistics.median(values) for values in self.values]

    @property
    def slope(self) -> float:
        return slope(self.sizes, self.medians)


def slope(sizes: Sequence[float], times: Sequence[float]) -> float:
    """Return the slope of log(time) by log(size) over the upper half of the sizes, by least squares."""
    half = len(sizes) // 2
    x, y = ([math.log(value) for value in values[half:]] for values in (sizes, times))
    return statistics.linear_regression(x, y).slope


def course(name: str, sizes: Sequence[int], ticking: Callable[[int], Any], rounds: int) -> Course:
    """Measure a tick at each size; `ticking(size)` is a context that yields a Tick."""
    values = []
    for size in sizes:
        with ticking(size) as tick:
            for _ in range(WARM):
                tick()
            end, ticks = time.monotonic() + SPENT, []
            while len(ticks) < 3 or (len(ticks) < 3 * rounds and time.monotonic() < end):
                ticks.append(tick())
        values.append(ticks)
    return Course(name, sizes, values)


# -- series, sinks ------------------------------------------------------------------------------------------------


@contextmanager
def series(size: int) -> Iterator[Tick]:
    """Tick with so many series through a window to a spool on disk, and take them from there."""
    with tempfile.TemporaryDirectory() as folder:
        path = SeriesPath(Path(folder))
        path.dims = [Dimensions(device=f"device-{n // 8}", port=str(n % 8)) for n in range(size // METRICS)]
        yield lambda: path.tick(WINDOW) + path.empty()
        path.spool.close()


@contextmanager
def sinks(size: int, many: int = 1000) -> Iterator[Tick]:
    """Tick with so many sinks, each with its window and its queue in memory."""
    routes, workers, at = [], [], START
    for number in range(size):
        name = f"sink-{number}"
        spool = Spool(name, None)
        workers.append(Worker(name, MemorySink(), spool))
        routes.append(Route(MetricFilter(Level.ALL), Window(1, born=START), spool, workers[-1], Dimensions))
    dims = [Dimensions(device=str(n)) for n in range(many // METRICS)]
    kinds = metrics()

    def tick() -> float:
        nonlocal at
        at += 1_000_000_000
        points = readings(at, kinds, dims)
        before = time.process_time_ns()
        for route in routes:
            route.take(points, at)
        for worker in workers:
            while worker._deliver_some():
                pass
        return (time.process_time_ns() - before) / 1e6

    yield tick


# -- readings -----------------------------------------------------------------------------------------------------


@contextmanager
def runtimes(size: int) -> Iterator[Tick]:
    """Read a record of neuron-monitor with so many runtimes."""
    record = line(runtimes=size, cores=CORES, models=20)
    with tempfile.TemporaryDirectory() as folder:
        fed = Fed(Level.BASIC, folder)

        def tick() -> float:
            fed.write(record)
            return cpu_ms(lambda at: list(fed.collector.collect(at)), 1, 0)

        yield tick
        fed.close()


@contextmanager
def processes(size: int) -> Iterator[Tick]:
    """Read a tree of so many processes from files: a launcher, workers, and what they started."""
    with tempfile.TemporaryDirectory() as folder:
        proc, first = Path(folder), 1000
        for pid in [*range(first, first + size), os.getpid()]:
            parent = 1 if pid == first else first + (pid - first) // 50 if pid < first + size else 1
            (proc / str(pid)).mkdir(exist_ok=True)
            times = "0 0 0 0 0 150 50 0 0 20 0 4 0 500 1000000 250 0"
            (proc / f"{pid}/stat").write_text(f"{pid} (python) S {parent} 1 1 0 -1 {times}\n")
        (proc / "stat").write_text("btime 1700000000\n")
        collector = ProcessCollector(ProcessCollector.Config(proc=proc, sys=proc, pid=first))
        collector.open(Given(level=Level.BASIC))
        yield lambda: cpu_ms(lambda at: list(collector.collect(at)), 1, 0)
        assert f" {size} in" in collector.describe(), collector.describe()
        collector.close()


@contextmanager
def accounts(size: int, each: int = 5) -> Iterator[Tick]:
    """Account for so many jobs of Slurm with a few processes each, on eight GPUs that they share."""
    with tempfile.TemporaryDirectory() as folder:
        root, now = Path(folder), [time.monotonic_ns()]
        jobs.machine(root, size, each)
        collector = JobsCollector(JobsCollector.Config(proc=root / "proc", sys=root / "sys", root=root))
        collector._clock = lambda: now[0]
        processor = JobsProcessor(JobsProcessor.Config())
        collector.open(Given(level=Level.BASIC))
        gpus = [Dimensions(gpu=str(number)) for number in range(8)]
        users = [DeviceProcess(gpus[job % 8], pid, 1e9) for job in range(size) for pid in jobs.pids_of(job, each)]
        active = [DeviceActivity(gpu, 0.5, "counter") for gpu in gpus]
        names = {str(number): gpu for number, gpu in enumerate(gpus)}

        def read(at: int) -> None:
            collector.follow({user.pid for user in users}, ())
            own = [*collector.collect(at)]
            facts = [DeviceFacts(now[0], users, names, active), *collector.facts()]
            [*own, *processor.derive((), at, facts)]

        def tick() -> float:
            now[0] += 5_000_000_000
            return cpu_ms(read, 1, 0)

        yield tick
        collector.close()


def gpus(rounds: int) -> Course:
    """Read so many GPUs of a fake driver, each number in a separate process."""
    sizes = (1, 2, 4, 8, 16)
    asked = [nvidia.ask("cpu", "basic", str(min(3, rounds)), gpus=size) for size in sizes]
    return Course("GPUs", sizes, [each["whole"] for each in asked])


COURSES: dict[str, Callable[[int], Course]] = {
    "series": partial(course, "series", (10, 100, 1000, 10_000, 100_000), series),
    "GPUs": gpus,
    "cores": partial(course, "cores", (2, 8, 32, 128, 512), ticking_cores),
    "runtimes": partial(course, "Neuron runtimes", (1, 2, 4, 8, 16, 32), runtimes),
    "processes": partial(course, "processes of a tree", (10, 100, 500, 1000, 5000), processes),
    "sinks": partial(course, "sinks", (1, 2, 3, 4, 5), sinks),
    "jobs": partial(course, "jobs", (1, 10, 50, 100, 200), accounts),
}
"""In place of keywords: `course` takes the number of rounds last."""


def courses(rounds: int = 7) -> list[Course]:
    """Measure all that can be measured here."""
    measured = []
    for take in COURSES.values():
        try:
            measured.append(take(rounds))
        except CannotMeasure:
            continue
    return measured


def scale(effort: Effort) -> list[Figure]:
    """Return the slope of each; above STEEPEST it fails."""
    return [
        Figure(
            f"scale, {each.name}, slope", "", STEEPEST, [each.slope],
            "CPU of a tick (ms): " + ", ".join(f"{size:,}: {ms:.2g}" for size, ms in zip(each.sizes, each.medians, strict=True)),
            strict=True,
        )
        for each in courses(effort.rounds)
    ]  # fmt: skip
