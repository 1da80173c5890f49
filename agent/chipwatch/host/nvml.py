"""Calls NVML, the library of NVIDIA's driver; names are as in nvml.h and nvidia-ml-py."""
# ruff: noqa: N802, N816

from __future__ import annotations

from collections.abc import Callable
from ctypes import CDLL, byref, c_char, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from struct import Struct
from typing import Any, Final

NVML_ERROR_UNINITIALIZED, NVML_ERROR_INVALID_ARGUMENT, NVML_ERROR_NOT_SUPPORTED, NVML_ERROR_NO_PERMISSION = 1, 2, 3, 4
NVML_ERROR_NOT_FOUND, NVML_ERROR_INSUFFICIENT_SIZE, NVML_ERROR_DRIVER_NOT_LOADED, NVML_ERROR_TIMEOUT = 6, 7, 9, 10
NVML_ERROR_LIBRARY_NOT_FOUND, NVML_ERROR_FUNCTION_NOT_FOUND, NVML_ERROR_GPU_IS_LOST = 12, 13, 15
NVML_ERROR_RESET_REQUIRED, NVML_ERROR_OPERATING_SYSTEM, NVML_ERROR_LIB_RM_VERSION_MISMATCH = 16, 17, 18
NVML_ERROR_ARGUMENT_VERSION_MISMATCH, NVML_ERROR_DEPRECATED, NVML_ERROR_UNKNOWN, NVML_TEMPERATURE_GPU = 25, 26, 999, 0
NVML_MEMORY_LOCATION_DRAM, NVML_GPU_UTILIZATION_SAMPLES, nvmlEventTypeXidCriticalError = 2, 1, 8

WITHOUT_LIBRARY: Final = {
    NVML_ERROR_UNINITIALIZED: "Uninitialized",
    NVML_ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    NVML_ERROR_FUNCTION_NOT_FOUND: "Function Not Found",
}
"""Texts for errors that the library cannot explain, since it is missing."""
NOT_AVAILABLE: Final = frozenset({2**32 - 1, 2**64 - 1})
"""NVML_VALUE_NOT_AVAILABLE (-1) as an unsigned number of 32 or 64 bits."""
NO_DATA: Final = 21
"""NVML_ERROR_NO_DATA; we also raise it for an answer that is NOT_AVAILABLE."""
LIBRARY: Final = "libnvidia-ml.so.1"
load: Callable[[str], Any] = CDLL
"""Function that opens the library; another one while calls are captured for tests."""
library: Any = None
"""The library once it is loaded, else None."""
IGNORED: Final = byref(c_uint())
"""An output argument whose value is not used."""


class Functions(dict[str, Any]):
    """The library's functions by name. For a missing one, it has a function that returns the error's code."""

    def __missing__(self, name: str) -> Any:
        if (loaded := getattr(library, name, None)) is not None:
            self[name] = loaded
            return loaded
        code = NVML_ERROR_UNINITIALIZED if library is None else NVML_ERROR_FUNCTION_NOT_FOUND
        return lambda *_: code


functions: Final = Functions()


class NVMLError(Exception):
    """An error that the driver returned; `value` is its code."""

    def __init__(self, value: int) -> None:
        super().__init__(value)
        self.value = value

    def __str__(self) -> str:
        if (text := WITHOUT_LIBRARY.get(self.value)) is None:
            explain = functions["nvmlErrorString"]
            explain.restype = c_char_p
            words = explain(self.value)
            text = words.decode(errors="replace") if isinstance(words, bytes) else f"error {self.value}"
        return text


def nvmlInit() -> None:
    """Load the library and initialise it; raise NVMLError."""
    global library  # noqa: PLW0603  # a process has one
    if library is None:
        try:
            library = load(LIBRARY)
        except OSError as problem:
            raise NVMLError(NVML_ERROR_LIBRARY_NOT_FOUND) from problem
    _done("nvmlInitWithFlags")(0)


def _done(name: str) -> Callable[..., bool]:
    """Make a function that calls `name` of the library and returns True, or raises NVMLError."""

    def do(*args: Any) -> bool:
        if code := functions[name](*args):
            raise NVMLError(code)
        return True

    return do


def _number(name: str, kind: Any = c_uint, *last: Any) -> Callable[..., Any]:
    """Make a function that calls `name` and returns a number, its output argument before `last`; or NVMLError."""

    def get(*args: Any) -> Any:
        value = kind()
        if code := functions[name](*args, byref(value), *last):
            raise NVMLError(code)
        if (number := value.value) in NOT_AVAILABLE:
            raise NVMLError(NO_DATA)
        return number

    return get


def _handle(name: str) -> Callable[..., c_void_p]:
    """Make a function that calls `name` and returns a handle, or raises NVMLError."""
    get = _struct(name, "P")
    return lambda *args: c_void_p(*get(*args))


def _text(name: str) -> Callable[..., str]:
    """Make a function that calls `name` and returns a text, or raises NVMLError."""
    get = _struct(name, "96s", None, 96)
    return lambda *args: get(*args)[0].partition(b"\0")[0].decode(errors="replace")


def _struct(name: str, layout: str, version: int | None = None, *last: int) -> Callable[..., tuple[Any, ...]]:
    """
    Make a function that calls `name` and returns the members of a struct, its output argument before `last`.

    If the struct begins with a `version`, that is set and not returned. The function raises NVMLError.
    """
    struct = Struct(layout)
    array = c_char * struct.size
    start = b"".ljust(struct.size, b"\0") if version is None else Struct("I").pack(version).ljust(struct.size, b"\0")

    def get(*args: Any) -> tuple[Any, ...]:
        members = array.from_buffer_copy(start)
        if code := functions[name](*args, members, *last):
            raise NVMLError(code)
        return struct.unpack(members)[version is not None :]

    return get


def _versioned(name: str, layout: str, version: int) -> Callable[..., tuple[Any, ...]]:
    """Make the same for a struct whose version also has the struct's size."""
    return _struct(name, layout, Struct(layout).size | version << 24)


nvmlShutdown = _done("nvmlShutdown")
nvmlSystemGetDriverVersion = _text("nvmlSystemGetDriverVersion")
nvmlDeviceGetCount = _number("nvmlDeviceGetCount_v2")
nvmlDeviceGetHandleByIndex = _handle("nvmlDeviceGetHandleByIndex_v2")
nvmlDeviceGetUUID = _text("nvmlDeviceGetUUID")
nvmlDeviceGetName = _text("nvmlDeviceGetName")
nvmlDeviceGetMinorNumber = _number("nvmlDeviceGetMinorNumber")
nvmlDeviceGetNumaNodeId = _number("nvmlDeviceGetNumaNodeId", c_int)
nvmlDeviceGetUtilizationRates = _struct("nvmlDeviceGetUtilizationRates", "II")
"""Return the utilization of the GPU and of its memory."""
nvmlDeviceGetMemoryInfo = _struct("nvmlDeviceGetMemoryInfo", "QQQ")
"""Return total, free, used."""
nvmlDeviceGetMemoryInfo_v2 = _versioned("nvmlDeviceGetMemoryInfo_v2", "IQQQQ", 2)
"""Return total, reserved, free, used."""
nvmlDeviceGetTemperature = _number("nvmlDeviceGetTemperature")
nvmlDeviceGetTemperatureV = _versioned("nvmlDeviceGetTemperatureV", "IIi", 1)
"""Return a sensor, 0 for the chip, and its temperature."""
nvmlDeviceGetTemperatureThreshold = _number("nvmlDeviceGetTemperatureThreshold")
nvmlDeviceGetMarginTemperature = _versioned("nvmlDeviceGetMarginTemperature", "Ii", 1)
nvmlDeviceGetPowerUsage = _number("nvmlDeviceGetPowerUsage")
nvmlDeviceGetEnforcedPowerLimit = _number("nvmlDeviceGetEnforcedPowerLimit")
nvmlDeviceGetFanSpeed = _number("nvmlDeviceGetFanSpeed")
nvmlDeviceGetClockInfo = _number("nvmlDeviceGetClockInfo")
nvmlDeviceGetEncoderUtilization = _number("nvmlDeviceGetEncoderUtilization", c_uint, IGNORED)
nvmlDeviceGetDecoderUtilization = _number("nvmlDeviceGetDecoderUtilization", c_uint, IGNORED)
nvmlDeviceGetCurrentClocksThrottleReasons = _number("nvmlDeviceGetCurrentClocksThrottleReasons", c_ulonglong)
nvmlDeviceGetCurrPcieLinkWidth = _number("nvmlDeviceGetCurrPcieLinkWidth")
nvmlDeviceGetMaxPcieLinkWidth = _number("nvmlDeviceGetMaxPcieLinkWidth")
nvmlDeviceGetCurrPcieLinkGeneration = _number("nvmlDeviceGetCurrPcieLinkGeneration")
nvmlDeviceGetMaxPcieLinkGeneration = _number("nvmlDeviceGetMaxPcieLinkGeneration")
nvmlDeviceGetNvLinkState = _number("nvmlDeviceGetNvLinkState")
nvmlDeviceGetEccMode = _number("nvmlDeviceGetEccMode", c_uint, IGNORED)
nvmlDeviceGetDefaultEccMode = _number("nvmlDeviceGetDefaultEccMode")
nvmlDeviceGetMemoryErrorCounter = _number("nvmlDeviceGetMemoryErrorCounter", c_ulonglong)
nvmlDeviceGetSramEccErrorStatus = _versioned("nvmlDeviceGetSramEccErrorStatus", "I11QI4x", 1)
"""
Return twelve numbers: three totals over the GPU's life; the errors since the driver was loaded that parity found, that
SECDED found, and that were corrected; the uncorrected errors of L2, SM, PCIe, microcontrollers and others; and 1 if the
threshold is exceeded.
"""
nvmlDeviceGetRowRemapperHistogram = _struct("nvmlDeviceGetRowRemapperHistogram", "5I")
"""Return the banks by spare rows: all, many, some, few, none."""
nvmlDeviceGetRepairStatus = _versioned("nvmlDeviceGetRepairStatus", "III", 1)
nvmlDeviceGetUnrepairableMemoryFlag_v1 = _versioned("nvmlDeviceGetUnrepairableMemoryFlag_v1", "II", 1)
fabric_v2 = _versioned("nvmlDeviceGetGpuFabricInfoV", "I16siIB3xI", 2)
"""Return cluster, status, clique, state, and a bit mask of the health."""
fabric_v3 = _versioned("nvmlDeviceGetGpuFabricInfoV", "I16siIB3xIB3x", 3)
"""Return the same, and a summary of the health."""
nvmlDeviceGetVirtualizationMode = _number("nvmlDeviceGetVirtualizationMode")
"""Return 0 without virtualisation, 1 for passthrough, 2 in a guest with a vGPU, 3 and 4 on a host of vGPUs."""
nvmlDeviceGetGridLicensableFeatures_v4 = _struct(
    "nvmlDeviceGetGridLicensableFeatures_v4", "iI" + 3 * "II128s128sII5HB0I"
)
"""Return whether licences apply, the number of features, then 12 values for each of 3 features; the 2nd: is it on."""
nvmlVgpuInstanceGetLicenseInfo_v2 = _struct("nvmlVgpuInstanceGetLicenseInfo_v2", "BI5HBI")
"""Return whether a vGPU has a licence, six numbers of its end, and its state."""
nvmlDeviceGetFieldValues = _done("nvmlDeviceGetFieldValues")
nvmlDeviceGetMaxMigDeviceCount = _number("nvmlDeviceGetMaxMigDeviceCount")
nvmlDeviceGetMigDeviceHandleByIndex = _handle("nvmlDeviceGetMigDeviceHandleByIndex")
nvmlDeviceGetGpuInstanceId = _number("nvmlDeviceGetGpuInstanceId")
nvmlDeviceGetGpuInstanceById = _handle("nvmlDeviceGetGpuInstanceById")
nvmlGpuInstanceGetInfo = _struct("nvmlGpuInstanceGetInfo", "PIIII")
"""Return device, number, profile, first slice, slices."""
nvmlDeviceGetAttributes_v2 = _struct("nvmlDeviceGetAttributes_v2", "8IQ")
"""Return the numbers of engines of a MIG device; the eighth is its compute slices."""
nvmlGpmQueryDeviceSupport = _struct("nvmlGpmQueryDeviceSupport", "II", 1)
nvmlGpmSampleAlloc = _handle("nvmlGpmSampleAlloc")
nvmlGpmSampleGet = _done("nvmlGpmSampleGet")
nvmlGpmMigSampleGet = _done("nvmlGpmMigSampleGet")
nvmlGpmMetricsGet = _done("nvmlGpmMetricsGet")
nvmlDeviceGetSupportedEventTypes = _number("nvmlDeviceGetSupportedEventTypes", c_ulonglong)
nvmlEventSetCreate = _handle("nvmlEventSetCreate")
nvmlEventSetWait_v2 = _struct("nvmlEventSetWait_v2", "PQQII", None, 1)
"""Wait for 1 ms (0 means `forever` in some drivers); return device, type, data, GPU and compute instance."""
nvmlDeviceRegisterEvents = _done("nvmlDeviceRegisterEvents")
