"""Readings of a GPU that works, value by value."""

import re
from pathlib import Path

import pytest
from tests.agent.collectors.nvidia.conftest import SELDOM

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.collectors.nvidia.activity import _integrated
from chipwatch.collectors.nvidia.metrics import PEAKS
from chipwatch.contract.datapoint import Kind, Level
from chipwatch.contract.testing import check_collector

FIXTURES = Path(__file__).parents[3] / "fixtures"
MIB = 1 << 20

SINCE = {
    "gpu.engine.active", "gpu.memory.available", "gpu.memory.reserved", "gpu.pcie.replays", "gpu.recovery_action", "gpu.efficiency",
    "gpu.rows.failed", "gpu.fault", "gpu.link.errors", "gpu.unified_memory", "gpu.event", "gpu.pipe.active",
    "gpu.context_switch.active", "gpu.c2c.sent", "gpu.c2c.received", "gpu.module.power", "gpu.vgpus", "gpu.licensed", *(name[:-1] for name in SELDOM),
}  # fmt: skip
"""Metrics that the first catalogue lacks."""

BASIC = {
    "gpu.utilization{gpu=0}": 100,
    "gpu.memory.used{gpu=0}": 19818 * MIB,
    "gpu.memory.utilization{gpu=0}": 100 * 19818 / 81559,
    "gpu.temperature{gpu=0}": 59,
    "gpu.ecc.uncorrected{gpu=0}": 0,
    "gpu.power{gpu=0}": 631.95,
    "gpu.power.utilization{gpu=0}": 100 * 631.95 / 700,
    "gpu.state{gpu=0}": 1,
}
DETAILED = BASIC | {
    "gpu.memory.activity{gpu=0}": 11,
    "gpu.memory.total{gpu=0}": 81559 * MIB,
    "gpu.memory.available{gpu=0}": 85_520_809_984 - 502_267_904 - 20_780_679_168,
    "gpu.memory.reserved{gpu=0}": 502_267_904,
    "gpu.memory.temperature{gpu=0}": 54,
    "gpu.power.limit{gpu=0}": 700,
    "gpu.energy{gpu=0}": 9_876_543.21,
    "gpu.clock.sm{gpu=0}": 1980,
    "gpu.clock.memory{gpu=0}": 2619,
    "gpu.clock.graphics{gpu=0}": 1980,
    "gpu.ecc.corrected{gpu=0}": 0,
    "gpu.encoder.utilization{gpu=0}": 0,
    "gpu.decoder.utilization{gpu=0}": 0,
    "gpu.pcie.sent{gpu=0}": 4e9,
    "gpu.pcie.received{gpu=0}": 9e9,
    "gpu.nvlink.sent{gpu=0}": 5_000_000 * 1024,
    "gpu.nvlink.received{gpu=0}": 6_000_000 * 1024,
    "gpu.pcie.replays{gpu=0}": 3,
    "gpu.rows.failed{gpu=0}": 0,
    "gpu.rows.remapped{cause=correctable,gpu=0}": 0,
    "gpu.rows.remapped{cause=uncorrectable,gpu=0}": 0,
    "gpu.throttled{gpu=0,reason=power}": 0,
    "gpu.throttled{gpu=0,reason=thermal}": 0,
    "gpu.throttled{gpu=0,reason=sync_boost}": 0,
    "gpu.throttled{gpu=0,reason=board_limit}": 1.5,
    "gpu.throttled{gpu=0,reason=low_utilization}": 0.25,
    "gpu.throttled{gpu=0,reason=reliability}": 0,
}
SLOWDOWNS = {
    "gpu.throttled{gpu=0,reason=sw_thermal}": 2.5,
    "gpu.throttled{gpu=0,reason=hw_thermal}": 3.5,
    "gpu.throttled{gpu=0,reason=power_brake}": 0,
}
ACTIVE = {
    "gpu.engine.active{gpu=0}": 99.5,
    "gpu.sm.active{gpu=0}": 98.25,
    "gpu.sm.occupancy{gpu=0}": 61.5,
    "gpu.tensor.active{gpu=0}": 72.75,
    "gpu.efficiency{gpu=0}": 72.75 * (1980 / 1830),
    "gpu.dram.active{gpu=0}": 9.5,
    "gpu.fp64.active{gpu=0}": 0,
    "gpu.fp32.active{gpu=0}": 3.25,
    "gpu.fp16.active{gpu=0}": 0.5,
}


def test_the_values_of_an_h100_at_level_basic(driver, watch):
    driver("h100")
    gpu = watch(Level.BASIC)
    assert gpu.read() == BASIC
    assert gpu.problems == []
    assert {point.at for point in gpu.points} == {gpu.at}


def test_the_values_of_an_h100_at_level_detailed_with_activity_from_the_second_tick(driver, watch):
    driver("h100")
    gpu = watch(Level.DETAILED)
    assert gpu.read() == DETAILED
    assert gpu.read() == pytest.approx(DETAILED | ACTIVE)
    assert gpu.problems == []


@pytest.mark.parametrize(
    ("version", "first"),
    [
        ("535.230.02", None), ("565.57.01", None), ("570.172.08", None), ("575.51.03", 251), ("580.65.06", 251),
        ("580.82.07", 269), ("580.178", 269), ("590.48.01", 269), ("595.99", 269), ("615.71", 269), ("N/A", None),
    ],
)  # fmt: skip
def test_slowdowns_are_read_from_the_fields_of_the_driver(driver, watch, version, first):
    fake = driver("h100")
    fake.machine["driver"] = version
    decoys = {str(number): 9_000_000_000 for number in (*range(251, 254), *range(269, 272))}
    seconds = (2_500_000_000, 3_500_000_000, 0)
    fake.gpus[0]["field"] |= decoys | ({str(first + n): ns for n, ns in enumerate(seconds)} if first else {})
    read = watch(Level.DETAILED).read()
    assert read == DETAILED | (SLOWDOWNS if first else {})


def test_a_geforce_has_a_fan_but_no_ecc_rows_nvlink_or_memory_temperature(driver, watch):
    driver("rtx4080s")
    gpu = watch()
    gpu.read()
    names = {re.sub("[{].*", "", name) for name in gpu.read()}
    assert names == {re.sub("[{].*", "", name) for name in DETAILED} - {
        "gpu.ecc.corrected",
        "gpu.ecc.uncorrected",
        "gpu.pcie.replays",
        "gpu.rows.failed",
        "gpu.rows.remapped",
        "gpu.nvlink.sent",
        "gpu.nvlink.received",
        "gpu.memory.temperature",
    } | {"gpu.fan.utilization"}
    assert gpu.read(10)["gpu.encoder.utilization{gpu=0}"] == 72
    assert gpu.problems == []


def test_each_mig_instance_has_memory_and_utilization(driver, watch):
    driver("h100_mig")
    gpu = watch(Level.BASIC)
    whole = {
        "gpu.memory.used{gpu=0}": 11125 * MIB,
        "gpu.memory.utilization{gpu=0}": 100 * 11125 / 81559,
        "gpu.temperature{gpu=0}": 53,
        "gpu.ecc.uncorrected{gpu=0}": 0,
        "gpu.power{gpu=0}": 433.78,
        "gpu.power.utilization{gpu=0}": 100 * 433.78 / 700,
        "gpu.state{gpu=0}": 1,
    }
    memory = {0: (9780, 40448), 1: (1287, 19968), 2: (15, 9856), 3: (15, 9856)}
    instances = {}
    for n, (used, total) in memory.items():
        instances[f"gpu.memory.used{{gpu=0,mig={n}}}"] = used * MIB
        instances[f"gpu.memory.utilization{{gpu=0,mig={n}}}"] = 100 * used / total
    assert gpu.read() == whole | instances
    activity = {"gpu.utilization{gpu=0,mig=0}": 97.5, "gpu.utilization{gpu=0,mig=1}": 0}
    assert gpu.read() == whole | instances | activity
    assert gpu.problems == []
    assert gpu.collector.describe() == "1 x NVIDIA H100 80GB HBM3, driver 590.48.01, 4 MIG instances"


def test_a_mig_instance_has_activity_at_level_detailed(driver, watch):
    driver("h100_mig")
    gpu = watch(Level.DETAILED)
    gpu.read()
    read = gpu.read()
    assert read["gpu.tensor.active{gpu=0,mig=0}"] == 70
    assert read["gpu.efficiency{gpu=0,mig=0}"] == pytest.approx(70 * 1980 / 1830)
    assert read["gpu.sm.occupancy{gpu=0,mig=0}"] == 60
    assert read["gpu.memory.total{gpu=0,mig=3}"] == 9856 * MIB


def test_uuid_and_model_are_dimensions_if_configured(driver, watch):
    driver("h100_mig")
    gpu = watch(Level.BASIC, dimensions=("uuid", "model"))
    gpu.read()
    dims = {point.metric.name: dict(point.dims) for point in gpu.points if "mig" not in point.dims}
    model = "NVIDIA H100 80GB HBM3"
    assert dims["gpu.state"] == {"gpu": "0", "uuid": "GPU-00000000-0000-0000-0000-000000000000", "model": model}
    first = next(dict(point.dims) for point in gpu.points if "mig" in point.dims)
    uuid = "MIG-00000000-0000-0000-0000-000000000000"
    assert first == {"gpu": "0", "mig": "0", "uuid": uuid, "model": f"{model} MIG 3g.40gb"}


@pytest.mark.parametrize("profile", ["h100", "h100_mig", "rtx4080s", "t4"])
@pytest.mark.parametrize("dimensions", [(), ("model",), ("uuid", "model")])
def test_the_collector_keeps_the_contract(driver, proc, tmp_path, profile, dimensions):
    fake = driver(profile, 2)
    fake.machine["events"] = "0:13,1:79"
    fake.write()
    config = NvidiaCollector.Config(proc=proc, root=tmp_path, dimensions=dimensions)
    assert check_collector(NvidiaCollector(config))


def test_the_declared_metrics_are_in_the_catalogue():
    text = (FIXTURES / "catalogue.md").read_text()
    gpu = text[text.index("## GPU (NVIDIA") : text.index("## Graphcore IPU")]
    rows = re.findall(r"^\| ((?:gpu\.process\.).*)", text, re.MULTILINE) + re.findall(
        r"^\| (gpu\..*)", gpu, re.MULTILINE
    )
    declared = {metric.name: metric for metric in NvidiaCollector.metrics if "mig" not in metric.dims}
    for row in rows:
        names, kind, unit, dims, level = [cell.strip() for cell in row.split("|")][:5]
        for name in names.split(", "):
            whole = f"gpu{name}" if name.startswith(".") else name
            metric = declared.pop(whole)
            assert metric.kind is {"G": Kind.GAUGE, "C": Kind.COUNTER}[kind], whole
            assert metric.unit == unit.split()[0], whole
            assert set(metric.dims) == {word.strip() for word in dims.split(",")}, whole
            wanted = "basic" if whole == "gpu.ecc.uncorrected" else re.split("[;,]", level)[0]
            assert metric.level is Level[wanted.upper()], whole
    assert {*declared} == SINCE


def test_memory_falls_back_to_the_first_version_of_the_query(fake, watch):
    fake.gpus[0]["memory"]["v2"] = "!13"
    gpu = watch(Level.DETAILED)
    read = gpu.read()
    assert read["gpu.memory.used{gpu=0}"] == (19818 + 479) * MIB
    assert "gpu.memory.reserved{gpu=0}" not in read
    assert gpu.problems == []


def test_temperature_falls_back_to_the_new_query(fake, watch):
    fake.gpus[0]["temperature"] = "!13"
    fake.gpus[0]["temperature_v"] = 61
    assert watch(Level.BASIC).read()["gpu.temperature{gpu=0}"] == 61


def test_nvlink_5_is_read_in_bytes(fake, watch):
    field = fake.gpus[0]["field"]
    field["202.-1"], field["204.-1"] = 700, 800
    read = watch().read()
    assert (read["gpu.nvlink.sent{gpu=0}"], read["gpu.nvlink.received{gpu=0}"]) == (5_000_000 * 1024, 6_000_000 * 1024)
    del field["138.-1"], field["139.-1"]
    read = watch().read()
    assert (read["gpu.nvlink.sent{gpu=0}"], read["gpu.nvlink.received{gpu=0}"]) == (700, 800)


@pytest.mark.parametrize("value", ["54u", "54s", "54d", "54l", "54h", "54"])
def test_a_field_is_read_as_the_type_in_the_answer(fake, watch, value):
    fake.gpus[0]["field"]["82"] = value
    assert watch().read()["gpu.memory.temperature{gpu=0}"] == 54


def test_impossible_values_are_absent(fake, watch):
    fake.gpus[0]["utilization"] = {"gpu": 4294967295, "memory": 12}
    fake.gpus[0]["memory"]["used"] = 2 * 81559 * MIB
    fake.gpus[0]["gpm"] |= {"2": "nan", "3": 100.0004, "5": -1}
    gpu = watch()
    gpu.read()
    read = gpu.read()
    memory = "memory.used", "memory.utilization", "memory.total"
    for name in ("utilization", *memory, "sm.active", "tensor.active", "efficiency"):
        assert f"gpu.{name}{{gpu=0}}" not in read
    assert read["gpu.sm.occupancy{gpu=0}"] == 100
    assert read["gpu.memory.activity{gpu=0}"] == 12


# Model: dense TFLOPS of FP16 and multiprocessors, by the data sheets; operations of FP16 in a clock of one: docs/nvidia-fields.md.
CHIPS = {
    "NVIDIA H100 80GB HBM3": (989.4, 132, 4096), "NVIDIA H200": (989.5, 132, 4096), "NVIDIA GH200 480GB": (989.5, 132, 4096),
    "NVIDIA GH200 144G HBM3e": (989.5, 132, 4096), "NVIDIA H100 PCIe": (756, 114, 4096),
    "NVIDIA H100 NVL": (835.5, 132, 4096), "NVIDIA H200 NVL": (835.5, 132, 4096),
    "NVIDIA B200": (2250, 148, 8192), "NVIDIA GB200": (2500, 148, 8192),
}  # fmt: skip


def test_a_peak_clock_gives_the_dense_peak_of_the_data_sheet():
    peaks = {model: 1e6 * tflops / (units * operations) for model, (tflops, units, operations) in CHIPS.items()}
    assert peaks == pytest.approx(PEAKS, rel=0.001)
    assert PEAKS["NVIDIA H100 80GB HBM3"] == 1830  # the clock of the tensor cores in arXiv 2605.20799


@pytest.mark.parametrize(
    ("row", "efficiency"),
    [
        (("NVIDIA H100 80GB HBM3", 100, 1830), 100),
        (("NVIDIA H100 80GB HBM3", 60, 1830), 60),
        (("NVIDIA H100 80GB HBM3", 60, 1220), 40),
        (("NVIDIA H100 80GB HBM3", 99, 1980), 100),  # the SM clock passes the clock of the peak
        (("NVIDIA H100 80GB HBM3", 0, 1980), 0),
        (("NVIDIA GB200", 50, 2062), 50),
        (("NVIDIA H20", 60, 1830), None),  # its peak is not in the table: absent, never estimated
        (("NVIDIA H100 80GB HBM3", "nan", 1830), None),
        (("NVIDIA H100 80GB HBM3", 60, "!3"), None),
    ],
)
def test_efficiency_is_tensor_activity_times_clock_by_peak_clock(fake, watch, row, efficiency):
    model, tensor, clock = row
    fake.gpus[0] |= {"name": model, "clock": {"1": clock}}
    fake.gpus[0]["gpm"] |= {"5": tensor}
    gpu = watch(Level.DETAILED)
    gpu.read()
    assert gpu.read().get("gpu.efficiency{gpu=0}") == (None if efficiency is None else pytest.approx(efficiency))


def test_a_fan_above_its_nominal_speed_is_at_100_percent(driver, watch):
    fake = driver("rtx4080s")
    fake.gpus[0]["fan"] = 104
    assert watch().read()["gpu.fan.utilization{gpu=0}"] == 100


def test_a_sample_after_a_gap_counts_for_twice_the_usual_time_at_most():
    ms = 10**6
    assert _integrated([(1000 * ms, 100.0), (1010 * ms, 0.0), (1020 * ms, 0.0)], 0) == (0.5, 20.0)
