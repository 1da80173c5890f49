"""The clock's thread reads the kernel's files; every other collector has a thread, and what hangs stops alone."""

import logging
import os
import random
import signal
import threading
import time
from collections import Counter

import pytest
from tests.doubles.frame import Clock

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import Device, DeviceActivity
from chipwatch.contract.plugin import Needs
from chipwatch.contract.processor import Processor
from chipwatch.engine import clock
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.sampler import Sampler

NUMBER = gauge("x.number", "1", "The number of the reading.")
LONG = 60.0
GRACE = 0.25
SHORT = 0.02


class Files(Collector):
    """Yields the number of its readings; `do` is called before each with that number."""

    metrics = (NUMBER,)

    def __init__(self, name, do=lambda number: None, *, marked=False, absent=0):
        self.name, self.do, self.marked, self.absent = name, do, marked, absent
        self.dims, self.readings = Dimensions(of=name), 0
        self.threads: list[threading.Thread] = []
        self.closed_on: list[threading.Thread] = []

    def waits(self):
        return not self.marked

    def open(self, given):
        if self.absent:
            self.absent -= 1
            raise Unavailable("not yet")

    def collect(self, at):
        self.readings += 1
        self.threads.append(threading.current_thread())
        self.do(self.readings)
        yield NUMBER.point(at, self.readings, self.dims)

    def close(self):
        self.closed_on.append(threading.current_thread())


@pytest.fixture
def gate():
    gate = threading.Event()
    yield gate
    gate.set()


def hang(gate, *numbers):
    """Return what hangs in the readings of these numbers."""
    return lambda number: gate.wait(LONG) if number in numbers else None


@pytest.fixture
def build(monkeypatch, at_the_end):
    """Put a pipeline together whose ticks wait GRACE seconds, or LONG where nothing hangs; close it at the end."""
    monkeypatch.setattr(clock, "GRACE", GRACE)

    def make(*collectors, interval=1.0, derivations=(), retry=0.0, grace=None):
        samplers = [Sampler(one.name, one, Level.ALL, retry=retry) for one in collectors]
        pipeline = Pipeline(samplers, (), interval=interval, derivations=derivations, clock=Clock())
        pipeline._readings._grace = grace or pipeline._readings._grace
        at_the_end.callback(pipeline.close, 0)
        at_the_end.callback(pipeline.stop)
        return pipeline

    return make


def read(pipeline, at):
    """Make a tick; return the number of the reading by collector, of this tick and of earlier ones."""
    points = pipeline.gather(at)
    assert len({(p.at, p.dims["of"]) for p in points}) == len(points)
    here = {p.dims["of"]: p.value for p in points if p.at == at}
    return here, {p.dims["of"]: (p.at, p.value) for p in points if p.at != at}


def is_reading(sampler):
    return sampler.is_busy and sampler._thread._answered.locked()


def names_of_threads(*collectors):
    return {thread.name for one in collectors for thread in one.threads}


def test_the_clocks_thread_reads_the_kernels_files_in_their_order(build):
    order = []
    several = [Files(name, lambda _, name=name: order.append(name), marked=True) for name in "abc"]
    pipeline, before = build(*several), threading.active_count()
    for at in (1, 2, 3):
        assert read(pipeline, at) == ({"a": at, "b": at, "c": at}, {})
    assert order == [*"abc"] * 3
    assert {thread for one in several for thread in one.threads} == {threading.current_thread()}
    assert threading.active_count() == before


def test_without_the_marker_a_collector_has_its_thread(build):
    driver, files = Files("driver"), Files("files", marked=True)
    assert read(build(driver, files, grace=LONG), 1)[0] == {"driver": 1, "files": 1}
    assert names_of_threads(driver) == {"collect-driver"}
    assert files.threads == [threading.current_thread()]


def test_what_waits_is_read_while_the_kernels_files_are(build):
    """The driver returns only once the files were read."""
    both = threading.Event()
    driver, files = Files("driver", lambda _: both.wait(LONG)), Files("files", lambda _: both.set(), marked=True)
    assert read(build(driver, files, grace=LONG), 1)[0] == {"driver": 1, "files": 1}


@pytest.mark.parametrize(
    "hung", [["a"], ["b"], ["c"], ["a", "b"], ["b", "c"], ["a", "c"], ["a", "b", "c"]], ids="".join
)
def test_what_hangs_stops_alone_and_the_others_are_read_in_the_same_tick(build, gate, caplog, hung):
    caplog.set_level(logging.WARNING)
    several = [Files(name, hang(gate, 2) if name in hung else lambda _: None) for name in "abc"]
    pipeline = build(*several)
    for at in range(1, 5):
        here, late = read(pipeline, at)
        assert here == {name: at for name in "abc" if at == 1 or name not in hung}
        assert not late
    for one, sampler in zip(several, pipeline.samplers, strict=True):
        assert (sampler.ok, sampler.counts["skipped"]) == ((False, 2) if one.name in hung else (True, 0))
        assert not one.closed_on
    text = "the last reading has not returned; skipped until it does"
    assert caplog.messages == [f"collector {name}: {text}" for name in hung]


def test_readings_around_the_deadline_come_once_each_and_none_is_lost(build, until):
    dice = random.Random(7)
    delays = [0.0] * 12 + [0.9 * SHORT, SHORT, 1.1 * SHORT]
    several = [Files(name, lambda _: time.sleep(dice.choice(delays))) for name in "abcdef"]
    pipeline = build(*several)
    pipeline._readings._grace = SHORT
    seen = Counter()

    def take(at):
        for point in pipeline.gather(at):
            seen[point.dims["of"], point.value] += 1

    for at in range(1, 60):
        take(at)
    until(lambda: not any(map(is_reading, pipeline.samplers)))
    for one in several:
        one.do = lambda _: None
    until(lambda: (take(100), len(seen) == sum(one.readings for one in several))[1])
    assert {*seen.values()} == {1}
    assert seen.keys() == {(one.name, number) for one in several for number in range(1, one.readings + 1)}


@pytest.mark.parametrize("bug", [ValueError("oh"), SystemExit(3), KeyboardInterrupt(), GeneratorExit(), MemoryError()])
@pytest.mark.parametrize("marked", [False, True])
def test_an_exception_costs_only_the_reading_that_raised_it(build, bug, marked):
    def fail(number):
        if number == 2:
            raise bug

    several = [Files(name, fail if name == "b" else lambda _: None, marked=marked) for name in "abc"]
    pipeline = build(*several, grace=LONG)
    assert [read(pipeline, at)[0].keys() for at in (1, 2, 3)] == [{*"abc"}, {*"ac"}, {*"abc"}]
    assert pipeline.samplers[1].counts["failed"] == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("marked", [False, True])
def test_a_copy_of_the_agent_that_a_reading_forks_ends(build, until, marked):
    children = []

    def fork(number):
        if number == 1 and (pid := os.fork()):
            children.append(pid)

    def has_ended():
        try:
            return os.waitpid(children[0], os.WNOHANG) != (0, 0)
        except ChildProcessError:
            return True

    pipeline = build(Files("a", fork, marked=marked), Files("b"), grace=LONG)
    assert read(pipeline, 1)[0].keys() == {"a", "b"}
    until(has_ended)
    assert read(pipeline, 2)[0].keys() == {"a", "b"}


def test_the_only_reading_of_a_run_waits_for_one_that_hangs_and_has_all_the_others(build, gate, monkeypatch):
    monkeypatch.setattr(clock, "FIRST_READING", 2 * GRACE)
    pipeline = build(Files("a"), Files("b", hang(gate, 1, 2)), Files("c"))
    seen = []
    pipeline.listeners.append(lambda points, at: seen.append({p.dims["of"] for p in points}))
    pipeline.once(0.0)
    assert seen == [{"a", "c"}] * 2


@pytest.mark.parametrize("when", ["first", "last"])
def test_the_last_tick_has_all_that_do_not_hang(build, gate, until, monkeypatch, when):
    monkeypatch.setattr(clock, "LAST_READING", 2 * GRACE)
    hung = Files("b", hang(gate, 1 if when == "first" else 2))
    several = [Files("a"), hung, Files("c")]
    pipeline = build(*several, interval=3600.0)
    if when == "first":  # the stop comes while the first tick waits
        pipeline._readings._grace = LONG
    seen = []
    pipeline.listeners.append(lambda points, at: seen.extend(p.dims["of"] for p in points))
    running = threading.Thread(target=pipeline.run)
    running.start()
    until(lambda: hung.readings == 1 and (when == "first" or pipeline.ticks == 1))
    pipeline._readings._grace = GRACE
    pipeline.stop()
    running.join(LONG)
    assert not running.is_alive()
    # In the first case the stop cut the first tick: `a` and `c` were read, and come with the last tick.
    assert Counter(seen) == Counter({"first": "aacc", "last": "abcac"}[when])


def test_a_stop_ends_the_wait_for_readings_at_once(build, gate, until):
    hung = Files("a", hang(gate, 1))
    pipeline = build(hung)
    waiting = threading.Thread(target=pipeline.gather, args=(1, LONG))
    waiting.start()
    until(lambda: hung.readings)
    begun = time.monotonic()
    pipeline.stop()
    waiting.join(LONG)
    assert time.monotonic() - begun < LONG / 2


def test_a_signal_whose_handler_outlasts_the_wait_for_readings_does_not_stop_the_clock(build, gate):
    pipeline = build(Files("a", hang(gate, 1)))
    before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(2 * GRACE))
    guard = threading.Timer(LONG, gate.set)
    guard.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, GRACE / 4)
        assert pipeline.gather(1) == []  # with the reading, the hang would have ended the wait
    finally:
        guard.cancel()
        signal.signal(signal.SIGALRM, before)


def test_no_thread_is_left_when_what_hangs_at_the_end_returns(build, gate, until):
    before = {*threading.enumerate()}
    several = Files("a"), Files("b", hang(gate, 1)), Files("c")
    pipeline = build(*several)
    waiting = threading.Thread(target=pipeline.gather, args=(1, LONG))
    waiting.start()
    until(lambda: several[1].readings)
    pipeline.stop()
    waiting.join(LONG)
    pipeline.close(0)
    assert [len(one.closed_on) for one in several] == [1, 0, 1]
    gate.set()
    until(lambda: {*threading.enumerate()} <= before)
    assert [len(one.closed_on) for one in several] == [1, 1, 1]


@pytest.mark.parametrize("hung", ["a", "b", "c"])
def test_a_collector_that_hangs_in_closing_does_not_keep_the_others_open(build, gate, monkeypatch, until, hung):
    before = {*threading.enumerate()}
    several = [Files(name) for name in "abc"]
    pipeline = build(*several)
    read(pipeline, 1)
    for one in several:
        if one.name == hung:
            monkeypatch.setattr(one, "close", lambda: gate.wait(LONG))
    begun = time.monotonic()
    pipeline.close(0)
    assert time.monotonic() - begun < LONG / 2
    assert [len(one.closed_on) for one in several if one.name != hung] == [1, 1]
    gate.set()
    until(lambda: {*threading.enumerate()} <= before)


def test_each_is_closed_once_also_what_hung_and_returned(build, gate, until):
    several = Files("a"), Files("b", hang(gate, 2)), Files("c"), Files("d")
    pipeline = build(*several)
    read(pipeline, 1)
    read(pipeline, 2)
    pipeline.close(0)
    assert [len(one.closed_on) for one in several] == [1, 0, 1, 1]
    gate.set()
    until(lambda: several[1].closed_on)
    assert [len(one.closed_on) for one in several] == [1, 1, 1, 1]
    assert several[1].closed_on == [several[1].threads[-1]]


@pytest.mark.parametrize("answer", [lambda: 0, lambda: "", lambda: None, lambda: 1 / 0, 0.0])
def test_an_answer_that_is_not_false_means_a_separate_thread(build, answer):
    odd = Files("odd")
    odd.waits = answer
    assert read(build(odd, Files("a")), 1)[0].keys() == {"odd", "a"}
    assert names_of_threads(odd) == {"collect-odd"}


def test_where_no_thread_can_be_started_it_is_tried_again_in_the_next_tick(build, monkeypatch, caplog):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    several = Files("a"), Files("b", marked=True)
    pipeline = build(*several, grace=LONG)
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for at in (1, 2):
            assert read(pipeline, at)[0] == {"b": at}
    assert read(pipeline, 3)[0] == {"a": 1, "b": 3}
    assert caplog.messages == ["collector a: can't start new thread; tried again in the next tick"]


class Follower(Files):
    """Takes the pids that others list."""

    needs = Needs(pids=True)

    def __init__(self):
        super().__init__("follower")
        self.followed = []

    def follow(self, pids, idle):
        self.followed.append([*pids])


class Devices(Files):
    """A driver with one device."""

    knows = (Device, DeviceActivity)

    def facts(self):
        return [DeviceActivity(self.dims, 0.5), Device(self.dims)]


class Wants(Processor):
    """Counts its calls and keeps the facts."""

    needs = Needs(facts=True, state=True)

    def __init__(self):
        self.calls, self.saves = 0, 0

    def derive(self, tick, at, facts):
        self.calls += 1
        return ()

    def saved(self):
        self.saves += 1


class NeedsOne(Wants):
    needs = Needs(facts=True, state=True, devices=Level.ALL)


@pytest.mark.parametrize("absent", [0, 2, 1000])
def test_without_a_device_followers_are_read_with_the_rest_and_a_processor_that_needs_one_is_not_called(build, absent):
    follower, wants, always = Follower(), NeedsOne(), Wants()
    derivations = [Derivation("wants", wants, Level.ALL), Derivation("always", always, Level.ALL)]
    derivations[0].keep = lambda saved: None
    gpu = Devices("gpu", absent=absent)
    pipeline = build(gpu, Files("a"), follower, derivations=derivations, retry=3600.0)
    for at in range(1, 6):
        pipeline.samplers[0].due = pipeline._readings._wake = 0.0  # the driver is tried again in each tick
        assert read(pipeline, at)[0].keys() == ({"a", "follower"} if at <= absent else {"a", "follower", "gpu"})
    assert (wants.calls, always.calls) == (max(0, 5 - absent), 5)
    assert derivations[0].unavailable == ("no collector has found a device" if absent > 5 else None)
    assert wants.saves == wants.calls
    assert len(follower.followed) == 5


@pytest.mark.parametrize(("level", "needs"), [(None, False), (Level.BASIC, False), (Level.ALL, True)])
def test_a_follower_that_needs_devices_is_read_once_without_any_and_leaves_no_thread(build, until, level, needs):
    class Sleeper(Follower):
        needs = Needs(pids=True, devices=level)

    follower, gpu = Sleeper(), Devices("gpu", absent=1000)
    wants = [Derivation("wants", NeedsOne(), Level.ALL)]
    pipeline = build(gpu, Files("a"), follower, derivations=wants, retry=3600.0)
    for at in range(1, 5):
        assert read(pipeline, at)[0].keys() == ({"a", "follower"} if at == 1 or not needs else {"a"})
    until(lambda: not (needs and follower.threads[0].is_alive()))
    assert len(follower.closed_on) == needs
    gpu.absent = pipeline.samplers[0].due = pipeline._readings._wake = 0
    for at in range(5, 8):
        assert read(pipeline, at)[0].keys() == {"a", "follower", "gpu"}


def test_a_follower_says_for_how_long_it_rests_without_a_device(build, until):
    class Sleeper(Follower):
        needs = Needs(pids=True, devices=Level.ALL)
        seconds = 0.0

        def rests(self):
            return self.seconds

    follower = Sleeper()
    pipeline = build(Files("a"), follower, derivations=[Derivation("wants", NeedsOne(), Level.ALL)], retry=3600.0)
    assert [[*read(pipeline, at)[0]] for at in (1, 2)] == [["a", "follower"]] * 2
    follower.seconds = LONG
    assert [[*read(pipeline, at)[0]] for at in (3, 4)] == [["a"]] * 2
    until(lambda: not follower.threads[-1].is_alive())
    pipeline.samplers[1]._rests_until = 0.0
    assert [*read(pipeline, 5)[0]] == ["a", "follower"]


def test_a_tick_asks_nothing_of_a_collector_that_found_nothing_until_it_is_tried_again(build, monkeypatch):
    pipeline = build(Devices("gpu", absent=1), Files("a"), Files("absent", absent=1000), retry=3600.0)
    assert read(pipeline, 1)[0] == {"a": 1}
    begun, request = [], Sampler.request
    monkeypatch.setattr(Sampler, "request", lambda its, at, **_: (begun.append(its.name), request(its, at))[1])
    assert read(pipeline, 2)[0] == {"a": 2}
    assert begun == ["a"]
    pipeline.samplers[0].due = pipeline._readings._wake = 0.0
    assert read(pipeline, 3)[0] == {"a": 3, "gpu": 1}
    assert begun == ["a", "gpu", "a"]
