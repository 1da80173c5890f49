"""Facts: what collectors give to processors beside their points, and who is asked when."""

from __future__ import annotations

import threading

import pytest

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, gauge
from chipwatch.contract.extensions import Device, DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.processor import Processor
from chipwatch.pipeline import sampler as sampler_module
from chipwatch.pipeline.clock import Pipeline
from chipwatch.pipeline.derivation import Derivation
from chipwatch.pipeline.facts import MOST_FACTS
from chipwatch.pipeline.sampler import Sampler

METRIC = gauge("test.value", "1", "A value.")
GPU = Dimensions(gpu="0")


class Devices(Collector):
    """A collector of accelerators that lists processes."""

    metrics = (METRIC,)

    def __init__(self, processes=(), fails=False):
        self.listed, self.fails, self.asked = processes, fails, 0

    def open(self):
        pass

    def collect(self, at):
        yield METRIC.point(at, 1.0)

    def processes(self):
        self.asked += 1
        if self.fails:
            raise OSError("the driver is gone")
        return (DeviceProcess(GPU, pid) for pid in self.listed)

    def devices(self):
        return [Device(GPU, ids=("0",))]

    def activity(self):
        return [DeviceActivity(GPU, 0.5)]


class Follower(Devices):
    """A collector that reads about the pids of the others."""

    def follow(self, pids):
        self.listed = sorted(pids)

    def processes(self):
        return None

    def activity(self):
        return ()

    def facts(self):
        return [tuple(self.listed)]


class Plain(Collector):
    """A plugin without any of the optional methods."""

    metrics = (METRIC,)

    def collect(self, at):
        yield METRIC.point(at, 2.0)


class Wants(Processor):
    """Keeps the facts of each tick."""

    facts = ()

    def __init__(self):
        self.seen = []

    def derive(self, tick, at):
        self.seen.append([*self.facts])
        return ()


class WantsNone(Processor):
    """Needs no facts."""

    def derive(self, tick, at):
        return ()


@pytest.fixture
def gather():
    """Return what gathers once from collectors for a processor."""
    pipelines = []

    def run(collectors, processor):
        samplers = [Sampler(f"c{n}", one, Level.ALL) for n, one in enumerate(collectors)]
        pipeline = Pipeline(samplers, (), interval=1.0, derivations=[Derivation("p", processor, Level.ALL)])
        pipelines.append(pipeline)
        pipeline.start()
        return pipeline.gather(7, 10.0)

    yield run
    for pipeline in pipelines:
        pipeline.close(0)


def test_a_processor_that_needs_facts_gets_the_facts_of_this_tick(gather):
    wants = Wants()
    gather([Devices([10, 11])], wants)
    ((facts,),) = wants.seen
    assert isinstance(facts, DeviceFacts)
    assert [one.pid for one in facts.processes] == [10, 11]
    assert facts.names == {"0": GPU}
    assert facts.activity == [DeviceActivity(GPU, 0.5)]


def test_a_follower_gets_the_pids_that_the_others_listed_in_the_same_tick(gather):
    wants = Wants()
    points = gather([Follower(), Devices([12, 11]), Devices([13])], wants)
    assert (11, 12, 13) in wants.seen[0]
    assert len(points) == 3


class LateDevices(Devices):
    """Its second reading does not return until the test allows it."""

    def __init__(self, processes):
        super().__init__(processes)
        self.may_return = threading.Event()
        self.may_return.set()

    def collect(self, at):
        assert self.may_return.wait(60)
        return super().collect(at)


def test_while_the_list_of_processes_is_late_a_follower_keeps_the_last_one():
    devices, follower, wants = LateDevices([10]), Follower(), Wants()
    samplers = [Sampler(f"c{n}", one, Level.ALL) for n, one in enumerate((devices, follower))]
    pipeline = Pipeline(samplers, (), interval=1.0, derivations=[Derivation("p", wants, Level.ALL)])
    pipeline.start()
    pipeline.gather(1, 60.0)
    devices.may_return.clear()
    for at in (2, 3):  # its reading goes on, then it is not due
        pipeline.gather(at, 0.05)
        assert follower.listed == [10]
    devices.may_return.set()
    pipeline.close(0)


def test_without_a_processor_that_needs_them_nobody_is_asked(gather):
    devices, follower = Devices([10]), Follower([99])
    points = gather([devices, follower], WantsNone())
    assert devices.asked == 0
    assert follower.listed == [99]
    assert len(points) == 2


def test_a_driver_that_fails_to_list_processes_costs_no_point(gather):
    wants = Wants()
    points = gather([Devices(fails=True), Plain()], wants)
    assert sorted(point.value for point in points) == [1.0, 2.0]
    assert wants.seen == [[]]


def test_an_endless_list_of_processes_is_cut(gather):
    wants = Wants()
    gather([Devices(iter(range(10**12)))], wants)
    assert len(wants.seen[0][0].processes) == MOST_FACTS


@pytest.mark.parametrize(
    "odd",
    [
        {"activity": [DeviceActivity(GPU, "all")]},
        {"activity": [DeviceActivity(GPU, throttled=None)]},
        {"activity": [5]},
        {"processes": [DeviceProcess(None, 5)]},
        {"processes": [DeviceProcess(GPU, "5")]},
        {"devices": [Device({"gpu": "0"})]},
    ],
)
def test_facts_that_break_the_contract_cost_only_the_facts_of_their_collector(gather, caplog, odd):
    broken, wants = Devices([3]), Wants()
    for method, facts in odd.items():
        setattr(broken, method, lambda facts=facts: facts)
    points = gather([broken, Devices([10]), Follower()], wants)
    assert len(points) == 3
    assert (10,) in wants.seen[0]
    assert [fact.source for fact in wants.seen[0] if isinstance(fact, DeviceFacts)] == ["c1", "c2"]
    assert "collector c0: cannot tell its facts: expected Device" in caplog.text


def test_whether_a_collector_has_facts_is_asked_once(monkeypatch):
    asked = []
    samplers = [Sampler(f"c{n}", one, Level.ALL) for n, one in enumerate((Devices([1]), Plain(), Follower()))]

    def counting(thing, kind):
        asked.extend([kind] if getattr(kind, "_is_protocol", False) else [])
        return isinstance(thing, kind)

    monkeypatch.setattr(sampler_module, "isinstance", counting, raising=False)
    for sampler in samplers:
        sampler.knowledge.read()
    assert asked == []
