"""`chipwatch dashboard --board`: the dashboards of a fleet, its nodes, GPUs, jobs, fabric and agents."""

import json
import re

import pytest
from tests.agent.advisor.dashboard.strict import overlap_free, panels_of
from tests.doubles.otlp import parse

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.alarms import KEYS
from chipwatch.advisor.dashboard.charts import BOARDS, TABLES
from chipwatch.config.convert import ConfigError
from chipwatch.config.naming.profiles import profile
from chipwatch.contract.advice import Scope
from chipwatch.contract.datapoint import Dimensions, Kind
from chipwatch_sinks.otlp.encoding import OtlpEncoder
from chipwatch_sinks.prometheus.names import family_of

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
            *panels_of({"panels": (), **made}),
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
    assert {*BOARDS[board]["sections"]} <= {*TABLES["sections"]}


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
    for cloud in ("cloudwatch", "cloudwatch-promql", "google", "grafana"):
        made = document(cloud, OPTIONS, families=MACHINES, board=board)
        if cloud.startswith("cloudwatch"):
            widgets = made["widgets"]
            overlap_free([(part["x"], part["y"], part["width"], part["height"]) for part in widgets], 24)
        elif cloud == "grafana":
            places = [panel["gridPos"] for panel in panels_of(made)]
            overlap_free([(place["x"], place["y"], place["w"], place["h"]) for place in places], 24)
            rows = {panel["title"]: panel["collapsed"] for panel in made["panels"] if panel["type"] == "row"}
            assert [*rows.values()] == sorted(title in TABLES["rows"] for title in rows)
            assert [panel["type"] == "row" for panel in made["panels"][:4]] == [True, False, False, False]
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


@pytest.mark.parametrize("names", ["dcgm", "dcgm4.7"])
@pytest.mark.parametrize("board", BOARDS)
def test_a_board_has_a_name_of_ours_only_where_the_tool_has_none_or_its_name_lacks_the_key(document, names, board):
    """The tool's gauge of the last Xid has no code as a label, so groups by code count with our counter."""
    theirs = profile(names)
    ours = {family_of(METRICS[metric]).name: metric for metric in METRICS}
    panels = document("grafana", {**OPTIONS, "names": names}, families=MACHINES, board=board)
    texts = {one["title"]: " ".join(each["expr"] for each in one.get("targets", ())) for one in panels_of(panels)}
    native = {title: {ours[name] for name in re.findall(r"\w+", text) if name in ours} for title, text in texts.items()}
    translated = {**theirs.names, **theirs.copies}
    assert {title for title, metrics in native.items() if not metrics.isdisjoint(translated)} <= {"Xid errors by code"}
    other = {name.template for end in {"dcgm", "dcgm4.7"} - {names} for name in profile(end).names.values()}
    other -= {name.template for name in theirs.names.values()}
    assert [title for title, text in texts.items() if not other.isdisjoint(re.findall(r"\w+", text))] == []


@pytest.mark.parametrize("board", BOARDS)
def test_each_metric_and_label_of_cloudwatchs_promql_is_in_a_request_of_otlp(document, board):
    flags = {**OPTIONS, "sinks": {"cloudwatch-otlp": {"include": ["*", "agent.*"]}}}
    widgets = document("cloudwatch-promql", flags, families=MACHINES, board=board)["widgets"]
    lines = [line for widget in widgets for line in widget["properties"].get("data", {"queries": ()})["queries"]]
    assert len(lines) > 5
    for query in (line["query"] for line in lines):
        (name,) = re.findall(r'\{"([\w.]+)"\}', query)
        metric = METRICS[name]
        dims = Dimensions(dict.fromkeys(metric.dims, "x"), user="ada", instance_id="i-1")
        (sent,) = parse(OtlpEncoder({}).encode([metric.point(2, 1.0, dims, start_time=1)])).resource_metrics
        (of_name,) = sent.scope_metrics[0].metrics
        (point,) = getattr(of_name, of_name.WhichOneof("data")).data_points
        labels = {pair.key for pair in point.attributes} | {
            f"@resource.{pair.key}" for pair in sent.resource.attributes
        }
        grouped = re.findall(r" by \(([^)]*)\)", query)
        assert of_name.name == name
        assert {json.loads(key) for keys in grouped for key in keys.split(", ")} <= labels


def test_cloudwatchs_promql_needs_a_region_and_has_no_alarms(made, monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigError, match="no AWS region"):
        made("cloudwatch-promql", {"region": ""}, families=("host",))
    with pytest.raises(ConfigError, match="use --cloud cloudwatch"):
        made("cloudwatch-promql", families=("host",), alarms=True)


@pytest.mark.parametrize("cloud", ["grafana", "cloudwatch", "google"])
def test_each_alarm_has_the_link_of_its_page_which_can_be_elsewhere(made, cloud):
    wiki = "https://wiki.example/gpu"
    for folder, given in ((Scope.runbooks, {}), (wiki, {"runbooks": f"{wiki}/"})):
        text = made(cloud, OPTIONS, families=("all",), alarms=True, hosts=2, **given).text
        assert [key for key in KEYS if f"{folder}/{key}.md" not in text] == []


@pytest.mark.parametrize(
    ("runbooks", "noted"),
    [(Scope.runbooks, True), ("/wiki", True), ("https://wiki.example/gpu", False), ("${runbooks}", False)],
)
def test_a_note_names_the_option_that_makes_links_addresses(made, runbooks, noted):
    options = {"families": ("all",), "hosts": 2, "runbooks": runbooks}
    note = f"alarms link to pages such as {runbooks}/agent-silent.md, which leads nowhere; set --runbooks URL"
    assert (note in made("cloudwatch", OPTIONS, alarms=True, **options).notes) is noted
    assert note not in made("cloudwatch", OPTIONS, **options).notes
