"""The configurations of deploy/gateway name what they define, and the stack mounts files that are there."""

import json
from pathlib import Path

import pytest
import yaml

from chipwatch_sinks.otlp import OtlpSink

DEPLOY = Path(__file__).parents[2] / "deploy"
FLAVOURS = {"cloudwatch": "cloudwatch", "google": "google", "prometheus": None}


RETRY, QUEUE = {"enabled", "max_elapsed_time"}, {"enabled", "num_consumers", "queue_size"}
DECLARED = {
    "otlphttp": {
        "endpoint": None, "metrics_endpoint": None, "compression": None, "auth": {"authenticator"},
        "sending_queue": QUEUE, "retry_on_failure": RETRY,
    },
    "prometheusremotewrite": {
        "endpoint": None, "resource_to_telemetry_conversion": {"enabled"}, "remote_write_queue": QUEUE,
        "retry_on_failure": RETRY,
    },
    "sigv4auth": {"region": None, "service": None}, "googleclientauth": {"project": None}, "health_check": {"endpoint": None},
}  # fmt: skip
"""
Keys of exporters and extensions, from their config.go or README.

https://github.com/open-telemetry/opentelemetry-collector, and -contrib.
"""


def read(name):
    return yaml.safe_load((DEPLOY / "gateway" / f"{name}.yaml").read_text())


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_pipeline_names_what_is_defined_and_nothing_else_is(name):
    config = read(name)
    (pipeline,) = config["service"]["pipelines"].values()
    for part in ("receivers", "processors", "exporters"):
        assert set(pipeline[part]) == set(config[part])
    assert set(config["service"]["extensions"]) == set(config["extensions"])
    assert pipeline["processors"][0] == "memory_limiter"
    used = [exporter["auth"]["authenticator"] for exporter in config["exporters"].values() if "auth" in exporter]
    assert set(used) <= set(config["extensions"])


@pytest.mark.parametrize("name", FLAVOURS)
def test_a_collector_declares_each_key_of_an_exporter_and_an_extension(name):
    config = read(name)
    for part, keys in {**config["exporters"], **config["extensions"]}.items():
        declared = DECLARED[part.partition("/")[0]]
        assert {*keys} <= {*declared}, part
        assert all({*value} <= declared[key] for key, value in keys.items() if isinstance(value, dict)), part


@pytest.mark.parametrize("name", ["cloudwatch", "google"])
def test_a_request_has_no_more_points_than_the_service_takes(name):
    project = {"project": "p"} if name == "google" else {"region": "us-east-1"}
    sink = OtlpSink(OtlpSink.Config(flavour=name, **project), {})
    assert read(name)["processors"]["batch"]["send_batch_max_size"] == sink.limits.max_points


def test_attributes_of_the_resource_are_labels_of_prometheus():
    (exporter,) = read("prometheus")["exporters"].values()
    assert exporter["resource_to_telemetry_conversion"] == {"enabled": True}


def test_the_stack_mounts_what_is_there_and_listens_on_loopback_only():
    stack = DEPLOY / "stack"
    services = yaml.safe_load((stack / "compose.yml").read_text())["services"]
    for service in services.values():
        mounts = [volume.partition(":")[0] for volume in service.get("volumes", ())]
        assert [mount for mount in mounts if mount.startswith(".") and not (stack / mount).exists()] == []
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    targets = json.loads((stack / "targets.json").read_text())
    assert all(target["targets"][0].startswith("nodes:") for target in targets)
    (source,) = yaml.safe_load((stack / "grafana/datasources/prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
