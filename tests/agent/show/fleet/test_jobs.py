"""Jobs over their nodes, from pages and a store; tests/proof/test_fleet.py asks a real one about 32 nodes."""

from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.promql import PromqlDouble

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.show.fleet.jobs import FleetJob, joined, notes_on, of_page, of_store
from chipwatch.show.fleet.poll import Access
from chipwatch.show.fleet.store import PromClient

GIB = 2.0**30
TIMES = st.dictionaries(st.sampled_from(["busy", "stalled", "held", "unseen"]), st.integers(0, 10**6), max_size=4)


def part(node, since=1000.0, until=5000.0, **more):
    times = {"busy": 3000.0, "stalled": 1000.0}
    return FleetJob("41337", "slurm", since=since, until=until, nodes=[node], **{"seconds": times, **more})


@given(st.lists(st.tuples(TIMES, st.integers(1, 10**9), st.none() | st.integers(1, 999)), min_size=1, max_size=9))
def test_a_record_has_the_sums_of_its_parts_and_names_the_nodes_that_lack_a_figure(rows):
    parts = [part(f"n{n}", seconds=times, energy=joules, cost=cost) for n, (times, joules, cost) in enumerate(rows)]
    (record,) = joined(parts, {})
    states, costs = {state for times, *_ in rows for state in times}, [cost for *_, cost in rows]
    assert record.seconds == {state: sum(times.get(state, 0) for times, *_ in rows) for state in states}
    assert (record.energy, record.nodes) == (sum(joules for _, joules, _ in rows), [each.nodes[0] for each in parts])
    assert record.cost == (sum(filter(None, costs)) or None)
    assert record.missing == {f"n{n}": "cost" for n, cost in enumerate(costs) if cost is None and any(costs)}


def test_a_job_that_was_requeued_under_its_number_has_two_records_and_other_jobs_have_their_own():
    parts = [part("a"), part("b", 1001.0, 4990.0), part("a", 5001.0, 7000.0), part("b", 5100.0, 6900.0)]
    other = FleetJob("41337", "slurm", "team", since=1000.0, until=5000.0, nodes=["c"])
    assert [(record.namespace, record.since, record.until, record.nodes) for record in joined([*parts, other], {})] == [
        ("", 1000, 5000, ["a", "b"]), ("", 5001, 7000, ["a", "b"]), ("team", 1000, 5000, ["c"]),
    ]  # fmt: skip
    assert len(joined([part("a", end_unseen=600.0), part("b", 5400.0, 9000.0)], {})) == 1


def test_a_node_that_was_not_there_for_all_of_the_job_one_that_is_silent_and_one_that_lies_are_named():
    silent = {"d": "no answer"}
    liars = [part("e", until=1e300), part("f", energy=1e300), part("g", seconds={"busy": -1.0})]
    (record,) = joined([part("a"), part("b", until=4280.0), part("c", since=1600.0), *liars], silent)
    assert silent == {"d": "no answer"} | dict.fromkeys("efg", "its figures cannot be true")
    assert record.missing == {"b": "the last 12 min", "c": "the first 10 min"} | silent


def test_the_worst_node_is_the_one_that_lost_the_largest_share_of_its_time():
    slow = part("b", seconds={"busy": 2000.0, "throttled": 1500.0, "unseen": 9e9}, idle={"data": 500.0})
    (record,) = joined([part("a", idle={"host": 1000.0}), slow], {})
    assert record.worst == {"node": "b", "cause": "throttled", "lost": "43 %"}
    assert joined([part("a", seconds={"busy": 5.0}), part("b", seconds={})], {})[0].worst == {}


NOTEBOOK = {"seconds": {"busy": 100.0, "held": 3900.0}}


@pytest.mark.parametrize(("more", "advice"), [
    ({}, "half the memory is enough: no accelerator had more than 31.0 GiB of 80.0 GiB in use"),
    (NOTEBOOK, "its GPUs were held idle for 98 % of the time: end it when nobody works with it"),
    ({"memory_max": 41 * GIB}, ""), ({"until": 1500.0}, ""), ({"until": 1500.0, **NOTEBOOK}, ""),
    ({"seconds": {"stalled": 4e3}}, ""), ({"memory_total": 0.0}, ""), ({"since": 0.0}, ""),
], ids=["half", "held", "more than half", "it starts", "held from its start", "no kernel", "no size", "no start"])  # fmt: skip
def test_advice_names_accelerators_that_a_job_holds_idle_or_memory_that_it_never_used(more, advice):
    (record,) = joined([part("a", **{"memory_max": 31 * GIB, "memory_total": 80 * GIB} | more)], {})
    assert (record.advice, [*notes_on(record)]) == (advice, [advice] * bool(advice))


def test_a_page_has_the_jobs_that_hold_accelerators_now():
    time, total = counter("job.gpu.time", "s", "T."), gauge("gpu.memory.total", "By", "S.")
    ada = {"job": "41337", "user": "ada"}
    points = [time.point(9, value, Dimensions(**ada, state=state), start_time=start) for value, state, start in
              ((70.0, "busy", 5), (30.0, "held", 3))]  # fmt: skip
    points += [time.point(9, 7.0, Dimensions(job="7"), start_time=9), *(total.point(9, size) for size in (9.0, 8.0))]
    first, other = of_page("n1", points)
    assert (first.job, first.user, first.nodes, first.seconds) == ("41337", "ada", ["n1"], {"busy": 70, "held": 30})
    assert (first.since, first.until, first.energy, first.memory_total) == (3e-9, 9e-9, 0.0, 8)
    assert other.since == 0.0, "a page in text has no start times"


def test_a_store_has_the_parts_of_a_job_by_node_and_the_worst_accelerator():
    one, two = ({"exported_job": "41337", "user": "ada", "instance": f"n{n}:9465"} for n in (1, 2))
    answers = {
        "min_over_time(timestamp": [(one, 1000.0), (two, 1060.0)],
        "max_over_time(timestamp": [(one, 4600.0), (two, 4600.0)],
        'increase(job_gpu_time_seconds_total{exported_job=""}[3600s])': [
            ({**one, "state": "busy"}, 7000.0), ({**two, "state": "busy"}, 6000.0), ({**two, "state": "held"}, 1000.0),
        ],
        "increase(job_gpu_idle_time_seconds_total": [({**two, "cause": "held"}, 1000.0)],
        "job_energy": [(one, 3.6e6), (two, 3.0e6)],
        "job_gpu_held": [({**two, "gpu": gpu, "cause": cause}, share) for gpu, cause, share in
                         (("3", "held", 0.5), ("5", "data", 0.6), ("5", "host", 0.1))],
    }  # fmt: skip
    with PromqlDouble(answers) as double, closing(PromClient(double.url, Access())) as client:
        (record,) = joined(of_store(client, 3600.0), {})
    assert (record.job, record.user, record.since, record.until) == ("41337", "ada", 1000, 4600)
    assert (record.seconds, record.idle, record.energy) == ({"busy": 13000, "held": 1000}, {"held": 1000}, 6.6e6)
    assert record.worst == {"node": "n2", "cause": "data", "gpu": "5", "lost": "14 %"}
