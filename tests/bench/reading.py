"""Cost of collecting: the host set, a machine of 192 cores, a tree of 500 processes."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

from tests.bench.figure import CannotMeasure, Effort, Figure, cpu_ms

from chipwatch.collectors.cpu import CpuCollector
from chipwatch.collectors.process import ProcessCollector
from chipwatch.config.instances import build_collectors
from chipwatch.config.load import load
from chipwatch.config.plugins import COLLECTORS, installed
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given
from chipwatch.engine.build import build_sources

HOST_SET = ("cpu", "memory", "disk", "network")
HOST_FILES = ("/proc/stat", "/proc/meminfo", "/proc/diskstats", "/proc/net/dev")
PAUSE = 0.03
"""Seconds between two ticks: on 2 CPUs 6 clock ticks, enough for the shares of the CPU to be made."""
TICKS = 25
CORES = 192
PROCESSES = 500


# -- the host set -----------------------------------------------------------------------------------------------


def host_set(effort: Effort) -> list[Figure]:
    """Compare the collectors with a bare loop over the same files; the two take turns."""
    collectors, values, ratios, bare = host_collectors(), [], [], []
    moments = count(10**18, 5 * 10**9)

    def tick(_: int) -> None:
        at = next(moments)  # each tick reads all, as with an interval of 5 s
        for collector in collectors:
            list(collector.collect(at))

    for collector in collectors:
        collector.open(Given())
    try:
        cpu_ms(tick, 5, PAUSE)
        for _ in range(effort.rounds):
            values.append(cpu_ms(tick, TICKS, PAUSE))
            bare.append(cpu_ms(bare_loop, TICKS, PAUSE))
            ratios.append(values[-1] / bare[-1])
    finally:
        for collector in collectors:
            collector.close()
    names = ", ".join(HOST_SET)
    how = f"CPU of {names} at level basic; mean of {TICKS} ticks {PAUSE * 1000:.0f} ms apart"
    loop = f"open, read to the end, close {', '.join(HOST_FILES)}, and statvfs of /, with bare os calls"
    return [
        Figure("host set, one tick", "ms", 1.0, values, how),
        Figure("host set / bare loop", "x", 3.0, ratios, f"the above / CPU of: {loop}"),
        Figure("bare loop", "ms", None, bare, loop),
    ]


def host_collectors() -> list[Collector]:
    """Return the collectors as `agent` builds them, not yet open."""
    if not set(HOST_SET) <= installed(COLLECTORS).keys():
        raise CannotMeasure("the project is not installed in this environment")
    config = load(None, {"collector": list(HOST_SET), "level": "basic"}, env={})
    collectors = build_collectors(config)
    build_sources(collectors, {}, config)  # sets the level
    return [*collectors.values()]


def bare_loop(at: int) -> None:
    """Do what nobody can do without."""
    for path in HOST_FILES:
        file = os.open(path, os.O_RDONLY)
        while os.read(file, 1 << 16):
            pass
        os.close(file)
    os.statvfs("/")


# -- 192 cores --------------------------------------------------------------------------------------------------


def many_cores(effort: Effort) -> list[Figure]:
    """Read the file of a large machine."""
    with ticking_cores(CORES) as tick:
        values = [sum(tick() for _ in range(TICKS)) / TICKS for _ in range(effort.rounds)]
    how = f"CPU of the cpu collector at level all, loads too, on a generated /proc/stat; mean of {TICKS} ticks 1 s of it apart"
    return [Figure(f"{CORES} cores, one tick", "ms", 3.0, values, how)]


@contextmanager
def ticking_cores(cores: int) -> Iterator[Callable[[], float]]:
    """Yield a function that reads a file whose counters have moved, and returns the CPU time (ms)."""
    with tempfile.TemporaryDirectory() as folder:
        proc = Path(folder)
        (proc / "loadavg").write_text("12.05 11.40 9.87 3/2875 123456\n")
        (proc / "stat").write_bytes(proc_stat(cores, 0))
        collector = CpuCollector(CpuCollector.Config(proc=proc))
        collector.open(Given(level=Level.ALL))
        moments = count(1)

        def read(at: int) -> None:
            points = list(collector.collect(at))
            assert len(points) > cores, f"{len(points)} points of {cores} CPUs"

        def tick() -> float:
            with (proc / "stat").open("r+b") as file:  # the same inode: the collector keeps it open
                file.write(proc_stat(cores, next(moments)))
            return cpu_ms(read, 1, 0)

        yield tick
        collector.close()


def proc_stat(cores: int, second: int) -> bytes:
    """Return a /proc/stat of fixed width, `second` seconds after it was begun: a server a month after its start."""

    def times(core: int, of: int) -> str:
        busy = of * 100 * (core % 10) // 10
        each = (48_000_000 + busy * 7 // 10, 10_000, 9_000_000 + busy * 3 // 10, 200_000_000 + of * 100 - busy)
        return " ".join(f"{n:012d}" for n in (*each, 300_000 + core, 0, 150_000 + core, 0, 0, 0))

    rows = [f"cpu{core} {times(core, second)}" for core in range(cores)]
    columns = [sum(int(row.split()[n]) for row in rows) for n in range(1, 11)]
    irqs = " ".join(["0"] * 4000)  # as many as such a machine has
    head = "cpu  " + " ".join(f"{n:014d}" for n in columns)
    rest = f"intr 123456789 {irqs}\nctxt 9876543210\nbtime 1790000000\nprocesses 1234567\nprocs_running 7"
    return "\n".join([head, *rows, rest, "procs_blocked 0", ""]).encode()


# -- a tree of processes ----------------------------------------------------------------------------------------


def process_tree(effort: Effort) -> list[Figure]:
    """Read a tree as that of a training job: a launcher, workers, and what they started."""
    if sys.platform != "linux":
        raise CannotMeasure("the tree is read from /proc")
    with processes(PROCESSES) as pid:
        collector = ProcessCollector(ProcessCollector.Config(pid=pid))
        collector.open(Given(level=Level.BASIC))

        def tick(at: int) -> None:
            list(collector.collect(at))

        try:
            cpu_ms(tick, 3, PAUSE)
            found = collector.describe()
            assert f" {PROCESSES} " in f" {found} ", f"expected {PROCESSES} processes, got: {found}"
            values = [cpu_ms(tick, TICKS // 2, PAUSE) for _ in range(effort.rounds)]
        finally:
            collector.close()
    how = (
        f"CPU of the process collector at level basic ({found}); mean of {TICKS // 2} ticks {PAUSE * 1000:.0f} ms apart"
    )
    return [Figure(f"{PROCESSES} processes, one tick", "ms", 10.0, values, how)]


@contextmanager
def processes(many: int) -> Iterator[int]:
    """Start a tree of `many` processes in three generations; yield the first pid."""
    branches, each = 20, (many - 1) // 20 - 1
    rest = many - 1 - branches * (each + 1)
    branch = f"i=0; while [ $i -lt {each} ]; do sleep 300 & i=$((i+1)); done; echo up; wait"
    script = (
        f"i=0; while [ $i -lt {rest} ]; do sleep 300 & i=$((i+1)); done; "
        f"i=0; while [ $i -lt {branches} ]; do sh -c '{branch}' & i=$((i+1)); done; wait"
    )
    first = subprocess.Popen(["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True)
    try:
        assert first.stdout is not None
        for _ in range(branches):
            if not first.stdout.readline():
                raise CannotMeasure(f"{many} processes could not be started")
        yield first.pid
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
        assert first.stdout is not None
        first.stdout.close()
