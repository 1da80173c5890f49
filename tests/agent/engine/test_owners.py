"""The points of a device say who holds it: a series ends with its holder, and nothing is counted twice."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.frame import MemorySink

from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.contract.owner import Owner
from chipwatch.engine import owners
from chipwatch.engine.delivery import SinkDelivery
from chipwatch.engine.owners import FORGET, OwnerLabels
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

S = 10**9
GPU = Dimensions(gpu="0", uuid="GPU-0")
POWER = gauge("gpu.power", "W", "Power.", dims=("gpu",))
ENERGY = counter("gpu.energy", "J", "Energy.", dims=("gpu",))
ERRORS = counter("gpu.ecc.errors", "{error}", "Errors.", dims=("gpu",))
LOAD = gauge("cpu.load", "1", "The load.")
PODS = ("pod", "namespace", "container", "hpc_job")


def pod(name):
    return Owner("kubernetes", name, pod=name, namespace="team", container="main")


class Node:
    """A route whose sink keeps what it gets, and a GPU with holders."""

    def __init__(self, seconds=0, keys=PODS, most=None, *, scraped=False, increases=False):
        self.holders, self.asked = {}, 0
        self.sink, spool = MemorySink(), Spool("mem")
        worker = SinkDelivery("mem", self.sink, spool, Dimensions)
        window, admission = Window(seconds, born=600 * S, increases=increases), most and Admission("mem", most)
        self.route = Route(MetricFilter(Level.ALL), window, spool, worker, Dimensions, admission=admission)
        self.route.owners = OwnerLabels(keys, self.of, scraped=scraped)
        self.at = 600 * S

    def of(self, device):
        self.asked += 1
        return self.holders.get(device["gpu"], ())

    def tick(self, *values, holders=None, seconds=5):
        """Take points, each a metric and a value of GPU 0, or one with its own dimensions."""
        if holders is not None:
            self.holders["0"] = holders
        self.at += seconds * S
        points = [
            metric.point(self.at, value, rest[0] if rest else GPU, start_time=None if metric.kind == "gauge" else 1)
            for metric, value, *rest in values
        ]
        before = len(self.sink.points)
        self.route.take(points, self.at)
        return {(p.metric.name, p.dims.get("pod")): p.value for p in self.sink.points[before:]}


def test_a_device_with_one_holder_says_who_that_is_and_a_free_one_keeps_its_series():
    node = Node()
    node.tick((POWER, 70.0), (LOAD, 1.0, Dimensions()))
    node.tick((POWER, 500.0), (LOAD, 1.0, Dimensions()), holders=[pod("train-0")])
    node.tick((POWER, 60.0), holders=[])
    free, load, held, _, again = node.sink.points
    assert (free.metric, free.dims, load.metric) == (POWER, GPU, LOAD)
    assert held.dims == GPU | {"pod": "train-0", "namespace": "team", "container": "main"}
    assert held.metric.dims == ("gpu", "container", "namespace", "pod")
    assert held.metric.owner == ("container", "namespace", "pod")
    assert again.dims is GPU


def test_a_shared_device_has_a_series_for_each_holder():
    assert Node().tick((POWER, 500.0), holders=[pod("b"), pod("a"), pod("a")]) == {
        ("gpu.power", "a"): 500.0, ("gpu.power", "b"): 500.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("keys", "owner", "labels"),
    [
        (PODS, Owner("slurm", "41", user="eva", partition="gpu"), {"hpc_job": "41"}),
        (PODS, Owner("unit", "jupyter.service", user="eva"), {}),
        (("job", "user"), Owner("slurm", "41", user="eva", partition="gpu"), {"job": "41", "user": "eva"}),
        (("job", "user"), Owner("user", "eva"), {"job": "eva"}),
        (("pod", "partition"), pod("a"), {"pod": "a"}),
    ],
)
def test_a_holder_has_the_labels_that_are_asked_for_and_known(keys, owner, labels):
    node = Node(keys=keys)
    node.tick((POWER, 1.0), holders=[owner])
    assert node.sink.points[0].dims == GPU | labels


@pytest.mark.parametrize(
    "dims", [Dimensions(gpu="0", job="41"), Dimensions(gpu="0", endpoint="vllm"), Dimensions(gpu="0", container="c")]
)
def test_points_of_jobs_of_scraped_pages_and_with_such_a_dimension_stay_as_they_are(dims):
    metric = gauge("x.y", "1", "X.", dims=tuple(dims))
    node = Node()
    node.tick((metric, 1.0, dims), holders=[pod("a")])
    assert [(point.metric, point.dims) for point in node.sink.points] == [(metric, dims)]


def test_a_window_ends_with_its_holder_so_that_each_point_is_of_one():
    node = Node(seconds=60)
    for watts, holder in (70, []), (80, []), (500, [pod("a")]), (300, [pod("b")]), (310, [pod("b")]):
        node.tick((POWER, watts), holders=holder)
    node.route.close_window()
    told = [(p.dims.get("pod"), p.value, (p.at - 600 * S) // S) for p in node.sink.points]
    assert told == [(None, 75.0, 10), ("a", 500.0, 15), ("b", 305.0, 25)]


def test_a_counter_is_of_the_holder_in_whose_time_it_rose():
    node = Node()
    node.tick((ENERGY, 1_000_000.0))
    assert node.tick((ENERGY, 1_000_350.0)) == {("gpu.energy", None): 350.0}
    assert node.tick((ENERGY, 1_002_850.0), holders=[pod("a")]) == {("gpu.energy", "a"): 2500.0}
    assert node.tick((ENERGY, 1_003_850.0), holders=[pod("b")]) == {("gpu.energy", "b"): 1000.0}
    assert node.tick((ENERGY, 1_003_900.0), holders=[pod("a")]) == {("gpu.energy", "a"): 2550.0}
    assert node.tick((ENERGY, 60.0), holders=[]) == {("gpu.energy", None): 410.0}, "the GPU was reset"
    a = [p for p in node.sink.points if p.dims.get("pod") == "a"]
    assert {(p.start_time - 600 * S) // S for p in a} == {10}, "the reading before it came"


def test_the_series_of_a_holder_that_comes_back_after_an_hour_begins_again():
    node = Node()
    node.tick((ENERGY, 0.0))
    node.tick((ENERGY, 100.0), holders=[pod("a")])
    node.tick((ENERGY, 200.0), holders=[])
    node.tick((ENERGY, 300.0), seconds=FORGET // S + 1)
    assert node.tick((ENERGY, 310.0), holders=[pod("a")]) == {("gpu.energy", "a"): 10.0}


def test_of_many_holders_the_earliest_are_forgotten_and_those_that_hold_a_device_never(monkeypatch):
    monkeypatch.setattr(owners, "MOST", 5)
    node = Node()
    for number in range(10):
        node.tick((ENERGY, 100 * number), holders=[pod("stays"), pod("early" if number < 2 else f"{number}")])
    assert node.tick((ENERGY, 1000), holders=[pod("stays"), pod("8")]) == {
        ("gpu.energy", "stays"): 1000, ("gpu.energy", "8"): 200,
    }  # fmt: skip
    assert node.tick((ENERGY, 1100), holders=[pod("early")]) == {("gpu.energy", "early"): 100}


def test_after_a_restart_the_counters_of_holders_begin_at_0_with_a_later_start():
    first, then = Node(), Node()
    for node, at in (first, 600), (then, 700):
        node.at = at * S
        node.tick((ENERGY, 1_000.0), holders=[pod("a")])
        node.tick((ENERGY, 1_500.0))
    assert [p.value for p in (*first.sink.points, *then.sink.points)] == [0.0, 500.0, 0.0, 500.0]
    assert first.sink.points[-1].start_time < then.sink.points[-1].start_time


def test_a_page_keeps_counters_of_events_as_the_device_has_them():
    node = Node(scraped=True)
    node.tick((ERRORS, 3), (ENERGY, 100.0), holders=[pod("a")])
    assert node.tick((ERRORS, 3), (ENERGY, 150.0), holders=[pod("b")]) == {
        ("gpu.ecc.errors", "b"): 3, ("gpu.energy", "b"): 50.0,
    }  # fmt: skip
    assert [p.start_time for p in node.sink.points if p.metric.name == "gpu.ecc.errors"] == [None, None]
    assert Node().tick((ERRORS, 3), holders=[pod("a")]) == {("gpu.ecc.errors", "a"): 0.0}


def test_a_page_changes_as_a_whole_and_a_series_that_is_read_less_often_is_on_it_again():
    node = Node(scraped=True)
    node.tick((POWER, 500.0), (ENERGY, 100.0), (ERRORS, 3), holders=[pod("a")])
    assert node.tick((POWER, 510.0), holders=[pod("b")]) == {
        ("gpu.power", "b"): 510.0, ("gpu.energy", "b"): 0.0, ("gpu.ecc.errors", "b"): 3,
    }  # fmt: skip
    assert node.tick((POWER, 510.0)) == {("gpu.power", "b"): 510.0}
    assert node.tick((ENERGY, 160.0)) == {("gpu.energy", "b"): 60.0}
    assert (node.sink.points[-1].start_time - 600 * S) // S == 5, "the last reading before the change"
    assert node.tick((POWER, 520.0), holders=[]) == {("gpu.power", None): 520.0, ("gpu.energy", None): 0.0}


def test_a_series_that_had_a_point_in_each_tick_and_ended_does_not_come_back_with_another_holder():
    node = Node(scraped=True)
    for _ in range(12):
        node.tick((POWER, 500.0), (LOAD, 1.0), holders=[pod("a")])
    assert node.tick((POWER, 510.0), holders=[pod("b")]) == {("gpu.power", "b"): 510.0}


def test_max_series_counts_the_series_of_each_holder():
    node = Node(most=2)
    node.tick((POWER, 1.0), holders=[pod("a")])
    node.tick((POWER, 2.0), holders=[pod("b")])
    assert node.route.sends(POWER, GPU)
    assert node.tick((POWER, 3.0), holders=[pod("c")]) == {}
    assert node.route.spool.ledger.dropped == {"over max_series": 1}
    assert node.route.sends(POWER, GPU) is False


def test_the_recorders_question_whether_a_series_is_sent_changes_nothing_that_the_clocks_thread_reads():
    node = Node()
    node.tick((POWER, 1.0), holders=[pod("a")])
    before = {**node.route.owners._known}
    assert node.route.sends(ENERGY, GPU)
    assert node.route.owners._known == before


def test_the_parts_of_a_device_have_their_own_holders():
    node = Node()
    node.of = lambda device: [pod(f"of-{device.get('mig', 'all')}")]
    node.route.owners = OwnerLabels(PODS, node.of)
    whole, part = Dimensions(gpu="0"), Dimensions(gpu="0", mig="1")
    node.tick((POWER, 1.0, whole), (POWER, 2.0, part))
    assert [p.dims["pod"] for p in node.sink.points] == ["of-all", "of-1"]


TICKS = st.lists(st.tuples(st.sampled_from(["", "a", "b", "a b"]), st.integers(0, 9)), min_size=2, max_size=20)


@pytest.mark.parametrize("seconds", [0, 60])
@pytest.mark.parametrize("increases", [False, True])
@given(ticks=TICKS)
def test_each_holder_gets_what_the_counter_rose_while_it_held_the_device(seconds, increases, ticks):
    node, total, mine = Node(seconds, increases=increases), 1000, {}
    for holders, gain in ticks:
        total += gain
        node.tick((ENERGY, total), holders=[pod(name) for name in holders.split()])
        if node.at > 605 * S:
            for name in holders.split() or [None]:
                mine[name] = mine.get(name, 0) + gain
    node.route.close_window()
    values, rises, ends = {}, {}, []
    for point in node.sink.points:
        name = point.dims.get("pod")
        assert point.value >= values.get(name, 0), "it never falls"
        assert point.start_time <= point.at
        values[name], rises[name] = point.value, rises.get(name, 0) + (point.increase or 0)
        ends.append(point.at)
    assert {name: value for name, value in values.items() if value} == {n: v for n, v in mine.items() if v}
    assert {name: value for name, value in rises.items() if value} == {n: v for n, v in mine.items() if v}
    assert ends == sorted(ends)
