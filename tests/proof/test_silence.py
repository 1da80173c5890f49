"""A real Prometheus evaluates our rules while an agent is killed for good: the alert rises and stays until one is back."""

import json
import subprocess

import pytest
from tests.ports import free_port
from tests.proof.scraping import LONG, Prometheus, start

from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions as Options
from chipwatch.config.load import load

pytestmark = pytest.mark.proof
EVALUATIONS = 20
PENDING = 3
"""Seconds that the alert waits, instead of ten minutes."""
STEP = 4
"""Minutes between evaluations of 20 days."""
HOUR, DAY = 60, 24 * 60


def rules(key, **options):
    """Return the group of rules with one of the generated ones, and that rule."""
    found = make(load(None, {}, {}), Options(cloud="grafana", families=("host",), alarms=True, **options))
    (group,) = json.loads(found.text)["groups"]
    (rule,) = (one for one in group["rules"] if one["labels"]["chipwatch_alarm"] == key)
    return {**group, "rules": [rule]}, rule


def test_an_agent_that_is_killed_for_good_is_an_alert_until_one_is_back(programs, agent, until, tmp_path):
    groups = []
    for name, key, hosts in (("one", "agent-silent", 0), ("fewer", "agent-silent", 1), ("all", "fleet-silent", 0)):
        group, rule = rules(key, minutes={key: PENDING / 60}, hosts=hosts)
        assert rule["for"] == f"{PENDING}s"
        groups.append({**group, "name": name})
    (tmp_path / "rules.json").write_text(json.dumps({"groups": groups}))
    port = free_port()
    first = start(agent, port, "--interval", "1", "--collector", "cpu")

    with Prometheus(programs, tmp_path, f"127.0.0.1:{port}", rules=[tmp_path / "rules.json"]) as server:
        seen = {name: {} for name in ("one", "fewer", "all")}

        def all_are(*wanted):
            """Tell whether the alerts of each group have these states, and note them by the time of the evaluation."""
            found = (server.ask("rules") or {}).get("groups", ())
            for group in found:
                (rule,) = group["rules"]
                seen[group["name"]][rule["lastEvaluation"]] = tuple(alert["state"] for alert in rule["alerts"])
            return len(found) == len(seen) and all([*states.values()][-1] == wanted for states in seen.values())

        until(lambda: server.value("cpu_utilization_ratio") is not None and all_are(), LONG)
        first.process.kill()
        until(lambda: all_are("firing"), LONG)
        assert len(server.ask("query", query='count by (alertname) (count_over_time(ALERTS{alertstate="pending"}[5m]))')["result"]) == 2  # fmt: skip
        for states in seen.values():
            states.clear()
        until(lambda: all_are("firing") and min(map(len, seen.values())) > EVALUATIONS, LONG)
        assert {state for states in seen.values() for state in states.values()} == {("firing",)}
        again = start(agent, port, "--interval", "1", "--collector", "cpu")
        until(all_are, LONG)
    assert again.stop()[0] == 0


DEAD, GONE = 'instance="dead",job="j"', 'instance="gone",job="j"'


def test_the_alert_stays_for_20_days_while_the_machine_is_a_target(programs, tmp_path):
    """And for six hours where the machine is no longer a target: a node of a group that became smaller."""
    group, rule = rules("agent-silent")
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [group]}))
    steps = 20 * DAY // STEP
    series = {
        f"cpu_utilization_ratio{{{DEAD}}}": f"0.5x4 stale _x{steps} 0.5x30",
        f"up{{{DEAD}}}": f"1x4 0x{steps} 1x30",
        f"cpu_utilization_ratio{{{GONE}}}": "0.5x4 stale",
        f"up{{{GONE}}}": "1x4 stale",
    }
    back = 20 * DAY + 8 * STEP
    firing = [
        (20, []), (60, ["dead", "gone"]), (4 * HOUR, ["dead", "gone"]), (7 * HOUR, ["dead"]), (2 * DAY, ["dead"]),
        (20 * DAY, ["dead"]), (back + 10, []),
    ]  # fmt: skip
    wanted = [
        {
            "expr": f'count by (instance) (ALERTS{{alertname="{rule["alert"]}",alertstate="firing"}})',
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{instance="{name}"}}', "value": 1} for name in names],
        }
        for minute, names in firing
    ]
    test = {"interval": f"{STEP}m", "promql_expr_test": wanted}
    test["input_series"] = [{"series": name, "values": values} for name, values in series.items()]
    whole = {"rule_files": ["rules.json"], "evaluation_interval": f"{STEP}m", "tests": [test]}
    (tmp_path / "test.json").write_text(json.dumps(whole))
    command = [programs / "promtool", "test", "rules", tmp_path / "test.json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
