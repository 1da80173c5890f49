import time

import psutil
import pytest
from tests.doubles.frame import MemorySink

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Kind, Level, gauge
from chipwatch.contract.errors import PartlyCollected, Retryable, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.engine import self_metrics
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.sampler import Sampler
from chipwatch.engine.self_metrics import SHOWN, AgentCollector, Incident
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

LOAD = gauge("x.load", "1", "The load.")
BORN = 1_800_000_000_000_000_000
S = 10**9
LONG = 60.0


class Plain(Collector):
    metrics = (LOAD,)

    def __init__(self, *problems):
        self.problems = list(problems)

    def collect(self, at):
        yield LOAD.point(at, float("nan"))
        yield LOAD.point(at, 1.0)
        if self.problems:
            raise self.problems.pop(0)


class Absent(Plain):
    def open(self, given):
        raise Unavailable("not here")


class Parts:
    """Samplers and outlets whose counts are read."""

    def __init__(self):
        self.samplers: list[Sampler] = []
        self.routes: list[Route] = []
        self.own = AgentCollector(start_time=BORN)

    def sampler(self, name, collector, readings=1):
        made = Sampler(name, collector, Level.ALL)
        self.samplers.append(made)
        for _ in range(readings):
            assert made.request(7)
            assert made.take(LONG)
        return made

    def route(self, name, sink=None, path=None):
        spool = Spool(name, path)
        worker = Worker(name, sink or MemorySink(), spool, pauses=Pauses(0.001, 0.001))
        made = Route(MetricFilter(Level.ALL), Window(0, born=0), spool, worker, Dimensions)
        self.routes.append(made)
        return made

    def watch(self):
        self.pipeline = Pipeline(self.samplers, self.routes, interval=3600.0)
        self.own.watch(self.pipeline)

    def read(self, at=BORN + S):
        """Return the values by name and dimensions."""
        return {
            (p.metric.name.removeprefix("agent."), *(value for _, value in p.dims.items_sorted)): p.value
            for p in self.own.collect(at)
        }

    def close(self):
        self.own.close()
        for sampler in self.samplers:
            sampler.end()
            sampler.join(LONG)
        for route in self.routes:
            route.worker.stop()
            route.worker.join(LONG)
            route.spool.close()


@pytest.fixture
def parts():
    made = Parts()
    yield made
    made.close()


def test_it_keeps_the_contract(parts):
    parts.watch()
    points = check_collector(parts.own)
    assert {p.metric.name for p in points} == {
        "agent.memory.rss",
        "agent.cpu",
        "agent.ticks.missed",
        "agent.ticks.failed",
    }


def test_all_of_it_is_detailed_so_that_a_paid_sink_gets_it_only_on_request():
    others = [metric.name for metric in AgentCollector.metrics if metric.level is not Level.DETAILED]
    assert others == ["agent.incidents", "incident.recorded"]  # only after an incident; a paid sink gets the second


def test_the_file_of_an_incident_is_named_every_15_s_for_two_minutes_and_incidents_are_counted(parts, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(self_metrics.time, "monotonic", lambda: now)
    parts.watch()
    named = []
    for n in range(60):
        now = 1000.0 + 5 * n
        if n in (2, 3):
            incident = Incident("oom", f"{n}-oom.chipwatch", now + SHOWN)
            parts.pipeline.incidents.append(incident)
        read = parts.read(at=BORN + 5 * n * S)
        assert read.get(("incidents", "oom")) == (None if n < 2 else min(n - 1, 2))
        named.append([key[2] for key in read if key[0] == "incident.recorded"])
    assert named[2] == ["2-oom.chipwatch"]
    both = ["2-oom.chipwatch", "3-oom.chipwatch"]
    assert [n for n, files in enumerate(named) if files == both] == [3, 6, 9, 12, 15, 18, 21, 24]
    assert not any(named[27:])


def test_memory_and_cpu_belong_to_this_process_and_cpu_counts_from_the_start(parts, monkeypatch):
    parts.watch()
    begun, read = time.process_time(), parts.read()
    assert read["memory.rss",] == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)
    monkeypatch.setattr(self_metrics.time, "process_time", lambda: begun + 4.0)
    assert 4.0 <= parts.read(at=BORN + 9 * S)["cpu",] < 4.0 + begun, "without the CPU time before the start"


def test_memory_is_known_where_there_is_no_proc(parts, monkeypatch, tmp_path):
    monkeypatch.setattr(self_metrics, "STATM", tmp_path / "none")
    parts.watch()
    assert parts.read()["memory.rss",] == pytest.approx(psutil.Process().memory_info().rss, rel=0.1)


def test_no_file_stays_open(parts, newly_open):
    parts.watch()
    parts.read()
    parts.own.close()
    parts.own.close()
    assert not newly_open()


def test_a_collectors_counts_have_its_name(parts):
    parts.sampler("good", Plain(), readings=3)
    parts.sampler("bad", Plain(ValueError("x"), ValueError("x"), PartlyCollected(["a", "b"])), readings=3)
    parts.watch()
    read = parts.read()
    assert (read["collector.ok", "good"], read["collector.failed", "good"]) == (1, 0)
    assert read["collector.not_finite", "good"] == 3
    assert (read["collector.failed", "bad"], read["collector.partial", "bad"]) == (2, 2)
    assert read["collector.skipped", "bad"] == 0
    assert 0 <= read["collector.seconds", "good"] < LONG


def test_a_collector_that_failed_is_not_ok(parts):
    parts.sampler("bad", Plain(ValueError("x")))
    parts.watch()
    assert parts.read()["collector.ok", "bad"] == 0


def test_a_collector_with_nothing_to_read_has_no_metrics(parts):
    parts.sampler("absent", Absent())
    parts.sampler("unasked", Plain(), readings=0)
    parts.watch()
    assert not [key for key in parts.read() if key[0].startswith("collector.")]


def test_missed_ticks_are_counted(parts):
    parts.watch()
    parts.pipeline.missed = 4
    assert parts.read()["ticks.missed",] == 4


def test_a_sinks_counts_have_its_name_and_the_reason(parts, until):
    sink = MemorySink()
    sink.failures = [Retryable("no route")]
    sink.reject = lambda point: "too odd" if point.value > 1 else None
    route = parts.route("cloud", sink)
    parts.watch()
    route.worker.start()
    route.take([LOAD.point(7, 1.0), LOAD.point(7, 2.0, Dimensions(a="b"))], 7)
    until(lambda: route.spool.ledger.spooled == 0)
    read = parts.read()
    assert (read["sink.sent", "cloud"], read["sink.rejected", "too odd", "cloud"]) == (1, 1)
    assert (read["sink.retried", "cloud"], read["sink.refused", "cloud"]) == (1, 0)
    assert (read["spool.bytes", "cloud"], read["spool.oldest", "cloud"]) == (0, 0)
    assert read["spool.file.faults", "cloud"] == 0
    assert ("sink.dropped", "cloud") not in read


def test_waiting_points_are_counted_with_their_age(parts):
    route = parts.route("cloud")
    parts.watch()
    route.take([LOAD.point(BORN, 1.0)], BORN)
    read = parts.read(BORN + 3 * S)
    assert read["spool.bytes", "cloud"] > 0
    assert read["spool.oldest", "cloud"] == 3


def test_a_clock_that_went_back_makes_no_negative_age(parts):
    route = parts.route("cloud")
    parts.watch()
    route.take([LOAD.point(BORN, 1.0)], BORN)
    assert parts.read(BORN - 3 * S)["spool.oldest", "cloud"] == 0


def test_what_earlier_processes_sent_is_not_ours(parts, tmp_path, until):
    spool = Spool("cloud", tmp_path / "cloud.db")
    spool.append([LOAD.point(7, 1.0)] * 5)
    spool.take(3)
    spool.acknowledge({"sent": 2, "dropped:old": 1})
    spool.close()
    route = parts.route("cloud", path=tmp_path / "cloud.db")
    parts.watch()
    read = parts.read()
    assert (read["sink.sent", "cloud"], read["sink.dropped", "old", "cloud"]) == (0, 0)
    route.worker.start()
    route.worker.wake()
    until(lambda: route.spool.ledger.spooled == 0)
    assert parts.read()["sink.sent", "cloud"] == 2


def test_counters_count_since_the_agent_began(parts):
    parts.sampler("good", Plain())
    parts.route("cloud")
    parts.watch()
    counters = [p for p in parts.own.collect(BORN + S) if p.metric.kind is Kind.COUNTER]
    assert counters
    assert {p.start_time for p in counters} == {BORN}


def test_a_point_has_just_the_dimensions_that_its_metric_declares(parts, until):
    parts.sampler("good", Plain())
    sink = MemorySink()
    sink.reject = lambda _: "odd"
    route = parts.route("cloud", sink)
    parts.watch()
    route.worker.start()
    route.take([LOAD.point(7, 1.0)], 7)
    until(lambda: route.spool.ledger.spooled == 0)
    for point in parts.own.collect(BORN):
        assert tuple(point.dims) == tuple(sorted(point.metric.dims)), point.metric.name
        assert point.metric in AgentCollector.metrics


def test_what_fails_has_points_from_the_first_failure_on_unless_a_sink_needs_zeros(parts):
    sampler = parts.sampler("plain", Plain())
    parts.route("memory")
    parts.watch()
    window = Window(0, born=BORN)

    def events(at):
        points = window.add([*parts.own.collect(at)], at)
        return {p.metric.name: (p.value, p.increase) for p in points if p.metric.name in parts.own.needs.events}

    parts.own.open(Given(zeros=False))
    assert events(BORN + S) == {"agent.collector.not_finite": (1, 1)}
    sampler.counts["failed"] = 2
    assert events(BORN + 2 * S) == {"agent.collector.not_finite": (1, 0), "agent.collector.failed": (2, 2)}
    parts.own.open(Given())
    assert [len(events(BORN + n * S)) for n in range(3, 7)] == [9, 9, 2, 2]  # all of them now and then, first twice


@pytest.mark.parametrize("back", [0, 30])
def test_the_first_failure_of_an_agent_that_is_hours_old_is_an_increase(parts, back):
    sampler = parts.sampler("good", Absent())
    sampler.ok = True
    route = parts.route("memory")
    parts.watch()
    window, seconds, done = Window(60, born=BORN, increases=True), 0, {}
    parts.own.open(Given(zeros=False))
    for seconds in range(0, 3 * 3600, 60):
        window.add([*parts.own.collect(BORN + seconds * S)], BORN + seconds * S)
    seconds -= back  # the clock is set back
    sampler.counts["failed"], sampler.counts["malformed:value"] = 2, 3
    route.spool.refuse(4, "over max_series")
    for at in range(BORN + seconds * S + S, BORN + seconds * S + 121 * S, 60 * S):
        done |= {point.metric.name: point.increase for point in window.add([*parts.own.collect(at)], at)}
    assert done["agent.collector.failed"] == 2
    assert done["agent.collector.malformed"] == 3
    assert done["agent.sink.dropped"] == 4
