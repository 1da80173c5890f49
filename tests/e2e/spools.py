"""Reads the file of a spool, also while its agent runs."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.engine.spool.sqlite import decode_points

LONG = 60.0


def ledger(path: Path) -> Counter[str]:
    """Return the ledger in a spool's file, empty while it is in the making."""
    try:
        with closing(sqlite3.connect(path, timeout=LONG)) as db:
            return Counter(dict(db.execute("SELECT entry, points FROM ledger")))
    except sqlite3.OperationalError:
        return Counter()


def owed(path: Path) -> Iterator[tuple[Datapoint, Dimensions | None]]:
    """Iterate over the points that a spool's file owes, with what they have in common."""
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        rows = db.execute("SELECT body, points, done FROM chunk ORDER BY key").fetchall()
    for body, count, done in rows:
        points, common = decode_points(body, count)
        yield from ((point, common) for point in points[done:])


def hurried(folder):
    """Return the environment of an agent that tries again after 2 ms, whatever a service asks; it needs `folder`."""
    (folder / "sitecustomize.py").write_text(
        "from chipwatch.engine import delivery_log\n"
        "from chipwatch.engine.delivery import Pauses, SinkDelivery\n"
        "delivery_log.MAX_AFTER = 0.002\n"
        "before = SinkDelivery.__init__.__defaults__\n"
        "SinkDelivery.__init__.__defaults__ = (*before[:-1], Pauses(0.001, 0.002, 0.001, 0.002))\n"
    )
    return {"PYTHONPATH": folder}
