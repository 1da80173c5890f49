"""The names of OpenTelemetry's semantic conventions."""

import itertools
import re

import pytest
from tests.agent.config.naming.builders import declared, point_of
from tests.doubles.otlp import read

from chipwatch.config.naming.profiles import profile
from chipwatch.config.naming.rename import renamer
from chipwatch_sinks.otlp.encoding import OtlpEncoder
from chipwatch_sinks.otlp.resource import SCHEMA

OTEL = profile("otel").names
VALUES = {"mode": ("user", "system"), "direction": ("sent", "received"), "gpu": ("0", "1"), "device": ("sda", "sdb")}


def points():
    """Yield a point of each series of the profile, two of each device."""
    for ours in OTEL:
        metric = declared()[ours]
        ways = [VALUES.get(key, ("0", "1")) for key in metric.dims]
        if metric.dims == ("device", "direction"):
            ways = [("read", "write") if key == "direction" else VALUES[key] for key in metric.dims]
        for words in itertools.product(*ways):
            yield point_of(metric, 50.0, dict(zip(metric.dims, words, strict=True)))


def test_every_metric_of_the_profile_is_ours_and_every_name_has_the_conventions_form():
    assert {*OTEL} <= {*declared()}
    assert all(re.fullmatch(r"(system|hw|process|container)(\.[a-z_]+)+", name.template) for name in OTEL.values())
    assert f"https://opentelemetry.io/schemas/{profile('otel').version}" == SCHEMA


def test_no_two_series_become_one():
    rename, given = renamer("otel"), [*points()]
    sent = [rename(point) for point in given]
    found = {(point.metric.name, point.dims) for point in sent}
    assert len(found) == len(given)
    assert len([*read(OtlpEncoder({}).encode(sent))]) == len(given)
    for name in {point.metric.name for point in sent}:
        assert len({(of.metric.kind, of.metric.unit, of.metric.help) for of in sent if of.metric.name == name}) == 1


@pytest.mark.parametrize(
    ("ours", "dims", "theirs"),
    [
        ("cpu.utilization", {}, ("system.cpu.utilization", "1", 0.5, {})),
        ("cpu.mode.utilization", {"mode": "user"}, ("system.cpu.utilization", "1", 0.5, {"cpu.mode": "user"})),
        (
            "rdma.rate", {"device": "mlx5_0", "port": "1"},
            ("hw.network.bandwidth.limit", "By/s", 50 / 8 * 1e9, {"hw.id": "mlx5_0/1"}),
        ),
        (
            "rdma.errors.detail", {"device": "mlx5_0", "port": "1", "error": "symbol_error"},
            ("hw.errors", "{error}", 50, {"hw.id": "mlx5_0/1", "hw.type": "network", "error.type": "symbol_error"}),
        ),
        ("memory.used", {}, ("system.memory.usage", "By", 50, {"system.memory.state": "used"})),
        (
            "network.interface.errors", {"interface": "eth0", "direction": "received"},
            ("system.network.errors", "{error}", 50,
             {"network.interface.name": "eth0", "network.io.direction": "receive"}),
        ),
        (
            "gpu.power", {"gpu": "3", "uuid": "GPU-5a1b"},
            ("hw.power", "W", 50, {"hw.id": "GPU-5a1b", "hw.name": "3", "hw.type": "gpu"}),
        ),
        (
            "job.gpu.held", {"job": "train-0", "namespace": "team", "container": "main", "gpu": "3", "uuid": "GPU-5a1b"},
            ("job.gpu.held", "1", 50, {
                "hw.id": "GPU-5a1b", "hw.name": "3", "job": "train-0",
                "k8s.pod.name": "train-0", "k8s.namespace.name": "team", "k8s.container.name": "main",
            }),
        ),
        (
            "job.cost", {"job": "41337", "partition": "h100", "user": "ada"},
            ("job.cost", "{USD}", 50, {"job": "41337", "partition": "h100", "user.name": "ada"}),
        ),
    ],
)  # fmt: skip
def test_a_reading_has_the_name_unit_and_attributes_of_the_convention(ours, dims, theirs):
    given = point_of(declared()[ours], 50, dims)
    point = renamer("otel")(given)
    assert (point.metric.name, point.metric.unit, point.value, dict(point.dims)) == theirs
    assert point.start_time == given.start_time
