"""Facts: what collectors give to processors beside their points, and who is asked when."""

import threading
from typing import NamedTuple

import pytest

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Dimensions, Level, gauge
from chipwatch.contract.facts import Device, DeviceActivity, DeviceFacts, DeviceProcess, MachineIdentity, Unlisted
from chipwatch.contract.plugin import Needs
from chipwatch.contract.processor import Processor
from chipwatch.engine.clock import Pipeline
from chipwatch.engine.derivation import Derivation
from chipwatch.engine.sampler import MOST_FACTS, Sampler

METRIC = gauge("test.value", "1", "A value.")
GPU = Dimensions(gpu="0")


class Devices(Collector):
    """A collector of accelerators that lists processes."""

    metrics = (METRIC,)
    knows = (Device, DeviceActivity, DeviceProcess)

    def __init__(self, processes=(), fails=False, odd=()):
        self.listed, self.fails, self.odd, self.asked = processes, fails, odd, 0

    def collect(self, at):
        yield METRIC.point(at, 1.0)

    def facts(self):
        self.asked += 1
        if self.fails:
            raise OSError("the driver is gone")
        yield Device(GPU, ids=("0",))
        yield DeviceActivity(GPU, 0.5)
        yield from self.odd
        yield from (DeviceProcess(GPU, pid) for pid in self.listed)


class Followed(NamedTuple):
    """The pids that a follower got."""

    pids: tuple[int, ...]


class Follower(Collector):
    """A collector that reads about the pids of the others."""

    metrics = (METRIC,)
    needs = Needs(pids=True)
    knows = (Followed,)

    def __init__(self, pids=()):
        self.listed = list(pids)

    def follow(self, pids, idle):
        self.listed = sorted(pids)

    def collect(self, at):
        yield METRIC.point(at, 1.0)

    def facts(self):
        return [Followed(tuple(self.listed))]


class Plain(Collector):
    """A plugin without any of the optional methods."""

    metrics = (METRIC,)

    def collect(self, at):
        yield METRIC.point(at, 2.0)


class Wants(Processor):
    """Keeps the facts of each tick."""

    needs = Needs(facts=True)

    def __init__(self):
        self.seen = []

    def derive(self, tick, at, facts):
        self.seen.append([*facts])
        return ()


class WantsNone(Processor):
    """Needs no facts."""

    def derive(self, tick, at, facts):
        assert facts == ()
        return ()


@pytest.fixture
def gather(at_the_end):
    """Return what gathers once from collectors for a processor."""

    def run(collectors, processor):
        samplers = [Sampler(f"c{n}", one, Level.ALL) for n, one in enumerate(collectors)]
        pipeline = Pipeline(samplers, (), interval=1.0, derivations=[Derivation("p", processor, Level.ALL)])
        at_the_end.callback(pipeline.close, 0)
        pipeline.start()
        return pipeline.gather(7, 10.0)

    return run


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
    assert Followed((11, 12, 13)) in wants.seen[0]
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
        DeviceActivity(GPU, "all"),
        DeviceActivity(GPU, throttled=None),
        5,
        Followed((1,)),
        MachineIdentity({}),
        DeviceProcess(None, 5),
        DeviceProcess(GPU, "5"),
        Device({"gpu": "0"}),
    ],
)
def test_facts_that_break_the_contract_cost_only_the_facts_of_their_collector(gather, caplog, odd):
    broken, wants = Devices([3], odd=[odd]), Wants()
    points = gather([broken, Devices([10]), Follower()], wants)
    assert len(points) == 3
    assert Followed((10,)) in wants.seen[0]
    assert [fact.source for fact in wants.seen[0] if isinstance(fact, DeviceFacts)] == ["c1"]
    assert "collector c0: cannot tell its facts: expected one of" in caplog.text


def test_a_driver_that_cannot_list_processes_now_says_so_and_its_devices_are_known(gather):
    wants = Wants()
    gather([Devices(odd=[Unlisted("no right")])], wants)
    ((facts,),) = wants.seen
    assert (facts.processes, facts.names) == (None, {"0": GPU})
