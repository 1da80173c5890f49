"""Grafana's dashboard and Prometheus' rules; `make proof` hands them to promtool, Prometheus and Grafana's own model."""

import re

import pytest
from tests.agent.advisor.dashboard.strict import panels_of

from chipwatch.advisor.catalogue import catalogue
from chipwatch.advisor.dashboard.alarms import KEYS
from chipwatch.config.convert import ConfigError
from chipwatch_sinks.prometheus.names import family_of

XID = 'gpu_xid_total{action!="ignore",action!="none",action!="restart_app",action!="see_workflow",action!="update_software"}'
"""The errors that an application cannot cause by itself."""

ALL = {"level": "all", "common_dims": ["instance_id"]}
NAMES = ["native", "wandb", "mlflow", "cwagent", "neuron-prometheus", "dcgm", "dcgm4.7", "node"]
METRICS = {metric.name: metric for metrics in catalogue().values() for metric in metrics}
UNTOLD = {"incident.recorded", "job.cost"}
"""Sent only after an incident, and where a price is given."""
SERIES = re.compile(r"([a-zA-Z_:][\w:]*)\{")


@pytest.fixture
def rules(document):
    def make(flags=None, families=("all",), **wishes):
        (group,) = document("grafana", flags or ALL, families=families, alarms=True, **wishes)["groups"]
        return {rule["labels"]["chipwatch_alarm"]: rule for rule in group["rules"]}

    return make


def graphs(board):
    return [panel for panel in panels_of(board) if panel["type"] == "timeseries"]


def expressions(board):
    return [target["expr"] for panel in graphs(board) for target in panel["targets"]]


def test_the_dashboard_draws_all_that_the_page_has(document):
    found = {name for text in expressions(document("grafana", ALL, families=("all",))) for name in SERIES.findall(text)}
    assert found == {family_of(metric).name for name, metric in METRICS.items() if name not in UNTOLD}


@pytest.mark.parametrize("names", NAMES)
def test_the_parts_of_the_dashboard_have_different_numbers(document, names):
    board = document("grafana", {**ALL, "names": names}, families=("host", "gpu"))
    assert len({panel["id"] for panel in panels_of(board)}) == len(panels_of(board))
    for panel in graphs(board):
        for key in ("refId", "expr"):
            assert len({target[key] for target in panel["targets"]}) == len(panel["targets"]), panel["title"]


def test_every_alarm_has_a_rule(rules):
    found = rules()
    assert set(found) == set(KEYS)
    assert {rule["labels"]["severity"] for rule in found.values()} == {"warning", "critical"}
    assert all(rule["annotations"]["description"] for rule in found.values())


@pytest.mark.parametrize(
    ("names", "key", "expression"),
    [
        ("native", "gpu-idle", "avg_over_time(gpu_utilization_ratio[5m]) < 0.05"),
        ("dcgm", "gpu-idle", "avg_over_time(DCGM_FI_DEV_GPU_UTIL[5m]) < 5"),
        ("native", "memory-full", "max_over_time(memory_utilization_ratio[2m]) > 0.95"),
        ("native", "gpu-xid", f"increase({XID}[5m]) > 0 or ({XID} > 0 unless {XID} offset 5m)"),
    ],
)
def test_thresholds_are_in_the_units_of_the_page(rules, names, key, expression):
    assert rules({**ALL, "names": names})[key]["expr"] == expression


def test_thresholds_and_minutes_can_be_set(rules):
    rule = rules(thresholds={"gpu-idle": 10}, minutes={"gpu-idle": 30})["gpu-idle"]
    assert (rule["expr"].rpartition(" ")[2], rule["for"]) == ("0.1", "1800s")


def test_silent_machines_are_found_by_name_or_by_number(rules):
    assert rules()["agent-silent"]["expr"] == (
        "(count by (job, instance) (last_over_time(cpu_utilization_ratio[6h]))"
        " unless count by (job, instance) (cpu_utilization_ratio))"
        ' or (count by (job, instance) (ALERTS{alertname="chipwatch-agent-silent"}) and on (job, instance) up == 0)'
    )
    rule = rules(hosts=12)["agent-silent"]
    assert rule["expr"] == "(count(count by (job, instance) (cpu_utilization_ratio)) or vector(0)) < 12"
    assert rule["annotations"]["summary"] == "A machine is silent"


@pytest.mark.parametrize("wish", ["groups", "notify", "resources"])
def test_what_only_clouds_have_is_refused(rules, wish):
    with pytest.raises(ConfigError, match="Prometheus' rules have no such thing"):
        rules(**{wish: ("x",)})


def test_the_sink_may_be_named_instead_and_may_have_another_name(document):
    board = document("grafana", ALL, families=("gpu",))
    assert document("prometheus", ALL, families=("gpu",)) == board
    named = {"sink": ["second"], "sinks": {"second": {"type": "prometheus", "level": "basic"}}}
    assert len(expressions(document("grafana", {**ALL, **named}, families=("gpu",)))) < len(expressions(board))


def test_an_unknown_name_lists_those_that_are_there(made):
    with pytest.raises(ConfigError, match="choose from: cloudwatch, cloudwatch-promql, google, grafana"):
        made("loki")
