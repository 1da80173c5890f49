"""The numbers, structs and functions that the collector uses, in each version of NVIDIA's binding and header."""

import ctypes
import inspect
import re

import pynvml
import pytest
from tests.nvml_versions import BINDINGS, HEADERS, WANTED, at, binding, used

from chipwatch.collectors.nvidia import activity
from chipwatch.collectors.nvidia.fields import ACTIONS, DRAIN, IMEX, RECOVERY, RESET, SLOWDOWNS, DriverFields
from chipwatch.collectors.nvidia.gpm import GRAPHICS, HEAD, METRIC
from chipwatch.collectors.nvidia.metrics import FAST, SHARES, SLOW, THROTTLES
from chipwatch.collectors.nvidia.query import TYPES
from chipwatch.host import nvml

OLDEST = "12.560.30"
"""The oldest binding that has all but LATER."""
LATER = {
    "nvmlDeviceGetTemperatureV", "nvmlDeviceGetRepairStatus", "nvmlDeviceGetUnrepairableMemoryFlag_v1",
    "nvmlDeviceGetMarginTemperature",
}  # fmt: skip
"""Functions that older drivers lack; to ask them is an error that means not supported."""
SUPPORTED = BINDINGS[BINDINGS.index(OLDEST) :]
LAYOUTS = [
    ("nvmlDeviceGetUtilizationRates", "c_nvmlUtilization_t"),
    ("nvmlDeviceGetMemoryInfo", "c_nvmlMemory_t"),
    ("nvmlDeviceGetMemoryInfo_v2", "c_nvmlMemory_v2_t"),
    ("nvmlDeviceGetTemperatureV", "c_nvmlTemperature_v1_t"),
    ("nvmlDeviceGetMarginTemperature", "c_nvmlMarginTemperature_v1_t"),
    ("nvmlDeviceGetSramEccErrorStatus", "c_nvmlEccSramErrorStatus_v1_t"),
    ("nvmlDeviceGetRowRemapperHistogram", "c_nvmlRowRemapperHistogramValues"),
    ("nvmlDeviceGetRepairStatus", "c_nvmlRepairStatus_t"),
    ("nvmlDeviceGetUnrepairableMemoryFlag_v1", "c_nvmlUnrepairableMemory_v1_t"),
    ("nvmlDeviceGetAttributes_v2", "c_nvmlDeviceAttributes"),
    ("nvmlGpmQueryDeviceSupport", "c_nvmlGpmSupport_t"),
    ("nvmlEventSetWait_v2", "c_nvmlEventData_t"),
    ("fabric_v2", "c_nvmlGpuFabricInfo_v2_t"),
    ("fabric_v3", "c_nvmlGpuFabricInfo_v3_t"),
]
"""A function of the collector, and the struct of the binding that it fills."""
DRIVERS = {"12.2.140": "535.104", "12.4.127": "550.54", "12.6.77": "560.35", "12.8.90": "570.124", "12.9.79": "575.57",
           "13.0.39": "580.65", "13.0.87": "580.82", "13.1.115": "590.48", "13.2.86": "595.58"}  # fmt: skip
"""The driver of a header, by CUDA's release notes."""
ALL = [*(("nvidia-ml-py", version) for version in BINDINGS), *(("nvml.h", version) for version in HEADERS)]
OF_A_DRIVER = [
    *(("nvidia-ml-py", version, version.partition(".")[2]) for version in BINDINGS),
    *(("nvml.h", version, driver) for version, driver in DRIVERS.items()),
]
GPM_WORDS = {1: "GRAPHICS_UTIL", 2: "SM_UTIL", 3: "SM_OCCUPANCY", 5: "ANY_TENSOR_UTIL", 10: "DRAM_BW_UTIL",
             11: "FP64_UTIL", 12: "FP32_UTIL", 13: "FP16_UTIL"}  # fmt: skip
FIELD_WORDS = {
    3: "ECC_SBE_VOL_TOTAL", 4: "ECC_DBE_VOL_TOTAL", 82: "MEMORY_TEMP", 83: "TOTAL_ENERGY_CONSUMPTION",
    94: "PCIE_REPLAY_COUNTER", 138: "NVLINK_THROUGHPUT_DATA_TX", 139: "NVLINK_THROUGHPUT_DATA_RX", 142: "REMAPPED_COR",
    143: "REMAPPED_UNC", 145: "REMAPPED_FAILURE", 186: "POWER_INSTANT", 197: "PCIE_COUNT_TX_BYTES",
    198: "PCIE_COUNT_RX_BYTES", 202: "NVLINK_COUNT_XMIT_BYTES", 204: "NVLINK_COUNT_RCV_BYTES",
}  # fmt: skip
ORDER = (
    "DOUBLE",
    "UNSIGNED_INT",
    "UNSIGNED_LONG",
    "UNSIGNED_LONG_LONG",
    "SIGNED_LONG_LONG",
    "SIGNED_INT",
    "UNSIGNED_SHORT",
)
SMALL = {"nvmlProcessInfo_t"}
"""Structs that the oldest binding has otherwise than its header: too large by 8 bytes."""


def test_the_table_has_the_names_that_the_collector_uses():
    has = at("nvidia-ml-py", BINDINGS[-1])
    assert {*used()} - {*has} == set(), "run `python -m tests.nvml_versions`"
    assert not [name for name in has if not (name in used() or WANTED.fullmatch(name) or name.endswith("_t"))]
    assert len(used()) > len(LAYOUTS)


@pytest.mark.parametrize(("function", "struct"), LAYOUTS)
def test_a_struct_is_read_as_the_binding_lays_it_out(function, struct):
    layout, written = inspect.getclosurevars(getattr(nvml, function)).nonlocals["struct"], getattr(pynvml, struct)()
    assert layout.size == ctypes.sizeof(written)
    members = [field[0] for field in written._fields_]
    for n, name in enumerate(members):
        if not isinstance(getattr(written, name), ctypes.Array | ctypes._Pointer):
            setattr(written, name, 7 + n)
    read = layout.unpack(bytes(written))
    assert len(read) == len(members)
    assert all(value == 7 + n or type(value) is not int or not value for n, value in enumerate(read))
    assert sum(type(value) is int and value > 0 for value in read) >= len(members) - 1


def test_a_sample_an_instance_and_a_metric_are_read_as_the_binding_lays_them_out():
    sample = pynvml.c_nvmlSample_t(timeStamp=5)
    sample.sampleValue.uiVal = 60
    assert activity.SAMPLES_OF[1].unpack(bytes(sample)) == (5, 60)
    assert {layout.size for layout in activity.SAMPLES_OF} == {ctypes.sizeof(sample)}
    instance = pynvml.c_nvmlGpuInstanceInfo_t(id=3, profileId=19)
    instance.placement.start, instance.placement.size = 4, 2
    struct = inspect.getclosurevars(nvml.nvmlGpuInstanceGetInfo).nonlocals["struct"]
    assert struct.unpack(bytes(instance)) == (0, 3, 19, 4, 2)
    request = pynvml.c_nvmlGpmMetricsGet_t(version=1, numMetrics=2)
    request.metrics[1].metricId, request.metrics[1].nvmlReturn, request.metrics[1].value = 10, 3, 55.5
    body = bytes(request)
    assert HEAD.unpack_from(body) == (1, 2, 0, 0)
    assert METRIC.unpack_from(body, HEAD.size + METRIC.size) == (10, 3, 55.5)


def test_the_structs_of_licences_are_read_as_the_binding_lays_them_out():
    def layout(of):
        return inspect.getclosurevars(of).nonlocals["struct"]

    licences = pynvml.c_nvmlGridLicensableFeatures_v4_t(isGridLicenseSupported=1, licensableFeaturesCount=3)
    for number in range(3):
        licences.gridLicensableFeatures[number].featureState = 7 + number
    read = layout(nvml.nvmlDeviceGetGridLicensableFeatures_v4).unpack(bytes(licences))
    assert (read[:2], read[2:][1::12]) == ((1, 3), (7, 8, 9))
    assert layout(nvml.nvmlVgpuInstanceGetLicenseInfo_v2).size == ctypes.sizeof(pynvml.c_nvmlVgpuLicenseInfo_t)
    assert pynvml.c_nvmlVgpuLicenseInfo_t.isLicensed.offset == 0


def test_a_constant_has_the_number_of_the_binding():
    constants = {
        name: value for name, value in vars(nvml).items() if name.lower().startswith("nvml") and type(value) is int
    }
    assert constants == {name: getattr(pynvml, name) for name in constants}


def test_the_installed_binding_is_as_the_table_says():
    version = next((v for v in BINDINGS if binding(pynvml) == at("nvidia-ml-py", v)), None)
    assert version, "a newer nvidia-ml-py: add it to BINDINGS, and run `python -m tests.nvml_versions`"


@pytest.mark.parametrize("version", SUPPORTED)
def test_a_supported_binding_has_all_that_the_collector_uses(version):
    assert {*used()} - {*at("nvidia-ml-py", version)} <= LATER


@pytest.mark.parametrize(("source", "version"), ALL)
def test_a_constant_and_a_struct_are_the_same_in_each_version(source, version):
    newest, these = at("nvidia-ml-py", BINDINGS[-1]), at(source, version)
    kept = {name for name in these if name in used() or name.endswith("_t")}
    kept -= {"nvmlGpmMetricsGet_t"} | (SMALL if version == "12.535.77" else set())
    assert {name: these[name] for name in kept} == {name: newest[name] for name in kept}
    array = these["nvmlGpmMetricsGet_t"]  # its last member, an array, grows
    assert array[1:-1] == newest["nvmlGpmMetricsGet_t"][1:-1]
    assert array[-1][0] == newest["nvmlGpmMetricsGet_t"][-1][0]


@pytest.mark.parametrize(("source", "version", "driver"), OF_A_DRIVER)
def test_fields_are_asked_by_the_numbers_that_their_driver_has(source, version, driver):
    has, fields = at(source, version), DriverFields(driver)
    words = ("SW_THERM", "HW_THERM", "HW_POWER_BRAKE")
    names = [f"NVML_FI_DEV_CLOCKS_EVENT_REASON_{word}_SLOWDOWN" for word in words]
    expected = {has[name]: reason for name, reason in zip(names, SLOWDOWNS, strict=True) if name in has}
    assert fields.slowdowns == expected
    status = {has.get("NVML_FI_DEV_RESET_STATUS"), has.get("NVML_FI_DEV_DRAIN_AND_RESET_STATUS")} - {None}
    recovery = {has.get("NVML_FI_DEV_GET_GPU_RECOVERY_ACTION")} - {None}
    assert {*fields.recovery} == (recovery or status)
    assert status <= {RESET, DRAIN}


@pytest.mark.parametrize(("source", "version", "driver"), OF_A_DRIVER)
def test_an_action_has_the_name_that_its_driver_gives_it(source, version, driver):
    head = "NVML_GPU_RECOVERY_ACTION_"
    named = {value: name.removeprefix(head).lower() for name, value in at(source, version).items() if head in name}
    if driver.startswith("580") and source == "nvidia-ml-py":
        assert named.pop(5) == "gpu_reset_bus", "only this binding has it, no header"
    later = {value: name for value, name in enumerate(ACTIONS) if value > IMEX[0]}  # one meaning in all drivers
    for value in range(len(ACTIONS) + 1) if named else ():
        assert DriverFields(driver).action({RECOVERY: value}) == {**later, **named}.get(value, f"unknown ({value})")


@pytest.mark.parametrize(("source", "version"), ALL)
def test_numbers_without_a_name_are_right_for_each_version(source, version):
    has = at(source, version)
    for number, reason in THROTTLES.items():
        assert has[f"NVML_FI_DEV_PERF_POLICY_{reason.upper()}"] == number
    assert {has[f"NVML_GPM_METRIC_{word}"]: word for word in GPM_WORDS.values()} == GPM_WORDS
    assert {number for number, row in SHARES.items() if not row.value} == {*GPM_WORDS}
    named = {f"NVML_FI_DEV_{word}": number for number, word in FIELD_WORDS.items()}
    assert {name: has.get(name, number) for name, number in named.items()} == named
    assert {*FAST, *SLOW} == {*FIELD_WORDS, *THROTTLES}
    assert GRAPHICS in GPM_WORDS
    types = {word: has[f"NVML_VALUE_TYPE_{word}"] for word in ORDER if f"NVML_VALUE_TYPE_{word}" in has}
    assert all(ORDER[value] == word for word, value in types.items())
    assert len(ORDER) == len(TYPES)
    reasons = {re.sub("nvmlClocks(Event|Throttle)Reason", "", name): of for name, of in has.items() if "Clocks" in name}
    slow = ("HwSlowdown", "SwThermalSlowdown", "HwThermalSlowdown", "HwPowerBrakeSlowdown")
    assert sum(reasons[word] for word in slow) == activity.SLOWDOWNS
    assert reasons["HwPowerBrakeSlowdown"] == activity.POWER_BRAKE
