"""Ten thousand quick ticks with a server that comes and goes: nothing grows, and nothing stays owed."""

from __future__ import annotations

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random

import psutil

from tests.faults import answers, lives
from tests.faults.figures import Figures
from tests.faults.kills import LONG, books, context

INTERVAL = 0.002
WARM = 0.3
"""Share of the ticks after which all that is needed once is there."""
MOST_GROWTH = 8 << 20
"""Bytes of memory."""
MOST_LOG = 64 << 10
"""Bytes of log in all, and a quarter of them after the warm-up: within the hour each cause is said once."""
MOST_FILE = 32 << 20
"""Bytes of the spool's file and its WAL."""


FEW = 500
"""Points that are on their way while all goes well."""


def run(figures: Figures) -> None:
    """Soak once; `wanted` is in ticks."""
    ticks, figures.wanted = figures.wanted, 1
    for dice in figures.trials():
        with tempfile.TemporaryDirectory() as folder:
            _soak(figures, dice, Path(folder), ticks)


def _soak(figures: Figures, dice: Random, folder: Path, ticks: int) -> None:
    with answers.StormyCloudwatch(Random(dice.random())) as double:
        process = context().Process(target=lives.soak, args=(double.url, folder, INTERVAL), daemon=True)
        process.start()
        warm = last = None
        deadline = time.monotonic() + LONG + 10 * ticks * INTERVAL
        while process.is_alive() and time.monotonic() < deadline:
            done = int((folder / "ticks").read_text() or 0) if (folder / "ticks").exists() else 0
            double.well = 1.0 if done >= ticks else dice.choice([0.0, 0.5, 1.0])
            last = _size(process.pid, folder)
            if warm is None and done >= WARM * ticks:
                warm = last
            if done >= ticks and books(folder / "cloudwatch.db")[1] < FEW:
                process.terminate()
                break
            time.sleep(dice.uniform(0.05, 0.4))
        process.join(LONG)
        if process.exitcode != 0:
            figures.fail(f"the agent ends with {process.exitcode}, and owes {books(folder / 'cloudwatch.db')}")
            process.kill()
            process.join(LONG)
    accepted = sum(len(request.datums) for request in double.taken)
    ledger, owed = books(folder / "cloudwatch.db")
    with closing(sqlite3.connect(folder / "cloudwatch.db")) as db:
        (chunks,) = db.execute("SELECT count(*) FROM chunk").fetchone()
    log = (folder / "log.0").read_text(errors="replace")
    figures.counts.update(ticks=ticks, points=ledger.get("collected", 0), doubled=accepted - ledger.get("sent", 0))
    figures.counts["bad answers"] += sum(count for kind, count in double.asked.items() if kind != "good")
    figures.counts["log bytes"] += len(log)
    if owed or chunks or ledger.get("sent") != ledger.get("collected"):
        figures.fail(f"{owed} points are owed in {chunks} chunks, the ledger says {ledger}")
    if "Traceback" in log:
        figures.fail(f"it printed a traceback: {log.strip().splitlines()[-1]}")
    if warm is None or last is None:
        figures.fail("it did not live long enough to be measured")
        return
    figures.counts["memory grew KiB"] += max(0, last["memory"] - warm["memory"]) >> 10
    if last["memory"] - warm["memory"] > MOST_GROWTH:
        figures.fail(f"memory grew from {warm['memory'] >> 10} to {last['memory'] >> 10} KiB")
    if last["descriptors"] > warm["descriptors"] + 2:
        figures.fail(f"descriptors grew from {warm['descriptors']} to {last['descriptors']}")
    if len(log) > MOST_LOG or len(log) - warm["log"] > MOST_LOG // 4:
        figures.fail(f"the log grew from {warm['log']} to {len(log)} bytes")
    if last["file"] > MOST_FILE:
        figures.fail(f"the spool's file has {last['file'] >> 20} MiB")


def _size(pid: int, folder: Path) -> dict[str, int] | None:
    """Return how big the agent is."""
    try:
        process = psutil.Process(pid)
        files = [file.stat().st_size for file in folder.glob("cloudwatch.db*")]
        log = (folder / "log.0").stat().st_size
        return {"memory": process.memory_info().rss, "descriptors": process.num_fds(), "log": log, "file": sum(files)}
    except (psutil.Error, OSError):
        return None
