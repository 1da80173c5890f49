"""The recording rules of docs/prometheus.md give the series of dcgm-exporter with its labels of pods."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from chipwatch.config.naming.profiles import profile
from chipwatch.config.naming.rename import renamer
from chipwatch.contract.datapoint import Dimensions, Level, gauge
from chipwatch_sinks.prometheus.names import family_of, labels

PAGE = (Path(__file__).parents[2] / "docs/prometheus.md").read_text()
CONFIG, RULES = (
    yaml.safe_load(block)
    for block in re.findall(r"^```yaml\n(.*?)^```$", PAGE.partition("by pod\n")[2], re.MULTILINE | re.DOTALL)
)


def scraped(name: str, **dims: str) -> str:
    """Return a series of the page as Prometheus has it after a scrape by the configuration of docs/prometheus.md."""
    point = renamer("dcgm")(gauge(name, "1", "A gauge.", Level.ALL, tuple(dims)).point(1, 1.0, Dimensions(dims)))
    (rule,) = CONFIG["scrape_configs"][0]["metric_relabel_configs"]
    shown = re.sub(f"^{rule['regex']}$", rule["replacement"].replace("$1", r"\1"), family_of(point.metric).name)
    own = ",".join(f'{key}="{value}"' for key, value in (labels(point.dims.items()) or {}).items())
    return f'{shown}{{instance="node-7:9465",{own.replace("job=", "exported_job=")}}}'


@pytest.mark.proof
def test_each_pod_has_a_series_of_its_gpu_and_a_free_gpu_keeps_its_own(programs, tmp_path):
    gpu = {number: {"gpu": number, "uuid": f"GPU-{number}"} for number in "01"}
    pods = [{"job": name, "namespace": "team", "container": "main"} for name in ("train-0", "train-1")]
    series = [
        (scraped("job.gpu.held", **gpu["0"], **pods[0]), 0.5),
        (scraped("job.gpu.held", **gpu["0"], **pods[1]), 0.5),
        (scraped("gpu.utilization", **gpu["0"]), 87),
        (scraped("gpu.utilization", **gpu["1"]), 3),
    ]
    of = 'instance="node-7:9465",device="nvidia{0}",gpu="{0}",UUID="GPU-{0}"'
    pod = 'container="main",namespace="team",pod="{0}",exported_job="{0}"'
    expected = [(f"{of.format(0)},{pod.format(name)}", 87) for name in ("train-0", "train-1")] + [(of.format(1), 3)]
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(RULES))
    check = {
        "expr": "DCGM_FI_DEV_GPU_UTIL", "eval_time": "1m",
        "exp_samples": [{"labels": f"DCGM_FI_DEV_GPU_UTIL{{{names}}}", "value": value} for names, value in expected],
    }  # fmt: skip
    test = {
        "interval": "1m", "input_series": [{"series": name, "values": f"{value}x3"} for name, value in series],
        "promql_expr_test": [check],
    }  # fmt: skip
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": [test]}))
    command = [programs / "promtool", "test", "rules", "test.yml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rules_record_names_that_the_profile_has():
    sent = {name.template for name in profile("dcgm").names.values()}
    recorded = {rule["record"] for rule in RULES["groups"][0]["rules"]}
    assert recorded <= sent
    assert all(f"chipwatch_{rule['record']}" in rule["expr"] for rule in RULES["groups"][0]["rules"])
