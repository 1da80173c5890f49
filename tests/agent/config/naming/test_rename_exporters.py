"""The profiles of dcgm-exporter and node_exporter: names, labels, units and meaning as their pages have them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.agent.config.naming.builders import S, declared, point_of

from chipwatch.config.naming.profiles import profile
from chipwatch.config.naming.rename import copier, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, counter, gauge
from chipwatch_sinks.prometheus.page import Format, Page

FIXTURES = Path(__file__).parents[3] / "fixtures"
DCGM, DCGM_4_7, NODE = (profile(name).names for name in ("dcgm", "dcgm4.7", "node"))
KEYS = ("gpu", "uuid", "model")
GPU = Dimensions(gpu="1", uuid="GPU-a7c8", model="Tesla T4", hostname="n-1")
LABELS = {"gpu": "1", "UUID": "GPU-a7c8", "device": "nvidia1", "modelName": "Tesla T4", "Hostname": "n-1"}
# The fields in etc/default-counters.csv of dcgm-exporter, also in its comments.
DCGM_FIELDS = {
    "DEV": "SM_CLOCK MEM_CLOCK MEMORY_TEMP GPU_TEMP POWER_USAGE TOTAL_ENERGY_CONSUMPTION PCIE_REPLAY_COUNTER GPU_UTIL MEM_COPY_UTIL"
    " ENC_UTIL DEC_UTIL XID_ERRORS FB_FREE FB_USED FB_RESERVED NVLINK_BANDWIDTH_TOTAL VGPU_LICENSE_STATUS POWER_VIOLATION"
    " UNCORRECTABLE_REMAPPED_ROWS CORRECTABLE_REMAPPED_ROWS ROW_REMAP_FAILURE THERMAL_VIOLATION SYNC_BOOST_VIOLATION"
    " BOARD_LIMIT_VIOLATION LOW_UTIL_VIOLATION RELIABILITY_VIOLATION ECC_SBE_VOL_TOTAL ECC_DBE_VOL_TOTAL",
    "PROF": "GR_ENGINE_ACTIVE PIPE_TENSOR_ACTIVE DRAM_ACTIVE PCIE_TX_BYTES PCIE_RX_BYTES SM_ACTIVE SM_OCCUPANCY"
    " PIPE_FP64_ACTIVE PIPE_FP32_ACTIVE PIPE_FP16_ACTIVE",
}
FIELDS = {f"DCGM_FI_{group}_{name}" for group, names in DCGM_FIELDS.items() for name in names.split()}
OTHERS = {
    *("DCGM_FI_DEV_ENFORCED_POWER_LIMIT", "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_FB_TOTAL"),
    *(f"DCGM_FI_DEV_CLOCKS_EVENT_REASON_{of}_SLOWDOWN_NS" for of in ("SW_THERM", "HW_THERM", "HW_POWER_BRAKE")),
}
"""Fields of DCGM (dcgm_fields.h) that the file does not have."""
BASE_UNITS = {
    f"DCGM_FI_DEV_{old}": (f"DCGM_FI_DEV_{new}", factor) for old, new, factor in (
        ("SM_CLOCK", "SM_CLOCK_HERTZ", 1e6), ("MEM_CLOCK", "MEMORY_CLOCK_HERTZ", 1e6),
        ("TOTAL_ENERGY_CONSUMPTION", "GPU_ENERGY_JOULES_TOTAL", 1e-3), ("FAN_SPEED", "FAN_SPEED_RATIO", 0.01),
        ("GPU_UTIL", "GPU_UTIL_RATIO", 0.01), ("MEM_COPY_UTIL", "MEMORY_UTIL_RATIO", 0.01),
        ("ENC_UTIL", "ENC_UTIL_RATIO", 0.01), ("DEC_UTIL", "DEC_UTIL_RATIO", 0.01), ("FB_TOTAL", "FB_CAPACITY_BYTES", 2**20),
        ("FB_FREE", "FB_FREE_BYTES", 2**20), ("FB_USED", "FB_USED_BYTES", 2**20), ("FB_RESERVED", "FB_RESERVED_BYTES", 2**20),
    )
}  # fmt: skip
"""Former field -> the field of DCGM 4.7 with the same value in another unit, and the factor (fields 1600 to 1628)."""
VALUES = {"cause": ("correctable", "uncorrectable"), "window": ("1m", "5m", "15m"), "direction": ("sent", "received"),
          "reason": ("power", "thermal", "sync_boost", "board_limit", "low_utilization", "reliability",
                     "sw_thermal", "hw_thermal", "power_brake")}  # fmt: skip


def sent(profile, metric, value, **dims):
    point = renamer(profile)(point_of(metric, value, dims))
    return point.metric.name, dict(point.dims), point.value


def names(profile, table):
    """Return each name that a metric of ours gets, over all values of its dimensions."""
    for ours in table:
        metric = declared()[ours]
        (key,) = {*VALUES} & {*metric.dims} or {""}
        disk = ("read", "write") if "device" in metric.dims else None
        for value in disk or VALUES.get(key, ("",)):
            yield sent(profile, metric, 1, **(dict.fromkeys(metric.dims, "0") | ({key: value} if key else {})))[0]


def test_every_field_of_dcgm_is_one_that_its_exporter_has():
    assert {*names("dcgm", DCGM)} <= FIELDS | OTHERS
    assert len({*names("dcgm", DCGM)} & FIELDS) == 33


def test_every_field_of_dcgm_4_7_has_the_id_of_its_former_name_or_is_the_same_value_in_another_unit():
    rows = [line.split("\t") for line in (FIXTURES / "nvidia/dcgm_fields.tsv").read_text().splitlines()[1:]]
    renamed = {former: name for _, former, name in rows}
    former, newer = ([*names(name, table)] for name, table in (("dcgm", DCGM), ("dcgm4.7", DCGM_4_7)))
    for old, new in zip(former, newer, strict=True):
        assert new == (BASE_UNITS[old][0] if old in BASE_UNITS else renamed[old])
    copied = [[copy.name.template for copy in profile(name).copies.values()] for name in ("dcgm", "dcgm4.7")]
    assert [renamed[old] for old in copied[0]] == copied[1]


@pytest.mark.parametrize(("former", "newer", "factor"), [(old, *new) for old, new in BASE_UNITS.items()])
def test_a_field_in_base_units_is_the_former_value_in_its_unit(former, newer, factor):
    (ours,) = (ours for ours, name in DCGM.items() if name.template == former)
    metric = gauge_or_counter(declared()[ours])
    old, new = (sent(name, metric, 64.0, **GPU) for name in ("dcgm", "dcgm4.7"))
    assert (old[0], new[0]) == (former, newer)
    assert new[2] == pytest.approx(old[2] * factor)
    assert new[1] == {"hostname" if key == "Hostname" else key: value for key, value in old[1].items()}


def test_the_label_of_the_driver_has_another_name_in_dcgm_4_7():
    metric = gauge_or_counter(declared()["gpu.temperature"])
    labels = [sent(name, metric, 60, **GPU, driver="580.65")[1] for name in ("dcgm", "dcgm4.7")]
    assert labels[0]["DCGM_FI_DRIVER_VERSION"] == labels[1]["DCGM_FI_SYSTEM_DRIVER_VERSION"] == "580.65"


def test_the_labels_of_a_holder_win_over_the_labels_of_the_agents_own_pod():
    pod = {"pod": "train-0", "namespace": "team", "container": "main"}
    metric = replace(gauge("gpu.power", "W", "Power."), dims=("gpu", *pod), owner=(*pod,))
    new = renamer("dcgm")(metric.point(9, 500.0, Dimensions({**GPU, **pod, **{f"k8s_{key}": "agent" for key in pod}})))
    assert {key: new.dims[key] for key in pod} == pod
    assert (new.metric.name, new.metric.owner) == ("DCGM_FI_DEV_POWER_USAGE", (*pod,))


@pytest.mark.parametrize(
    ("ours", "dims", "value", "name", "theirs"),
    [
        ("gpu.clock.sm", {}, 1590, "DCGM_FI_DEV_SM_CLOCK", 1590),
        ("gpu.memory.used", {}, 3 * 2**20, "DCGM_FI_DEV_FB_USED", 3),
        ("gpu.energy", {}, 12.5, "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 12_500),
        ("gpu.utilization", {}, 97, "DCGM_FI_DEV_GPU_UTIL", 97),
        ("gpu.sm.active", {}, 50, "DCGM_FI_PROF_SM_ACTIVE", 0.5),
        ("gpu.throttled", {"reason": "thermal"}, 2, "DCGM_FI_DEV_THERMAL_VIOLATION", 2e9),
        ("gpu.rows.remapped", {"cause": "uncorrectable"}, 4, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 4),
    ],
)
def test_a_reading_of_a_gpu_has_the_name_the_unit_and_the_labels_of_dcgm(ours, dims, value, name, theirs):
    metric = declared()[ours]
    found = sent("dcgm", gauge_or_counter(metric), value, **GPU, **dims)
    assert found == (name, LABELS, pytest.approx(theirs))


@pytest.mark.parametrize("name", ["dcgm", "dcgm4.7"])
def test_a_job_of_slurm_has_the_label_of_a_mapping_folder_and_a_pod_has_not(name):
    metric = declared()["job.gpu.held"]
    slurm = sent(name, metric, 1, gpu="0", job="41337", partition="h100")[1]
    assert (slurm["hpc_job"], slurm["partition"], slurm.get("pod")) == ("41337", "h100", None)
    pod = sent(name, metric, 1, gpu="0", job="train-0", namespace="team")[1]
    assert (pod["pod"], pod.get("hpc_job")) == ("train-0", None)


def gauge_or_counter(metric):
    make = counter if metric.kind is Kind.COUNTER else gauge
    return make(
        metric.name, metric.unit, metric.help, Level.BASIC, (*KEYS, *(key for key in metric.dims if key != "gpu"))
    )


def test_a_capture_of_the_exporter_has_the_names_and_labels_that_we_send():
    page = (FIXTURES / "openmetrics/dcgm_exporter_t4_gke.prom").read_text()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    ours = dict(zip(names("dcgm", DCGM), DCGM, strict=False))
    assert {"DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_MEM_COPY_UTIL"} <= {*families} & {*ours}
    for family in families.values():
        for sample in family.samples:
            assert {*LABELS} <= {*sample.labels}


OF_ETH0 = {"interface": "eth0", "direction": "received"}


@pytest.mark.parametrize(
    ("ours", "dims", "name", "labels"),
    [
        ("cpu.load", {"window": "15m"}, "node_load15", {}),
        ("disk.available", {"path": "/d"}, "node_filesystem_avail_bytes", {"mountpoint": "/d"}),
        ("disk.device.busy", {"device": "sda"}, "node_disk_io_time_seconds_total", {"device": "sda"}),
        ("network.interface.errors", OF_ETH0, "node_network_receive_errs_total", {"device": "eth0"}),
    ],
)
def test_a_reading_of_the_host_has_the_name_and_the_labels_of_node_exporter(ours, dims, name, labels):
    assert sent("node", declared()[ours], 5, **dims) == (name, labels, 5)


def test_the_last_xid_comes_beside_the_counts():
    copy = copier("dcgm")
    metric = counter("gpu.xid", "{error}", "X.", dims=("gpu", "xid", "action"))

    def dims(gpu, xid):
        return Dimensions(
            gpu=gpu, xid=xid, action={"79": "restart_machine", "48": "see_workflow"}.get(xid, "restart_app")
        )

    def tick(at, *counts):
        made = copy([metric.point(at, n, dims(gpu, xid), start_time=1) for gpu, xid, n in counts])
        assert all({*of.dims} == {*of.metric.dims} == {"gpu", "device"} for of in made)
        return [(of.metric.name, of.metric.kind, of.dims["gpu"], of.value) for of in made]

    name = ("DCGM_FI_DEV_XID_ERRORS", Kind.GAUGE)
    assert tick(1) == []
    assert tick(2, ("0", "79", 1)) == [(*name, "0", 79)]
    assert tick(3, ("0", "79", 1), ("0", "31", 2), ("1", "48", 1)) == [(*name, "0", 31), (*name, "1", 48)]
    assert tick(4, ("0", "79", 1), ("0", "31", 2), ("1", "48", 1)) == [(*name, "0", 31), (*name, "1", 48)]
    assert tick(5, ("0", "79", 2), ("0", "31", 2), ("1", "48", 1)) == [(*name, "0", 79), (*name, "1", 48)]


def test_bytes_of_pcie_are_a_rate_as_theirs_and_a_counter_as_ours():
    metric = counter("gpu.pcie.sent", "By", "X.", dims=("gpu",))
    copy, dims = copier("dcgm"), Dimensions(gpu="0")
    assert copy([metric.point(5 * S, 100, dims, start_time=1)]) == []
    (one,) = copy([Datapoint(metric, 700, dims, 7 * S, 1, 5 * S, None, 600.0)])
    assert (one.metric.name, one.metric.kind, one.value) == ("DCGM_FI_PROF_PCIE_TX_BYTES", Kind.GAUGE, 300)


@pytest.mark.parametrize("profile", ["dcgm", "dcgm4.7", "node"])
def test_the_page_for_prometheus_has_these_names_unchanged(profile):
    rename, page = renamer(profile), Page()
    points = []
    for ours in {"dcgm": DCGM, "dcgm4.7": DCGM_4_7, "node": NODE}[profile]:
        metric = declared()[ours]
        points.append(rename(point_of(metric, 50, dict.fromkeys(metric.dims, "0"))))
    assert page.take(points) == []
    found = {family.name for family in text_string_to_metric_families(page.body(Format.TEXT, zipped=False).decode())}
    sent_names = {point.metric.name for point in points}
    assert {name.removesuffix("_total") for name in found} == {name.removesuffix("_total") for name in sent_names}
    for point in points:
        assert re.search(
            rf"^{point.metric.name}(?:{{.*}})? {re.escape(repr(point.value))}$",
            page.body(Format.TEXT, zipped=False).decode(),
            re.MULTILINE,
        )
