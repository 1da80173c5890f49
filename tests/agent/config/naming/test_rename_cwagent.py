from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent.config.naming.builders import S, declared, point_of

from chipwatch.config.naming.profiles import PLACEHOLDER, profile
from chipwatch.config.naming.rename import renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, gauge

CWAGENT = profile("cwagent").names

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
    ("ours", "dims", "name", "theirs"),
    [
        ("cpu.utilization", {}, "cpu_usage_active", {"cpu": "cpu-total"}),
        ("cpu.core.utilization", {"cpu": "11"}, "cpu_usage_active", {"cpu": "cpu11"}),
        ("cpu.mode.utilization", {"mode": "iowait"}, "cpu_usage_iowait", {"cpu": "cpu-total"}),
        ("memory.available", {}, "mem_available", {}),
        ("disk.available", {"path": "/d"}, "disk_free", {"path": "/d"}),
        ("disk.device.operations", {"device": "sda", "direction": "read"}, "diskio_reads", {"name": "sda"}),
        ("disk.device.busy", {"device": "sda"}, "diskio_io_time", {"name": "sda"}),
        ("network.interface.errors", {"interface": "eth0", "direction": "sent"}, "net_err_out", {"interface": "eth0"}),
        ("process.count", {}, "procstat_lookup_pid_count", {}),
    ],
)
def test_a_metric_of_the_host_goes_by_the_vendors_name(rename, ours, dims, name, theirs):
    unit, value = ("ms", 5000) if ours == "disk.device.busy" else (declared()[ours].unit, 5)
    assert sent(rename, declared()[ours], 5, **dims) == (name, theirs, unit, value)


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


CORE = {"neuron_core": "5", "neuron_device": "2"}
OF_CORE = {"NeuronCore": "core5", "NeuronDevice": "device2"}
ECC = {"neuron_device": "0", "memory": "sram", "corrected": "no"}


@pytest.mark.parametrize(
    ("ours", "dims", "name", "theirs"),
    [
        ("core.utilization", CORE, "neuroncore_utilization", OF_CORE),
        ("core.memory.used", CORE | {"category": "model_code"}, "neuroncore_memory_usage_model_code", OF_CORE),
        ("execution.errors", {"error": "numerical"}, "neuron_execution_errors_numerical", {}),
        ("ecc.events", ECC, "neurondevice_hw_ecc_events_sram_ecc_uncorrected", {"NeuronDevice": "device0"}),
    ],
)
def test_a_metric_of_neuron_goes_by_container_insights_name_of_a_node(rename, ours, dims, name, theirs):
    assert sent(rename, declared()[f"neuron.{ours}"], 1, **dims)[:2] == (f"node_{name}", theirs)


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


def test_cloudwatch_has_a_word_for_every_unit():
    rules = pytest.importorskip("chipwatch_sinks.cloudwatch.wire")
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


@settings(deadline=None)
@given(st.lists(st.floats(0, 1e15), min_size=1, max_size=20))
def test_no_increase_is_lost_whatever_the_counter_did_before(rises):
    rename, total, metric = renamer("cwagent"), 1e9, declared()["network.interface.sent"]
    for at, rise in enumerate(rises, 1):
        total += rise
        point = Datapoint(metric, total, Dimensions(interface="eth0"), at * S, 0, (at - 1) * S, None, rise)
        assert rename(point).increase == rise


def test_different_series_stay_different(rename):
    words = {"direction": ("sent", "received", "read", "write"), "corrected": ("yes", "no")}
    metrics = [*declared().values(), *(of_gpu(name, "1") for name in CWAGENT if name.startswith("gpu."))]
    ours, theirs = set(), set()
    for metric in metrics:
        for values in product(*(words.get(key, ("a", "b")) for key in metric.dims)):
            dims = Dimensions(dict(zip(metric.dims, values, strict=True)))
            ours.add((metric.name, dims))
            point = rename(point_of(metric, 1.0, dims))
            theirs.add((point.metric.name, point.dims))
            assert sorted(point.dims) == sorted(point.metric.dims)
    assert len(theirs) == len(ours)


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
