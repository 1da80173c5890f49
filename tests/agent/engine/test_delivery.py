import logging
import math
import re
import sqlite3
import threading
import time
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.frame import MemorySink

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.contract.errors import BadBatch, Refused, Retryable, SinkClosed
from chipwatch.contract.plugin import Needs
from chipwatch.contract.sink import Limits, Rejected
from chipwatch.engine.batching import MAX_REASONS, SUSPECT, first_batch
from chipwatch.engine.delivery import Pauses, Schedule, SinkDelivery, Worker
from chipwatch.engine.spool.file import SpoolFile
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.spool.sqlite import decode_points

LONG = 60.0
LOAD = gauge("cpu.load", "1", "The load.")
HERE, THERE = Dimensions(host="here"), Dimensions(host="there")
QUICK = {"pauses": Pauses(0.0, 0.0, 0.0, LONG)}


def until(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline, "what the test waits for does not come"
        time.sleep(0.001)


def points(ids, dims=Dimensions()):  # noqa: B008  # immutable
    return [LOAD.point(1, float(n), dims) for n in ids]


def ids(batch):
    return [int(point.value) for point in batch]


class Sink(MemorySink):
    """Keeps every batch that it was asked to write, also those that failed."""

    def __init__(self, *failures, **limits):
        super().__init__(Limits(**{"max_points": 100, "window": 0, "flush": 0} | limits))
        self.failures = list(failures)
        self.asked = []
        self.threads = set()

    def open(self):
        super().open()
        self.threads.add(threading.current_thread())

    def write(self, batch):
        assert self.opened
        self.asked.append(ids(batch))
        self.threads.add(threading.current_thread())
        return super().write(batch)

    def close(self):
        super().close()
        self.threads.add(threading.current_thread())

    @property
    def got(self):
        return ids(self.points)


@pytest.fixture
def start():
    """Start a worker over a spool in memory that owes `owed` points already; all are stopped at the end."""
    started = []

    def make(sink, owed=0, spool=None, kind=Worker, **settings):
        spool = spool or Spool("mem")
        if owed:
            spool.append(points(range(owed)))
        on_closed = settings.pop("on_closed", None)
        worker = kind("mem", sink, spool, **QUICK | settings)
        worker.on_closed = on_closed or worker.on_closed
        worker.start()
        started.append(worker)
        return worker

    yield make
    for worker in started:
        worker.stop()
    for worker in started:
        assert worker.join(LONG)
        assert worker.spool.ledger.balance() == 0


def idle(worker):
    until(lambda: worker.spool.ledger.spooled == 0)


# -- what one request may hold --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "sizes", "expected"),
    [
        (Limits(max_points=3), [1] * 5, 3),
        (Limits(max_points=3), [1] * 2, 2),
        (Limits(max_points=9, max_bytes=10), [4, 4, 4, 4], 2),
        (Limits(max_points=9, max_bytes=10), [5, 5, 5], 2),
        (Limits(max_points=1, max_bytes=10), [1, 1, 1], 1),
        (Limits(max_points=9, max_bytes=10), [50, 1], 1),  # too large alone: it is for the sink to say so
        (Limits(max_points=9, max_bytes=10), [9], 1),
    ],
)
def test_a_batch_ends_where_points_or_bytes_reach_the_limit(limits, sizes, expected):
    batch = [LOAD.point(1, float(size), Dimensions(n=str(n))) for n, size in enumerate(sizes)]
    assert first_batch(batch, limits, lambda p: int(p.value)) == expected


def test_a_batch_of_one_point_a_series_ends_before_the_first_repetition():
    limits = Limits(max_points=100, one_per_series=True)
    heat = gauge("cpu.heat", "Cel", "The heat.")
    a, b = Dimensions(core="a"), Dimensions(core="b")
    batch = [LOAD.point(1, 1.0, a), LOAD.point(1, 1.0, b), heat.point(1, 1.0, a), LOAD.point(2, 1.0, b)]
    assert first_batch(batch, limits, lambda _: 0) == 3


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12)), min_size=1, max_size=30),
    st.integers(1, 10),
    st.none() | st.integers(1, 30),
    st.booleans(),
)
def test_batches_obey_every_limit_at_once_and_waste_nothing(series, most, most_bytes, one_per_series):
    limits = Limits(max_points=most, max_bytes=most_bytes, one_per_series=one_per_series)
    batch = [LOAD.point(1, float(size), Dimensions(n=str(n))) for n, size in series]

    def fits(some):
        return (
            len(some) <= most
            and (most_bytes is None or sum(p.value for p in some) <= most_bytes)
            and not (one_per_series and len({p.dims for p in some}) < len(some))
        )

    n = first_batch(batch, limits, lambda p: int(p.value))
    assert 1 <= n <= len(batch)
    assert n == 1 or fits(batch[:n])
    assert n == len(batch) or not fits(batch[: n + 1])


# -- delivery -------------------------------------------------------------------------------------------------------


def test_points_are_delivered_oldest_first_in_batches_within_the_limits(start):
    sink = Sink(max_points=30)
    worker = start(sink, 100)
    idle(worker)
    assert [len(batch) for batch in sink.asked] == [30, 30, 30, 10]
    assert sink.got == list(range(100))
    assert worker.spool.ledger.sent == 100


def test_bytes_and_series_split_requests_too(start):
    class Sized(Sink):
        def size(self, point):
            return 10

    sink = Sized(max_points=100, max_bytes=55)
    idle(start(sink, 12))
    assert [len(batch) for batch in sink.asked] == [5, 5, 2]
    single = Sink(one_per_series=True)
    idle(start(single, 4))
    assert [len(batch) for batch in single.asked] == [1, 1, 1, 1]


def test_every_method_of_a_sink_runs_on_one_and_the_same_thread_and_open_comes_once(start):
    sink = Sink()
    worker = start(sink, 5)
    idle(worker)
    worker.stop()
    assert worker.join(LONG)
    assert (sink.opened, sink.closed, len(sink.threads)) == (1, 1, 1)
    assert threading.current_thread() not in sink.threads


def test_a_flush_gathers_what_came_in_the_meantime(start):
    sink = Sink()
    worker = start(sink, 3, schedule=Schedule(3600.0, (time.monotonic() / 3600.0 + 0.5) % 1))
    worker.spool.append(points(range(3, 6)))
    worker.wake()
    assert sink.asked == []
    worker.stop()
    assert worker.join(LONG)
    assert sink.asked == [[0, 1, 2, 3, 4, 5]]


def test_flushes_come_period_after_period(start):
    sink = Sink()
    worker = start(sink, schedule=Schedule(0.01, 0.3))
    for n in range(3):
        worker.spool.append(points([n]))
        worker.wake()
        idle(worker)
    assert sink.got == [0, 1, 2]


@given(st.floats(0, 1), st.floats(0.01, 1000))
def test_the_next_flush_is_less_than_a_period_away(offset, flush):
    assert 0 <= Schedule(flush, offset).wait(time.monotonic(), is_first=False) <= flush


# -- dimensions -------------------------------------------------------------------------------------------------------


def test_nothing_is_sent_before_the_machine_is_known_and_then_all_of_it_under_its_name(start, monkeypatch):
    monkeypatch.setattr("chipwatch.engine.delivery.IDENTITY_POLL", 0.001)
    known, asked = [], threading.Event()

    def common():
        if worker_asks():
            asked.set()
        return known[0] if known else None

    def worker_asks():
        return threading.current_thread().name.startswith("sink-")

    sink, spool = Sink(), Spool("mem")
    spool.append(points([0, 1]), None)
    worker = start(sink, spool=spool, common=common)
    assert asked.wait(LONG)
    spool.append(points([2]), None)
    worker.wake()
    assert sink.asked == []
    assert sink.opened == 0
    known.append(HERE)
    idle(worker)
    assert sink.got == [0, 1, 2]
    assert {p.dims for p in sink.points} == {HERE}


def test_a_stop_while_the_machine_is_not_known_sends_nothing_and_keeps_all(start):
    sink, spool = Sink(), Spool("mem")
    spool.append(points([0, 1]), None)
    worker = start(sink, spool=spool, common=lambda: None)
    worker.stop()
    assert worker.join(LONG)
    assert sink.asked == []
    assert spool.ledger.spooled == 2


def test_the_machines_dimensions_lie_under_the_points_own(start):
    sink, spool = Sink(), Spool("mem")
    spool.append(points([0], Dimensions(core="1")) + points([1], Dimensions(host="guest")), HERE)
    idle(start(sink, spool=spool))
    assert [dict(p.dims) for p in sink.points] == [{"core": "1", "host": "here"}, {"host": "guest"}]


def test_points_of_an_earlier_life_keep_the_dimensions_they_were_measured_under(start, tmp_path):
    first = Spool("mem", tmp_path / "mem.db")
    first.append(points([0]), THERE)
    first.append(points([1]), None)
    first.close()
    sink, spool = Sink(), Spool("mem", tmp_path / "mem.db")
    spool.append(points([2]), HERE)
    idle(start(sink, spool=spool, common=lambda: HERE))
    assert [(int(p.value), dict(p.dims)["host"]) for p in sink.points] == [(0, "there"), (1, "here"), (2, "here")]
    spool.close()


def test_what_a_sink_chooses_for_its_points_is_saved_before_they_are_written(start, tmp_path):
    class Chooses(Sink):
        """Chooses something for its points, and fails once."""

        needs = Needs(state=True)

        def prepare(self, points):
            self.chosen = ids(points)
            return True

        def restore(self, saved):
            raise AssertionError("nothing was saved before")

        def saved(self):
            return repr(self.chosen).encode()

        def write(self, batch):
            saved.append((spool.file.recall(), ids(batch)))
            return super().write(batch)

    saved, sink, spool = [], Chooses(Retryable("no answer"), max_points=2), Spool("mem", tmp_path / "mem.db")
    spool.append(points(range(3)))
    idle(start(sink, spool=spool))
    assert saved == [(b"[0, 1]", [0, 1]), (b"[0, 1]", [0, 1]), (b"[2]", [2])]
    spool.close()


def test_points_keep_all_else_when_they_are_dressed_and_renamed(start):
    sent = counter("net.sent", "By", "Bytes sent.")
    point = sent.point(7, 5.0, start_time=3)._replace(window_start=4, increase=2.0)
    renamed = counter("network.bytes", "By", "Bytes sent.")
    sink, spool = Sink(), Spool("mem")
    spool.append([point], HERE)
    idle(start(sink, spool=spool, rename=lambda p: p._replace(metric=renamed)))
    assert sink.points == [point._replace(metric=renamed, dims=HERE)]


# -- who is to blame decides ------------------------------------------------------------------------------------------


def test_what_may_succeed_later_is_kept_and_tried_again(start, caplog):
    caplog.set_level(logging.INFO)
    sink = Sink(Retryable("no answer"), Retryable("no answer"))
    worker = start(sink, 3)
    idle(worker)
    until(lambda: "caught up" in caplog.text)
    assert sink.asked == [[0, 1, 2]] * 3
    assert (worker.health.counts, worker.health.failures) == ({"retried": 2}, {})
    assert worker.spool.ledger.sent == 3
    assert [re.sub(r"\d\.\d s", "0 s", message) for message in caplog.messages] == [
        "mem: cannot send, 3 points kept, next try within 0 s: no answer",
        "mem: sending again after 0 s; 3 points kept, 0 lost",
        "mem: first 3 points accepted",
        "mem: caught up: 3 points in 0 s",
    ]


@pytest.mark.parametrize(("namespace", "is_said"), [("Trial", True), ("Real", False)])
def test_only_points_kept_for_this_destination_are_caught_up_with(start, tmp_path, caplog, namespace, is_said):
    caplog.set_level(logging.INFO)
    sink = Sink()
    sink.destination = lambda: {"namespace": namespace}
    before = Spool("mem", tmp_path / "mem.db", destination={"namespace": "Trial"})
    before.append(points(range(3)))
    before.close()
    spool = Spool("mem", tmp_path / "mem.db", destination={"namespace": namespace})
    worker = start(sink, spool=spool)
    spool.append(points(range(2)))
    worker.wake()
    until(lambda: "accepted" in caplog.text and not spool.is_due)
    worker.stop()
    assert worker.join(LONG)
    assert ("caught up" in caplog.text) is is_said


def test_a_connection_that_cannot_be_opened_is_tried_again(start):
    class Shy(Sink):
        def open(self):
            super().open()
            if self.opened < 3:
                raise Retryable("no route")

    sink = Shy()
    idle(start(sink, 3))
    assert sink.opened == 3
    assert sink.asked == [[0, 1, 2]]


def test_after_a_failure_the_next_attempt_does_not_wait_for_the_period_of_sending_too(start):
    sink = Sink(Retryable("no answer"))
    worker = start(sink, schedule=Schedule(3600.0, ((time.monotonic() + 0.3) / 3600.0) % 1))
    worker.spool.append(points([1]))
    worker.wake()
    idle(worker)
    assert sink.asked == [[1], [1]]


def test_a_delay_that_the_far_side_names_is_obeyed_up_to_a_bound():
    assert Pauses(1.0, 2.0).after(Retryable("slow down", after=7.5), 1) == (7.5, 7.5)
    assert Pauses(1.0, 2.0).after(Retryable("slow down", after=10**9), 1) == (900.0, 900.0)
    assert Pauses().after(Retryable("no answer"), 10_000)[1] == 60.0


@pytest.mark.parametrize("after", [0, 0.0, -5.0, math.nan])
def test_a_delay_of_nothing_does_not_make_a_storm(after):
    waits = [Pauses().after(Retryable("now", after=after), 1 + n)[0] for n in range(300)]
    assert min(waits) >= 0
    assert max(waits) > 4


class Incomplete(Retryable):
    """Does not call the constructor of its base."""

    def __init__(self):
        pass


@pytest.mark.parametrize(
    "problem",
    [Retryable("busy", after="5"), Retryable("busy", after=b"5"), Incomplete()],
    ids=["text", "bytes", "none"],
)
def test_a_delay_without_a_number_does_not_end_the_delivery(start, problem):
    sink = Sink(problem, problem)
    idle(start(sink, 5, **QUICK))
    assert sink.got == [0, 1, 2, 3, 4]


def test_what_is_refused_for_the_setup_is_kept_and_said_once_until_it_is_taken(start, caplog):
    sink = Sink(*[Refused("role may not put metrics")] * 5)
    gate, goes_on = threading.Event(), threading.Event()
    write = sink.write

    def held(batch):
        if len(sink.asked) == 4:
            goes_on.set()
            assert gate.wait(LONG)
        return write(batch)

    sink.write = held
    worker = start(sink, 3)
    assert goes_on.wait(LONG)
    assert worker.health.refused == "role may not put metrics"
    assert worker.spool.ledger.spooled == 3
    gate.set()
    idle(worker)
    until(lambda: worker.health.refused is None)
    assert worker.health.counts == {"refused": 5}
    assert [r.levelname for r in caplog.records] == ["ERROR"]
    assert sink.got == [0, 1, 2]


class Allergic(Sink):
    """Refuses a batch with a poison point in it, and does not say which."""

    poison = frozenset({617})

    def write(self, batch):
        if self.poison & set(ids(batch)):
            self.asked.append(ids(batch))
            raise BadBatch("something is wrong")
        return super().write(batch)


def test_one_poison_point_among_a_thousand_is_found_by_halving(start, caplog):
    sink = Allergic(max_points=1000)
    worker = start(sink, 1000)
    idle(worker)
    assert sink.got == [n for n in range(1000) if n != 617]
    assert len(sink.asked) <= 2 * math.ceil(math.log2(1000)) + 2
    assert worker.spool.ledger.rejected == {"refused by the service": 1}
    assert "something is wrong: cpu.load" in caplog.text
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def failing(count, owed, problem):
    """Return a sink that fails on every batch for a while, and then on the point 7."""

    class Failing(Sink):
        def write(self, batch):
            if len(self.asked) < count or 7 in ids(batch):
                self.asked.append(ids(batch))
                raise problem("something is wrong")
            return super().write(batch)

    return Failing(max_points=owed)


@pytest.mark.parametrize("problem", [BadBatch, KeyError, SystemExit, RecursionError])
def test_a_sink_that_fails_on_every_point_loses_none_and_is_not_ready(start, caplog, problem):
    sink = failing(10**9, 50, problem)
    worker = start(sink, 1000)
    until(lambda: len(sink.asked) > 2000)
    assert "something is wrong" in worker.health.refused
    assert worker.spool.ledger.spooled == 1000
    assert worker.spool.ledger.dropped.total() == worker.spool.ledger.rejected.total() == 0
    assert len(caplog.records) == 1
    assert "1,000 points kept" in caplog.text


@pytest.mark.parametrize("problem", [BadBatch, KeyError, SystemExit])
def test_what_failed_on_every_point_for_a_while_costs_only_the_points_that_still_fail(start, problem):
    sink = failing(500, 50, problem)
    worker = start(sink, 1000)
    idle(worker)
    until(lambda: worker.health.refused is None)
    assert sorted(sink.got) == [n for n in range(1000) if n != 7]
    assert worker.spool.ledger.sent == 999


@pytest.mark.parametrize("bad", [250, 1500])
def test_more_bad_points_in_a_row_than_a_pass_doubts_or_takes_are_got_over(start, bad):
    class Picky(Sink):
        def write(self, batch):
            self.asked.append(len(batch))
            if min(ids(batch)) < bad:
                raise BadBatch("something is wrong")
            return MemorySink.write(self, batch)

    worker = start(Picky(max_points=200), bad + 500)
    idle(worker)
    assert worker.sink.got == list(range(bad, bad + 500))
    assert worker.spool.ledger.rejected.total() == bad


def test_a_sink_that_refuses_every_point_is_asked_ever_less_than_twice_a_point(start):
    sink = failing(10**9, 1000, BadBatch)
    worker = start(sink, 10_000)
    until(lambda: worker.health.counts["refused"] >= 64)
    asked = len(sink.asked)  # it goes on meanwhile: the refusals are counted after it
    assert asked < worker.health.counts["refused"] * 100


def test_rejected_points_are_counted_by_reason_and_each_reason_is_logged_once(start, caplog):
    sink = Sink(max_points=10)
    sink.reject = lambda p: {0: "too old", 1: "bad unit"}.get(int(p.value) % 5)
    worker = start(sink, 100)
    idle(worker)
    assert worker.spool.ledger.rejected == {"too old": 20, "bad unit": 20}
    assert worker.spool.ledger.sent == 60
    assert sorted(r.levelname for r in caplog.records) == ["ERROR", "ERROR"]
    assert "for example cpu.load" in caplog.text


@pytest.mark.parametrize("most", [7, 1000])
def test_reasons_without_end_are_counted_together(start, most):
    sink = Sink(max_points=most)
    sink.reject = lambda p: f"request {p.value}"
    worker = start(sink, 300)
    idle(worker)
    assert len(worker.spool.ledger.rejected) <= MAX_REASONS + 1
    assert worker.spool.ledger.rejected.total() == 300
    assert worker.spool.ledger.rejected["other"] >= 300 - MAX_REASONS


def test_a_bug_that_passes_costs_nothing_and_is_logged_once_with_its_traceback(start, caplog):
    sink = Sink(KeyError("x"), KeyError("y"), max_points=10)
    worker = start(sink, 50)
    idle(worker)
    assert sink.got == list(range(50))
    assert worker.health.counts == {"bug": 2}
    (record,) = caplog.records
    assert (record.levelname, record.exc_info[0]) == ("ERROR", KeyError)


def test_a_bug_that_repeats_on_a_point_sets_that_point_aside_on_disk(start, caplog, tmp_path):
    with closing(Spool("mem", tmp_path / "mem.db")) as spool:
        for n in range(0, 100, 10):
            spool.append(points(range(n, n + 10)), HERE)
        worker = start(failing(0, 25, KeyError), spool=spool)
        idle(worker)
        assert worker.sink.got == [n for n in range(100) if n != 7]
        assert spool.ledger.dropped == {"set aside": 1}
        assert worker.health.counts["bug"] == SUSPECT
        assert "1 point is set aside" in caplog.text
    with closing(sqlite3.connect(tmp_path / "mem.db")) as db:
        ((why, body),) = db.execute("SELECT why, body FROM aside").fetchall()
    (point,), _ = decode_points(body, 1)
    assert (point.value, point.dims, "something is wrong" in why) == (7.0, HERE, True)


def test_a_bad_series_in_every_window_is_lost_alone(start):
    class Picky(Sink):
        def write(self, batch):
            if any(point.dims.get("bad") for point in batch):
                raise KeyError("bad")
            return super().write(batch)

    spool = Spool("mem")
    worker = start(Picky(one_per_series=True), spool=spool)
    for n in range(20):
        spool.append([LOAD.point(n, float(n)), LOAD.point(n, -1.0, Dimensions(bad="yes"))])
        worker.wake()
    spool.append(points([20]))
    worker.wake()
    idle(worker)
    assert worker.sink.got == list(range(21))
    assert spool.ledger.dropped == {"set aside": 20}


class Picky(Sink):
    """Refuses every request with a point of a series of `bad`."""

    bad = frozenset()

    def write(self, batch):
        if any(point.dims["n"] in self.bad for point in batch):
            self.asked.append(ids(batch))
            raise BadBatch("something is wrong")
        return super().write(batch)


def fail_at(write, number):
    """Return `write`, whose call of this number fails at the wire."""
    calls = iter(range(1, 100))

    def failing(batch):
        if next(calls) == number:
            raise Retryable("no answer")
        return write(batch)

    return failing


def test_a_bad_point_that_is_alone_waits_for_another_to_be_taken(start):
    worker = start(failing(0, 10, KeyError), spool=Spool("mem"))
    worker.spool.append(points([7]))
    worker.wake()
    until(lambda: worker.health.counts["bug"] > 10)
    assert worker.spool.ledger.spooled == 1
    worker.spool.append(points([8]))
    idle(worker)
    assert worker.sink.got == [8]
    assert worker.spool.ledger.dropped == {"set aside": 1}


def test_a_service_that_turns_to_refuse_every_point_in_mid_pass_costs_none(start):
    class Turning(Sink):
        def write(self, batch):
            if len(self.asked) > 20:
                self.asked.append(ids(batch))
                raise BadBatch("something is wrong")
            return super().write(batch)

    sink = Turning(one_per_series=True)
    worker = start(sink, 60)
    until(lambda: worker.health.counts["refused"] >= 8)
    assert sink.got == list(range(21))
    assert (worker.spool.ledger.sent, worker.spool.ledger.spooled) == (21, 39)


def test_a_wire_that_fails_while_doubted_points_are_tried_again_loses_none_of_them(start):
    class Moody(Sink):
        """Refuses the points 1 and 2 when each first comes alone, and loses the next answer for 2."""

        def write(self, batch):
            found, before = ids(batch), self.asked.count(ids(batch))
            if {1, 2} & set(found) and (len(found) > 1 or not before):
                self.asked.append(found)
                raise BadBatch("something is wrong")
            if found == [2] and before == 1:
                self.asked.append(found)
                raise Retryable("no answer")
            return super().write(batch)

    sink = Moody()
    worker = start(sink, 8)
    idle(worker)
    assert sorted(sink.got) == list(range(8))
    assert (worker.spool.ledger.sent, worker.health.counts) == (8, {"retried": 1})


def test_how_long_the_last_write_took_is_known(start):
    class Slow(Sink):
        def write(self, batch):
            time.sleep(0.01)
            return super().write(batch)

    worker = start(Slow(), 1)
    idle(worker)
    assert worker.seconds >= 0.01


def test_an_exception_without_a_text_is_a_bug(start, caplog):
    class Mute(Exception):
        def __str__(self):
            raise ValueError

    sink = Sink(Mute(), Mute())
    idle(start(sink, 3))
    assert sink.got == [0, 1, 2]
    assert ": bug: Mute" in caplog.text


def test_a_bug_while_opening_costs_no_point(start, caplog):
    class Clumsy(Sink):
        def open(self):
            super().open()
            if self.opened == 1:
                raise ZeroDivisionError

    sink = Clumsy()
    idle(start(sink, 5))
    assert sink.got == [0, 1, 2, 3, 4]
    assert [r.levelname for r in caplog.records] == ["ERROR"]


@pytest.mark.parametrize(
    "answer",
    [None, 5, "no", [None], ["no"], [Rejected(None, "x")], [Rejected(LOAD.point(1, 1.0), None)], iter(())],
    ids=["nothing", "number", "text", "list of nothing", "list of text", "no point", "no reason", "iterator"],
)
def test_a_malformed_return_value_is_logged_once_and_nothing_is_sent_twice(start, answer, caplog):
    class Rubbish(Sink):
        def write(self, batch):
            super().write(batch)
            return answer if len(self.asked) == 1 else []

    sink = Rubbish(max_points=10)
    worker = start(sink, 30)
    idle(worker)
    assert sink.got == list(range(30))
    assert worker.spool.ledger.sent == 30
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_rejections_beyond_the_number_of_points_are_ignored(start):
    class Eager(Sink):
        def write(self, batch):
            super().write(batch)
            return [Rejected(batch[0], "bad")] * 1000

    worker = start(Eager(max_points=10), 30)
    idle(worker)
    assert worker.spool.ledger.rejected == {"bad": 30}


def test_a_reason_that_cannot_be_stored_as_text_does_no_harm(start, tmp_path):
    sink, spool = Sink(), Spool("mem", tmp_path / "mem.db")
    sink.reject = lambda _: "bad \udcff"
    spool.append(points(range(3)))
    worker = start(sink, spool=spool)
    idle(worker)
    spool.append(points(range(3)))
    worker.wake()
    idle(worker)
    assert spool.ledger.rejected.total() == 6
    assert not spool.file.faults
    spool.close()


def test_a_bug_in_the_size_of_a_point_does_not_hold_up_the_rest(start, caplog):
    class Sized(Sink):
        def size(self, point):
            return 10 // abs(int(point.value - 5))

    sink = Sized(max_points=10, max_bytes=10**6)
    worker = start(sink, 40)
    idle(worker)
    assert sink.got == list(range(40))
    assert [5] in sink.asked
    assert [r.levelname for r in caplog.records] == ["ERROR"]


def test_a_spool_that_cannot_be_read_for_a_moment_is_asked_again(start, tmp_path, monkeypatch):
    spool, sink, failed = Spool("mem", tmp_path / "mem.db"), Sink(), []
    for n in range(3):
        spool.append(points([n]))
    take = spool.take

    def moody(most):
        if len(failed) < 3:
            failed.append(most)
            raise Retryable("the spool's file cannot be read now")
        return take(most)

    monkeypatch.setattr(spool, "take", moody)
    worker = start(sink, spool=spool)
    idle(worker)
    assert sink.got == [0, 1, 2]
    assert worker.health.counts == {"retried": 3}
    spool.close()


# -- the end ------------------------------------------------------------------------------------------------------------


def test_a_far_side_that_left_for_good_ends_quietly(start, caplog):
    caplog.set_level(logging.INFO)
    gone = threading.Event()
    sink = Sink(SinkClosed("the reader closed the pipe"))
    worker = start(sink, 250, on_closed=gone.set)
    assert gone.wait(LONG)
    idle(worker)
    assert worker.spool.ledger.dropped == {"reader gone": 250}
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [("INFO", "mem: the reader closed the pipe")]


def test_what_comes_after_the_far_side_left_takes_no_memory(start, caplog):
    worker = start(Sink(SinkClosed("left")), 1)
    idle(worker)
    for n in range(5):
        worker.spool.append(points([n]))
        worker.wake()
        idle(worker)
    assert worker.spool.ledger.dropped == {"reader gone": 6}
    worker.spool.append(points([7]))
    worker.stop()
    assert worker.join(LONG)
    assert worker.spool.ledger.spooled == 0
    assert worker.sink.closed == 1
    assert caplog.records == []


def test_a_stop_delivers_what_is_owed(start):
    sink = Sink(max_points=10)
    worker = start(sink, 95, schedule=Schedule(3600.0, (time.monotonic() / 3600.0 + 0.5) % 1))
    worker.stop()
    assert worker.join(LONG)
    assert sink.got == list(range(95))
    assert sink.closed == 1


@pytest.mark.parametrize("problem", [Retryable("no answer", after=600), Refused("no")])
def test_a_stop_cuts_the_back_off_short_tries_once_more_and_keeps_the_rest(start, problem):
    sink = Sink(*[problem] * 100)
    worker = start(sink, 5, pauses=Pauses(600.0, 600.0, 600.0, 600.0))
    until(lambda: sink.asked)
    worker.stop()
    assert worker.join(LONG)
    assert 2 <= len(sink.asked) <= 3
    assert worker.spool.ledger.spooled == 5
    assert sink.closed == 1


def test_a_stop_gives_up_in_time_on_a_sink_that_hangs(start):
    gate = threading.Event()

    class Hung(Sink):
        def write(self, batch):
            self.asked.append(ids(batch))
            gate.wait(LONG)
            return []

    sink = Hung()
    worker = start(sink, 5)
    until(lambda: sink.asked)
    worker.stop()
    begun = time.monotonic()
    assert not worker.join(0.05)
    assert time.monotonic() - begun < LONG / 2
    assert worker.spool.ledger.spooled == 5
    gate.set()


def test_a_sink_that_hangs_is_logged_once_and_so_is_its_return(start, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("chipwatch.engine.delivery.HANG", 0.05)
    gate = threading.Event()

    class Hung(Sink):
        def write(self, batch):
            assert gate.wait(LONG)
            return super().write(batch)

    worker = start(Hung(), 5)
    assert worker.stuck is None
    until(lambda: worker.stuck)
    for _ in range(3):
        worker.watch()
    assert worker.stuck.startswith("hangs: no answer for ")
    gate.set()
    idle(worker)
    until(lambda: worker.stuck is None)
    for _ in range(3):
        worker.watch()
    assert [
        (r.levelname, r.getMessage().partition(" for ")[0]) for r in caplog.records if "answer" in r.getMessage()
    ] == [("ERROR", "mem: hangs: no answer"), ("INFO", "mem: answers again")]
    time.sleep(0.1)
    assert worker.stuck is None, "a sink that waits for points does not hang"


def test_a_thread_that_ended_is_logged(caplog):
    worker = Worker("mem", Sink(), Spool("mem"))
    worker.spool.append(points([1]))
    assert worker.stuck is None
    worker._thread = threading.Thread(target=int)
    worker._thread.start()
    until(lambda: worker.stuck)
    worker.watch()
    worker.watch()
    assert [r.getMessage() for r in caplog.records] == ["mem: its thread has ended; restart the agent; 1 point kept"]


@pytest.mark.parametrize("method", ["open", "write", "saved", "close"])
def test_a_plugin_that_wants_to_end_the_program_ends_nothing(start, method):
    class Exiting(Sink):
        needs = Needs(state=True)

        def saved(self):
            return None

        def restore(self, saved):
            raise AssertionError("nothing was saved before")

    sink, asked = Exiting(), []

    def leave(*_):
        asked.append(method)
        if len(asked) < 3:
            raise SystemExit(3)
        return getattr(Exiting, method)(sink, *_)

    setattr(sink, method, leave)
    worker = start(sink, 5)
    idle(worker)
    worker.stop()
    assert worker.join(LONG)
    assert sink.got == [0, 1, 2, 3, 4]
    assert asked


def test_while_the_worker_waits_it_has_nothing_in_hand_so_the_oldest_may_go(start, tmp_path):
    spool = Spool("mem", tmp_path / "mem.db", max_bytes=1)
    spool.append(points([0]))
    sink = Sink(Retryable("no answer", after=600))
    worker = start(sink, spool=spool)
    until(lambda: worker.health.counts["retried"])
    spool.append(points([1]))
    assert spool.ledger.dropped == {"spool full": 1}
    worker.stop()
    assert worker.join(LONG)
    assert sink.got == [1]
    spool.close()


def test_a_worker_that_was_never_started_is_joined_at_once():
    assert Worker("mem", MemorySink(), Spool("mem")).join(LONG)


def test_a_sink_that_fails_to_close_is_logged_and_ends(start, caplog):
    class Clingy(Sink):
        def close(self):
            super().close()
            raise OSError("still here")

    worker = start(Clingy(), 1)
    idle(worker)
    worker.stop()
    assert worker.join(LONG)
    assert [r.levelname for r in caplog.records] == ["ERROR"]


class Mindful(Sink):
    """Counts what it sent, over restarts."""

    needs = Needs(state=True)

    def __init__(self, *failures, **limits):
        super().__init__(*failures, **limits)
        self.sent, self.told, self.restored = 0, 0, []

    def restore(self, saved):
        assert not self.opened
        self.restored.append(saved)
        self.sent = self.told = int(saved)

    def write(self, batch):
        rejected = super().write(batch)
        self.sent += len(batch)
        return rejected

    def saved(self):
        if self.sent == self.told:
            return None
        self.told = self.sent
        return str(self.sent).encode()


def test_a_sink_gets_the_state_that_it_saved_before_the_restart(start, tmp_path):
    with closing(Spool("s", tmp_path / "s.db")) as spool:
        sink = Mindful(Retryable("away"), max_points=3)
        worker = start(sink, 5, spool)
        until(lambda: spool.ledger.spooled == 0)
        worker.stop()
        assert worker.join(LONG)
        assert sink.restored == []
    with closing(Spool("s", tmp_path / "s.db")) as spool:
        sink = Mindful()
        worker = start(sink, 2, spool)
        until(lambda: spool.ledger.spooled == 0)
        worker.stop()
        assert worker.join(LONG)
        assert sink.restored == [b"5"]
        assert spool.file.recall() == b"7"


def test_a_sink_that_cannot_take_its_state_begins_without_and_delivers(start, tmp_path, caplog):
    with closing(Spool("s", tmp_path / "s.db")) as spool:
        spool.file.remember(b"of another version")
        sink = Mindful()
        start(sink, 2, spool)
        until(lambda: spool.file.recall() == b"2")
        assert sink.got == [0, 1]
    assert "mem: cannot take its state, it begins without: invalid literal for int()" in caplog.text


@pytest.mark.parametrize(
    ("saved", "why"), [(lambda: "5", "expected bytes, got str"), (lambda: 1 // 0, "integer division or modulo by zero")]
)
def test_a_state_that_cannot_be_kept_is_logged_and_the_sink_goes_on(start, tmp_path, caplog, saved, why):
    sink = Mindful()
    sink.saved = saved
    with closing(Spool("s", tmp_path / "s.db")) as spool:
        worker = start(sink, 1, spool)
        until(lambda: sink.got == [0])
        spool.append(points([1]))
        worker.wake()
        until(lambda: sink.got == [0, 1])
        assert spool.file.recall() == b""
    assert f"mem: cannot return its state: {why}" in caplog.text


def test_the_file_gets_a_sinks_state_together_with_the_end_of_the_points(start, tmp_path, monkeypatch):
    """A kill at any moment of a long catching up leaves a state that is as old as the first point of the spool."""
    monkeypatch.setattr(SpoolFile, "remember", lambda *_: None)  # killed before anything else is written
    remembered = []

    class Watchful(Mindful):
        def write(self, batch):
            remembered.append(spool.file.recall())
            return super().write(batch)

    with closing(Spool("s", tmp_path / "s.db")) as spool:
        worker = start(Watchful(max_points=2), 6, spool)
        until(lambda: spool.ledger.spooled == 0)
        worker.stop()
        assert worker.join(LONG)
        assert spool.file.recall() == b"6"
    assert remembered == [b"", b"2", b"4"]


def test_a_state_that_knows_points_which_are_not_acknowledged_yet_is_not_kept(tmp_path):
    class Careful(Mindful, Picky):
        bad = frozenset({"7"})

    made = [LOAD.point(1, float(n), Dimensions(n=str(n))) for n in range(20)]
    with closing(Spool("s", tmp_path / "s.db")) as spool:
        sink = Careful()
        worker = Worker("mem", sink, spool, **QUICK)
        spool.append([*made])
        worker.turn()
        assert (spool.file.recall(), spool.ledger.sent) == (b"19", 19)
        spool.append([*made])
        real, sink.write = sink.write, fail_at(sink.write, 2)  # the wire, after the points of other series were taken
        worker.turn()
        assert (spool.file.recall(), spool.ledger.sent) == (b"19", 19)
        sink.write = real
        worker.turn()
        assert (spool.file.recall(), spool.ledger.sent) == (b"38", 38)


def test_internal_dimensions_of_a_sink_are_not_logged(start, caplog):
    sink = Allergic()
    sink.poison = frozenset({1})
    spool = Spool("mem")
    spool.append(points([1, 2], Dimensions({"@gcp_project": "hidden", "team": "shown"})))
    idle(start(sink, spool=spool))
    assert "{'team': 'shown'}" in caplog.text
    assert "hidden" not in caplog.text


# -- a sink that never waits ----------------------------------------------------------------------------------------


def quick(sink, owed=0, **settings):
    """Return what delivers to a sink on the clock's thread."""
    spool = Spool("mem")
    if owed:
        spool.append(points(range(owed)))
    return SinkDelivery("mem", sink, spool, **QUICK | settings)


def give(delivery, *numbers):
    for n in numbers:
        delivery.accept(points([n]), Dimensions())


def test_a_sink_that_never_waits_is_written_to_by_the_thread_that_has_the_points():
    sink, before = Sink(), threading.active_count()
    delivery = quick(sink)
    delivery.start()
    give(delivery, 0, 1)
    assert sink.got == [0, 1]
    assert (threading.active_count(), delivery.stuck) == (before, None)
    delivery.stop()
    assert delivery.join(LONG)
    assert (sink.opened, sink.closed, sink.threads) == (1, 1, {threading.current_thread()})


def test_a_failed_write_to_a_sink_that_never_waits_is_tried_again_after_the_pause_and_at_the_stop():
    sink = Sink(Retryable("busy", after=0.01), Retryable("busy", after=LONG))
    delivery = quick(sink)
    give(delivery, 0, 1)
    assert sink.asked == [[0]]
    time.sleep(0.02)
    give(delivery, 2, 3)
    assert sink.asked == [[0], [0, 1, 2]]
    assert delivery.join(LONG)
    assert sink.got == [0, 1, 2, 3]


def test_a_sink_that_never_waits_and_fails_does_not_hold_the_stop_up():
    sink = Sink(*[Retryable("busy", after=0.01)] * 1000)
    delivery = quick(sink, owed=1)
    begun = time.monotonic()
    delivery.join(0.1)
    assert 0.05 < time.monotonic() - begun < LONG / 2
    asked = len(sink.asked)
    assert delivery.join(0)  # again, to know whether it has ended
    assert (asked > 2, len(sink.asked), sink.closed, delivery.spool.ledger.spooled) == (True, asked, 1, 1)


def test_a_sink_that_never_waits_gets_nothing_while_the_machine_is_not_known():
    machine, sink = [None], Sink()
    delivery = quick(sink, common=lambda: machine[0])
    give(delivery, 0)
    assert sink.asked == []
    machine[0] = HERE
    give(delivery, 1)
    assert sink.got == [0, 1]


def test_a_write_that_fails_loses_no_point_although_the_spool_was_passed_by():
    ended = []
    sink = Sink()
    delivery = quick(sink)
    delivery.on_closed = lambda: ended.append(True)
    give(delivery, 0, 1)
    ledger = delivery.spool.ledger
    assert (ledger.collected, ledger.sent, ledger.spooled) == (2, 2, 0)
    sink.failures.append(Retryable("busy", after=0.01))
    give(delivery, 2)
    assert (sink.got, ledger.spooled, delivery.health.last_error) == ([0, 1], 1, "busy")
    time.sleep(0.02)
    give(delivery, 3, 4)
    assert (sink.got, ledger.sent, ledger.balance()) == ([0, 1, 2, 3, 4], 5, 0)
    sink.failures.append(SinkClosed("gone"))
    give(delivery, 5, 6)
    assert (ledger.dropped, ledger.balance(), ended) == ({"reader gone": 2}, 0, [True])
