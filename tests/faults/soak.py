"""Ten thousand quick ticks with a server that comes and goes: nothing grows, and nothing stays owed."""

import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import NamedTuple

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
"""Bytes of log in all, and a quarter of them after the warm-up: within the hour each cause is logged once."""
MOST_FILE = 32 << 20
"""Bytes of the spool's file and its WAL."""


FEW = 500
"""Points that are on their way while all goes well."""


class Size(NamedTuple):
    """Size of an agent, in bytes."""

    memory: int = 0
    descriptors: int = 0
    log: int = 0
    file: int = 0


def run(figures: Figures) -> None:
    """Soak once; `wanted` is in ticks."""
    ticks, figures.wanted = figures.wanted, 1
    for dice in figures.trials():
        with tempfile.TemporaryDirectory() as folder:
            _soak(figures, dice, Path(folder), ticks)


def _soak(figures: Figures, dice: Random, folder: Path, ticks: int) -> None:
    with answers.StormyCloudwatch(Random(dice.random())) as double:
        warm, last, code = _live(double, dice, folder, ticks)
    ledger, owed = books(folder / "cloudwatch.db")
    log = (folder / "log.0").read_text(errors="replace")
    accepted = sum(len(request.datums) for request in double.taken)
    figures.counts.update(ticks=ticks, points=ledger.get("collected", 0), doubled=accepted - ledger.get("sent", 0))
    figures.counts["bad answers"] += sum(count for kind, count in double.asked.items() if kind != "good")
    figures.counts["log bytes"] += len(log)
    figures.counts["KiB grown"] += max(0, last.memory - warm.memory) >> 10
    with closing(sqlite3.connect(folder / "cloudwatch.db")) as db:
        (chunks,) = db.execute("SELECT count(*) FROM chunk").fetchone()
    wrong = {
        f"the agent ends with {code}": code != 0,
        f"{owed} points are owed in {chunks} chunks": owed or chunks,
        f"the ledger says {ledger}": ledger.get("sent") != ledger.get("collected"),
        f"it printed a traceback: {log[-200:]}": "Traceback" in log,
        f"the service took {accepted} points, and {ledger.get('sent')} count as sent": accepted < ledger.get("sent", 0),
        f"memory grew from {warm.memory >> 10} to {last.memory >> 10} KiB": last.memory - warm.memory > MOST_GROWTH,
        f"descriptors grew from {warm.descriptors} to {last.descriptors}": last.descriptors > warm.descriptors + 2,
        f"the log grew from {warm.log} to {len(log)} bytes": max(len(log), 4 * (len(log) - warm.log)) > MOST_LOG,
        f"the spool's file has {last.file >> 20} MiB": last.file > MOST_FILE,
    }
    for text in [text for text, is_so in wrong.items() if is_so]:
        figures.fail(text)


def _live(double: answers.StormyCloudwatch, dice: Random, folder: Path, ticks: int) -> tuple[Size, Size, int | None]:
    """Run the agent; return how big it was after the warm-up and at the end, and how it ended."""
    process = context().Process(target=lives.soak, args=(double.url, folder, INTERVAL), daemon=True)
    process.start()
    warm, last = Size(), Size()
    good: int | None = None
    deadline = time.monotonic() + LONG + 10 * ticks * INTERVAL
    while process.is_alive() and time.monotonic() < deadline:
        done = int((folder / "ticks").read_text() or 0) if (folder / "ticks").exists() else 0
        double.well = 1.0 if done >= ticks else dice.choice([0.0, 0.5, 1.0])
        last = _size(process.pid, folder) or last
        warm = warm if warm.memory or done < WARM * ticks else last
        answered = double.asked.get("good", 0)
        if done >= ticks and good is None:
            good = answered
        # A bad answer may still be on its way, and the stop would wait longer than it has for the next attempt.
        if good is not None and answered > good and books(folder / "cloudwatch.db")[1] < FEW:
            process.terminate()
            process.join(LONG)
        time.sleep(dice.uniform(0.05, 0.4))
    process.kill()
    process.join(LONG)
    return warm, last, process.exitcode


def _size(pid: int, folder: Path) -> Size | None:
    """Return how big the agent is."""
    try:
        process = psutil.Process(pid)
        files = [file.stat().st_size for file in folder.glob("cloudwatch.db*")]
        log = (folder / "log.0").stat().st_size
        return Size(process.memory_info().rss, process.num_fds(), log, sum(files))
    except (psutil.Error, OSError):
        return None
