"""Grafana's own model, promtool and a real Prometheus take the dashboard and the rules, and these find what is there."""

import json
import re
import subprocess
from pathlib import Path

import pytest
from tests.agent.advisor.dashboard.strict import panels_of
from tests.ports import free_port
from tests.proof import parts
from tests.proof.scraping import LONG, Prometheus, start

from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions as Options
from chipwatch.config.load import load
from chipwatch.contract.datapoint import Kind, Metric
from chipwatch_sinks.prometheus.names import family_of

pytestmark = pytest.mark.proof
VARIABLES = {"$instance": ".*", "$__rate_interval": "10s", "$__interval": "10s"}


def printed(names="native", families=("all",), **options):
    config = load(None, {"level": "all", "names": names}, {})
    return make(config, Options(cloud="grafana", families=families, **options)).text


def queries(board):
    """Return the expressions of all graphs, with Grafana's variables replaced."""
    found = [target["expr"] for panel in panels_of(json.loads(board)) for target in panel.get("targets", ())]
    for variable, value in VARIABLES.items():
        found = [text.replace(variable, value) for text in found]
    return found


def lost(ours, kept, path=""):
    """Yield what of `ours` is not in `kept`."""
    if isinstance(ours, dict):
        for key, value in ours.items():
            yield from lost(value, kept[key], f"{path}.{key}") if key in kept else [f"{path}.{key}"]
    elif isinstance(ours, list):
        assert len(ours) == len(kept), path
        for n, (mine, theirs) in enumerate(zip(ours, kept, strict=True)):
            yield from lost(mine, theirs, f"{path}[{n}]")
    elif ours != kept:
        yield f"{path}: {ours} became {kept}"


def unknown(board):
    """Return what of a dashboard Grafana's own model does not keep."""
    program = Path(__file__).with_name("grafana_read.py")
    done = subprocess.run(
        [parts.python("grafana"), program], input=board, capture_output=True, text=True, timeout=LONG, check=False
    )
    assert done.returncode == 0, done.stderr
    return [*lost(json.loads(board), json.loads(done.stdout))]


@pytest.mark.parametrize("names", ["native", "dcgm", "node", "wandb"])
def test_promtool_takes_the_rules_and_each_query_of_the_dashboard(programs, tmp_path, names):
    (tmp_path / "rules.json").write_text(printed(names, alarms=True))
    records = [{"record": f"query{n}", "expr": text} for n, text in enumerate(queries(printed(names)))]
    (tmp_path / "queries.json").write_text(json.dumps({"groups": [{"name": "queries", "rules": records}]}))
    done = subprocess.run(
        [programs / "promtool", "check", "rules", tmp_path / "rules.json", tmp_path / "queries.json"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"SUCCESS: {len(records)} rules found" in done.stdout


UTILIZATION, ONE = 'gpu_utilization_ratio{gpu="0",instance="n",job="j"}', 'cpu_utilization_ratio{instance="n",job="j"}'
THROTTLED = 'gpu_throttled_seconds_total{gpu="0",reason="%s",instance="n",job="j"}'
CASES = [
    ("gpu-idle", {UTILIZATION: "0.049x90"}, 80, True),
    ("gpu-idle", {UTILIZATION: "0.049x90"}, 40, False),
    ("gpu-idle", {UTILIZATION: "0.051x90"}, 80, False),
    ("memory-full", {'memory_utilization_ratio{instance="n"}': "0.96x30"}, 20, True),
    ("memory-full", {'memory_utilization_ratio{instance="n"}': "0.94x30"}, 20, False),
    ("gpu-lost", {'gpu_state{gpu="0",instance="n"}': "1x5 0x10"}, 10, True),
    ("gpu-lost", {'gpu_state{gpu="0",instance="n"}': "1x5 0 1x10"}, 12, False),
    ("gpu-throttled", {THROTTLED % "thermal": "0+15x40"}, 30, True),  # 0.25 s a second
    ("gpu-throttled", {THROTTLED % "thermal": "0+10x40"}, 30, False),
    ("gpu-throttled", {THROTTLED % "power": "0+60x40"}, 30, False),
    (
        "gpu-xid",
        {'gpu_xid_total{gpu="0",xid="79",action="restart_machine",instance="n"}': "_x10 1x20"},
        12,
        True,
    ),  # a new series
    ("gpu-xid", {'gpu_xid_total{gpu="0",xid="79",action="restart_machine",instance="n"}': "1x20 2x20"}, 23, True),
    ("gpu-xid", {'gpu_xid_total{gpu="0",xid="79",action="restart_machine",instance="n"}': "1x40"}, 23, False),
    ("gpu-xid", {'gpu_xid_total{gpu="0",xid="13",action="restart_app",instance="n"}': "_x10 1x20"}, 12, False),
    ("fleet-silent", {UTILIZATION: "0.5x30"}, 20, True),
    ("fleet-silent", {ONE: "0.5x30"}, 20, False),
    ("agent-silent", {ONE: "0.5x10 stale", ONE.replace('"n"', '"m"'): "0.5x60"}, 30, True),
    ("agent-silent", {ONE: "0.5x60", ONE.replace('"n"', '"m"'): "0.5x60"}, 30, False),
]


def test_the_rules_fire_at_their_thresholds_and_not_below(programs, tmp_path):
    (tmp_path / "rules.json").write_text(printed(alarms=True))
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="chipwatch-{key}",alertstate="firing"}})',
                    "eval_time": f"{minute}m",
                    "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
                }
            ],
        }
        for key, series, minute, fires in CASES
    ]
    test = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "test.json").write_text(json.dumps(test))
    done = subprocess.run(
        [programs / "promtool", "test", "rules", tmp_path / "test.json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_prometheus_has_values_for_each_query_of_what_this_machine_sends(programs, agent, until, tmp_path):
    port = free_port()
    (tmp_path / "rules.json").write_text(printed(alarms=True))
    running = start(agent, port, "--interval", "1", "--level", "all")
    with Prometheus(programs, tmp_path, f"127.0.0.1:{port}", rules=[tmp_path / "rules.json"]) as server:
        until(lambda: server.value("up") == 1, LONG)
        sent = {
            family_of(Metric(point["name"], Kind(point["kind"]), point["unit"], "")).name
            for point in until(lambda: [*running.points()])
        }
        wanted = [text for text in queries(printed(families=("host",))) if {*re.findall(r"(\w+)\{", text)} <= sent]
        assert len(wanted) > 20
        until(lambda: all((server.ask("query", query=text) or {}).get("result") for text in wanted), LONG)
        (group,) = until(lambda: (server.ask("rules") or {}).get("groups"), LONG)
        until(lambda: {rule["health"] for rule in server.ask("rules")["groups"][0]["rules"]} == {"ok"}, LONG)
        assert len(group["rules"]) == len(json.loads(printed(alarms=True))["groups"][0]["rules"])
    assert running.stop()[0] == 0
