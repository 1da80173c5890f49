import pytest
from tests.agent.advisor.dashboard.strict import check_cloudwatch

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.charts import LISTS, ROWS, SECTIONS, TABLES, charts
from chipwatch.contract.advice import SentMetric
from chipwatch.contract.datapoint import Kind, gauge

METRICS = {metric.name: metric for metrics in catalogue().values() for metric in metrics}


def test_what_stands_in_one_graph_has_one_unit_and_kind():
    for title, names in TABLES["graphs"].items():
        assert len({(METRICS[name].unit, METRICS[name].kind) for name in names}) == 1, title
    together = [name for names in TABLES["graphs"].values() for name in names]
    assert len(together) == len(set(together))


def test_tables_name_only_metrics_that_exist():
    assert set(METRICS) >= {*LISTS["peaks"], *LISTS["signs"], *LISTS["tallies"]}
    assert {METRICS[name].kind for name in LISTS["peaks"]} == {Kind.GAUGE}
    values = TABLES["values"]
    dims = {key for metric in METRICS.values() for key in metric.dims}
    assert {key.split()[-1] for key in values} <= dims
    assert {key.split()[0] for key in values if " " in key} <= set(METRICS)


def test_every_metric_has_a_section():
    assert {name.partition(".")[0] for name in METRICS} <= set(SECTIONS)
    assert [
        start for start in (*SECTIONS, *ROWS) if not any(f"{name}.".startswith(f"{start}.") for name in METRICS)
    ] == []


def test_metrics_of_other_programs_get_a_separate_section_before_the_agent():
    theirs = SentMetric(gauge("vllm.queue", "1", "A."), "vllm.queue", "1", 1.0, (), ())
    ours = [
        SentMetric(METRICS[name], name, METRICS[name].unit, 1.0, (), ())
        for name in ("agent.cpu", "ipu.power", "cpu.load")
    ]
    assert [(chart.section, chart.title) for chart in charts([theirs, *ours], 9)] == [
        ("Host", "CPU load"),
        ("IPU", "IPU power"),
        ("vllm", "Vllm queue"),
        ("The agent itself", "Agent CPU"),
    ]


def graphs(board):
    return {w["properties"]["title"]: w["properties"] for w in board["widgets"] if w["type"] == "metric"}


@pytest.mark.parametrize(
    ("flags", "wishes", "period"),
    [
        ({}, {}, 60),
        ({"window": 10}, {}, 60),
        ({"window": 90}, {}, 120),
        ({"high_resolution_metrics": True}, {}, 1),
        ({"high_resolution_metrics": True, "interval": 5}, {}, 5),
        ({"high_resolution_metrics": True, "interval": 7}, {}, 10),
        ({"high_resolution_metrics": True, "interval": 45}, {}, 60),
        ({}, {"period": 300}, 300),
        ({"interval": 300}, {}, 300),
    ],
)
def test_a_dot_is_a_window_as_cloudwatch_can_show_it(document, flags, wishes, period):
    board = document("cloudwatch", flags, families=("cpu",), **wishes)
    assert {graph["period"] for graph in graphs(board).values()} == {period}


@pytest.mark.parametrize("most", range(1, 8))
@pytest.mark.parametrize(("name", "lines"), [("gpu.power", 1), ("gpu.utilization", 2)])
def test_a_graph_with_too_many_lines_is_cut_into_full_ones(name, lines, most):
    sent = [SentMetric(METRICS[name], f"gpu.{n}", "1", 1.0, (), ()) for n in range(6)]
    parts = [[way.name for way in chart.series] for chart in charts(sent, most)]
    assert [name for part in parts for name in part] == [way.name for way in sent]
    assert max(map(len, parts)) * lines <= max(most, lines)
    assert all((len(part) + 1) * lines > most for part in parts[:-1])


@pytest.mark.parametrize("devices", [1, 16, 300])
def test_a_fleet_of_any_size_stays_within_a_graphs_lines_and_nothing_is_cut(document, devices):
    board = document("cloudwatch", {"names": "wandb", "level": "all"}, families=("gpu", "neuron"), devices=devices)
    names = {name for _, name, *_ in check_cloudwatch(board)}
    assert {f"gpu.{n}.gpu" for n in range(devices)} <= names
    assert {f"gpu.{n}.pipeFp16Active" for n in range(devices)} <= names
    titles = [title for title in graphs(board) if title.startswith("GPU pipes")]
    assert titles == {1: ["GPU pipes"], 16: ["GPU pipes"]}.get(devices, [f"GPU pipes ({n})" for n in range(1, 10)])
