"""`chipwatch dashboard --board`: the dashboards of a fleet, its nodes, GPUs, jobs, fabric and agents."""

from __future__ import annotations

import re

import pytest
from tests.agent.advisor.dashboard.strict import overlap_free

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.charts import BOARDS, TABLES
from chipwatch.config.convert import ConfigError
from chipwatch.contract.datapoint import Kind
from chipwatch_sinks.cloudwatch import CloudwatchSink

OPTIONS = {
    "level": "detailed", "common_dims": ["instance_id"], "sinks": {"google": {"include": ["*", "agent.*"]}},
    "processors": {"jobs": {"dollars_per_hour": 1.0, "dimensions": ["user"]}},
}  # fmt: skip
MACHINES = ("host", "nvidia", "health", "fabric")
METRICS = {metric.name: metric for metrics in catalogue().values() for metric in metrics}
RULES = [(name, title, rule) for name, table in BOARDS.items() for title, rule in table.get("graphs", {}).items()]


@pytest.fixture
def graph(document):
    def find(cloud, board, title, flags=None):
        made = document(cloud, {**OPTIONS, **(flags or {})}, families=MACHINES, board=board)
        panels = [
            *made.get("panels", ()),
            *(widget["properties"] for widget in made.get("widgets", ())),
            *(tile["widget"] for tile in made.get("mosaicLayout", {"tiles": ()})["tiles"]),
        ]
        return next((panel for panel in panels if panel.get("title") == title), None)

    return find


@pytest.mark.parametrize(("board", "title", "rule"), RULES, ids=lambda text: text.replace(" ", "-"))
def test_a_rule_names_a_metric_and_its_own_dimensions(board, title, rule):
    fold, _, metric, *keys = rule.split()
    assert keys[:1] in ([], ["by"])
    assert {*keys[1:]} <= {"machine", "user", *METRICS[metric].dims}
    assert fold != "sum" or not keys or METRICS[metric].kind is Kind.COUNTER, "CloudWatch adds up samples of a gauge"
    assert fold != "count" or not keys, "CloudWatch counts samples of a group"
    assert {*BOARDS[board].get("sections", ())} <= {*TABLES["sections"]}


def test_grafana_draws_the_largest_groups_and_a_number_for_the_fleet(graph):
    (line,) = graph("grafana", "fleet", "GPUs of jobs by state")["targets"]
    assert line["expr"] == (
        'topk(20, sum by (state) (rate(job_gpu_time_seconds_total{instance=~"$instance"}[$__rate_interval])))'
    )
    assert line["legendFormat"] == "{{state}}"
    state = graph("grafana", "fleet", "GPU state of machines: 0 is lost")
    assert state["targets"][0]["expr"] == 'bottomk(20, min by (instance) (gpu_state{instance=~"$instance"}))'
    number = graph("grafana", "fleet", "GPU power, all")
    assert (number["type"], number["fieldConfig"]["defaults"]["unit"]) == ("stat", "watt")
    assert number["targets"][0]["expr"] == 'sum(gpu_power_watts{instance=~"$instance"})'


def test_a_job_keeps_its_name_beside_the_job_of_prometheus(graph):
    (line,) = graph("grafana", "jobs", "Cost by job")["targets"]
    assert "sum by (exported_job, user) (increase(job_cost_total" in line["expr"]
    assert line["legendFormat"] == "{{exported_job}} {{user}}"


@pytest.mark.parametrize(
    ("names", "series"), [("dcgm", "DCGM_FI_DEV_POWER_USAGE"), ("dcgm4.6", "DCGM_FI_DEV_BOARD_POWER_WATTS")]
)
def test_the_fleet_has_the_names_of_each_version_of_dcgm(graph, names, series):
    (line,) = graph("grafana", "fleet", "GPU power, all", {"names": names})["targets"]
    assert line["expr"].startswith(f"sum({series}{{")


def test_cloudwatch_asks_for_groups_of_any_dimensions(graph):
    power = graph("cloudwatch", "fleet", "GPU power, all")
    space = CloudwatchSink.Config().namespace
    assert power["view"] == "singleValue"
    assert [line["expression"] for (line,) in power["metrics"]] == [
        f"SUM(SEARCH('Namespace=\"{space}\" MetricName=\"gpu.power\"', 'Average', 60))"
    ]
    query, rate = (line for (line,) in graph("cloudwatch", "fleet", "GPUs of jobs by state")["metrics"])
    assert query["expression"] == (
        f'SELECT SUM("job.gpu.time") FROM "{space}" GROUP BY "state" ORDER BY SUM() DESC LIMIT 20'
    )
    assert (query["visible"], rate["expression"]) == (False, "q1 / 60")
    machines = graph("cloudwatch", "fleet", "GPU utilization of machines")["metrics"][0][0]["expression"]
    assert 'GROUP BY "instance_id" ORDER BY AVG() DESC' in machines


def test_without_a_dimension_of_the_machine_cloudwatch_has_no_graph_of_machines(graph):
    assert graph("cloudwatch", "fleet", "GPU utilization of machines", {"common_dims": []}) is None
    assert graph("grafana", "fleet", "GPU utilization of machines", {"common_dims": []})


@pytest.mark.parametrize(("resource", "label"), [("auto", "instance_id"), ("k8s_node", "node_name")])
def test_google_groups_by_the_label_of_the_resource(graph, resource, label):
    flags = {"sinks": {"google": {"resource": resource}}}
    (line,) = graph("google", "fleet", "GPU utilization of machines", flags)["xyChart"]["dataSets"]
    found = line["timeSeriesQuery"]["timeSeriesFilter"]
    assert found["aggregation"]["groupByFields"] == [f"resource.label.{label}"]
    assert found["pickTimeSeriesFilter"] == {
        "rankingMethod": "METHOD_MEAN", "numTimeSeries": 20, "direction": "TOP",
    }  # fmt: skip
    (whole,) = graph("google", "fleet", "GPU power, all", flags)["xyChart"]["dataSets"]
    assert "groupByFields" not in whole["timeSeriesQuery"]["timeSeriesFilter"]["aggregation"]


@pytest.mark.parametrize("board", BOARDS)
def test_the_parts_of_a_dashboard_fit_its_grid(document, board):
    for cloud in ("cloudwatch", "google", "grafana"):
        made = document(cloud, OPTIONS, families=MACHINES, board=board)
        if cloud == "grafana":
            places = [panel["gridPos"] for panel in made["panels"]]
            overlap_free([(place["x"], place["y"], place["w"], place["h"]) for place in places], 24)
        elif cloud == "google":
            tiles = made["mosaicLayout"]["tiles"]
            overlap_free([(tile["xPos"], tile["yPos"], tile["width"], tile["height"]) for tile in tiles], 12)
            assert len(tiles) <= 100


def test_graphs_of_metrics_that_are_not_sent_are_left_out(graph):
    assert graph("grafana", "fleet", "GPU utilization, mean", {"names": "wandb"}) is None, "each GPU has another name"
    assert graph("grafana", "jobs", "Cost by user", {"processors": {"jobs": {"dollars_per_hour": 1.0}}}) is None


def test_a_sum_of_shares_has_no_threshold_of_one_device(graph):
    mean, count = (graph("grafana", "fleet", title) for title in ("GPU utilization, mean", "GPUs"))
    assert "thresholds" in mean["fieldConfig"]["defaults"]
    assert not {"thresholds", "unit", "max"} & {*count["fieldConfig"]["defaults"]}


def test_an_unknown_dashboard_and_one_without_graphs_are_refused(made):
    with pytest.raises(ConfigError, match=r"--board flet: no such dashboard; did you mean fleet\?"):
        made("grafana", board="flet")
    with pytest.raises(ConfigError, match="--board fabric: nothing of it is sent; name its collectors with --for"):
        made("grafana", families=("cpu",), board="fabric")


def test_records_have_a_level_a_metric_and_its_operations(document):
    (group,) = document("grafana", OPTIONS, families=MACHINES, board="fleet", records=True)["groups"]
    rules = {rule["record"]: rule["expr"] for rule in group["rules"]}
    assert rules["fleet:gpu_power_watts:sum"] == "sum (gpu_power_watts)"
    assert rules["state:job_gpu_time_seconds:sum_rate5m"] == "sum by (state) (rate(job_gpu_time_seconds_total[5m]))"
    assert all(re.fullmatch(r"\w+:\w+:(?:sum|avg|min|max|count)(?:_rate5m)?", name) for name in rules)


def test_only_prometheus_records(made):
    with pytest.raises(ConfigError, match="--records: google does not record the results of queries"):
        made("google", OPTIONS, families=MACHINES, board="fleet", records=True)


def test_the_pages_about_alarms_can_be_elsewhere(document):
    (group,) = document("grafana", OPTIONS, families=("host",), alarms=True, runbooks="https://wiki.example/gpu/")[
        "groups"
    ]
    links = {rule["annotations"]["runbook_url"] for rule in group["rules"]}
    assert "https://wiki.example/gpu/disk-full.md" in links
