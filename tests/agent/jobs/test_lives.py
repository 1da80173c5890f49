"""Two and more lives of an agent that is killed: what a store adds up over them is the time that passed."""

from itertools import pairwise

import pytest
from tests.agent.jobs.machine import SECOND, START, Machine, job

from chipwatch.engine.window import Window
from chipwatch.jobs.processor import JobsProcessor

ADA, BOB = job(41337, since=START - 100 * SECOND), job(41340, since=START - 50 * SECOND)
WORK = [1.0, 0.4, 0.0, 0.7]
"""Share of each tick in which ADA's GPU works."""
SCRAPE = 15


class Store:
    """Keeps what Prometheus scrapes, and what CloudWatch is sent, as a life of the agent sends it."""

    def __init__(self):
        self.samples, self.increases, self.page = {}, {}, []
        self.window = None
        self.lost = 0.0
        """Seconds of samples in windows that were open at a kill."""

    def begin(self, at):
        self.window, self.page, self.opened = Window(60, born=at, increases=True), [], None

    def take(self, points, at):
        self.page = [point for point in points if point.metric.name == "job.gpu.time"]
        for point in self.window.add(self.page, at):
            key = point.dims["job"], point.dims["state"]
            self.increases[key] = self.increases.get(key, 0.0) + point.increase

    def scrape(self):
        for point in self.page:
            self.samples.setdefault((point.dims["job"], point.dims["state"]), []).append(point.value)

    def increase(self, key):
        """Return PromQL's increase, without extrapolation: a value that falls began at zero."""
        values = self.samples.get(key, [])
        return sum(now - before if now >= before else now for before, now in pairwise(values))


class Killed(Machine):
    """An agent that keeps its ledger before it sends, reads two GPUs, and is killed."""

    def __init__(self):
        super().__init__()
        self.store, self.saved, self.sent, self.ticks = Store(), None, {}, 0
        self.store.begin(self.at)
        self.first = None

    def go_on(self, until=None):
        """Tick; `until` is the step of the tick before which the agent is killed: save or send."""
        self.ticks += 1
        active = {0: {"active": WORK[self.ticks % 4]}, 1: {"active": 0.0}}
        points = self.tick([(0, 10), (1, 11)], active, owners={10: ADA, 11: BOB})
        if until == "save":
            return
        self.saved = self.processor.saved() or self.saved
        if until == "send":
            return
        self.store.take(points, self.at)
        for point in points:
            if point.metric.kind == "counter" and "job" in point.dims:
                value, start = self.sent.get((point.metric.name, point.dims), (0.0, point.start_time))
                assert point.value >= value
                assert point.start_time == start
                self.sent[point.metric.name, point.dims] = point.value, point.start_time
        if (self.at // SECOND) % SCRAPE == 0:
            self.first = self.first or self.at
            self.store.scrape()

    def start_again(self, seconds):
        self.at, self.moment = self.at + seconds * SECOND, self.moment + seconds * SECOND
        self.processor = JobsProcessor(JobsProcessor.Config())
        self.processor.restore(self.saved)
        self.store.begin(self.at)


@pytest.mark.parametrize(
    ("ticks", "absence", "step"),
    [
        (ticks, absence, ("save", "send", None)[(n + m) % 3])  # each absence with each step
        for n, ticks in enumerate((37, 41, 47))
        for m, absence in enumerate((5, 20, 70, 600))
    ],
)
def test_over_two_lives_the_increase_is_the_time_that_passed(ticks, absence, step):
    machine = Killed()
    for _ in range(ticks):
        machine.go_on()
    machine.go_on(until=step)
    machine.start_again(absence)
    for _ in range(180 + -((machine.at - machine.first) // (5 * SECOND)) % 3):
        machine.go_on()
    passed = (machine.at - machine.first) / SECOND
    for number in ("41337", "41340"):
        states = {state for key, state in machine.store.samples if key == number}
        total = sum(machine.store.increase((number, state)) for state in states)
        assert total == pytest.approx(passed, rel=0.005), number
        assert machine.store.increase((number, "unseen")) == pytest.approx(absence + 5 * (1 + (step == "save")))


@pytest.mark.parametrize("absence", [5, 70, 600])
def test_a_sink_of_increases_gets_the_absence_as_unseen(absence):
    machine = Killed()
    for _ in range(37):
        machine.go_on()
    opened = machine.store.window._last - machine.store.window._slot * 60 * SECOND
    machine.start_again(absence)
    for _ in range(181):
        machine.go_on()
    still = machine.store.window._last - machine.store.window._slot * 60 * SECOND
    increases = machine.store.increases
    for number in ("41337", "41340"):
        assert increases[number, "unseen"] == absence + 5
        total = sum(value for (key, _), value in increases.items() if key == number)
        # What was read in the window that was open at the kill is lost, what is in the last one is not sent yet.
        passed = (machine.at - START - 5 * SECOND - opened - still) / SECOND
        assert total == pytest.approx(passed, abs=10.0)


def test_a_gpu_that_worked_until_the_kill_is_not_held_sooner_for_the_absence(machine):
    for n in range(12):
        machine.tick([(0, 10)], {0: {"active": 0.0 if n > 4 else 1.0}}, owners={10: ADA})
    saved = machine.processor.saved()
    machine.processor = JobsProcessor(JobsProcessor.Config())
    machine.processor.restore(saved)
    machine.at, machine.moment = machine.at + 50 * SECOND, machine.moment + 50 * SECOND
    for _ in range(4):
        machine.tick([(0, 10)], {0: {"active": 0.0}}, owners={10: ADA})
    (row,) = machine.processor.answer()["jobs"]
    assert {state: time for state, time in row["seconds"].items() if time} == {
        "busy": 20.0, "stalled": 35.0 + 15.0, "unseen": 55.0,
    }  # fmt: skip


def test_a_job_that_was_away_for_a_whole_life_is_not_charged_for_it(machine):
    sums = []
    for owners in ({10: ADA}, {}, {10: ADA}):
        for _ in range(3):
            machine.tick([(0, pid) for pid in owners], {0: {"active": 0.5}}, owners=owners)
        saved = machine.processor.saved()
        (row,) = [*machine.processor.answer()["jobs"], *machine.processor.answer()["ended"]]
        sums.append(sum(row["seconds"].values()))
        machine.processor = JobsProcessor(JobsProcessor.Config())
        machine.processor.restore(saved)
    assert sums == [10.0, 10.0, 20.0]


def test_a_job_that_came_while_the_agent_did_not_run_is_counted_from_its_start_by_a_sink_of_increases():
    machine = Killed()
    machine.tick([], {0: {"active": 0.0}})
    machine.saved = machine.processor.saved()
    machine.start_again(100)
    came = job(7, since=machine.at - 60 * SECOND)
    for _ in range(20):
        machine.store.take(machine.tick([(0, 12)], {0: {"active": 1.0}}, owners={12: came}), machine.at)
    assert machine.store.increases["7", "unseen"] == 65.0


def test_a_first_reading_that_came_a_tick_late_makes_the_absence_no_longer(machine):
    for _ in range(10):
        machine.tick([(0, 10)], {0: {"active": 1.0}}, owners={10: ADA})
    saved = machine.processor.saved()
    machine.processor = JobsProcessor(JobsProcessor.Config())
    machine.processor.restore(saved)
    machine.moment -= 4 * SECOND  # the driver took a second to begin, and the next tick got the reading
    machine.tick([(0, 10)], {0: {"active": 1.0}}, owners={10: ADA}, seconds=30)
    machine.moment += 4 * SECOND
    machine.tick([(0, 10)], {0: {"active": 1.0}}, owners={10: ADA})
    (row,) = machine.processor.answer()["jobs"]
    assert {state: time for state, time in row["seconds"].items() if time} == {"busy": 45.0 + 9.0, "unseen": 26.0}


@pytest.mark.parametrize("change", ["boot", "clock", "price"])
def test_counters_begin_again_after_a_boot_a_clock_that_was_ahead_and_another_price(change):
    machine = Machine(dollars_per_hour=1.0)
    for _ in range(10):
        machine.tick([(0, 10)], {0: {"active": 1.0}}, owners={10: ADA})
    saved, stopped = machine.processor.saved(), machine.at
    price = 2.0 if change == "price" else 1.0
    machine.processor = JobsProcessor(JobsProcessor.Config(dollars_per_hour=price))
    machine.processor.restore(saved)
    machine.at += (-3600 if change == "clock" else 600) * SECOND
    machine.moment = 90 * SECOND if change == "boot" else machine.moment + 600 * SECOND
    for _ in range(3):
        machine.tick([(0, 10)], {0: {"active": 1.0}}, owners={10: ADA})
    times = [point for point in machine.points if point.metric.name == "job.gpu.time"]
    (busy,) = (point for point in times if point.dims["state"] == "busy")
    assert busy.value == 10.0
    assert busy.start_time > stopped or change == "clock"
    assert busy.start_time < machine.at
    (cost,) = (point for point in machine.points if point.metric.name == "job.cost")
    assert cost.value == pytest.approx(sum(point.value for point in times) / 3600 * price)
    (row,) = machine.processor.answer()["jobs"]
    assert row["seconds"]["busy"] == 45.0 + 10.0
    answer = machine.processor.answer()
    assert answer["charged_seconds"] == pytest.approx(answer["allocated_seconds"], abs=1e-6)
