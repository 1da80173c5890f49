"""Copies of a metric under a tool's further names: made before the spool, where points begin to count."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.doubles.frame import MemorySink
from tests.examples import examples

from chipwatch.config.naming.profiles import profile
from chipwatch.config.naming.rename import IN_USE, Copier, copier, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Summary, counter, gauge
from chipwatch.contract.errors import BadBatch, Retryable
from chipwatch.contract.sink import Limits
from chipwatch.engine.delivery import Pauses, Worker
from chipwatch.engine.route import Admission, MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

ROOT = Path(__file__).parents[4]
WANDB_DOCS, WANDB_COPIES, WANDB_DOCS_COPIES = (
    profile("wandb-docs").names, profile("wandb").copies, profile("wandb-docs").copies
)  # fmt: skip
S = 10**9
LONG = 60.0
MAIN = "from chipwatch.commands.cli import main; raise SystemExit(main())"
MEMORY = gauge("memory.utilization", "%", "Memory in use.")
DUTY = gauge("tpu.duty_cycle", "%", "Duty.", dims=("tpu",))
TEMP = gauge("gpu.temperature", "Cel", "Temperature.", dims=("gpu",))
ACTIVE = gauge("gpu.sm.active", "%", "Active.", Level.DETAILED, ("gpu", "mig"))
ECC = counter("gpu.ecc.uncorrected", "{error}", "Errors.", dims=("gpu",))
SHARE = gauge("gpu.process.utilization", "%", "Share of the tree.", dims=("gpu",))
PART = gauge("gpu.process.memory.used", "By", "Memory of the tree.", dims=("gpu", "mig"))


def of(metric, value, at=7 * S, **dims):
    return metric.point(at, value, Dimensions(dims), start_time=S if metric.kind is Kind.COUNTER else None)


def told(points):
    return sorted((point.metric.name, point.value) for point in points)


@pytest.fixture
def copy():
    return copier("wandb-docs")


# -- which ----------------------------------------------------------------------------------------------------------


def test_the_older_tag_is_the_same_point_under_another_name(copy):
    point = Datapoint(MEMORY, 5.0, Dimensions(), 9, None, 3, Summary(2, 10.0, 4.0, 6.0, (4.0, 6.0), (1, 1)))
    (older,) = copy([point])
    assert (older.metric.name, older.metric.unit, older.metric.help) == ("memory", "%", MEMORY.help)
    assert older[1:] == point[1:]


def test_the_old_number_for_all_tpus_is_their_mean(copy):
    points = [of(DUTY, 10.0, tpu="0"), of(DUTY, 40.0, tpu="8")]
    (mean,) = copy(points)
    assert (mean.metric.name, mean.metric.dims, mean.value, dict(mean.dims)) == ("tpu", (), 25.0, {})
    assert (mean.at, mean.start_time) == (7 * S, None)


def test_devices_of_two_moments_and_of_two_kinds_are_not_mixed(copy):
    points = [of(DUTY, 10.0, tpu="0"), of(DUTY, 20.0, at=8 * S, tpu="0"), of(DUTY, 30.0, tpu="0", slice="b")]
    assert [(p.value, p.at, dict(p.dims)) for p in copy(points)] == [
        (10.0, 7 * S, {}),
        (20.0, 8 * S, {}),
        (30.0, 7 * S, {"slice": "b"}),
    ]


def test_the_mean_of_a_window_begins_with_the_first_device_and_tells_no_samples(copy):
    whole = Summary(1, 10.0, 10.0, 10.0, (10.0,), (1,))
    points = [
        of(DUTY, 10.0, tpu=n)._replace(window_start=start, summary=whole) for n, start in (("0", 4 * S), ("1", 3 * S))
    ]
    (mean,) = copy(points)
    assert (mean.value, mean.window_start, mean.summary) == (10.0, 3 * S, None)


def test_a_gpus_values_are_copied_where_the_tree_uses_it(copy):
    points = [of(TEMP, 50.0, gpu="0"), of(TEMP, 60.0, gpu="1"), of(ECC, 3.0, gpu="1"), of(SHARE, 7.0, gpu="1")]
    assert told(copy(points)) == [("gpu.process.1.temp", 60.0), ("gpu.process.1.unCorrectedMemoryErrors", 0.0)]
    assert copy(points[:1]) == []


def test_a_counter_that_is_copied_begins_at_0_and_keeps_its_increase(copy):
    used = of(SHARE, 7.0, gpu="1")
    copy([used, of(ECC, 3.0, gpu="1")])
    (again,) = copy([used, of(ECC, 5.0, at=8 * S, gpu="1")._replace(window_start=7 * S, increase=2.0)])
    assert (again.value, again.start_time, again.window_start, again.increase) == (2.0, 7 * S, 7 * S, 2.0)


def test_a_gpu_counts_as_used_for_a_while_after_its_share_was_reported(copy):
    copy([of(SHARE, 7.0, gpu="1")])
    later = [of(TEMP, 60.0, at=7 * S + after, gpu="1") for after in (IN_USE - 1, IN_USE)]
    assert [len(copy([point])) for point in later] == [1, 0]


def test_of_a_gpu_in_parts_the_whole_is_used_and_the_part_that_is(copy):
    parts = [of(ACTIVE, 1.0, gpu="0", mig="1"), of(ACTIVE, 2.0, gpu="0", mig="2")]
    found = copy([of(TEMP, 50.0, gpu="0"), *parts, of(PART, 9.0, gpu="0", mig="2")])
    assert told(found) == [("gpu.process.0.smActive", 2.0), ("gpu.process.0.temp", 50.0)]


def test_what_was_scraped_is_copied_in_no_case(copy):
    scraped = gauge("memory.utilization", "1", "Scraped.", dims=("endpoint",))
    assert copy([of(scraped, 1.0, endpoint="e")]) == []


MACHINE = 8 * 2**30
CONTAINER = gauge("container.memory.utilization", "%", "Of the container.")


@pytest.mark.parametrize(
    ("limit", "share"), [(None, 40.0), (MACHINE, 40.0), (2**30, 90.0)], ids=["no container", "no limit", "a limit"]
)
@pytest.mark.parametrize("turn", [1, -1])
def test_the_share_of_memory_is_the_containers_where_it_is_limited(limit, share, turn):
    points = [of(MEMORY, 40.0)]
    if limit:
        points += [of(CONTAINER, 90.0), of(gauge("container.memory.limit", "By", "What it may use."), limit)]
    (made,) = Copier(WANDB_COPIES, MACHINE)(points[::turn])
    assert (made.metric.name, made.value) == ("memory_percent", share)


def test_no_copy_has_a_name_that_the_profile_gives_or_changes():
    names = {copy.name.template for copy in WANDB_DOCS_COPIES.values()}
    assert len(names) == len(WANDB_DOCS_COPIES)
    assert not names & ({name.template for name in WANDB_DOCS.values()} | set(WANDB_DOCS))


# -- the way to the sink ----------------------------------------------------------------------------------------------


def route(sink=None, seconds=0, chosen=None, budget=None, **timing):
    spool = Spool("mem")
    worker = Worker("mem", sink or MemorySink(), spool, rename=renamer("wandb-docs"), **timing)
    window = Window(seconds, born=0)
    wanted = chosen or MetricFilter(Level.ALL)
    return Route(wanted, window, spool, worker, Dimensions, admission=budget, copies=copier("wandb-docs"))


def owed(out):
    return told(out.spool.take(1000)[0][0])


def test_a_window_is_copied_when_it_ends():
    out = route(seconds=60)
    for at in (1, 2, 3):
        out.take([of(DUTY, 10.0 * at, at=at * S, tpu=n) for n in "01"], at * S)
    out.close_window()
    assert owed(out) == [("tpu", 20.0), ("tpu.duty_cycle", 20.0), ("tpu.duty_cycle", 20.0)]


def test_without_the_trees_share_there_are_no_copies_for_it():
    out = route(chosen=MetricFilter(Level.ALL, exclude=["gpu.process.*"]))
    out.take([of(TEMP, 50.0, gpu="0"), of(SHARE, 7.0, gpu="0")], 7 * S)
    assert owed(out) == [("gpu.temperature", 50.0)]


@pytest.mark.parametrize(("profile", "tags"), [("wandb-docs", ["memory", "memory_percent"]), ("native", [MEMORY.name])])
def test_the_agent_sends_the_copies_of_the_profile_that_was_asked_for(profile, tags):
    words = ["--once", "--collector", "memory", "--format", "json", "--names", profile]
    done = subprocess.run([sys.executable, "-c", MAIN, *words], cwd=ROOT, capture_output=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    shares = [line for line in lines if line["name"] in ("memory", "memory_percent", "memory.utilization")]
    assert sorted(line["name"] for line in shares) == tags
    assert len({line["value"] for line in shares}) == 1


class Moody(MemorySink):
    """Fails now and then, in each way that leaves the points to be sent again or halved."""

    def __init__(self, seed):
        super().__init__(Limits(max_points=7, window=0, flush=0))
        self.dice = random.Random(seed)
        self.reject = lambda p: "unwanted" if p.value == 3.0 else None

    def write(self, batch):
        if self.dice.random() < 0.3:
            raise self.dice.choice([Retryable("no answer"), BadBatch("something in it is wrong"), RuntimeError("bug")])
        return super().write(batch)


POINTS = st.one_of(
    st.builds(of, st.just(MEMORY), st.sampled_from([3.0, 4.0])),
    st.builds(of, st.sampled_from([TEMP, SHARE, ECC]), st.sampled_from([3.0, 4.0]), gpu=st.sampled_from("012")),
    st.builds(of, st.just(DUTY), st.sampled_from([3.0, 5.0]), tpu=st.sampled_from("01")),
)


@settings(deadline=None, max_examples=examples(60))
@given(st.lists(st.lists(POINTS, max_size=12), max_size=6), st.integers(0, 2**32), st.sampled_from([0, 5]))
def test_whatever_fails_every_point_and_every_copy_has_one_end(ticks, seed, most):
    sink = Moody(seed)
    budget = Admission("mem", most) if most else None
    out = route(sink, budget=budget, pauses=Pauses(0.0, 0.0, 0.0, 0.0))
    counting, expected = copier("wandb-docs"), 0
    window = Window(0, born=0)
    out.worker.start()
    for n, points in enumerate(ticks):
        out.take(points, n * S)
        passed = window.add(points, n * S)
        expected += len(passed) + len(counting(passed))
    deadline = time.monotonic() + LONG
    while out.spool.ledger.spooled:
        assert time.monotonic() < deadline, out.spool.ledger
        time.sleep(0.001)
    out.worker.stop()
    assert out.worker.join(LONG)

    ledger = out.spool.ledger
    assert ledger.collected == expected == ledger.sent + ledger.rejected.total() + ledger.dropped.total()
    assert ledger.sent == len(sink.points)
    assert not {point.metric.name for point in sink.points} & (set(WANDB_DOCS) | set(WANDB_DOCS_COPIES))
