from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chipwatch.advisor.catalogue import catalogue as installed
from chipwatch.config.identity.names import WORDS
from chipwatch.config.naming.profiles import PLACEHOLDER, PROFILES, profile
from chipwatch.config.naming.rename import Renamer, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary, counter, gauge

DOCS = Path(__file__).parents[4] / "docs" / "names.md"
CWAGENT = profile("cwagent").names
S = 10**9

# What the vendor registers for Linux: the allow-list of its translator/config, plugin and field joined by "_".
REGISTERED = {
    "cpu": "usage_active usage_iowait usage_irq usage_nice usage_softirq usage_steal usage_system usage_user",
    "disk": "free used used_percent",
    "diskio": "io_time reads read_bytes writes write_bytes",
    "swap": "used used_percent",
    "mem": "available total used used_percent",
    "net": "bytes_sent bytes_recv drop_in drop_out err_in err_out",
    "procstat": "memory_rss num_fds num_threads",
    "procstat_lookup": "pid_count",
    "nvidia_smi": "utilization_gpu temperature_gpu power_draw utilization_memory fan_speed memory_total memory_used"
    " clocks_current_graphics clocks_current_sm clocks_current_memory",
    "ethtool": "bw_in_allowance_exceeded bw_out_allowance_exceeded pps_allowance_exceeded conntrack_allowance_exceeded"
    " linklocal_allowance_exceeded conntrack_allowance_available",
    "efa": "tx_bytes rx_bytes tx_pkts rx_pkts rx_dropped send_bytes send_wrs recv_bytes recv_wrs rdma_read_bytes"
    " rdma_read_wrs rdma_read_wr_err rdma_write_bytes rdma_write_wrs rdma_write_wr_err retrans_pkts"
    " retrans_timeout_events impaired_remote_conn_events unresponsive_remote_events",
}
NAMES = {f"{plugin}_{field}" for plugin, fields in REGISTERED.items() for field in fields.split()}


@cache
def declared() -> dict[str, Metric]:
    return {metric.name: metric for metrics in installed().values() for metric in metrics}


@pytest.fixture
def rename():
    return renamer("cwagent")


def sent(rename, metric: Metric, value: float, **dims: str):
    """Return name, dimensions, unit and value of a point as it would be sent."""
    start_time = 1 if metric.kind is Kind.COUNTER else None
    point = rename(
        Datapoint(metric, value, Dimensions(dims), 9 * S, start_time, S, None, value if start_time else None)
    )
    value = point.value if point.increase is None else point.increase
    return point.metric.name, dict(point.dims), point.metric.unit, value


# -- names, dimensions, units and scale -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "row",
    [
        ("cpu.utilization", {}, "cpu_usage_active", {"cpu": "cpu-total"}, "%", 5),
        ("cpu.core.utilization", {"cpu": "11"}, "cpu_usage_active", {"cpu": "cpu11"}, "%", 5),
        ("cpu.mode.utilization", {"mode": "iowait"}, "cpu_usage_iowait", {"cpu": "cpu-total"}, "%", 5),
        ("memory.utilization", {}, "mem_used_percent", {}, "%", 5),
        ("memory.available", {}, "mem_available", {}, "By", 5),
        ("swap.utilization", {}, "swap_used_percent", {}, "%", 5),
        ("disk.utilization", {"path": "/"}, "disk_used_percent", {"path": "/"}, "%", 5),
        ("disk.available", {"path": "/d"}, "disk_free", {"path": "/d"}, "By", 5),
        ("disk.read", {}, "diskio_read_bytes", {}, "By", 5),
        ("disk.device.written", {"device": "nvme0n1"}, "diskio_write_bytes", {"name": "nvme0n1"}, "By", 5),
        (
            "disk.device.operations",
            {"device": "sda", "direction": "read"},
            "diskio_reads",
            {"name": "sda"},
            "{operation}",
            5,
        ),
        (
            "disk.device.operations",
            {"device": "sda", "direction": "write"},
            "diskio_writes",
            {"name": "sda"},
            "{operation}",
            5,
        ),
        ("disk.device.busy", {"device": "sda"}, "diskio_io_time", {"name": "sda"}, "ms", 5000),
        ("network.received", {}, "net_bytes_recv", {}, "By", 5),
        ("network.interface.sent", {"interface": "eth0"}, "net_bytes_sent", {"interface": "eth0"}, "By", 5),
        (
            "network.interface.errors",
            {"interface": "eth0", "direction": "sent"},
            "net_err_out",
            {"interface": "eth0"},
            "{packet}",
            5,
        ),
        (
            "network.interface.drops",
            {"interface": "eth0", "direction": "received"},
            "net_drop_in",
            {"interface": "eth0"},
            "{packet}",
            5,
        ),
        ("process.memory.rss", {}, "procstat_memory_rss", {}, "By", 5),
        ("process.count", {}, "procstat_lookup_pid_count", {}, "{process}", 5),
    ],
)
def test_a_metric_of_the_host_goes_by_the_vendors_name(rename, row):
    ours, dims, *theirs = row
    assert sent(rename, declared()[ours], 5, **dims) == tuple(theirs)


def of_gpu(name, unit):
    return gauge(name, unit, "G.", Level.BASIC, ("gpu",))


@pytest.mark.parametrize(
    "row",
    [
        (of_gpu("gpu.utilization", "%"), 97.0, "nvidia_smi_utilization_gpu", "1", 97.0),
        (of_gpu("gpu.memory.activity", "%"), 40.0, "nvidia_smi_utilization_memory", "1", 40.0),
        (of_gpu("gpu.memory.used", "By"), 3 * 2.0**20, "nvidia_smi_memory_used", "MiBy", 3.0),
        (of_gpu("gpu.memory.total", "By"), 2.0**30, "nvidia_smi_memory_total", "MiBy", 1024.0),
        (of_gpu("gpu.power", "W"), 300.5, "nvidia_smi_power_draw", "W", 300.5),
        (of_gpu("gpu.temperature", "Cel"), 61.0, "nvidia_smi_temperature_gpu", "Cel", 61.0),
        (of_gpu("gpu.clock.sm", "MHz"), 1980.0, "nvidia_smi_clocks_current_sm", "MHz", 1980.0),
        (of_gpu("gpu.fan.utilization", "%"), 30.0, "nvidia_smi_fan_speed", "1", 30.0),
    ],
)
def test_a_metric_of_a_gpu_goes_by_its_index_and_without_a_unit(rename, row):
    metric, value, name, *theirs = row
    assert sent(rename, metric, value, gpu="3") == (name, {"index": "3"}, *theirs)


def test_a_gpu_has_the_name_of_its_model_where_the_model_is_a_dimension(rename):
    metric = gauge("gpu.power", "W", "G.", Level.BASIC, ("gpu", "mig", "model"))
    dims = Dimensions(gpu="0", mig="1", model="NVIDIA H200", instance_id="i-1")
    point = rename(metric.point(1, 300.0, dims))
    assert dict(point.dims) == {"index": "0", "name": "NVIDIA H200", "mig": "1", "InstanceId": "i-1"}
    assert sorted(point.metric.dims) == ["index", "mig", "name"]


CORE = ("neuron_core", "neuron_device")


@pytest.mark.parametrize(
    ("metric", "dims", "name", "theirs"),
    [
        (
            gauge("neuron.core.utilization", "%", "N.", dims=CORE),
            {"neuron_core": "5", "neuron_device": "2"},
            "node_neuroncore_utilization",
            {"NeuronCore": "core5", "NeuronDevice": "device2"},
        ),
        (
            gauge("neuron.core.memory.used", "By", "N.", dims=(*CORE, "category")),
            {"neuron_core": "5", "neuron_device": "2", "category": "model_code"},
            "node_neuroncore_memory_usage_model_code",
            {"NeuronCore": "core5", "NeuronDevice": "device2"},
        ),
        (
            counter("neuron.execution.errors", "{error}", "N.", dims=("error",)),
            {"error": "numerical"},
            "node_neuron_execution_errors_numerical",
            {},
        ),
        (
            counter("neuron.ecc.events", "{event}", "N.", dims=("neuron_device", "memory", "corrected")),
            {"neuron_device": "0", "memory": "sram", "corrected": "no"},
            "node_neurondevice_hw_ecc_events_sram_ecc_uncorrected",
            {"NeuronDevice": "device0"},
        ),
    ],
)
def test_a_metric_of_neuron_goes_by_container_insights_name_of_a_node(rename, metric, dims, name, theirs):
    assert sent(rename, metric, 1, **dims)[:2] == (name, theirs)


def test_every_name_of_the_host_and_the_gpus_is_one_that_the_vendor_registers():
    modes = ("user", "nice", "system", "iowait", "irq", "softirq", "steal")
    ours = {
        "mode": modes, "direction": ("read", "write"), "operation": ("send", "recv", "rdma_read", "rdma_write"),
        "error": ("rx_drops", "rdma_read_wr_err", "rdma_write_wr_err", "unresponsive_remote_events"),
    }  # fmt: skip
    for metric, name in CWAGENT.items():
        if metric.startswith("neuron."):
            continue
        words = {key: [name.words.get(w, w) for w in of] for key, of in ours.items()}
        if name.words:
            words["direction"] = words["limit"] = [*name.words.values()]
        keys = PLACEHOLDER.findall(name.template)
        for values in product(*(words[key] for key in keys)):
            assert name.template.format_map(dict(zip(keys, values, strict=True))) in NAMES


def test_no_name_is_for_a_metric_of_the_host_that_no_collector_has():
    areas = ("cpu.", "memory.", "swap.", "disk.", "network.", "process.")
    assert {name for name in CWAGENT if name.startswith(areas)} <= set(declared())


def test_cloudwatch_has_a_word_for_every_unit():
    rules = pytest.importorskip("chipwatch_sinks.common.cloudwatch_rules")
    theirs = {"diskio_io_time": "Milliseconds", "nvidia_smi_memory_used": "None", "nvidia_smi_fan_speed": "None"}
    for name in CWAGENT.values():
        assert name.unit is None or rules.unit_of(name.unit) == theirs.get(name.template, "None"), name.template


# -- the machine ----------------------------------------------------------------------------------------------------


def test_the_machines_dimensions_are_renamed_on_every_metric(rename):
    here = {"instance_id": "i-1", "instance_type": "p5", "ami_id": "ami-1", "autoscaling_group": "g", "team": "a"}
    theirs = {"InstanceId": "i-1", "InstanceType": "p5", "ImageId": "ami-1", "AutoScalingGroupName": "g", "team": "a"}
    assert sent(rename, declared()["memory.used"], 1, **here)[1] == theirs
    assert sent(rename, declared()["cpu.utilization"], 1, **here)[1] == theirs | {"cpu": "cpu-total"}
    name, dims, *_ = sent(rename, declared()["cpu.load"], 1, window="1m", **here)
    assert (name, dims) == ("cpu.load", theirs | {"window": "1m"})


def test_a_metrics_own_dimension_is_not_taken_for_the_machines(rename):
    metric = gauge("scraped.thing", "1", "S.", dims=("hostname",))
    point = metric.point(1, 2.0, Dimensions(hostname="other", instance_id="i-1"))
    assert dict(rename(point).dims) == {"hostname": "other", "InstanceId": "i-1"}
    assert rename(point).metric is metric


def test_the_words_that_are_renamed_are_words():
    assert set(profile("cwagent").machine) <= set(WORDS)


# -- counters -------------------------------------------------------------------------------------------------------


def test_the_increase_of_a_window_is_kept_and_scaled(rename):
    busy = declared()["disk.device.busy"]
    dims = Dimensions(device="sda")
    points = [Datapoint(busy, total, dims, at * S, S, (at - 60) * S, None, rise) for at, total, rise in
              ((60, 100.0, 100.0), (120, 107.5, 7.5), (180, 2.0, None), (240, 3.0, 1.0))]  # fmt: skip
    assert [rename(point).increase for point in points] == [100_000.0, 7500.0, None, 1000.0]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e15), min_size=1, max_size=20))
def test_no_increase_is_lost_whatever_the_counter_did_before(rises):
    rename, total, metric = renamer("cwagent"), 1e9, declared()["network.interface.sent"]
    for at, rise in enumerate(rises, 1):
        total += rise
        point = Datapoint(metric, total, Dimensions(interface="eth0"), at * S, 0, (at - 1) * S, None, rise)
        assert rename(point).increase == rise


def test_a_summary_is_scaled_with_its_gauge(rename):
    summary = Summary(2, 6 * 2.0**20, 2.0**20, 5 * 2.0**20, (2.0**20, 5 * 2.0**20), (1, 1))
    point = Datapoint(of_gpu("gpu.memory.used", "By"), 3 * 2.0**20, Dimensions(gpu="0"), 9, None, 1, summary)
    assert rename(point).summary == Summary(2, 6.0, 1.0, 5.0, (1.0, 5.0), (1, 1))


# -- the whole ------------------------------------------------------------------------------------------------------


def test_different_series_stay_different(rename):
    words = {"direction": ("sent", "received", "read", "write"), "corrected": ("yes", "no")}
    metrics = [*declared().values(), *(of_gpu(name, "1") for name in CWAGENT if name.startswith("gpu."))]
    ours, theirs = set(), set()
    for metric in metrics:
        for values in product(*(words.get(key, ("a", "b")) for key in metric.dims)):
            dims = Dimensions(dict(zip(metric.dims, values, strict=True)))
            ours.add((metric.name, dims))
            point = rename(metric.point(1, 1.0, dims, start_time=0 if metric.kind is Kind.COUNTER else None))
            theirs.add((point.metric.name, point.dims))
            assert sorted(point.dims) == sorted(point.metric.dims)
    assert len(theirs) == len(ours)


def test_what_was_learnt_once_is_not_learnt_again(rename):
    point = declared()["cpu.load"].point(1, 2.0, Dimensions(window="1m", instance_id="i-1"))
    assert rename(point).dims is rename(point._replace(at=2)).dims


def test_the_profile_is_offered():
    assert list(PROFILES) == [
        "native",
        "wandb",
        "wandb-docs",
        "mlflow",
        "cwagent",
        "neuron-prometheus",
        "dcgm",
        "dcgm4.6",
        "node",
        "otel",
    ]
    assert isinstance(renamer("cwagent"), Renamer)


@pytest.mark.parametrize(
    "profile",
    [profile(name).names for name in ("wandb", "wandb-docs", "mlflow", "cwagent", "neuron-prometheus")],
    ids=["wandb", "wandb-docs", "mlflow", "cwagent", "neuron"],
)
def test_the_document_has_every_name(profile):
    rows = [line.split(" | ")[:2] for line in DOCS.read_text().splitlines() if line.startswith("| `")]
    for metric, name in profile.items():
        assert [f"| `{metric}`", f"`{name.template}`"] in rows


def test_the_document_has_the_machines_dimensions():
    rows = DOCS.read_text().splitlines()
    for ours, theirs in profile("cwagent").machine.items():
        assert f"| `{ours}` | `{theirs}` |" in rows


def test_the_total_latency_alone_gets_the_name_of_the_script():
    latency, rename = declared()["neuron.execution.latency"], renamer("neuron-prometheus")
    total, device = (
        rename(latency.point(1, 0.1, Dimensions(percentile="p50", scope=scope))) for scope in ("total", "device")
    )

    assert (total.metric.name, dict(total.dims)) == (
        "execution_latency_seconds",
        {"percentile": "p50", "scope": "total"},
    )
    assert (device.metric.name, dict(device.dims)) == (latency.name, {"percentile": "p50", "scope": "device"})
