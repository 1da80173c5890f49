"""Pages of nodes, by our names and by other tools'."""

import json
from pathlib import Path

import pytest
from tests.doubles.fleet import FINE, PAGE
from tools.fleet import TABLE, table

from chipwatch.host.exposition import ExpositionReader, ScrapeResponse
from chipwatch.show.fleet import page
from chipwatch.show.fleet.node import POLLED, summarise
from chipwatch.show.fleet.page import NodePageReader, names, points_of
from chipwatch.show.fleet.screen import COLUMNS

FIXTURES = Path(__file__).parents[3] / "fixtures/openmetrics"


def read(text):
    return {(item.metric, *sorted(item.dims.items())): item.value for item in NodePageReader().read(text.encode())}


def test_the_table_of_names_is_the_sinks_own():
    texts = TABLE.read_text(), table()
    kept, new = (
        {(*row, unit, name) for *row, units in json.loads(text) for unit, names in units.items() for name in names}
        for text in texts
    )
    assert kept <= new, "run `make golden`"
    assert {row[-1] for row in kept} >= {row[-1] for row in new} & POLLED


def test_a_page_of_the_sink_is_read_in_our_units():
    seen = NodePageReader().read(PAGE)
    used = [item.value for item in seen if item.metric == "gpu.utilization"]
    assert used == [90, 89, 88, 87, 86, 0, 83]
    assert [item.dims["gpu"] for item in seen if item.metric == "gpu.state" and not item.value] == ["6"]
    assert {item.dims["job"] for item in seen if item.metric == "job.gpus"} == {"41337"}


def test_a_second_page_costs_no_parsing_and_says_the_same():
    reader = NodePageReader()
    assert reader.read(FINE) == reader.read(FINE) == NodePageReader().read(FINE)


def test_pages_of_dcgm_exporter_and_node_exporter_are_read():
    text = 'DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-1",Hostname="n1",pod="train-0",namespace="ml"} 37\n'
    text += 'DCGM_FI_DEV_POWER_USAGE{gpu="0"} 412.5\nnode_load1 3\n'
    seen = read(text)
    assert [value for key, value in seen.items() if key[0] == "gpu.utilization"] == [37]
    assert seen["gpu.power", ("gpu", "0")] == 412.5
    assert seen["job.gpus", ("job", "train-0")] == 1
    assert read('DCGM_FI_DEV_GPU_UTIL_RATIO{gpu="0"} 37\n')["gpu.utilization", ("gpu", "0")] == 37
    assert names()["DCGM_FI_PROF_SM_ACTIVE"].factor == 100
    assert read('# TYPE target_info gauge\ntarget_info{rack="7"} 1\n') == {("target_info", ("rack", "7")): 1}


@pytest.mark.parametrize(
    ("values", "busy", "utilization", "idle"),
    [
        (("NaN", "NaN"), None, None, {"not known": 2}),
        (("NaN", 50, 0), 1, 25, {"idle or free": 1, "not known": 1}),
        ((50, 0), 1, 25, {"idle or free": 1}),
        (("Inf", 50), 1, 50, {}),
    ],
)
def test_a_gpu_whose_utilization_is_not_a_number_is_there_and_its_use_is_not_known(values, busy, utilization, idle):
    page = "".join(f'DCGM_FI_DEV_GPU_UTIL{{gpu="{n}"}} {value}\n' for n, value in enumerate(values))
    node = summarise("n", NodePageReader().read(page.encode()), 1.0)
    assert (node.busy, node.utilization, node.idle) == (busy, utilization, idle)
    assert (COLUMNS[1].cell(node)[0] == "-") is (busy is None), "a dash, and not zero"


def test_a_fraction_shows_that_a_page_of_dcgm_is_of_0_to_1():
    page = "".join(f'DCGM_FI_DEV_GPU_UTIL_RATIO{{gpu="{n}"}} {value}\n' for n, value in enumerate((1, 0, 0.87)))
    assert [value for (metric, *_), value in read(page).items() if metric == "gpu.utilization"] == [100, 0, 87]


@pytest.mark.parametrize("name", ["dcgm_exporter_4.9_dcgm_4.7", "dcgm_exporter_names_of_4.6"])
def test_the_utilization_of_dcgm_is_a_percentage_whether_its_page_has_0_to_1_or_0_to_100(name):
    body = (FIXTURES / f"{name}.prom").read_bytes()
    line = summarise("n1", NodePageReader().read(body), 5.0)
    assert (line.gpus, line.busy, line.utilization, line.jobs) == (2, 1, 43.5, ["train-0"])
    assert line.power == pytest.approx(684.3)
    assert (line.verdict, line.reason) == (None, "gpu 1 had Xid 79; its page does not say when")
    points, _ = ExpositionReader(1000, dict).read(ScrapeResponse(body, openmetrics=False, whole=True), 5)
    values = {(point.metric.name, point.dims["gpu"]): point.value for point in points_of([*points])}
    assert values["gpu.utilization", "0"] == 87
    assert values["gpu.memory.activity", "0"] == 41
    assert values["gpu.clock.sm", "0"] == pytest.approx(1980)
    assert values["gpu.memory.used", "0"] == 75161927680
    assert values["gpu.energy", "0"] == pytest.approx(91827364.5)


def test_odd_lines_cost_only_themselves():
    text = (
        'gpu_state{gpu="0"} 1\ngpu_state{gpu="1"} NaN\ngpu_state{gpu="2"} x\ngpu_state{gpu="3" 1\n\n}{\n'
        'gpu_state{gpu="4"} 1 1700000000000\ngpu_state{gpu="5"}  1 \ngpu_state\ngpu_state{gpu="6"} 1e999\n \xff\x00 1\n'
        'gpu_state{gpu="} 7"} 1\n'
    )
    assert {dict(key[1:])["gpu"] for key in read(text)} == {"0", "4", "5", "} 7"}
    assert {dict(key[1:])["gpu"] for key in read("# TYPE gpu_state gauge\n" + text)} == {"0", "4", "5", "} 7"}


def test_a_node_whose_lines_change_and_grow_does_not_fill_the_memory(monkeypatch):
    monkeypatch.setattr(page, "MAX_KEPT", 20_000)
    reader = NodePageReader()
    lines = [b'gpu_power_watts{gpu="0",x="%d"} 1\n' % number for number in range(500)]
    assert len(reader.read(b"".join(lines) + b'gpu_power_watts{gpu="1",x="%s"} 1\n' % (b"x" * 20_000))) == 500
    assert len(reader._series) < 50


def test_a_page_that_was_cut_loses_its_last_number_and_a_line_without_a_space_changes_no_other():
    first, second = ("gpu.power", ("gpu", "0")), ("gpu.power", ("gpu", "1"))
    assert read('gpu_power_watts{gpu="0"} 690\ngpu_power_watts{gpu="1"} 69') == {first: 690}
    assert read('gpu_power_watts{gpu="0"}690\ngpu_power_watts{gpu="1"}\t80\n77\n') == {first: 690, second: 80}
