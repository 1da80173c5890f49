import itertools
import threading
import time
from types import SimpleNamespace

import pytest
from tests.doubles.frame import Clock, MemorySink

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine import clock as module
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch.host.pace import Pace

LOAD = gauge("x.load", "1", "The load.")
COUNT = counter("x.count", "1", "Readings.")
LONG = 60.0
S = 10**9


class Steady(Collector):
    """Yields the number of its readings."""

    metrics = (LOAD, COUNT)

    def __init__(self, name="a"):
        self.dims, self.readings = Dimensions(of=name), 0

    def collect(self, at):
        self.readings += 1
        yield LOAD.point(at, self.readings, self.dims)
        yield COUNT.point(at, self.readings, self.dims, start_time=0)


class Hanging(Steady):
    """Hangs in the reading of that number until let go."""

    def __init__(self, gate, when=1):
        super().__init__("hung")
        self.gate, self.when, self.begun = gate, when, 0

    def collect(self, at):
        self.begun += 1
        if self.begun == self.when:
            self.gate.wait(LONG)
        yield from super().collect(at)


class Failing(Steady):
    """Raises each time."""

    def collect(self, at):
        self.readings += 1
        raise ValueError("oh")


class HungSink(MemorySink):
    """Never comes back from a write."""

    def __init__(self, gate):
        super().__init__()
        self.gate, self.writing = gate, threading.Event()

    def write(self, batch):
        self.writing.set()
        self.gate.wait(LONG)
        return super().write(batch)


@pytest.fixture
def gate():
    made = threading.Event()
    yield made
    made.set()


@pytest.fixture
def build(at_the_end):
    """Put a pipeline together; stop it at the end."""

    def make(collectors, sinks=(), *, interval=1.0, clock=None, window=0.0, start=True):
        samplers = [Sampler(f"c{n}", each, Level.ALL) for n, each in enumerate(collectors)]
        routes = []
        for n, sink in enumerate(sinks):
            spool = Spool(f"s{n}")
            worker = Worker(f"s{n}", sink, spool, common=Dimensions)
            routes.append(Route(MetricFilter(Level.ALL), Window(window, born=0), spool, worker, Dimensions))
        pipe = Pipeline(samplers, routes, interval=interval, clock=clock or time.time_ns)
        if start:
            pipe.start()
        at_the_end.callback(pipe.close, 0)
        at_the_end.callback(pipe.stop)
        return pipe

    return make


class Background:
    """`run` on a separate thread."""

    def __init__(self, pipe, duration=None):
        self.pipe = pipe
        self.thread = threading.Thread(target=pipe.run, args=(duration,))
        self.thread.start()

    def stop(self):
        begun = time.monotonic()
        self.pipe.stop()
        self.thread.join(LONG)
        assert not self.thread.is_alive()
        return time.monotonic() - begun


@pytest.fixture
def running(at_the_end):
    def make(pipe, duration=None):
        background = Background(pipe, duration)
        at_the_end.callback(background.stop)
        return background

    return make


def values(sink, metric=LOAD, of="a"):
    return [p.value for p in sink.points if p.metric == metric and p.dims["of"] == of]


# -- what a part raises -----------------------------------------------------------------------------------------------


class Wordless(Exception):
    def __str__(self):
        raise ValueError("no words")


def raising(*_):
    raise Wordless


@pytest.mark.parametrize(
    "part", ["_admission.admit", "_copies", "_common", "_wants", "_window.add", "spool.append", "worker.wake"]
)
def test_what_one_sinks_share_of_a_tick_raises_costs_that_sink_alone(build, until, caplog, part):
    broken, sound = MemorySink(), MemorySink()
    pipe = build([Steady()], [broken, sound])
    route = pipe.routes[0]
    route._admission = Admission("s0", 10)
    *path, name = part.split(".")
    setattr(getattr(route, path[0]) if path else route, name, raising)
    for _ in range(3):
        pipe.tick()
    until(lambda: values(sound) == [1, 2, 3])
    assert (pipe.ticks, pipe.failed) == (3, 3)
    (record,) = [r for r in caplog.records if r.levelname == "ERROR"]
    assert record.getMessage() == "tick: sink s0 failed: Wordless: its __str__ raises"
    assert record.exc_info


@pytest.mark.parametrize("part", ["_window.close", "_window.prime", "spool.close"])
def test_what_a_sink_raises_at_the_start_or_the_stop_costs_that_sink_alone(build, caplog, part):
    broken, sound = MemorySink(), MemorySink()
    pipe = build([Steady()], [broken, sound], window=60)
    path, name = part.split(".")
    setattr(getattr(pipe.routes[0], path), name, raising)
    pipe.once(0.01)
    pipe.close(LONG)
    assert values(sound) == [2]
    assert pipe.failed >= 1


def test_an_exception_of_a_callback_or_of_a_request_does_not_end_the_clock(build):
    pipe = build([Steady()], [MemorySink()])
    pipe.after_tick.append(raising)
    pipe.tick()
    pipe.samplers[0].request = raising
    pipe.tick()
    assert (pipe.ticks, pipe.failed) == (2, 3)


def test_a_listener_gets_the_points_of_each_reading_and_what_it_raises_costs_nobody_else(build):
    clock, sink, heard = Clock(), MemorySink(), []
    pipe = build([Steady("a")], [sink], clock=clock)
    pipe.listeners += [raising, lambda points, at: heard.append((at, {point.at for point in points}))]
    pipe.once(0.0)
    pipe.tick()
    assert len(heard) == 3
    assert all(times == {at} for at, times in heard)
    assert pipe.failed == 3


# -- a tick ---------------------------------------------------------------------------------------------------------


def test_all_points_of_a_tick_have_one_moment(build, until):
    clock, sink = Clock(), MemorySink()
    pipe = build([Steady("a"), Steady("b")], [sink], clock=clock)
    pipe.tick()
    until(lambda: len(sink.points) == 4)
    assert {p.at for p in sink.points} == {clock.now}


def test_every_sink_has_its_own_copy(build, until):
    sinks = [MemorySink(), MemorySink()]
    pipe = build([Steady()], sinks)
    pipe.tick()
    pipe.tick()
    for sink in sinks:
        until(lambda sink=sink: values(sink) == [1, 2])


def test_a_tick_does_not_wait_for_a_collector_that_hangs_longer_than_the_grace(build, gate, monkeypatch):
    monkeypatch.setattr(module, "GRACE", 0.05)
    pipe = build([Hanging(gate), Steady()])
    begun = time.monotonic()
    points = pipe.gather(7)
    assert time.monotonic() - begun < LONG / 2
    assert {p.dims["of"] for p in points} == {"a"}


def test_a_collector_that_hangs_is_begun_once_and_the_others_go_on(build, gate, until):
    sink, hung = MemorySink(), Hanging(gate)
    pipe = build([hung, Steady()], [sink], interval=0.1)
    for _ in range(5):
        pipe.tick()
    until(lambda: values(sink) == [1, 2, 3, 4, 5])
    assert hung.begun == 1
    assert (pipe.samplers[0].ok, pipe.samplers[0].counts["skipped"]) == (False, 4)
    assert (pipe.samplers[1].ok, pipe.samplers[1].counts["skipped"]) == (True, 0)


def test_only_the_first_tick_waits_for_one_that_hangs(build, gate):
    pipe = build([Hanging(gate)])
    pipe.gather(1)
    begun = time.monotonic()
    for at in range(2, 1002):
        assert pipe.gather(at) == []
    assert time.monotonic() - begun < 0.25 * 100


def test_a_reading_that_comes_late_goes_with_the_next_tick_under_its_own_moment(build, gate, until):
    sink, clock = MemorySink(), Clock(100 * S)
    pipe = build([Hanging(gate), Steady()], [sink], interval=0.02, clock=clock)
    pipe.tick()
    gate.set()
    until(lambda: pipe.samplers[0]._thread._result[0])
    clock.forward(1)
    pipe.tick()
    until(lambda: values(sink) == [1, 2] and len(values(sink, of="hung")) >= 1)
    assert next(p.at for p in sink.points if p.dims["of"] == "hung" and p.metric == LOAD) == 100 * S
    until(lambda: pipe.samplers[0].ok)


def test_one_that_hung_and_came_back_is_asked_again(build, gate, until):
    sink = MemorySink()
    pipe = build([Hanging(gate)], [sink], interval=0.1)
    pipe.tick()
    pipe.tick()
    assert pipe.samplers[0].ok is False
    gate.set()
    until(lambda: pipe.samplers[0].ok)
    pipe.tick()
    until(lambda: values(sink, of="hung") == [1, 2])


def test_a_collector_that_raises_each_time_does_not_disturb_others(build, until):
    sink = MemorySink()
    pipe = build([Failing(), Steady()], [sink])
    for _ in range(5):
        pipe.tick()
    until(lambda: values(sink) == [1, 2, 3, 4, 5])
    assert (pipe.samplers[0].ok, pipe.samplers[0].counts["failed"]) == (False, 5)


def test_a_thousand_ticks_need_no_more_threads_than_one(build, gate):
    sink = MemorySink()
    pipe = build([Steady(), Failing(), Hanging(gate)], [sink, MemorySink()], interval=0.02)
    pipe.tick()
    before = threading.active_count()
    for _ in range(1000):
        pipe.tick()
    assert threading.active_count() == before
    assert pipe.ticks == 1001


# -- the clock --------------------------------------------------------------------------------------------------------


class FakeTime:
    """Time that passes only where somebody waits or works; in a wait the process may pause from one second to another."""

    def __init__(self, pipe, work, pause):
        self.now, self.pause, self.pipe = 1000.0, pause, pipe
        self.work = itertools.chain(work, itertools.repeat(0.0))
        self.began: list[float] = []

    def monotonic(self):
        return self.now

    def tick(self, grace=None):
        self.began.append(round(self.now - 1000, 6))
        self.now += next(self.work)
        if len(self.began) >= 6:
            self.pipe.stop()

    def wait(self, timeout):
        assert 0 <= timeout <= module.LONGEST_WAIT
        self.now += timeout
        if self.pause[0] < self.now - 1000 < self.pause[1]:
            self.now = 1000 + self.pause[1]
        return False


@pytest.fixture
def ticking(build, monkeypatch):
    def make(*work, interval=1.0, duration=None, pause=(0.0, 0.0)):
        pipe = build([], interval=interval, start=False)
        fake = FakeTime(pipe, work, pause)
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=fake.monotonic))
        monkeypatch.setattr(pipe, "tick", fake.tick)
        monkeypatch.setattr(pipe._stop, "_lock", SimpleNamespace(acquire=fake.wait, release=lambda: None))
        pipe.run(duration)
        monkeypatch.undo()
        return pipe, fake.began

    return make


@pytest.mark.parametrize(
    ("interval", "work", "began", "missed"),
    [
        (1.0, (0.3, 0.9, 0.1, 0.5, 0.2), [0, 1, 2, 3, 4], 0),
        (1.0, (0.1, 3.4, 0.1), [0, 1, 4.4, 5, 6], 2),
        (1.0, (1.2, 0.1), [0, 1.2, 2, 3, 4], 0),
        (1.0, (1.9, 0.1), [0, 1.9, 3, 4, 5], 1),
        (1.0, (0.1, 3600.5, 0.1), [0, 1, 3601.5, 3602, 3603], 3599),
        (5.0, (0.2, 17.0, 0.2), [0, 5, 22, 25, 30], 2),
        (5.0, (0.2, 10.0, 0.2), [0, 5, 15, 20, 25], 1),
        (5.0, (0.2, 10.1, 0.2), [0, 5, 15.1, 20, 25], 1),
        (0.5, (0.1, 1.7, 0.1), [0, 0.5, 2.2, 2.5, 3], 2),
        (60.0, (1.0, 59.0, 130.0, 1.0), [0, 60, 120, 250, 300], 1),
    ],
)
def test_ticks_are_on_the_grid_and_one_that_is_late_is_made_at_once_without_those_it_missed(
    ticking, interval, work, began, missed
):
    pipe, found = ticking(*work, interval=interval)
    assert (found[:5], pipe.missed) == (began, missed)


@pytest.mark.parametrize(
    ("interval", "pause", "began", "missed"),
    [
        (1.0, (2.5, 4.9), [0, 1, 2, 4.9, 6], 2),
        (1.0, (2.5, 4.2), [0, 1, 2, 4.2, 5], 1),
        (1.0, (2.5, 3603.5), [0, 1, 2, 3603.5, 3604], 3600),
        (0.1, (0.25, 0.66), [0, 0.1, 0.2, 0.66, 0.8], 4),
        (60.0, (90.0, 235.0), [0, 60, 235, 300, 360], 2),
    ],
)
def test_after_a_pause_of_the_process_no_tick_comes_within_half_an_interval(ticking, interval, pause, began, missed):
    pipe, found = ticking(interval=interval, pause=pause)
    assert (found[:5], pipe.missed) == (began, missed)


def test_a_duration_ends_on_time_with_one_last_tick(ticking):
    assert ticking(duration=2.5)[1] == [0, 1, 2, 2.5]
    assert ticking(duration=2.0)[1] == [0, 1, 2]
    assert ticking(duration=0)[1] == [0, 0]


# -- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("just_before", [False, True])
def test_a_stop_ends_the_wait_even_if_it_came_just_before_it_and_reads_once_more(build, running, until, just_before):
    sink = MemorySink()
    pipe = build([Steady()], [sink], interval=3600)
    background = running(pipe)
    until(lambda: values(sink) == [1])
    if just_before:
        pipe._stop.at = time.monotonic()  # as if nothing ended the wait
    assert background.stop() < LONG / 2
    until(lambda: values(sink) == [1, 2])


@pytest.mark.parametrize("stop_in", ["first", "last"])
def test_the_last_tick_waits_for_a_slow_reading(build, running, until, stop_in):
    sink, gate = MemorySink(), threading.Event()
    slow = Hanging(gate, when=1 if stop_in == "first" else 2)
    pipe = build([slow], [sink], interval=3600)
    background = running(pipe)
    until(lambda: slow.begun == 1 and pipe.ticks)
    waker = threading.Timer(3 * module.GRACE, gate.set)
    waker.start()
    assert background.stop() < LONG / 2
    waker.join()
    until(lambda: values(sink, of="hung") == ([1] if stop_in == "first" else [1, 2]))


@pytest.mark.parametrize("waits", [True, False])
def test_the_last_tick_has_what_a_collector_reads_less_often(build, until, waits):
    sink, pace, rare = MemorySink(), Pace(3600.0), Steady()
    rare.waits = lambda: waits
    rare.collect = lambda at: Steady.collect(rare, at) if pace.is_due(at) else ()
    pipe = build([rare], [sink], clock=Clock())
    for pipe._stop.is_last in (False, False, False, True):
        pipe.tick(LONG)
    until(lambda: values(sink) == [1, 2, 3])
    assert not pace.is_due(pipe._clock()), "nothing is due after it"


def test_closing_sends_the_window_that_is_open_however_short_it_is(build):
    sink, clock = MemorySink(), Clock()
    pipe = build([Steady()], [sink], window=3600, clock=clock)
    for _ in range(3):
        pipe.tick()
        clock.forward(1)
    assert sink.points == []
    pipe.close(LONG)
    (point,) = [p for p in sink.points if p.metric == LOAD]
    assert (point.summary.count, point.summary.values) == (3, (1, 2, 3))
    assert sink.closed == 1


def test_a_hung_collector_does_not_keep_a_pipeline_from_closing(build, running, gate, until):
    sink, hung = MemorySink(), Hanging(gate, when=2)
    pipe = build([hung, Steady()], [sink], interval=0.05)
    background = running(pipe)
    until(lambda: hung.begun == 2 and pipe.ticks > 4)
    assert background.stop() < LONG / 2
    begun = time.monotonic()
    pipe.close(LONG)
    assert time.monotonic() - begun < LONG / 2
    assert set(values(sink)) <= set(range(1, pipe.ticks + 1))
    assert sink.closed == 1


def test_hung_sinks_share_one_deadline_and_the_others_deliver(build, gate, until):
    hung, well = [HungSink(gate) for _ in range(20)], MemorySink()
    pipe = build([Steady()], [*hung, well])
    pipe.tick()
    until(lambda: all(sink.writing.is_set() for sink in hung))
    begun = time.monotonic()
    pipe.close(0.5)
    assert time.monotonic() - begun < 0.5 * 16
    assert values(well) == [1]


def test_a_sink_that_hangs_does_not_hold_up_the_ticks(build, gate, until):
    hung, well = HungSink(gate), MemorySink()
    pipe = build([Steady()], [hung, well])
    for _ in range(50):
        pipe.tick()
    until(lambda: len(values(well)) == 50)
    ledger = pipe.routes[0].spool.ledger
    assert (ledger.collected, ledger.balance()) == (100, 0)


# -- a single reading -----------------------------------------------------------------------------------------------


def test_once_reads_twice_and_hands_out_the_second(build):
    sink = MemorySink()
    pipe = build([Steady()], [sink])
    pipe.once(0.01)
    pipe.close(LONG)
    assert values(sink) == [2]
    (count,) = [p for p in sink.points if p.metric == COUNT]
    assert count.increase == 1


def test_once_waits_for_a_collector_that_takes_a_while_to_wake_up(build, until):
    sink, gate = MemorySink(), threading.Event()
    pipe = build([Hanging(gate)], [sink], interval=0.1)
    waker = threading.Timer(0.5, gate.set)
    waker.start()
    pipe.once(0.01)
    pipe.close(LONG)
    assert values(sink, of="hung") == [2]
    waker.join()


def test_once_does_not_wait_for_ever(build, gate, monkeypatch):
    monkeypatch.setattr(module, "FIRST_READING", 0.1)
    sink = MemorySink()
    pipe = build([Hanging(gate), Steady()], [sink])
    begun = time.monotonic()
    pipe.once(0.01)
    assert time.monotonic() - begun < LONG / 2
    pipe.close(LONG)
    assert values(sink) == [2]


def test_a_stop_ends_a_single_reading_in_time(build, gate):
    pipe = build([Hanging(gate)])
    thread = threading.Thread(target=pipe.once, args=(3600,))
    thread.start()
    begun = time.monotonic()
    pipe.stop()
    thread.join(LONG)
    assert not thread.is_alive()
    assert time.monotonic() - begun < module.FIRST_READING


class Quick(Steady):
    """Never waits, so that the clock's own thread reads it."""

    def waits(self):
        return False


@pytest.mark.parametrize(("interval", "pauses"), [(0.1, 3), (1.0, 0)])
def test_a_frequent_tick_is_made_in_parts_so_that_a_job_on_the_cpu_goes_on_between_them(interval, pauses, monkeypatch):
    slept = []
    monkeypatch.setattr(module, "time", SimpleNamespace(**vars(time) | {"sleep": slept.append}))
    pipeline = Pipeline([Sampler(f"c{n}", Quick(), Level.ALL) for n in range(5)], (), interval=interval)
    pipeline.tick()
    assert slept == [module.PAUSE] * pauses
