"""The agent beside a loop with psutil and node_exporter, in the same seconds: ratios of CPU, threads, wake-ups, memory."""

import os
import pty
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import suppress

from tests.bench.child import ROOT, environment
from tests.bench.command import agent_command
from tests.bench.figure import MB, MEMORY, CannotMeasure, Effort, Figure, cpu_seconds, rss
from tests.peers.measure import ratios
from tests.peers.programs import BY_NAME
from tests.peers.running import Results, rounds

ASKED = (
    ("stdout", "psutil", 1.0),
    ("stdout-all", "psutil", 1.5),
    ("cloudwatch-minute", "psutil", 1.0),
    ("cloudwatch-second", "psutil", 1.5),
    ("prometheus", "psutil", 1.2),
    ("prometheus", "node_exporter", 0.25),
)
"""The CPU of a program by that of another, at most."""
THREADS, SWITCHES = 5, 12
"""Of the agent with one sink, on a machine without accelerators; context switches a second."""
RESIDENT = {"stdout": "stdout", "prometheus": "prometheus", "cloudwatch-second": "cloudwatch"}
"""Programs whose memory has a limit, and the name of the limit."""
TOP_SHARE = 1.5
"""Percent of a core."""


def beside(effort: Effort) -> list[Figure]:
    """Run all of them side by side, and `chipwatch top` after them."""
    if sys.platform != "linux":
        raise CannotMeasure("needs /proc")
    names = dict.fromkeys(name for ours, other, _ in ASKED for name in (ours, other))
    runs = max(1, effort.rounds // 3)
    results, absent = rounds([BY_NAME[name] for name in names], runs, effort.beside_seconds, warm(effort))
    if "psutil" not in results or "stdout" not in results:
        raise RuntimeError(f"not measured: {absent}")
    how = f"{runs} rounds of {effort.beside_seconds} s, in the same seconds, each at 1 s"
    return [*compared(results, how), *top(effort)]


def warm(effort: Effort) -> float:
    """Return the seconds before a measurement; a whole one waits until the first points are sent, with what that loads."""
    return min(20.0, max(6.0, effort.beside_seconds / 3))


def compared(results: Results, how: str) -> list[Figure]:
    """Return the figures of what could be measured."""
    figures = [
        Figure(f"CPU of {ours} / {other}", "x", asked, ratios(results[ours], results[other]), how)
        for ours, other, asked in ASKED
        if ours in results and other in results
    ]
    for name, more in (("stdout", ""), ("prometheus", ", prometheus")):
        runs, where = results.get(name, []), f"{name}; {how}"
        if runs:
            figures.append(Figure(f"threads{more}", "", THREADS, [run.threads for run in runs], where))
            switches = [run.switches for run in runs]
            figures.append(Figure(f"context switches{more}", "1/s", SWITCHES, switches, f"of all threads, {where}"))
    return figures + [
        Figure(f"memory, {name}", "MB", MEMORY[limit], [run.rss for run in results[name]], f"RSS; {how}")
        for name, limit in RESIDENT.items()
        if name in results
    ]


def top(effort: Effort) -> list[Figure]:
    """Watch `chipwatch top` on a terminal of 120 columns."""
    master, terminal = pty.openpty()
    env = environment() | {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "34"}
    run = subprocess.Popen(
        [agent_command(), "top"], cwd=ROOT, env=env, stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True
    )  # fmt: skip
    os.close(terminal)

    def drain() -> None:
        with suppress(OSError):
            while os.read(master, 1 << 16):
                pass

    threading.Thread(target=drain, daemon=True).start()
    shares, resident = [], []
    try:
        time.sleep(warm(effort))
        for _ in range(3):
            wall, cpu = time.monotonic(), cpu_seconds(run.pid)
            time.sleep(effort.beside_seconds / 6)
            shares.append(100 * (cpu_seconds(run.pid) - cpu) / (time.monotonic() - wall))
            resident.append(rss(run.pid) / MB)
        if run.poll() is not None:
            raise RuntimeError(f"`chipwatch top` ended with {run.returncode}; try it by hand")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(run.pid, signal.SIGKILL)
        run.wait()
        os.close(master)
    how = "`chipwatch top` on a terminal of 120 columns, no accelerator, 1 s"
    return [
        Figure("CPU, top", "% of a core", TOP_SHARE, shares, how),
        Figure("memory, top", "MB", MEMORY["top"], [statistics.median(resident)], f"RSS; {how}"),
    ]
