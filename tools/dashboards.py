"""Dashboards and alarms: the shipped files, one of each cloud as a golden file, and the templates of Terraform's modules."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Final

from chipwatch.advisor.dashboard.charts import BOARDS
from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.advisor.dashboard.sent import SentMetrics, sent_by
from chipwatch.config.load import load
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Kind
from chipwatch_sinks.google import GoogleSink
from chipwatch_sinks.google.rules import label_key, metric_type
from tools.alarm_tests import alarm_tests
from tools.compact import compact

ROOT = Path(__file__).parents[1]
DASHBOARDS = ROOT / "tests/golden/dashboards"
FAMILIES = ("host", "gpu", "neuron", "tpu", "health", "fabric")
DRAWN = (
    "cpu.utilization", "memory.available", "disk.available", "disk.read", "network.sent", "memory.errors",
    "gpu.utilization", "gpu.memory.utilization", "gpu.power", "gpu.xid", "rdma.received", "neuron.core.utilization",
)  # fmt: skip
"""Metrics of the dashboards in tests/golden: gauges, peaks, rates and increases, with alarms and without."""
FLAGS = {"common_dims": ["instance_id", "instance_type"], "region": "us-east-1"}
TERRAFORM_AWS = ROOT / "terraform/aws/modules"
AWS_FAMILIES = {
    "host": (("host",), []),
    "gpu": (("gpu",), []),
    "neuron": (("neuron",), []),
    "neuron-by-runtime": (("neuron",), ["neuron_runtime_tag"]),
    "health": (("health",), []),
    "fabric": (("fabric",), []),
}
"""Choices of the modules: by the name of a file, families and words that are dimensions of points."""
LEVELS = ("basic", "detailed")
TERRAFORM_GOOGLE = ROOT / "terraform/google/modules"


PRODUCTS: Final = ROOT / "dashboards"
MACHINES: Final = ("cpu", "memory", "disk", "network", "pressure", "nvidia", "health", "fabric")
"""Collectors of the machines that the shipped dashboards are for."""
NAMES: Final = {"native": "", "dcgm": " (DCGM)", "dcgm4.7": " (DCGM 4.7)", "dcgm,dcgm4.7": " (through DCGM 4.7)"}
"""Naming profiles of the shipped files for Grafana and Prometheus, and the ends of their dashboards' titles."""
OPTIONS: Final = {
    "level": "detailed", "common_dims": ["instance_id"], "region": "us-east-1",
    "processors": {"jobs": {"dollars_per_hour": 1.0, "dimensions": ["user"]}},
    "sinks": {cloud: {"include": ["*", "agent.*"]} for cloud in ("cloudwatch", "google", "cloudwatch-otlp")},
}  # fmt: skip


def products() -> dict[Path, str]:
    """Return the shipped dashboards, alarms and recording rules with their tests, by file."""
    texts: dict[Path, str] = {}
    for names, end in NAMES.items():
        config = load(None, {**OPTIONS, "names": names}, {})
        options = BoardOptions(cloud="grafana", families=MACHINES)
        place = names.replace("dcgm,dcgm4.7", "through-dcgm4.7")
        for board in BOARDS:
            text = make(config, replace(options, board=board, prefix=f"chipwatch {board}{end}")).text
            # A board that asks no name of the profile is that of `native`, and without ${names} that of one profile.
            if names == "native" or ("${names}" if "," in names else "DCGM_") in text:
                texts[PRODUCTS / "grafana" / place / f"{board}.json"] = compact(text)
        folder, every = PRODUCTS / "prometheus" / place, replace(options, families=("all",))
        if "," in names:  # the series that the boards' variable chooses
            texts[folder / "joined.json"] = compact(make(config, replace(options, records=True)).text)
            continue
        both = ("fleet", "jobs")[: 2 - bool(end)]
        made = [json.loads(make(config, replace(options, board=board, records=True)).text) for board in both]
        made[0]["groups"][0]["rules"] = [rule for file in made for rule in file["groups"][0]["rules"]]
        texts[folder / "records.json"] = compact(json.dumps(made[0]))
        texts[folder / "alerts.json"] = compact(make(config, replace(every, alarms=True)).text)
        sent = sent_by(config, "prometheus", every, by_name=True)
        texts[folder / "tests.json"] = compact(json.dumps(alarm_tests(sent)))
    for cloud, board in product(("cloudwatch", "cloudwatch-promql", "google"), BOARDS):
        options = BoardOptions(cloud=cloud, families=MACHINES, board=board, prefix=f"chipwatch {board}")
        texts[PRODUCTS / cloud / f"{board}.json"] = compact(make(load(None, OPTIONS, {}), options).text)
    return texts


def dashboards() -> dict[Path, str]:
    """Return the dashboard and the alarms of each cloud, by file: graphs of a few metrics, so that a new one changes none."""
    texts = {}
    for cloud, sink in (("cloudwatch", "cloudwatch"), ("google", "google"), ("grafana", "prometheus")):
        for alarms in (False, True):
            options = BoardOptions(cloud=cloud, alarms=alarms, families=FAMILIES, hosts=10)
            flags = FLAGS if alarms else {**FLAGS, "sink": [sink], "sinks": {sink: {"include": DRAWN}}}
            texts[DASHBOARDS / f"{cloud}{'-alarms' * alarms}.json"] = compact(make(load(None, flags, {}), options).text)
    return texts


def terraform_aws() -> dict[Path, str]:
    """Return the templates of dashboards and alarms that the modules for AWS put together, by file."""
    texts = {}
    for level in LEVELS:
        for name, (families, words) in AWS_FAMILIES.items():
            flags = {"level": level, "common_dims": words, "region": "${region}", "namespace": "${namespace}"}
            options = BoardOptions(
                cloud="cloudwatch",
                families=families,
                dims_as="${dims}",
                prefix="${prefix}",
                hosts=1,
                runbooks="${runbooks}",
            )
            for kind, alarms in (("dashboards", False), ("alarms", True)):
                path = TERRAFORM_AWS / kind / "generated" / level / f"{name}.json.tftpl"
                config = without_jobs(load(None, flags, {}), name if not alarms else "gpu")
                texts[path] = compact(make(config, replace(options, alarms=alarms)).text)
    return texts


def without_jobs(config: Config, family: str) -> Config:
    """Return the configuration without jobs but for GPUs, as a dashboard of several families has them once."""
    return config if family == "gpu" else replace(config, no_processor=("jobs",))


def terraform_google() -> dict[Path, str]:
    """Return the templates of dashboards and alert policies of the modules for Google, by file."""
    texts = {}
    for level, family in product(LEVELS, FAMILIES):
        config = load(None, {"level": level}, {})
        options = BoardOptions(
            cloud="google", families=(family,), prefix="${prefix}", resources=("${resource}",), runbooks="${runbooks}"
        )
        for kind, alarms in (("dashboards", False), ("alert-policies", True)):
            text = make(config if alarms else without_jobs(config, family), replace(options, alarms=alarms)).text
            path = TERRAFORM_GOOGLE / kind / "generated" / level / f"{family}.json.tftpl"
            texts[path] = compact(text.replace(GoogleSink.Config().prefix, "${metric_prefix}"))
        path = TERRAFORM_GOOGLE / "alert-policies/generated" / level / f"{family}-metrics.json"
        texts[path] = compact(json.dumps(_named_by(text, sent_by(config, "google", options, by_name=True))))
    return texts


def _named_by(policies: str, sending: SentMetrics) -> dict[str, dict[str, object]]:
    """Return the descriptors of the metrics that alert policies name, by the end of their type."""
    prefix = GoogleSink.Config().prefix
    named = {
        metric_type("", one.name): one for one in sending.metrics if f'{metric_type(prefix, one.name)}\\"' in policies
    }
    return {
        name: {
            "kind": "GAUGE" if one.metric.kind is Kind.GAUGE else "CUMULATIVE",
            "unit": one.unit,
            "description": one.metric.help,
            "labels": [label_key(key) for key in one.dims],
        }
        for name, one in sorted(named.items())
    }


if __name__ == "__main__":
    for place, written in products().items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(written, encoding="utf-8")
