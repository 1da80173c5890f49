"""Values of a GPU that change seldom: links, fabric, lifetime errors, spare rows, margins, reasons of low clocks."""

import ctypes

import pynvml
import pytest

from chipwatch.collectors.nvidia.health import EVERY, MOST_LINKS, SHUTDOWN_LIMIT
from chipwatch.collectors.nvidia.metrics import FAULT, JUDGED, LINK_FIELDS
from chipwatch.collectors.nvidia.metrics import FIELDS as ROWS
from chipwatch.collectors.nvidia.query import FIELD, TYPES, _values
from chipwatch.contract.datapoint import Level

PAUSE = EVERY / 1e9
CLUSTER = "00000000-0000-0000-0000-000000000001"
FIELDS = "nvmlDeviceGetFieldValues"
GB300 = {
    "gpu.links{gpu=0,kind=nvlink,state=up}": 18,
    "gpu.links{gpu=0,kind=nvlink,state=down}": 0,
    "gpu.links{gpu=0,kind=c2c,state=up}": 2,
    "gpu.links{gpu=0,kind=c2c,state=down}": 0,
    "gpu.links{gpu=0,kind=c2c,state=low_power}": 0,
    f"gpu.fabric{{clique=0,cluster={CLUSTER},gpu=0}}": 1,
    "gpu.temperature.margin{gpu=0}": 52,
    "gpu.temperature.limit{gpu=0,limit=shutdown}": -5,
    "gpu.temperature.limit{gpu=0,limit=slowdown}": 0,
    "gpu.temperature.limit{gpu=0,limit=clock}": 5,
    "gpu.nvlink.bit_error_rate{gpu=0,kind=effective}": 0,
    "gpu.nvlink.bit_error_rate{gpu=0,kind=symbol}": 0,
    "gpu.ecc.lifetime{gpu=0,kind=corrected}": 0,
    "gpu.ecc.lifetime{gpu=0,kind=uncorrected}": 0,
    **{f"gpu.ecc.lifetime{{gpu=0,kind=sram_{word}}}": 0 for word in ("l2", "sm", "pcie", "mcu", "other")},
    "gpu.pages.retired{cause=correctable,gpu=0}": 0,
    "gpu.pages.retired{cause=uncorrectable,gpu=0}": 0,
    "gpu.pcie.width{gpu=0}": 16,
    "gpu.pcie.generation{gpu=0}": 6,
    "gpu.clock.reduced{gpu=0,reason=idle}": 1,
}
"""Answers of the maker's own stand-in for a GB300; of the links to the CPU, bit errors and their kinds, made."""
DETAILED = {
    name: value for name, value in GB300.items() if name.startswith(("gpu.links", "gpu.fab", "gpu.temperature.m"))
}


@pytest.fixture
def gb300(driver):
    return driver("gb300")


def seldom(watched, seconds=1.0):
    """Read, and return the values that this module is about."""
    watched.read(seconds)
    return watched.seldom


def test_the_values_of_a_gb300_equal_its_profile(driver, watch):
    driver("gb300")
    gpu = watch()
    assert seldom(gpu) == GB300
    kinds = {name.partition("kind=")[2][:-1] for name in gpu.faults if "link.errors" in name}
    old = {"nvlink_replay", "nvlink_crc"}  # of NVLink 4
    named = {row.value for row in LINK_FIELDS.values() if row.metric.name == "gpu.link.errors"} - old
    assert kinds >= {*named, "c2c", "c2c_replay"}
    assert not any(gpu.faults.values())
    assert gpu.problems == []


@pytest.mark.parametrize(("level", "expected"), [(Level.BASIC, {}), (Level.DETAILED, DETAILED)])
def test_a_lower_level_neither_yields_nor_asks_for_values_of_a_higher_one(gb300, watch, level, expected):
    gpu = watch(level)
    gb300.calls("nvmlDeviceGetMarginTemperature")
    assert seldom(gpu) == expected
    assert gb300.calls("nvmlDeviceGetMarginTemperature") == 1, "a verdict needs it at any level"
    numbers = {number for fields in (gpu_fields(gpu).values()) for number, _ in fields}
    rows = {number: row for number, row in (ROWS | LINK_FIELDS).items() if row.metric is not FAULT}
    assert {number for number in numbers & {*rows} if rows[number].value not in JUDGED} == {SHUTDOWN_LIMIT}


def gpu_fields(watched):
    """Return the keys of the two arrays that the first GPU's health asks for."""
    (gpu,) = watched.collector._gpus._gpus.values()
    return {"own": gpu.health._fields._keys, "links": gpu.health._link_fields._keys}


def test_fields_that_a_gpu_lacks_are_left_out_of_the_next_call_and_asked_again_after_an_hour(gb300, watch):
    gpu = watch()
    gpu.read()
    gpu.read(PAUSE)
    fields = gpu_fields(gpu)
    assert len([key for key in fields["own"] if key[0] == 165]) == 18 < MOST_LINKS
    assert not {number for number, _ in fields["links"]} & {161, 162, 163}, "of NVLink 4"
    gb300.gpus[0]["field"]["161.3"] = 7
    gpu.read(PAUSE)
    assert "gpu.link.errors{gpu=0,kind=nvlink_replay}" not in gpu.faults
    gpu.read(3600)
    gpu.read(PAUSE)
    assert gpu.faults["gpu.link.errors{gpu=0,kind=nvlink_replay}"] == 0, "what it counted before is no increase"


@pytest.mark.parametrize("has_field", [True, False])
def test_links_that_are_down_are_counted_by_the_field_or_one_by_one(gb300, watch, has_field):
    gb300.gpus[0] |= {"links_down": 3} | ({} if has_field else {"link_fields": 0})
    gb300.calls("nvmlDeviceGetNvLinkState")
    gpu = watch()
    read = seldom(gpu)
    assert read["gpu.links{gpu=0,kind=nvlink,state=down}"] == 3
    assert read["gpu.links{gpu=0,kind=nvlink,state=up}"] == 15
    assert bool(gb300.calls("nvmlDeviceGetNvLinkState")) is not has_field


def test_a_link_that_sleeps_is_up_and_one_with_an_odd_error_leaves_the_count_open(gb300, watch):
    gb300.gpus[0]["field"] |= {"165.4": "2u"}
    gpu = watch()
    assert seldom(gpu)["gpu.links{gpu=0,kind=nvlink,state=up}"] == 18
    gb300.gpus[0]["field"] |= {"165.4": "!999"}
    assert "gpu.links{gpu=0,kind=nvlink,state=up}" not in seldom(gpu, PAUSE)


def test_links_to_the_cpu_are_up_down_or_at_low_power(gb300, watch):
    gb300.gpus[0]["field"] |= {"171.1": "0u", "234": "1u"}
    read = seldom(watch())
    assert [read[f"gpu.links{{gpu=0,kind=c2c,state={state}}}"] for state in ("up", "down", "low_power")] == [1, 1, 1]


def test_a_link_that_fails_or_goes_and_comes_back_adds_only_what_it_counted_meanwhile(driver, watch):
    name = "gpu.link.errors{gpu=0,kind=nvlink_receive}"
    fake = driver("gb300")
    field = fake.gpus[0]["field"]
    field |= {"208.2": 1000, "208.3": 5}
    gpu = watch()
    gpu.read()
    assert gpu.faults[name] == 0, "counted since the first reading"
    field |= {"208.2": "!999", "208.3": 7}
    gpu.read(PAUSE)
    assert name not in gpu.faults, "a part of the sum is missing"
    field |= {"208.2": "!3"}
    gpu.read(PAUSE)
    assert gpu.faults[name] == 2
    field |= {"208.2": 1004}
    gpu.read(3600)
    gpu.read(PAUSE)
    assert gpu.faults[name] == 2, "1004 is no increase"
    field |= {"208.2": 1005}
    gpu.read(PAUSE)
    assert gpu.faults[name] == 3


@pytest.mark.parametrize("fabric", [{"state": 2}, {"state": 1}, {"status": 999}])
def test_a_gpu_outside_the_fabric_has_neither_cluster_nor_clique(gb300, watch, fabric):
    gb300.gpus[0]["fabric"] |= fabric
    read = seldom(watch())
    assert {name: value for name, value in read.items() if "fabric" in name} == {
        "gpu.fabric{clique=none,cluster=none,gpu=0}": 0
    }


def test_the_worst_link_has_the_rate_of_bit_errors(gb300, watch):
    gb300.gpus[0]["field"] |= {"220.3": 0x20B, "220.4": 0x10B, "222.1": "0d"}
    read = seldom(watch())
    assert read["gpu.nvlink.bit_error_rate{gpu=0,kind=effective}"] == pytest.approx(2e-11)
    assert read["gpu.nvlink.bit_error_rate{gpu=0,kind=symbol}"] == 0


def test_banks_are_counted_by_spare_rows_and_reasons_stay_once_they_were_seen(fake, watch):
    fake.gpus[0] |= {"spare": 2, "reasons": 0x24}
    gpu = watch()
    read = seldom(gpu)
    banks = {name: value for name, value in read.items() if "banks" in name}
    assert banks == {
        f"gpu.rows.banks{{gpu=0,spare={word}}}": count
        for word, count in {"max": 638, "high": 0, "partial": 0, "low": 0, "none": 2}.items()
    }
    fake.gpus[0]["reasons"] = 4
    reasons = {name: value for name, value in seldom(gpu, PAUSE).items() if "clock.reduced" in name}
    assert reasons == {"gpu.clock.reduced{gpu=0,reason=power_cap}": 1, "gpu.clock.reduced{gpu=0,reason=sw_thermal}": 0}


def test_a_pending_retirement_of_pages_is_a_pending_replacement(driver, watch):
    fake = driver("t4")
    fake.gpus[0]["field"] |= {"31": "1u", "29": 3, "30": 1}
    gpu = watch()
    read = seldom(gpu)
    assert gpu.faults["gpu.fault{fault=rows_pending,gpu=0}"] == 1
    assert [read[f"gpu.pages.retired{{cause={word},gpu=0}}"] for word in ("correctable", "uncorrectable")] == [3, 1]


def test_fields_have_the_layout_of_the_binding():
    entry = pynvml.c_nvmlFieldValue_t
    assert FIELD.size == ctypes.sizeof(entry)
    array = (entry * 2)()
    array[1].fieldId, array[1].scopeId, array[1].valueType, array[1].nvmlReturn = 165, 17, 6, 999
    array[1].value.usVal = 54
    number, scope, _, _, kind, code, _ = [*FIELD.iter_unpack(bytes(array))][1]
    assert (number, scope, kind, code, *_values((3, kind)).unpack(array)) == (165, 17, 6, 999, 0, 54)


def test_a_value_of_an_unknown_type_is_absent(driver, watch, monkeypatch):
    driver("h100")
    monkeypatch.setattr("chipwatch.collectors.nvidia.query.TYPES", TYPES[:1])
    gpu = watch()
    read = gpu.read()
    assert "gpu.memory.temperature{gpu=0}" not in read
    assert read["gpu.utilization{gpu=0}"] == 100


def test_a_single_run_has_them_since_the_first_two_ticks_read_everything(driver, watch):
    driver("gb300")
    gpu = watch()
    present = [bool(seldom(gpu, 5) and gpu.faults) for _ in range(3)]
    assert present == [True, True, False]
    assert seldom(gpu, PAUSE) == GB300


def test_rare_values_of_eight_gpus_are_not_all_read_in_one_tick(driver, watch):
    fake = driver("gb300", 8)
    gpu = watch(Level.BASIC)
    gpu.read(10), gpu.read(10)
    fake.calls("nvmlDeviceGetSramEccErrorStatus")
    asked = [gpu.read(10) and fake.calls("nvmlDeviceGetSramEccErrorStatus") for _ in range(9)]
    assert asked == [2, 3, 3] * 3


@pytest.mark.parametrize("garbage", ["nand", "infd", "-1s", "18446744073709549568", "4294967295u"])
def test_garbage_in_fields_is_absent_and_no_error(gb300, watch, garbage):
    gpu = watch()
    gpu.read()
    gb300.gpus[0]["field"] = dict.fromkeys(gb300.gpus[0]["field"], garbage)
    gb300.gpus[0]["margin"] = 2**31 - 1
    read = seldom(gpu, PAUSE)
    assert gpu.problems == []
    assert "gpu.temperature.margin{gpu=0}" not in read
    counts = {name: value for name, value in gpu.faults.items() if "link.errors" in name}
    assert counts == {}
    assert all(value >= 0 for name, value in read.items() if "limit" not in name)
    if garbage != "-1s":
        assert not [name for name in read if "limit" in name]
