"""A day on which the names change: the joined series of docs/dcgm-4.7.md, and both names alone, have the right sums."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from tools.name_pages import OF_GPU, page

from chipwatch.advisor.catalogue import catalogue
from chipwatch.contract.datapoint import Datapoint, Dimensions

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[2]
JOINED = ROOT / "dashboards/prometheus/through-dcgm4.7/joined.json"
DOCUMENT = (ROOT / "docs/dcgm-4.7.md").read_text()
MINUTE, DAY = 60 * 10**9, 1440
PHASES = {0: "dcgm", 480: "dcgm,dcgm4.7", 960: "dcgm4.7"}
"""Minute -> what is sent from then on; the agent restarts there, and is away for two minutes."""
RESETS = (300, 720, 1200)
"""Minutes at which the GPU is reset, so that the driver counts from 0: under the old names, under both, under the new ones."""
OLD, NEW = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL"
OLD_UTIL, NEW_UTIL = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_UTIL_RATIO"
OLD_ROWS, NEW_ROWS = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"


def metric(name, *dims):
    return replace(next(each for each in catalogue()["nvidia"] if each.name == name), dims=(*OF_GPU, *dims))


def watts(minute):
    return 400 + minute % 300


def day():
    """Return the values of each series by minute, as an agent's page has them, and the joules that were used until then."""
    series, used, total, begun, names = {}, [], 0.0, 1, ""
    for minute in range(DAY + 1):
        rise = 60.0 * watts(minute)
        total, begun = (rise, minute * MINUTE) if minute in RESETS else (total + rise, begun)
        used.append((used[-1] if used else 0.0) + rise)
        names = PHASES.get(minute, names)
        if any(0 <= minute - start < 2 for start in list(PHASES)[1:]):
            continue
        gpu = Dimensions(OF_GPU)
        given = [
            Datapoint(metric("gpu.energy"), total, gpu, minute * MINUTE, begun, None, None, None),
            Datapoint(metric("gpu.utilization"), minute % 100, gpu, minute * MINUTE, None, None, None, None),
            Datapoint(metric("gpu.rows.remapped", "cause"), minute // 400, gpu | {"cause": "uncorrectable"}, minute * MINUTE, 1,
                      None, None, None),
        ]  # fmt: skip
        for line in page(names, given).splitlines():
            if line.startswith("DCGM_"):
                name, _, value = line.rpartition(" ")
                series.setdefault(name.replace("{", '{instance="n-1:9465",job="chipwatch",', 1), {})[minute] = float(
                    value
                )
    return series, used


def rules():
    by_hand = next(
        block
        for block in re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
        if block.startswith("- record")
    )
    group = json.loads(JOINED.read_text())["groups"][0]
    return {"groups": [{**group, "rules": [*group["rules"], *yaml.safe_load(by_hand)]}]}


def test_a_day_of_renames_restarts_and_resets_has_the_right_sums_on_both_names(programs, tmp_path):
    series, used = day()
    assert {re.match(r"\w+", name)[0] for name in series} == {OLD, NEW, OLD_UTIL, NEW_UTIL, OLD_ROWS, NEW_ROWS}
    # a minute without a sample is stale, as after a scrape that failed
    given = [
        {"series": name, "values": " ".join(repr(values[at]) if at in values else "stale" if at - 1 in values else "_" for at in range(DAY + 1))}
        for name, values in series.items()
    ]  # fmt: skip
    joined = f"sum(increase(joined:{NEW}[1439m]))"
    sums = [
        (DAY, joined, used[DAY] - used[0]),
        (957, f"sum(increase({OLD}[957m])) / 1000", used[957] - used[0]),
        (DAY, f"sum(increase({NEW}[478m]))", used[DAY] - used[962]),
        (900, f"sum(increase({OLD}[400m])) / 1000", used[900] - used[500]),
        (900, f"sum(increase({NEW}[400m]))", used[900] - used[500]),
        (1100, f"sum(increase(joined:{NEW}[800m]))", used[1100] - used[300]),
    ]
    checks = [
        {"expr": f"abs({text} / {joules!r} - 1) < bool 0.005", "eval_time": f"{minute}m",
         "exp_samples": [{"labels": "{}", "value": 1}]}
        for minute, text, joules in sums
    ]  # fmt: skip
    checks += [
        {"expr": f"abs(sum(joined:{NEW_UTIL}) - {minute % 100 / 100}) < bool 1e-9", "eval_time": f"{minute}m",
         "exp_samples": [{"labels": "{}", "value": 1}]}
        for minute in (100, 479, 482, 700, 958, 962, 1300)
    ]  # fmt: skip
    checks += [
        {"expr": f"count(joined:{NEW})", "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": 1}]}
        for minute in (100, 700, 1300)
    ]
    checks += [
        {"expr": f"sum(increase(joined:{NEW_ROWS}[1400m])) > bool 2.5", "eval_time": f"{DAY}m", "exp_samples": [{"labels": "{}", "value": 1}]},
        {"expr": f"sum(increase(joined:{NEW_ROWS}[1400m])) < bool 3.5", "eval_time": f"{DAY}m", "exp_samples": [{"labels": "{}", "value": 1}]},
        # the labels that moved would break a series that keeps them
        {"expr": f"count(count by (Hostname, hostname) (joined:{NEW}))", "eval_time": "700m", "exp_samples": [{"labels": "{}", "value": 1}]},
    ]  # fmt: skip
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(rules()))
    test = {"interval": "1m", "input_series": given, "promql_expr_test": checks}
    (tmp_path / "test.yml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yml"], "evaluation_interval": "1m", "tests": [test]})
    )
    for words in (("check", "rules", "rules.yml"), ("test", "rules", "test.yml")):
        done = subprocess.run(
            [programs / "promtool", *words], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
