"""A spool's file that rots in any way: no altered value is delivered, nothing raises, the ledger balances."""

import os
import shutil
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from random import Random

from tests.search.figures import Figures
from tests.search.properties import books

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.contract.errors import Retryable
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.spool.sqlite import ASIDE

LEVEL = gauge("test.level", "%", "A level.", dims=("n",))
TOTAL = counter("test.total", "By", "A total.", dims=("n",))
CHUNKS, POINTS = 30, 20
AT = 1_800_000_000_000_000_000
COMMON = Dimensions(host="test")


def window(first: int) -> list[Datapoint]:
    """Return points with different numbers."""
    found: list[Datapoint] = []
    for n in range(first, first + POINTS):
        at, dims = AT + first * 10**9, Dimensions(n=str(n))
        found += [LEVEL.point(at, n * 1.25, dims), TOTAL.point(at, n * 3.0, dims, start_time=AT - n)]
    return found


class Template:
    """A spool's file in the midst of its life, with its WAL, and the points that were ever in it."""

    def __init__(self, folder: Path, first: int) -> None:
        self.points: dict[object, Datapoint] = {}
        folder.mkdir()
        spool = Spool("test", folder / "work.db")
        self.files = {}
        for n in range(CHUNKS):
            points = window(first + n * POINTS)
            self.points |= {_key(point): point for point in points}
            spool.append(points, COMMON)
            if n == CHUNKS // 2:  # what stands in the file itself, and what in the WAL
                with spool.file.lock:
                    spool.file.store._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                spool.take(70)
                spool.acknowledge({"sent": 65, "rejected:odd": 5})
            if n == CHUNKS - 1:
                self.files = {end: (folder / f"work.db{end}").read_bytes() for end in ("", "-wal", "-shm")}
        spool.close()
        self.closed = {"": (folder / "work.db").read_bytes()}


def _key(point: Datapoint) -> tuple[str, str]:
    return point.metric.name, point.dims.get("n", "")


def spoil(dice: Random, files: dict[str, bytes], others: dict[str, bytes]) -> Iterator[str]:
    """Change one to three things in the files; yield what."""
    for _ in range(dice.randint(1, 3)):
        name = dice.choice([*files])
        data = bytearray(files[name])
        what = dice.choice(["flip", "flip", "flip", "cut", "zero", "garbage", "swap", "insert", "gone", "copy"])
        at = dice.randrange(len(data)) if data else 0
        if what == "flip":
            for _ in range(dice.choice([1, 1, 8, 64]) if data else 0):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        elif what == "cut":
            del data[at:]
        elif what in {"zero", "copy"}:
            page = at // 4096 * 4096
            data[page : page + 4096] = bytes(4096) if what == "zero" else data[:4096]
        elif what == "garbage":
            size = min(len(data) - at, dice.choice([1, 100, 5000, len(data)]))
            data[at : at + size] = dice.randbytes(size)
        elif what == "insert":
            data[at:at] = dice.randbytes(dice.randint(1, 50))
        elif what == "swap" and name in others:
            data = bytearray(others[name])
        files[name] = bytes(data)
        if what == "gone" and len(files) > 1:
            del files[name]
        yield f"{what} {name or 'db'}"


def drain(spool: Spool, dice: Random, few: int) -> Iterator[Datapoint]:
    """Deliver all that is owed, as a worker does; `few`: points that a damaged ledger has not counted."""
    withheld = 0
    while spool.ledger.spooled and withheld < 50:
        try:
            parts = spool.take(dice.choice([7, 40, 1000]))
        except Retryable:
            withheld += 1
            continue
        for points, common in parts:
            assert common == COMMON, f"the dimensions are {common}"
            yield from points
            spool.acknowledge({"sent": len(points)})
        assert -few <= spool.ledger.balance() <= 0, f"the ledger is off: {spool.ledger}"


def trial(dice: Random, folder: Path, ours: Template, others: Template) -> Counter[str]:
    """Spoil a spool and use it; raise AssertionError with what is wrong."""
    files = dict(dice.choice([ours.files, ours.files, ours.closed]))
    done = [*spoil(dice, files, others.files)]
    for end, data in files.items():
        (folder / f"test.db{end}").write_bytes(data)
    try:
        spool = Spool("test", folder / "test.db")
        few, reasons = -spool.ledger.balance(), {*spool.ledger.dropped}
        assert few >= 0 and reasons <= {"unreadable"}, f"the ledger is off at the start: {spool.ledger}"  # noqa: PT018
        fresh = window(10**6)
        known = others.points | ours.points | {_key(point): point for point in fresh}
        spool.append(fresh, COMMON)
        delivered = [*drain(spool, dice, few)]
        for point in delivered:
            assert known.get(_key(point)) == point, f"altered: {point}"
        assert {*map(_key, fresh)} <= {*map(_key, delivered)}, "points that came later are lost"
        assert spool.ledger.spooled == 0, f"points stay for ever: {spool.ledger}"
        spool.close()
        if (folder / "test.db").exists():
            ledger, owed = books(folder / "test.db")
            left = ledger.pop("collected", 0) - sum(ledger.values()) - owed
            assert -few <= left <= 0, f"the file's ledger is off by {left}: {ledger}, {owed} owed"
            least = 0 if spool.file.faults["corrupt"] else min(ASIDE, spool.file.faults["unreadable"] - 1)
            with suppress(sqlite3.DatabaseError), closing(sqlite3.connect(folder / "test.db")) as db:
                ((aside,),) = db.execute("SELECT count(*) FROM aside")  # which may be damaged, too
                assert aside >= least, f"{aside} chunks are set aside of {least}"
    except Exception as problem:
        problem.add_note(", ".join(done))
        raise
    return Counter(delivered=len(delivered), lost=spool.ledger.dropped.total())


def run(figures: Figures) -> None:
    """Spoil spools until that is done or the time is over."""
    # In memory where possible: the campaign should not wait for a disk.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as top:
        ours, others = Template(Path(top) / "ours", 0), Template(Path(top) / "others", 10_000)
        for dice in figures.trials():
            folder = Path(top) / "trial"
            folder.mkdir()
            try:
                figures.counts.update(trial(dice, folder, ours, others))
            except Exception as problem:  # noqa: BLE001  # the finding
                notes = "; ".join(getattr(problem, "__notes__", ()))
                figures.fail(f"{type(problem).__name__}: {str(problem)[:300]} ({notes})")
            shutil.rmtree(folder)
