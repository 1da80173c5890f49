"""Faults of a GPU that the driver reports, for `chipwatch verdict`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from ctypes import byref
from typing import Any, Final

import pynvml

from chipwatch.collectors.nvidia.metrics import GPU, GpuMetrics
from chipwatch.collectors.nvidia.query import HOUR, MEMBERS, SECOND, UNSUPPORTED, NvmlQuery
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.host.counters import Counters

ABSENT: Final = UNSUPPORTED | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
"""Answers about a link or a field that the GPU or this driver does not have."""
EVERY: Final = 30 * SECOND
"""Interval between readings; a link's state is a call each."""
HELD: Final = 120 * SECOND
"""Least duration of a slowdown: a short one is normal under load."""
BUSY: Final = 50.0
"""Utilization (%) from which on a GPU does not lower the speed of its PCIe link to save power."""
MOST_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS."""
SLOWDOWNS: Final = {"thermal_slowdown": 0x20 | 0x40, "power_brake": 0x80}
"""nvmlClocksEventReasons: by software or hardware for heat; by the power brake of the machine."""
BIT_ERRORS: Final = {220: 1e-12, 222: 1.6e-237}
"""
NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER and _SYMBOL_BER -> the rate above which DCGM 4.6 fails a link.

NVML packs a rate into mantissa (bits 8 to 11) and negative exponent (bits 0 to 7). Hardware reports 15e-255 or, from
Blackwell on, 15e-238 for none.
"""
C2C_ERRORS: Final = 231
C2C_LINKS: Final = 14
"""NVML_FI_DEV_C2C_LINK_ERROR_INTR; links that GPM has metrics for."""
FIELDS: Final = {144: "rows_pending", 145: "rows_failed"}
"""NVML_FI_DEV_REMAPPED_PENDING, _FAILURE."""
COUNTS: Final = {94: "pcie_replay", 179: "pcie_nonfatal", 180: "pcie_fatal"}
LINK_COUNTS: Final = {
    161: "nvlink_replay", 162: "nvlink_recovery", 163: "nvlink_crc", 213: "nvlink_recovery",
    214: "nvlink_recovery_failed",
}  # fmt: skip
"""Counters by field (nvml.h); links' counters are read for each link and added up. 213 and 214 are NVLink 5's."""


def _versioned(call: Callable[[Any, Any], Any], gpu: Any, *structures: type) -> Any:
    """Return the first structure whose version the driver knows, filled; raise NVMLError."""
    for structure in structures:
        answer = structure()
        try:
            call(gpu, byref(answer))
        except pynvml.NVMLError as error:
            if error.value != pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
                raise
        else:
            return answer
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def _sram(gpu: Any) -> Mapping[str, bool]:
    sram = _versioned(pynvml.nvmlDeviceGetSramEccErrorStatus, gpu, pynvml.c_nvmlEccSramErrorStatus_v1_t)
    uncorrected = sram.volatileUncParity + sram.volatileUncSecDed
    return {"sram_threshold": sram.bThresholdExceeded, "sram_uncorrected": uncorrected}


def _dram(gpu: Any) -> Mapping[str, bool]:
    return {"dram_uncorrected": pynvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, pynvml.NVML_MEMORY_LOCATION_DRAM)}


def _fabric(gpu: Any) -> Mapping[str, bool]:
    structures = pynvml.c_nvmlGpuFabricInfo_v3_t, pynvml.c_nvmlGpuFabricInfo_v2_t
    fabric = _versioned(pynvml.nvmlDeviceGetGpuFabricInfoV, gpu, *structures)
    if not (state := fabric.state & 0xFF):  # a byte in nvml.h, and padding
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    summary, mask = getattr(fabric, "healthSummary", 0), fabric.healthMask
    bandwidth, recovery, route, timeout, partition = (mask >> shift & 3 for shift in (0, 2, 4, 6, 12))
    wrong = mask >> 8 & 15  # NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION: 0 unknown, 1 none, 4 no partition
    return {
        "fabric_failed": state == 1 or (state == 3 and fabric.status != 0),  # not started; ended by an error
        "fabric_starting": state == 2,
        "fabric_unhealthy": summary == 2 or route == 1 or timeout == 1 or wrong not in (0, 1, 4),
        "fabric_limited": summary == 3 or bandwidth == 1 or recovery == 1,
        "fabric_no_partition": wrong == 4 or partition == 2,
    }


def _width(gpu: Any) -> Mapping[str, bool]:
    """Compare with the width that both ends of the link can use, which NVML calls the maximum."""
    now, most = pynvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), pynvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)
    return {"pcie_narrow": 0 < now < most}


QUERIES: Final[Mapping[str, tuple[str, Callable[[Any], Mapping[str, bool]]]]] = {
    "sram": ("nvmlDeviceGetSramEccErrorStatus", _sram),
    "dram": ("nvmlDeviceGetMemoryErrorCounter", _dram),
    "spare": (
        "nvmlDeviceGetRowRemapperHistogram",
        lambda gpu: {"rows_exhausted": pynvml.nvmlDeviceGetRowRemapperHistogram(gpu).none},
    ),
    "repair": (
        "nvmlDeviceGetRepairStatus", lambda gpu: {"repair_pending": any(pynvml.nvmlDeviceGetRepairStatus(gpu))},
    ),
    "unrepairable": (
        "nvmlDeviceGetUnrepairableMemoryFlag_v1",
        lambda gpu: {"memory_unrepairable": pynvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(gpu)},
    ),
    "ecc": (
        "nvmlDeviceGetDefaultEccMode",
        lambda gpu: {"ecc_off": pynvml.nvmlDeviceGetDefaultEccMode(gpu)[0] > pynvml.nvmlDeviceGetEccMode(gpu)[0]},
    ),
    "fabric": ("c_nvmlGpuFabricInfo_v3_t", _fabric),
    "width": ("nvmlDeviceGetMaxPcieLinkWidth", _width),
}  # fmt: skip
"""Query -> the name that nvidia-ml-py must have for it, and the function that returns its faults."""


class GpuHealth:
    """The faults of one GPU; a fault that this driver does not report is absent."""

    def __init__(self, dims: Dimensions, metrics: GpuMetrics) -> None:
        self.query = NvmlQuery(f"GPU {dims[GPU]}")
        self._dims, self._metrics = dims, metrics
        self._due = self._retry_at = 0
        self._absent: set[tuple[int, int]] = set()
        """Fields, and links, that the driver does not have."""
        self._counters = Counters()
        self._slow_since: dict[str, int] = {}
        self.links: int | None = None
        """NVLinks that are up in this tick; None if not known, as with MIG, where NVML shows all of them as down."""

    def read(self, at: int, now: int, gpu: Any, *, busy: float | None, has_instances: bool) -> Iterator[Datapoint]:
        """Yield the faults and the counts of errors, if it is time; raise Lost."""
        self.links = None
        if now < self._due:
            return
        self._due = now + EVERY
        self.query.begin(now)
        faults: dict[str, bool] = {}
        for name, (needed, call) in QUERIES.items():
            if hasattr(pynvml, needed):
                faults |= self.query.ask(name, call, gpu) or {}
        fields = self.query.fields(gpu, {(number, 0): "rows" for number in FIELDS})
        faults |= {FIELDS[number]: bool(value) for number, value in fields.items()}
        faults |= self._speed(gpu, busy) | self._slowdowns(gpu, now)
        up, links = self.query.ask("links", _links, gpu) or (None, 0)
        self.links = None if has_instances else up
        counts = self._counts(gpu, now, links, faults)
        for fault, value in faults.items():
            yield self.fault(at, fault, value)
        for kind, count in counts.items():
            yield self._counters.point(self._metrics.link_errors, at, count, self._dims | {"kind": kind})

    def fault(self, at: int, fault: str, value: object) -> Datapoint:
        """Return the point of a fault."""
        return self._metrics.fault.point(at, bool(value), self._dims | {"fault": fault})

    def _speed(self, gpu: Any, busy: float | None) -> dict[str, bool]:
        now = self.query.ask("speed.now", pynvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu)
        most = self.query.ask("speed.most", pynvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu)
        if not now or not most or (now < most and (busy or 0) < BUSY):
            return {}
        return {"pcie_slow": now < most}

    def _slowdowns(self, gpu: Any, now: int) -> dict[str, bool]:
        """Return which slowdowns have lasted; one that is shorter so far is left out."""
        reasons = self.query.ask("reasons", pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu)
        lasting = {}
        for fault, mask in SLOWDOWNS.items() if reasons is not None else ():
            if not reasons & mask:
                self._slow_since.pop(fault, None)
                lasting[fault] = False
            elif now - self._slow_since.setdefault(fault, now) >= HELD:
                lasting[fault] = True
        return lasting

    def _counts(self, gpu: Any, now: int, links: int, faults: dict[str, bool]) -> dict[str, float]:
        """Return the counters that the driver has; add the rate of bit errors to `faults`."""
        if now >= self._retry_at:
            self._retry_at, self._absent = now + HOUR, set()
        keys = [(number, 0) for number in COUNTS]
        keys += [(number, link) for number in (*LINK_COUNTS, *BIT_ERRORS) for link in range(links)]
        keys += [(C2C_ERRORS, link) for link in range(C2C_LINKS)]
        keys = [key for key in keys if key not in self._absent]
        counts: dict[str, float] = {}
        answers = self.query.ask("counts", pynvml.nvmlDeviceGetFieldValues, gpu, keys) if keys else ()
        for key, got in zip(keys, answers or (), strict=False):
            number = key[0]
            if got.nvmlReturn:
                self._absent |= {key} if got.nvmlReturn in ABSENT else set()
                continue
            value = getattr(got.value, MEMBERS[got.valueType])
            if number in BIT_ERRORS:
                errors = (value >> 8 & 15) * 10.0 ** -(value & 255)
                faults["nvlink_bit_errors"] = faults.get("nvlink_bit_errors", False) or errors > BIT_ERRORS[number]
            else:
                kind = COUNTS.get(number) or LINK_COUNTS.get(number, "c2c")
                counts[kind] = counts.get(kind, 0) + value
        return counts


def _links(gpu: Any) -> tuple[int, int]:
    """Return the number of NVLinks that are up, and of all; raise NVMLError if the GPU has none."""
    up = 0
    for link in range(MOST_LINKS):
        try:
            up += pynvml.nvmlDeviceGetNvLinkState(gpu, link)
        except pynvml.NVMLError as error:
            if not link or error.value not in ABSENT:
                raise
            return up, link
    return up, MOST_LINKS


class Peers:
    """
    Compares GPUs of one model: each should have as many NVLinks up as any of them has had.

    NVML reports only which links are up; on a card with a bridge, or with none, some are always down.
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def read(self, at: int, gpus: Iterable[tuple[str, GpuHealth]]) -> Iterator[Datapoint]:
        """Yield for each GPU whether it has fewer, and whether it has none; nothing for models without links."""
        linked = [(model, health, health.links) for model, health in gpus if health.links is not None]
        for model, _, links in linked:
            self._most[model] = max(links, self._most.get(model, 0))
        for model, health, links in linked:
            if most := self._most[model]:
                yield health.fault(at, "nvlink_down", 0 < links < most)
                yield health.fault(at, "nvlink_none", not links)
