"""A route, its spool and its delivery in this process: ticks, a service, a disk and lives that go wrong, all by dice."""

import os
import sqlite3
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from random import Random
from unittest import mock

from tests.search.corruptions import AT
from tests.search.figures import Figures
from tests.search.properties import books, owing

from chipwatch.base.system import open_locked
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable, SinkClosed
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.engine import route as routes
from chipwatch.engine import window as windows
from chipwatch.engine.delivery import Worker
from chipwatch.engine.delivery_log import Pauses
from chipwatch.engine.spool import queue
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.spool.sqlite import ASIDE

LEVEL = gauge("test.level", "1", "A level.", dims=("n",))
TOTAL = counter("test.total", "1", "A total.", dims=("pod",))
GONE = 40
"""Series without a reading that may be remembered, in place of 50,000."""
MOST = 12
"""Most points of a tick."""
CALM = 200
"""Most deliveries until nothing is owed once all is well."""
KINDS = {7: "odd", 19: "bad", 31: "cursed"}
"""Remainder of a number by 40 -> its kind: rejected by name, refused without a name, or fatal for the sink."""


def kind(number: int) -> str:
    """Return how the service treats a point."""
    return KINDS.get(number % 40, "good")


def number(point: Datapoint) -> int:
    """Return the number of a point, which is its value."""
    return int(point.value)


class Service(Sink):
    """Remembers what it took; answers well with a chance of `world.well`."""

    needs = Needs(state=True)

    def __init__(self, world: "World") -> None:
        self.world, self.limits, self.state, self.is_open = world, world.limits, b"0", False

    def open(self) -> None:
        """Check the state that the last life has left."""
        known = self.world.known if self.world.spool.file.store else None
        self.world.check(known in {None, self.state}, f"the state is {self.state!r}, not {known!r}")
        self.is_open = True

    def destination(self) -> dict[str, str]:
        """Return the destination of this life."""
        return {"name": self.world.place}

    def size(self, point: Datapoint) -> int:
        """Return some bytes."""
        return 10 + number(point) % 90

    def restore(self, saved: bytes) -> None:
        """Take the state."""
        self.state = saved

    def saved(self) -> bytes:
        """Return how many requests were taken."""
        return self.state

    def write(self, batch: Sequence[Datapoint]) -> list[Rejected]:
        """Take the batch, or not; meanwhile a tick may come, or the agent be killed."""
        world, limits, numbers = self.world, self.limits, [*map(number, batch)]
        size, series = sum(map(self.size, batch)), {(point.metric.name, point.dims) for point in batch}
        world.check(0 < len(batch) <= limits.max_points, f"a request has {len(batch)} points")
        world.check(size <= (limits.max_bytes or size) or len(batch) == 1, f"a request has {size} bytes")
        world.check(not limits.one_per_series or len(series) == len(batch), "a request has a series twice")
        times = [point.at for point in batch]
        world.check(times == sorted(times), f"a request is out of order: {numbers}")
        if world.dice.random() < 0.2 and world.well < 1:
            if world.other:
                world.other.close()
            world.tick()
        if world.dice.random() > world.well:
            raise world.dice.choice([Refused, Retryable, Retryable, Retryable if world.path else SinkClosed])("not now")
        if worst := {kind(n) for n in numbers} & {"bad", "cursed"}:
            raise BadBatch("one of them") if "bad" in worst else KeyError("a bug")
        self.state = b"%d" % (int(self.state) + 1)
        world.take(batch)
        if world.dice.random() > world.well:
            world.doubt.update(numbers)
            if world.dice.random() < 0.5:
                world.kill(is_writing=True)
            raise Retryable("the answer is lost")
        return [Rejected(point, "odd") for point in batch if kind(number(point)) == "odd"]


class World:
    """Lives of one delivery, and the truth about its points."""

    def __init__(self, dice: Random, folder: Path) -> None:
        self.dice, self.path = dice, folder / "test.db" if dice.random() < 0.85 else None
        self.places = ("here", "there")[: dice.choice([1, 1, 2])]
        self.limits = Limits(
            max_points=dice.choice([3, 10, 40]), max_bytes=dice.choice([None, 120, 900]),
            one_per_series=dice.random() < 0.3, window=0, flush=0,
        )  # fmt: skip
        self.most, self.well, self.number, self.at = dice.choice([2000, 128 << 20, 128 << 20]), 1.0, 0, AT
        self.wrong: list[str] = []
        self.is_exact = True
        """The disk has never failed."""
        self.came: dict[int, tuple[str, str, Dimensions, int]] = {}
        """Number -> where a point must go ("": to any place), and what of it must arrive."""
        self.taken, self.doubt, self.lost = Counter[int](), set[int](), set[int]()
        """Numbers that were taken, that may come twice, and that were dropped or on no disk at a kill."""
        self.known: bytes | None = None
        """The state of the sink that the disk has, if that is sure."""

    def check(self, is_so: object, text: str) -> None:
        """Note what is wrong; it cannot be raised, since the delivery outlives each exception of a sink."""
        if not is_so:
            self.wrong.append(text)

    def begin(self, place: str, *, is_busy: bool = False) -> None:
        """Begin a life; with `is_busy`, while another agent has the file."""
        self.place, self.is_full, self.is_killed = place, False, False
        self.is_exact &= not is_busy
        self.other = open_locked(self.path.with_suffix(".lock")) if self.path and is_busy else None
        common = Dimensions(host=self.dice.choice(["a", "b"]))
        self.common, self.spool = common, Spool("test", self.path, max_bytes=self.most)
        self.service, pauses = Service(self), Pauses(0.0, 0.0, 0.0, 0.0)
        self.worker = Worker("test", self.service, self.spool, lambda: common, pauses=pauses)
        self.window, self.admission = windows.Window(0, born=AT), routes.Admission("test", None)
        parts = routes.MetricFilter(Level.ALL), self.window, self.spool, self.worker
        self.route = routes.Route(*parts, lambda: common, admission=self.admission)
        if self.path and not is_busy:
            owed = len([*owing(self.path)])
            self.check(self.spool.ledger.spooled == owed, f"it begins with {self.spool.ledger.spooled} of {owed}")

    def tick(self, most: int = MOST) -> None:
        """Let points come; a third of the series come once."""
        points, self.at, place = [], self.at + 10**9, self.place if self.service.is_open else ""
        for n in range(self.number + 1, self.number + 1 + self.dice.randint(1, most)):
            metric, dims = (LEVEL, Dimensions(n=str(n % 5))) if n % 3 else (TOTAL, Dimensions(pod=str(n)))
            points.append(metric.point(self.at, float(n), dims))
            self.came[n] = place, metric.name, self.common | dims, self.at
            self.number = n
        self.route.take(points, self.at)
        for name, kept in (("window", len(self.window._counters)), ("limit", len(self.admission._series))):
            self.check(kept <= GONE + 3 * MOST, f"the {name} remembers {kept} series")

    def take(self, batch: Sequence[Datapoint]) -> None:
        """Take a batch, but for what is rejected."""
        for n, point in [(number(point), point) for point in batch]:
            place, *rest = self.came[n]
            self.check(rest == [point.metric.name, point.dims, point.at], f"altered: {point}")
            self.check(place in {"", self.place}, f"{n} of {place} is at {self.place}")
            self.check(not self.taken[n] or n in self.doubt, f"{n} is sent twice")
            self.taken[n] += 1

    def turn(self, *, is_last: bool = False) -> None:
        """Deliver once."""
        self.worker.turn(is_last=is_last)
        ledger = self.spool.ledger
        self.check(ledger.balance() == 0, f"the ledger is off: {ledger}")
        self.check(not (self.worker.health.is_closed and ledger.due), f"{ledger.due} wait for a reader that has gone")
        if not self.is_killed and self.service.is_open:
            self.known = self.service.state if self.is_safe else None

    def disk(self) -> None:
        """Fill the disk, or make room."""
        self.is_full, self.is_exact = not self.is_full, False
        if store := self.spool.file.store:
            store._db.execute(f"PRAGMA max_page_count={1 if self.is_full else 1 << 30}")

    @property
    def is_safe(self) -> bool:
        """Return whether the disk has all, and would take all."""
        file = self.spool.file
        is_written = not (self.spool._unsaved or file.pending or self.worker._batches.is_halfway)
        return is_written and file.store is not None and not self.is_full

    def kill(self, *, is_writing: bool = False) -> None:
        """Kill the agent, unless it has ended: its file takes nothing more."""
        if not self.is_killed:
            self.is_killed, self.was_safe = True, self.is_safe
            self.known = None if is_writing else self.known
            self.spool.file.close()

    def end(self, *, in_order: bool) -> None:
        """End the life; compare what its file has with what it must have."""
        if in_order and not self.is_killed:
            self.turn(is_last=True)
        if in_order and not self.is_killed:
            self.was_safe, self.is_killed = self.is_safe, True
            self.spool.close()
        self.kill()
        if self.other:
            self.other.close()
        left = Counter(number(point) for point, *_ in owing(self.path)) if self.path else Counter()
        missing = {n for n in self.came if kind(n) == "good"} - self.taken.keys() - left.keys() - self.lost
        twice = self.taken.keys() & left.keys() - self.doubt
        if self.path:
            ledger, owed = books(self.path)
            dropped = ledger["dropped:spool full"]
            self.check(2 * ledger["collected"] == ledger.total() + owed, f"{dict(ledger)}, {owed} owed")
            self.check(max(left.values(), default=1) == 1, f"points are kept twice: {left.most_common(3)}")
            self.check(ledger["sent"] <= self.taken.total(), f"{ledger['sent']} sent of {self.taken.total()}")
        if self.path and self.was_safe:
            self.check(len(missing) <= dropped, f"{len(missing)} are neither sent nor kept, {dropped} dropped")
            self.check(not twice, f"what was sent is kept: {sorted(twice)[:5]}")
        self.lost |= missing
        self.doubt |= twice

    def calm(self) -> None:
        """Let all be well, and judge what was delivered."""
        self.well = 1.0
        for place in self.places:
            self.begin(place)
            for _ in range(CALM):
                self.tick(1)
                self.turn()
                if not self.spool.is_due:
                    break
            self.check(not self.spool.ledger.due, f"points stay for ever: {self.spool.ledger}")
            self.end(in_order=True)
        if self.path:
            ledger, _ = books(self.path)
            kinds = Counter(kind(n) for n in self.came)
            told = {"good": ledger["sent"], "cursed": ledger["dropped:set aside"]}
            told["odd"], told["bad"] = ledger["rejected:odd"], ledger["rejected:refused by the service"]
            is_exact = self.is_exact and not ledger["dropped:spool full"]
            self.check(not is_exact or told == {**dict.fromkeys(told, 0), **kinds}, f"{dict(ledger)} of {kinds}")
            with closing(sqlite3.connect(self.path)) as db:
                ((aside,),) = db.execute("SELECT count(*) FROM aside")
            most = min(ASIDE, told["cursed"])
            self.check(not self.is_exact or aside == most, f"{aside} are set aside of {most}")


def trial(dice: Random, folder: Path) -> World:
    """Live some lives, and then calm ones."""
    world = World(dice, folder)
    for _ in range(dice.randint(1, 4)):
        world.begin(dice.choice(world.places), is_busy=dice.random() < 0.2)
        world.well = dice.choice([0.3, 0.7, 0.9, 1.0])
        for _ in range(dice.randint(1, 40)):
            if world.is_killed:
                break
            dice.choices((world.tick, world.turn, world.disk), (6, 5, 1))[0]()
        world.end(in_order=dice.random() < 0.4)
    world.calm()
    return world


def run(figures: Figures) -> None:
    """Deliver until that is done or the time is over."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with ExitStack() as stack:
        for module, name, value in (
            (windows, "MOST_GONE", GONE),
            (routes, "MOST_GONE", GONE),
            (queue, "CHUNK_POINTS", 5),
        ):
            stack.enter_context(mock.patch.object(module, name, value))
        for dice in figures.trials():
            with tempfile.TemporaryDirectory(dir=memory) as folder:
                world = trial(dice, Path(folder))
            figures.counts.update(delivered=world.taken.total(), lost=len(world.lost), doubted=len(world.doubt))
            if world.wrong:
                figures.fail(f"{world.wrong[0]} ({len(world.wrong)})")
