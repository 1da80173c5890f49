"""Two naming profiles side by side: every point has both names, and each name is right on its own."""

import itertools
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.config.naming.builders import S, declared, point_of
from tools import name_pages

from chipwatch.config.load import load
from chipwatch.config.naming.profiles import PROFILES, profiles
from chipwatch.config.naming.rename import copier, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import ConfigError
from chipwatch.engine.build import duplicates
from chipwatch.show.fleet.node import summarise
from chipwatch.show.fleet.page import NodePageReader
from chipwatch_sinks.prometheus import PrometheusSink

BOTH = "dcgm,dcgm4.7"
GPU = Dimensions(gpu="0", uuid="GPU-1", hostname="n-1")
ENERGY = ("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL")


def naming(names):
    """Return a function that gives the points of a window as they are sent, by name."""
    copy, rename = copier(names), renamer(names)
    return lambda *points: {new.metric.name: new for new in map(rename, [*points, *(copy(points) if copy else ())])}


def lines(page):
    return {line for line in page.splitlines() if line[0] != "#" and not line.startswith("target_info")}


@pytest.mark.parametrize("names", [BOTH, "dcgm4.7,dcgm", "native,dcgm"])
def test_the_page_of_two_profiles_is_the_first_one_s_and_what_the_second_names_otherwise(names):
    first, second = names.split(",")
    one, other, both = (name_pages.page(each, name_pages.points()) for each in (first, second, names))
    assert len(both.splitlines()) == len({*both.splitlines()})
    assert lines(one) <= lines(both)
    shared = {line.partition("{")[0] for line in lines(one)}
    assert lines(both) - lines(one) == {line for line in lines(other) if line.partition("{")[0] not in shared}


@pytest.mark.parametrize("names", [BOTH, "dcgm4.7,dcgm", "native,dcgm4.7"])
def test_a_page_with_both_names_says_of_a_node_what_one_of_them_says(names):
    said = [
        summarise("n-1", NodePageReader().read(name_pages.page(each, name_pages.points()).encode()), 0.0)
        for each in ("dcgm4.7", names)
    ]
    assert said[0] == said[1]
    assert (said[0].gpus, said[0].utilization, said[0].power) == (1, 87, 698.5)


@given(
    rises=st.lists(st.integers(0, 50_000), min_size=1, max_size=40),
    resets=st.sets(st.integers(1, 39)),
    restarts=st.sets(st.integers(1, 39)),
)
def test_increases_and_totals_are_right_on_both_names_over_resets_and_restarts(rises, resets, restarts):
    """A window's increase, the driver's total and its start are the same on both names, each in its own unit."""
    energy, total, begun, send, sums = declared()["gpu.energy"], 0.0, S, naming(BOTH), [0.0, 0.0]
    for turn, rise in enumerate(rises, 1):
        if turn in resets:
            total, begun = 0.0, turn * 60 * S
        if turn in restarts:
            send = naming(BOTH)
        total += rise / 8  # exact in binary
        start = max(begun, (turn - 1) * 60 * S)
        sent = send(Datapoint(energy, total, GPU, (turn + 1) * 60 * S, begun, start, None, rise / 8))
        former, later = (sent[name] for name in ENERGY)
        assert (former.value, later.value) == (1000 * total, total)
        assert former.start_time == later.start_time == begun
        assert former.window_start == later.window_start == start
        sums = [sums[0] + former.increase, sums[1] + later.increase]
    assert sums == [125 * sum(rises), sum(rises) / 8]


def test_who_holds_the_gpu_is_on_both_names():
    held = replace(declared()["gpu.energy"], dims=("gpu", "uuid", "pod"), owner=("pod",))
    sent = naming(BOTH)(Datapoint(held, 7.0, GPU | {"pod": "train-0"}, 9 * S, 1, 4 * S, None, 2.0))
    for name in ENERGY:
        assert (sent[name].dims["pod"], sent[name].metric.owner) == ("train-0", ("pod",))


def test_the_last_xid_has_both_names_and_is_the_same_one():
    xid = declared()["gpu.xid"]
    send = naming(BOTH)
    for code in ("79", "31"):
        sent = send(xid.point(2 * S, 1.0, GPU | {"xid": code}, start_time=1))
        assert {sent[name].value for name in ("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR")} == {float(code)}


def test_a_counter_that_begins_at_zero_in_one_tool_keeps_our_total_in_the_other():
    send = naming("dcgm,wandb")
    sent = send(Datapoint(declared()["gpu.energy"], 500.0, GPU, 9 * S, 1, 4 * S, None, 20.0))
    assert (sent[ENERGY[0]].value, sent["gpu.0.energyJoules"].value) == (500_000, 20)


def test_a_series_that_the_second_profile_does_not_name_is_sent_once():
    used = declared()["network.interface.errors"]
    points = [used.point(9 * S, 1.0, Dimensions(interface="eth0", direction="received"), start_time=1)]
    copy = copier("dcgm,node")
    assert [made.metric.name for made in copy(points)] == ["node_network_receive_errs_total"]
    assert copier("dcgm,dcgm")(name_pages.points()) == copier("dcgm")(name_pages.points())


def test_a_series_without_the_dimension_of_a_name_has_no_copy():
    rows, copy = declared()["gpu.rows.remapped"], copier("native,dcgm4.7")
    assert copy([rows.point(9 * S, 1.0, GPU, start_time=1)]) == []
    (made,) = copy([rows.point(9 * S, 1.0, GPU | {"cause": "correctable"}, start_time=1)])
    assert made.metric.name == "DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL"


def test_a_name_with_two_meanings_is_sent_as_the_first_profile_has_it_and_the_log_says_so():
    assert not any(profiles(BOTH)[1])
    (_, second), (said,) = profiles("wandb,wandb-docs")
    assert said == "names: memory_percent is sent as wandb has it, not as wandb-docs, which stands later"
    assert "memory_percent" not in dict(second.meanings())
    config = load(None, {"names": "wandb,wandb-docs", "sink": ["prometheus"]}, {})
    assert [*duplicates({"prometheus": PrometheusSink(PrometheusSink.Config())}, config, {})] == [("prometheus", said)]


@pytest.mark.parametrize(
    "names", [",".join(pair) for pair in itertools.permutations(PROFILES, 2) if pair[1] != "native"]
)
def test_no_two_profiles_send_a_name_twice_or_with_two_units(names):
    tools = profiles(names)[0]
    mine = [{name for name, _ in tool.meanings()} for tool in tools]
    assert not mine[0] & mine[1]
    copy, rename, found = copier(names), renamer(names), {}
    points = [point_of(metric, 1.0, dict.fromkeys(metric.dims, "0")) for metric in declared().values()]
    for point in (*points, *(copy(points) if copy else ())):
        sent = rename(point).metric
        assert found.setdefault(sent.name, sent.unit) == sent.unit


@pytest.mark.parametrize("names", ["dcgm,native", "dcgm,dcgm5", ","])
def test_a_list_is_of_profiles_and_native_stands_first(names):
    with pytest.raises(ConfigError, match=r"--names"):
        load(None, {"names": names}, {})


def test_the_page_on_dcgm_4_7_has_each_default_field_with_its_new_name_and_unit():
    page = (Path(__file__).parents[4] / "docs/dcgm-4.7.md").read_text()
    rows = dict(re.findall(r"^\| `(DCGM_\w+)` \| `(DCGM_\w+)` \| (?!was)", page, re.MULTILINE))
    units = {"MHz x 10^6": 1e6, "mJ / 1000": 1e-3, "% / 100": 0.01, "MiB x 2^20": 2**20, "the same": 1}
    former, later = (
        {
            line.partition("{")[0]: float(line.rpartition(" ")[2])
            for line in lines(name_pages.page(each, name_pages.points()))
        }
        for each in BOTH.split(",")
    )
    assert len(rows) == 21  # of 23: two are not sent
    for old, new in rows.items():
        (unit,) = re.findall(rf"^\| `{old}` \| `{new}` \| (.*) \|$", page, re.MULTILINE)
        assert later[new] == pytest.approx(former[old] * units[unit])
