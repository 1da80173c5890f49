"""The real `agent` command seen from outside: memory, CPU, first line, stop."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from tests.bench.child import ROOT, environment, plain_environment
from tests.bench.figure import MB, MEMORY, CannotMeasure, Effort, Figure, cpu_seconds, peak_rss, rss
from tests.certificates import Authority

WARM_UP = 3.0
"""Seconds until the steady state."""
SLICES = 6
DEADLINE = 20.0
"""Seconds after which a command that does not answer is given up."""


def agent_command() -> str:
    """Return the path of the command that belongs to this interpreter."""
    path = Path(sys.executable).with_name("agent")
    if not path.exists():
        raise CannotMeasure(f"there is no {path}: the project is not installed in this environment")
    return str(path)


@contextmanager
def running(words: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command with its output in a pipe, in a separate group, which ends with the block or the deadline."""
    env = environment() if any("google" in word for word in words) else plain_environment()
    run = subprocess.Popen(
        words, cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True
    )

    def end() -> None:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)

    watchdog = threading.Timer(120, end)
    watchdog.start()
    try:
        yield run
    finally:
        watchdog.cancel()
        end()
        run.wait()
        assert run.stdout is not None
        run.stdout.close()


def first_line(run: subprocess.Popen[bytes]) -> None:
    """Wait for the first line of a command; raise RuntimeError where there is none that is a datapoint."""
    assert run.stdout is not None
    line = run.stdout.readline()
    if not line.startswith(b'{"time": '):
        raise RuntimeError(f"`{' '.join(map(str, run.args))}` began with {line!r}, no datapoint; try it by hand")


def resident(words: Sequence[str], effort: Effort, after: float) -> tuple[list[float], float]:
    """Run the agent; return what it has resident (MB) four times, from `after` seconds on, and the most at once."""
    if sys.platform != "linux":
        raise CannotMeasure("needs /proc")
    values = []
    with running([agent_command(), *words]) as run:
        time.sleep(after)
        for _ in range(4):
            time.sleep(effort.steady_seconds / 12)
            values.append(rss(run.pid) / MB)
        return values, peak_rss(run.pid) / MB


def signed(folder: Path, *hosts: str) -> tuple[Path, Path, Path]:
    """Return the files of a server's certificate and of its key, and a bundle as large as in the field that trusts it."""
    import certifi

    authority, bundle = Authority(folder), folder / "bundle.pem"
    bundle.write_bytes(authority.file.read_bytes() + Path(certifi.where()).read_bytes())
    return *authority.sign("server", hosts=hosts), bundle


# -- steady state -----------------------------------------------------------------------------------------------


def steady(effort: Effort) -> list[Figure]:
    """Watch one run, slice by slice."""
    if sys.platform != "linux":
        raise CannotMeasure("needs /proc")
    shares, resident = [], []
    with running([agent_command(), "--interval", "1", "--format", "json"]) as run:
        assert run.stdout is not None
        first_line(run)
        threading.Thread(target=run.stdout.read, daemon=True).start()  # drains
        time.sleep(WARM_UP)
        for _ in range(SLICES):
            wall, cpu = time.monotonic(), cpu_seconds(run.pid)
            time.sleep(effort.steady_seconds / SLICES)
            shares.append(100 * (cpu_seconds(run.pid) - cpu) / (time.monotonic() - wall))
            resident.append(rss(run.pid) / MB)
        peak = peak_rss(run.pid) / MB
        run.terminate()
        run.wait(DEADLINE)
    slices = f"{SLICES} slices of {effort.steady_seconds / SLICES:.0f} s after {WARM_UP:.0f} s"
    what = "chipwatch --interval 1 --format json, all default collectors, into a pipe that is drained"
    return [
        Figure(
            "RSS, steady",
            "MB",
            MEMORY["stdout"],
            resident,
            f"{what}; MB are 10^6 bytes; at the end of each of {slices}",
        ),
        Figure("RSS, peak", "MB", None, [peak], "VmHWM of the same process"),
        Figure("CPU, steady", "% of a core", 0.3, shares, f"CPU clock of the same process / wall, {slices}"),
    ]


# -- start and stop ---------------------------------------------------------------------------------------------


def start_and_stop(effort: Effort) -> list[Figure]:
    """Time the first line and the stop of fresh processes; the first start of all, which may load from disk, counts."""
    firsts, stops = [], []
    for _ in range(effort.starts):
        begun = time.perf_counter()
        with running([agent_command(), "--interval", "1", "--format", "json"]) as run:
            assert run.stdout is not None
            first_line(run)
            firsts.append(time.perf_counter() - begun)
            time.sleep(0.3)
            begun = time.perf_counter()
            run.terminate()
            run.stdout.read()
            code = run.wait(DEADLINE)
            stops.append(time.perf_counter() - begun)
            assert code == 0, f"the agent ended with {code}"
    what = "chipwatch --interval 1 --format json"
    return [
        Figure("first datapoint", "s", 0.5, firsts, f"{what}: from spawn to its first line, {effort.starts} processes"),
        Figure("stop", "s", 1.0, stops, "from SIGTERM to the end of the same processes; all ended with 0"),
    ]


def last_window(effort: Effort) -> list[Figure]:
    """Stop amid a long window; tell how many of its samples are missing from the output."""
    missing, interval = [], 0.2
    for n in range(max(2, effort.rounds // 2)):
        with running([agent_command(), "--interval", str(interval), "--window", "60", "--format", "json"]) as run:
            assert run.stdout is not None
            time.sleep(1.5 + 0.13 * n)
            stopped = time.time()
            run.terminate()
            lines = [json.loads(line) for line in run.stdout.read().splitlines()]
            run.wait(DEADLINE)
        points = [line for line in lines if line["name"] == "memory.utilization"]
        assert points, "the window that was open at SIGTERM is not in the output"
        seen = sum(point.get("summary", {"count": 1})["count"] for point in points)
        first, last = (datetime.fromisoformat(points[n].get(key) or points[n]["time"]).timestamp()
                       for n, key in ((0, "window_start"), (-1, "time")))  # fmt: skip
        assert last >= stopped - 0.001, f"the last sample is {stopped - last:.3f} s older than SIGTERM"
        expected = 2 + int((stopped - first) / interval)  # the first, each interval, and once more at the stop
        missing.append(float(max(0, expected - seen)))
    how = f"chipwatch --interval {interval} --window 60, SIGTERM amid the window: samples due less samples in the summary;"
    return [Figure("samples lost at the stop", "", 0.0, missing, f"{how} the last was read after SIGTERM each time")]


# -- make run ---------------------------------------------------------------------------------------------------


def make_run(effort: Effort) -> list[Figure]:
    """Time `make run` where all is set up already."""
    if not (ROOT / "Makefile").exists() or not shutil.which("make"):
        raise CannotMeasure("no Makefile, or no make")
    ready = subprocess.run(
        ["make", "-q", ".venv/run.stamp"], cwd=ROOT, env=environment(), capture_output=True, check=False
    )
    if ready.returncode:
        raise CannotMeasure("`make run` would set up .venv first; run it once")
    values = []
    for _ in range(effort.starts):
        begun = time.perf_counter()
        with running(["make", "-s", "run"]) as run:
            first_line(run)
            values.append(time.perf_counter() - begun)
    return [Figure("second `make run`", "s", 1.0, values, "from spawn of make to its first line")]
