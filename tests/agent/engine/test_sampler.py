import logging
import math
import threading
import time

import pytest

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Level, gauge
from chipwatch.contract.errors import InputEnded, PartlyCollected, Unavailable
from chipwatch.contract.facts import MachineIdentity
from chipwatch.contract.plugin import Needs
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.validation import MOST_POINTS

LOAD = gauge("x.load", "1", "The load.")
DETAIL = gauge("x.detail", "1", "A detail.", Level.DETAILED)
EVERY = gauge("x.every", "1", "Everything.", Level.ALL)
LONG = 60.0


class Scripted(Collector):
    """Follows a script: each reading takes its next step; the last step repeats."""

    metrics = (LOAD, DETAIL, EVERY)
    needs = Needs(level=True)
    knows = (MachineIdentity,)

    def __init__(self, *steps, opening=()):
        self.steps, self.opening = list(steps), list(opening)
        self.threads: list[threading.Thread] = []
        self.calls: list[str] = []

    def _note(self, call):
        self.calls.append(call)
        self.threads.append(threading.current_thread())

    def open(self, given):
        self._note("open")
        self.given = given
        if self.opening and (problem := self.opening.pop(0)):
            raise problem

    def collect(self, at):
        self._note("collect")
        step = self.steps.pop(0) if len(self.steps) > 1 else self.steps[0]
        for part in step if isinstance(step, list) else [step]:
            if isinstance(part, BaseException):
                raise part
            if isinstance(part, threading.Event):
                part.wait(LONG)
            else:
                metric, value = part if isinstance(part, tuple) else (LOAD, part)
                yield metric.point(at, value)

    def close(self):
        self._note("close")

    identify = staticmethod(dict)

    def facts(self):
        return [MachineIdentity(self.identify())]


class Bench:
    """A sampler under test, which is asked as the clock does."""

    def __init__(self, collector, level=Level.ALL, **options):
        self.collector = collector
        self.sampler = Sampler("x", collector, level, **options)

    def read(self, at=7):
        """Ask for a reading and wait for it; None where none will come."""
        if not self.sampler.request(at):
            return None
        return [(p.metric.name, p.value) for p in self._reading(at).points]

    def _reading(self, at):
        return self.sampler.take(LONG) if self.sampler.is_busy else self.sampler.read(at)

    def end(self):
        self.sampler.end()
        self.sampler.join(LONG)


@pytest.fixture
def bench(at_the_end):
    def make(*steps, level=Level.ALL, opening=(), **options):
        made = Bench(Scripted(*steps, opening=opening), level, **options)
        at_the_end.callback(made.end)
        return made

    return make


@pytest.fixture
def gate():
    made = threading.Event()
    yield made
    made.set()


def logged(caplog, level):
    return [record for record in caplog.records if record.levelno == level]


def test_a_reading_has_the_moment_it_was_asked_for(bench):
    b = bench(1.5)
    b.sampler.request(42)
    assert b.sampler.take(LONG).points == [LOAD.point(42, 1.5)]


def test_before_the_first_reading_nothing_is_known(bench):
    assert bench(1).sampler.ok is None


def test_every_call_comes_on_one_and_the_same_daemon_thread(bench):
    b = bench(1)
    for _ in range(5):
        b.read()
    b.end()
    assert b.collector.calls == ["open", *["collect"] * 5, "close"]
    (thread,) = set(b.collector.threads)
    assert thread is not threading.current_thread()
    assert thread.daemon
    assert thread.name == "collect-x"


def test_the_collector_learns_its_level_before_it_is_opened(bench):
    assert bench(1, level=Level.DETAILED).sampler._given.level is Level.DETAILED


@pytest.mark.parametrize(
    ("level", "names"),
    [
        (Level.BASIC, ["x.load"]),
        (Level.DETAILED, ["x.load", "x.detail"]),
        (Level.ALL, ["x.load", "x.detail", "x.every"]),
    ],
)
def test_what_is_above_the_level_is_left_out(bench, level, names):
    read = bench([(LOAD, 1), (DETAIL, 2), (EVERY, 3)], level=level).read()
    assert [name for name, _ in read] == names


class Detailed(Collector):
    """Has metrics above level basic only."""

    metrics = (gauge("d.load", "1", "L.", Level.DETAILED),)
    undeclared = gauge("d.other", "1", "O.")

    def __init__(self, *yielded):
        self.yielded = yielded or self.metrics

    def collect(self, at):
        for metric in self.yielded:
            yield metric.point(at, 1.0)


class Telling(Detailed):
    knows = (MachineIdentity,)


@pytest.mark.parametrize(
    ("collector", "level", "readings"),
    [
        (Detailed(), Level.BASIC, 1),
        (Detailed(), Level.DETAILED, 3),
        (Telling(), Level.BASIC, 3),
        (Detailed(Detailed.undeclared), Level.BASIC, 3),
    ],
    ids=["no metric is wanted", "a metric is wanted", "its identity is wanted", "it yields another metric"],
)
def test_a_collector_of_which_nothing_is_wanted_is_read_once_to_say_that_it_is_there(collector, level, readings):
    bench = Bench(collector, level)
    assert sum(bench.read() is not None for _ in range(3)) == readings
    assert bench.sampler.ok
    assert bench.sampler.is_open
    bench.end()


def test_what_changes_slowly_is_read_in_the_first_two_ticks_and_in_the_last_one(bench, monkeypatch):
    monkeypatch.setattr(Scripted, "every", 3600.0)
    b, due = bench(1), []
    for _ in range(3):
        due.append(b.sampler.is_due(time.monotonic()))
        b.read()
    assert due == [True, True, False]
    assert b.sampler.is_due(time.monotonic(), is_last=True)


def test_what_is_not_finite_is_left_out_and_counted(bench):
    b = bench([math.nan, 1.0, math.inf, -math.inf])
    assert b.read() == [("x.load", 1.0)]
    assert b.sampler.counts["not finite"] == 3
    assert b.sampler.ok


def test_another_librarys_number_becomes_a_plain_one(bench):
    class Odd(float):
        pass

    b = bench([Odd(1.5), True])
    assert [type(value) for _, value in b.read()] == [float, float]


def test_a_reading_is_timed_and_counted(bench):
    b = bench([1, 2, 3])
    b.read()
    assert b.sampler.yielded == 3
    assert 0 <= b.sampler.seconds < LONG


def test_only_the_malformed_point_is_left_out_and_its_reading_reports_it(bench, caplog):
    b = bench([1, (LOAD, "2"), 3], 4)
    assert b.read() == [("x.load", 1), ("x.load", 3)]
    assert (b.sampler.ok, b.sampler.counts) == (True, {"malformed:value": 1})
    assert b.sampler.trouble == "malformed points are left out: x.load: value: expected a number, got str"
    assert [r.getMessage() for r in logged(caplog, logging.ERROR)] == [f"collector x: {b.sampler.trouble}"]
    b.read()
    assert b.sampler.trouble is None


# -- trouble --------------------------------------------------------------------------------------------------------


def test_a_bug_ends_one_reading_and_what_came_before_it_stands(bench, caplog):
    b = bench([1, ValueError("oh")], 2)
    assert b.read() == [("x.load", 1)]
    assert (b.sampler.ok, b.sampler.counts["failed"], b.sampler.trouble) == (False, 1, "ValueError: oh")
    assert b.read() == [("x.load", 2)]
    assert (b.sampler.ok, b.sampler.counts["failed"], b.sampler.trouble) == (True, 1, None)
    assert b.collector.calls == ["open", "collect", "collect"]


def test_a_bug_is_logged_once_with_its_traceback(bench, caplog):
    b = bench(ValueError("oh"))
    for _ in range(20):
        b.read()
    assert b.sampler.counts["failed"] == 20
    (record,) = logged(caplog, logging.ERROR)
    assert record.getMessage() == "collector x: failed: oh"
    assert record.exc_info[0] is ValueError


def test_a_bug_in_opening_is_tried_again_only_after_a_while(bench, caplog):
    b = bench(1, opening=[ValueError("oh")] * 3, retry=3600)
    assert b.read() == []
    assert (b.sampler.ok, b.sampler.counts["failed"]) == (False, 1)
    assert b.read() is None
    assert b.collector.calls == ["open"]


def test_what_could_be_read_stands_where_some_things_could_not(bench, caplog):
    b = bench([1, PartlyCollected(["gpu 3 is lost", "gpu 4 is lost"])])
    for _ in range(10):
        assert b.read() == [("x.load", 1)]
    assert (b.sampler.ok, b.sampler.counts["partial"], b.sampler.counts["failed"]) == (True, 20, 0)
    assert b.sampler.trouble == "gpu 3 is lost; gpu 4 is lost"
    assert [r.getMessage() for r in logged(caplog, logging.WARNING)] == [
        "collector x: gpu 3 is lost",
        "collector x: gpu 4 is lost",
    ]


def test_absent_hardware_is_logged_once_and_looked_for_again_later(bench, caplog):
    caplog.set_level(logging.DEBUG)
    b = bench(1, opening=[Unavailable("no such device in /dev")], retry=3600)
    assert b.read() == []
    assert (b.sampler.unavailable, b.sampler.ok, b.sampler.counts["failed"]) == ("no such device in /dev", None, 0)
    assert b.read() is None
    assert b.collector.calls == ["open", "close"]
    assert caplog.messages == ["collector x: nothing to read: no such device in /dev; tried again every 3600 s"]


def test_a_collector_with_nothing_to_read_has_no_thread_until_it_is_tried_again(bench, until):
    b = bench(1, opening=[Unavailable("not yet")], retry=0)
    assert b.read() == []
    until(lambda: b.sampler.join(LONG))
    assert b.read() == [("x.load", 1)]
    assert not b.sampler.join(0)
    assert len({*b.collector.threads}) == 2
    assert b.collector.calls == ["open", "close", "open", "collect"]


def test_what_nobody_asked_for_is_not_missed(bench, caplog):
    caplog.set_level(logging.INFO)
    b = bench(1, opening=[Unavailable("no such device in /dev")], retry=3600)
    b.read()
    assert caplog.messages == []


def test_what_was_not_there_is_read_once_it_comes(bench, caplog):
    caplog.set_level(logging.DEBUG)
    b = bench(1, opening=[Unavailable("not yet"), Unavailable("not yet")], retry=0)
    assert [b.read(), b.read(), b.read()] == [[], [], [("x.load", 1)]]
    assert (b.sampler.unavailable, b.sampler.ok) == (None, True)
    assert caplog.messages == [
        "collector x: nothing to read: not yet; tried again every 0 s",
        "collector x: available now",
    ]


def test_what_goes_away_in_the_middle_is_closed_and_opened_again_later(bench):
    b = bench(Unavailable("unplugged"), 1, retry=0)
    assert b.read() == []
    assert b.sampler.unavailable == "unplugged"
    assert b.read() == [("x.load", 1)]
    assert b.collector.calls == ["open", "collect", "close", "open", "collect"]


def test_a_reading_that_hangs_is_begun_once_and_passed_over_until_it_comes_back(bench, gate, until, caplog):
    caplog.set_level(logging.INFO)
    b = bench([1, gate], 2)
    assert b.sampler.request(7)
    assert [b.sampler.request(at) for at in range(8, 18)] == [False] * 10
    assert (b.sampler.ok, b.sampler.counts["skipped"]) == (False, 10)
    until(lambda: "collect" in b.collector.calls)
    assert b.collector.calls == ["open", "collect"]
    gate.set()
    late = b.sampler.take(LONG)
    assert [(p.at, p.value) for p in late.points] == [(7, 1)]
    assert b.sampler.ok
    assert b.read(18) == [("x.load", 2)]
    assert caplog.messages == [
        "collector x: the last reading has not returned; skipped until it does",
        "collector x: its readings return again",
    ]


def test_a_collector_is_not_opened_again_before_its_close_has_returned(bench, gate, until, caplog):
    b = bench(1)
    b.read()
    close, b.collector.close = b.collector.close, lambda: gate.wait(LONG) and close()
    assert b.sampler.rest(0.0)
    assert b.read() is None
    gate.set()
    assert until(b.read) == [("x.load", 1)]
    assert b.collector.calls == ["open", "collect", "close", "open", "collect"]
    assert b.sampler.is_open
    assert caplog.messages == ["collector x: the last close has not returned; skipped until it does"]


def test_a_collector_whose_thread_has_started_may_still_say_that_it_never_waits(bench, until):
    b = bench(1)
    b.sampler.start()
    started = [thread for thread in threading.enumerate() if thread.name == "collect-x"]
    assert started
    b.collector.waits = lambda: False
    assert b.read() == [("x.load", 1)]
    assert {*b.collector.threads} == {threading.main_thread()}
    until(lambda: not any(thread.is_alive() for thread in started))


def test_a_bug_in_closing_is_logged_and_the_thread_ends(bench, caplog):
    b = bench(1)
    b.read()
    b.collector.close = lambda: 1 / 0
    b.end()
    assert b.sampler.join(0)
    assert [r.getMessage() for r in logged(caplog, logging.ERROR)] == ["collector x: failed to close: division by zero"]


def test_a_collector_that_was_never_opened_is_not_closed(bench):
    b = bench(1)
    b.end()
    assert b.collector.calls == []


def test_joining_a_hung_collector_gives_up_in_time(bench, gate, until):
    b = bench(gate)
    b.sampler.request(7)
    until(lambda: "collect" in b.collector.calls)
    b.sampler.end()
    assert not b.sampler.join(0.01)


def test_an_input_that_has_ended_is_not_asked_again_and_its_last_points_stand(bench):
    end = InputEnded("standard input has ended", clean=True, problems=["a record was cut"])
    made = bench([1.0, end])

    assert made.read() == [("x.load", 1.0)]
    assert made.read() is None
    assert (made.sampler.ended, made.sampler.ok, made.sampler.counts["partial"]) == (end, True, 1)
    assert made.collector.calls.count("collect") == 1


def test_what_readings_tell_of_the_machine_is_passed_on_when_it_changes(bench):
    reported = []
    made = bench(1.0, learn=reported.append)
    for words in ({}, {"instance_id": "i-1"}, {"instance_id": "i-1", "ami_id": "ami-2"}):
        made.collector.identify = lambda words=words: words
        made.read()
    made.read()

    assert reported == [{"instance_id": "i-1"}, {"instance_id": "i-1", "ami_id": "ami-2"}]


class Wordless(Exception):
    """An exception that cannot say what it is."""

    def __str__(self):
        raise ValueError("no words")


class Exiting(BaseException):
    def __str__(self):
        raise SystemExit(4)


class WordlessUnavailable(Wordless, Unavailable):
    pass


def with_problems(bug, problems):
    bug.problems = problems
    return bug


@pytest.mark.parametrize(
    "bug",
    [
        Wordless(),
        WordlessUnavailable(),
        Exiting(),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        MemoryError(),
        with_problems(PartlyCollected([]), 7),
        with_problems(PartlyCollected([]), [7]),
        with_problems(InputEnded("cut", clean=False), None),
    ],
    ids=lambda bug: type(bug).__name__,
)
def test_any_exception_costs_one_reading_and_is_logged(bench, caplog, bug):
    b = bench([1, bug], 2, retry=0)
    assert b.read() == [("x.load", 1)]
    assert (b.sampler.ok, b.sampler.counts["failed"], b.sampler.ended) == (False, 1, None)
    assert len(logged(caplog, logging.ERROR)) == 1
    assert b.read() == [("x.load", 2)]
    assert b.sampler.ok


@pytest.mark.parametrize("points", [None, 7, "text", [None]])
def test_a_result_of_the_wrong_type_costs_one_reading(bench, points):
    b = bench(1)
    b.collector.collect = lambda at: points
    assert b.read() == []
    assert b.sampler.trouble
    del b.collector.collect
    assert b.read() == [("x.load", 1)]


def test_a_reading_without_an_end_is_cut_and_logged(bench, caplog):
    b = bench(1)
    b.collector.collect = lambda at: iter(lambda: LOAD.point(at, 1.0), None)
    assert len(b.read()) == MOST_POINTS
    assert (b.sampler.ok, b.sampler.counts["partial"]) == (True, 1)
    assert b.sampler.trouble == f"more than {MOST_POINTS} points in one reading; the rest is left out"


@pytest.mark.parametrize("words", [None, 7, ["instance_id"], Wordless()])
def test_an_identity_that_cannot_be_determined_costs_only_the_facts(bench, caplog, words):
    def identity():
        if isinstance(words, Exception):
            raise words
        return words

    b = bench(1, learn=lambda reported: reported.items())
    b.collector.identify = identity
    assert b.read() == [("x.load", 1)]
    assert (b.sampler.ok, b.sampler.counts["failed"]) == (True, 0)
    assert len(logged(caplog, logging.ERROR)) == 1
    assert b.read() == [("x.load", 1)]


def test_any_exception_of_closing_is_logged_and_the_thread_ends(bench, caplog):
    def close():
        raise Wordless

    b = bench(1)
    b.read()
    b.collector.close = close
    b.end()
    assert b.sampler.join(0)
    assert [r.getMessage() for r in logged(caplog, logging.ERROR)] == [
        "collector x: failed to close: its __str__ raises"
    ]
