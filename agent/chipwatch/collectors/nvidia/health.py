"""Reads faults and link errors that the driver reports, for `chipwatch verdict`, and values that rarely change."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, product
from struct import Struct
from typing import Any, Final

from chipwatch.collectors.nvidia.metrics import C2C_FIELDS, FAULT, FIELDS, JUDGED, LINK_FIELDS, FieldRow, SeriesKey
from chipwatch.collectors.nvidia.points import PartPoints
from chipwatch.collectors.nvidia.query import ABSENT, SECOND, FieldSet, NvmlQuery, Rows
from chipwatch.contract.datapoint import Datapoint, Level
from chipwatch.host import nvml
from chipwatch.host.gpu_metrics import LINK_ERRORS
from chipwatch.host.pace import SLOW, Pace

EVERY: Final = 30 * SECOND
"""Interval (ns) between readings; the state of each link takes a call."""
HELD: Final = 120 * SECOND
"""Shortest slowdown by software that is a fault (ns); shorter ones are normal under load."""
AGAIN: Final = SECOND // 4
"""Shortest slowdown by hardware that is a fault (ns); it may show for a moment when clocks change."""
BUSY: Final = 50.0
"""Utilization (%) at which a GPU no longer lowers the speed of its PCIe link to save power."""
MOST_LINKS: Final = 36
"""Most NVLinks of a GPU: NVML_NVLINK_MAX_LINKS."""
SHUTDOWN: Final = 0
"""Kind of the temperature at which a GPU shuts down: NVML_TEMPERATURE_THRESHOLD_SHUTDOWN."""
BRIDGED: Final = re.compile(
    r"PCI|CNX|\b[AH]\d+X\b|\bH\d+ NVL|RTX|GeForce|TITAN|Quadro|\b(A2|A10|A16|A30|A40|L\d+S?)\b|[AH]800|[PV]100|GH200"
)
"""
Matches models whose NVLinks may be down on a healthy machine.

These are cards with or without a bridge, boards with unused links, and GPUs that may have no peer. All other models
are boards that use all links.
"""
SLOWDOWNS: Final = (
    ("thermal_slowdown", 0x20, HELD), ("thermal_slowdown", 0x40, AGAIN), ("power_brake", 0x80, AGAIN),
    ("hardware_slowdown", 0x8, AGAIN),
)  # fmt: skip
"""Fault, its bit in nvmlClocksEventReasons, and the time that it must last (ns)."""
HARDWARE, HARDWARE_WHY = 0x8, 0x40 | 0x80
"""The general bit of hardware slowdowns, and the bits of its precise reasons."""
BIT_ERRORS: Final = {220: 1e-12, 222: 1.6e-237}
"""
NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER and _SYMBOL_BER -> the rate above which DCGM 4.6 fails a link.

NVML packs a rate into a mantissa (bits 8 to 11) and a negative exponent (bits 0 to 7). Without errors, hardware
reports 15e-255, or 15e-238 from Blackwell on.
"""
NO_ERRORS: Final = 15e-238
"""Largest rate of bit errors that means no errors."""
MOST_COUNT: Final = 2**53
"""Largest number of errors that is believed."""
SRAM_UNITS: Final = ("l2", "sm", "pcie", "mcu", "other")
"""Units of SRAM whose uncorrected errors nvmlEccSramErrorStatus_v1_t counts, in its order."""
LINK_STATE: Final = 165
"""Field with the state of a link (0 down, 1 up, 2 asleep): NVML_FI_DEV_NVLINK_GET_STATE."""
LINK_COUNT: Final = 91
"""Field with the number of links: NVML_FI_DEV_NVLINK_LINK_COUNT."""
C2C_COUNT, C2C_STATUS, C2C_POWER = 170, 171, 234
"""Fields of links to the CPU: NVML_FI_DEV_C2C_LINK_COUNT, _GET_STATUS (0: down), _POWER_STATE (1: low power)."""
MOST_REMAPPED: Final = 8
"""
Number of rows replaced for uncorrected errors up to which a GPU counts as healthy: a bank has so many spare rows.

https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (row-remapping failures)
"""
REMAPPED: Final = 143
"""Field with rows replaced for uncorrected errors: NVML_FI_DEV_REMAPPED_UNC."""
SHUTDOWN_LIMIT: Final = 193
"""Field with the margin (below 0) at which a GPU shuts down, since Ada: NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT."""
SINGLE: Final = (LINK_COUNT, C2C_COUNT, REMAPPED, SHUTDOWN_LIMIT)
"""Fields that are always read, to find faults and links."""
SINCE_LOADED: Final = (179, 180)
"""Counters that show a fault with a single error since the driver was loaded: pcie_nonfatal, pcie_fatal."""
SUMMED: Final = frozenset({LINK_ERRORS.name, "gpu.nvlink.corrected", "gpu.nvlink.blocks"})
"""Counters that are summed over all links."""
REASONS: Final = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "power_cap", 0x8: "hardware", 0x10: "sync_boost", 0x20: "sw_thermal",
    0x40: "hw_thermal", 0x80: "power_brake", 0x100: "display",
}  # fmt: skip
"""Bit of nvmlClocksEventReason* -> its name in our metrics."""
Answers = dict[str | SeriesKey, float]
"""Name of a fault, or series of a value -> its value."""
SERIES: Final[Mapping[int, SeriesKey]] = {n: row.key for n, row in (FIELDS | LINK_FIELDS | C2C_FIELDS).items()}
SUMS: Final = {number: key for number, key in SERIES.items() if key[0] in SUMMED}


def _known(members: tuple[int, ...]) -> tuple[int, ...]:
    """Return the members of a struct; raise NVMLError if one of them has no value."""
    if not nvml.NOT_AVAILABLE.isdisjoint(members):
        raise nvml.NVMLError(nvml.NO_DATA)
    return members


def _sram(gpu: Any) -> Answers:
    _, _, _, parity, secded, _, *counts, threshold = _known(nvml.nvmlDeviceGetSramEccErrorStatus(gpu))
    buckets: Answers = {
        ("gpu.ecc.lifetime", f"sram_{unit}"): count for unit, count in zip(SRAM_UNITS, counts, strict=True)
    }
    return {"sram_threshold": threshold, "sram_uncorrected": parity + secded, **buckets}


def _dram(gpu: Any) -> Answers:
    return {"dram_uncorrected": nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, nvml.NVML_MEMORY_LOCATION_DRAM)}


def _spare(gpu: Any) -> Answers:
    banks, words = _known(nvml.nvmlDeviceGetRowRemapperHistogram(gpu)), ("max", "high", "partial", "low", "none")
    histogram: Answers = {("gpu.rows.banks", word): count for word, count in zip(words, banks, strict=True)}
    return {"rows_exhausted": banks[-1], **histogram}


def _fabric(gpu: Any) -> Answers:
    try:
        identity, status, clique, state, mask, summary = nvml.fabric_v3(gpu)
    except nvml.NVMLError as error:
        if error.value != nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH:
            raise
        (identity, status, clique, state, mask), summary = nvml.fabric_v2(gpu), 0
    if not state:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)
    mask = 0 if mask in nvml.NOT_AVAILABLE else mask
    bandwidth, recovery, route, timeout, partition = (mask >> shift & 3 for shift in (0, 2, 4, 6, 12))
    wrong = mask >> 8 & 15  # NVML_GPU_FABRIC_HEALTH_MASK_INCORRECT_CONFIGURATION: 0 unknown, 1 none, 4 no partition
    is_member, cluster = state == 3 and not status, identity.hex()
    uuid = "-".join((cluster[:8], cluster[8:12], cluster[12:16], cluster[16:20], cluster[20:]))
    names = (uuid, str(clique)) if is_member else ("none", "none")
    return {
        "fabric_failed": state == 1 or (state == 3 and status != 0),  # not started; ended by an error
        "fabric_starting": state == 2,
        "fabric_unhealthy": summary == 2 or route == 1 or timeout == 1 or wrong not in (0, 1, 4),
        "fabric_limited": summary == 3 or bandwidth == 1 or recovery == 1,
        "fabric_no_partition": wrong == 4 or partition == 2,
        ("gpu.fabric", *names): is_member,
    }


def _width(gpu: Any) -> Answers:
    """Compare the width of the PCIe link with the width that both of its ends can use."""
    now, most = nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)
    return {"pcie_narrow": 0 < now < most, ("gpu.pcie.width",): now}


def _virtual(gpu: Any) -> Answers:
    """Return if this guest's vGPU has a licence; on a host, the number of vGPUs by licence."""
    mode = nvml.nvmlDeviceGetVirtualizationMode(gpu)
    if mode == GUEST:
        applies, number, *features = nvml.nvmlDeviceGetGridLicensableFeatures_v4(gpu)
        if applies and number:
            return {("gpu.licensed",): any(features[1::12][:number])}
    if mode in HOSTS:
        vgpus = memoryview(VGPUS.read(nvml.functions["nvmlDeviceGetActiveVgpus"], gpu)).cast("I")
        licences = [nvml.nvmlVgpuInstanceGetLicenseInfo_v2(number)[0] for number in vgpus]
        valid = sum(map(bool, licences))
        return {("gpu.vgpus", "valid"): valid, ("gpu.vgpus", "none"): len(licences) - valid}
    raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)


VGPUS: Final = Rows(Struct("I"))
"""Reads the list of vGPUs."""
GUEST, HOSTS = 2, (3, 4)
"""Modes of a guest and of a host: NVML_GPU_VIRTUALIZATION_MODE_VGPU; _HOST_VGPU, _HOST_VSGA."""
VIRTUAL: Final = {"virtual": _virtual}
"""Query that is made only at the level `all`."""
QUERIES: Final[dict[str, Callable[[Any], Answers]]] = {
    "sram": _sram, "dram": _dram, "spare": _spare, "fabric": _fabric, "width": _width,
    "repair": lambda gpu: {"repair_pending": any(_known(nvml.nvmlDeviceGetRepairStatus(gpu)))},
    "unrepairable": lambda gpu: {"memory_unrepairable": _known(nvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(gpu))[0]},
    "ecc": lambda gpu: {"ecc_off": nvml.nvmlDeviceGetDefaultEccMode(gpu) > nvml.nvmlDeviceGetEccMode(gpu)},
}  # fmt: skip
"""Query -> function that returns its faults and values."""


class GpuHealth:
    """Reads the faults and link errors of one GPU; those that its driver does not report are absent."""

    def __init__(self, number: int, points: PartPoints, level: Level) -> None:
        """Read the GPU with the index `number`; add its points to `points`."""
        self.query, self._points = NvmlQuery(f"GPU {number}"), points
        self._pace = Pace(EVERY / SECOND, shift=SLOW * (number % (EVERY // SECOND // int(SLOW))))
        self._is_all = level >= Level.ALL
        self._of_links = [*self._wanted(LINK_FIELDS), *BIT_ERRORS]
        self._of_c2c = [*self._wanted(C2C_FIELDS), *((C2C_STATUS, C2C_POWER) if level >= Level.DETAILED else ())]
        numbers = dict.fromkeys([*SINGLE, *self._wanted(FIELDS)])
        self._fields = self._set([(n, 0) for n in numbers], [(LINK_STATE, n) for n in range(MOST_LINKS)])
        self._link_fields, self._links = self._set(), (0, 0)
        """Fields of links; number of NVLinks and of links to the CPU for which they are set."""
        self._slow_since: dict[int, int] = {}
        """Bit of a slowdown -> time (monotonic ns) since which it lasts."""
        self._reasons: set[str] = set()
        """Reasons for low clocks that have occurred so far."""
        self.links: int | None = None
        """Number of NVLinks that are up in this tick; None if unknown. With MIG, NVML wrongly calls all links down."""
        self.all_links = 0
        """Number of NVLinks of the GPU, up or down."""

    def _wanted(self, rows: Mapping[int, FieldRow]) -> list[int]:
        """Return the fields to read at this level: all of them, or only those that the verdict judges."""
        return [n for n, row in rows.items() if self._is_all or row.metric is FAULT or row.value in JUDGED]

    def read(self, now: int, gpu: Any, *, busy: float | None, is_mig: bool) -> None:
        """Add faults, error counts and values to the points, if they are due; raise Lost."""
        self.links = None
        if not self._pace.is_due(now):
            return
        self.query.begin(now)
        fields = self._fields.read(gpu)
        up, links = self._count_links(gpu, fields)
        self.links, self.all_links = None if is_mig else up, links
        fields |= self._read_links(gpu, links, int(fields.get((C2C_COUNT, 0), 0)))
        answers: Answers = {FIELDS[n].value: fields[n, 0] for n in SINCE_LOADED if (n, 0) in fields}
        answers |= self._heat(gpu, fields.get((SHUTDOWN_LIMIT, 0), 0))
        counts = self._counted(fields)
        answers |= _judged(fields) | self._speed(gpu, busy) | self._slowdowns(gpu, now)
        if self.links is not None:
            answers |= _states("nvlink", up=self.links, down=links - self.links)
        for name, call in (QUERIES | VIRTUAL if self._is_all else QUERIES).items():
            answers |= self.query.ask(name, call, gpu) or {}
        for about, value in answers.items():
            if isinstance(about, str):
                self.add_fault(about, value)
            else:
                self._points.add(about, +value)
        for key, members in counts.items():
            self._points.add_total(key, members)

    def add_fault(self, fault: str, value: object, points: list[Datapoint] | None = None) -> None:
        """Add the point of a fault; to `points` if given, because the tick's list is already returned."""
        self._points.points = self._points.points if points is None else points
        self._points.add((FAULT.name, fault), 1 if value else 0)

    def _set(self, *keys: Iterable[tuple[int, int]]) -> FieldSet:
        """Build a set of fields whose failures are not reported, because a link or a field may not exist."""
        return FieldSet(self.query, dict.fromkeys(chain(*keys), ""), ABSENT)

    def _read_links(self, gpu: Any, links: int, c2c: int) -> dict[tuple[int, int], float]:
        """Read the fields of `links` NVLinks and `c2c` links to the CPU."""
        if (links, min(c2c, MOST_LINKS)) != self._links:
            self._links = links, min(c2c, MOST_LINKS)
            nvlink, others = (range(number) for number in self._links)
            self._link_fields = self._set(product(self._of_links, nvlink), product(self._of_c2c, others))
        return self._link_fields.read(gpu)

    def _count_links(self, gpu: Any, fields: dict[tuple[int, int], float]) -> tuple[int | None, int]:
        """Remove the states of links from the fields; return the number of links up (None if unknown) and of all."""
        if not (keys := [key for key in fields if key[0] == LINK_STATE]):
            up, links = self.query.ask("links", _links, gpu) or (None, 0)
            # This function may report links as down that do not exist.
            return (up, links) if up or fields.get((LINK_COUNT, 0)) else (None, 0)
        up = sum([fields.pop(key) > 0 for key in keys])
        return None if LINK_STATE in self._fields.partial else up, max(keys)[1] + 1

    def _counted(self, fields: dict[tuple[int, int], float]) -> dict[SeriesKey, dict[tuple[int, int], float]]:
        """Remove the counters of links from the fields; return series -> members. An incomplete series is left out."""
        partial = {SUMS.get(number) for number in self._fields.partial | self._link_fields.partial}
        counts: dict[SeriesKey, dict[tuple[int, int], float]] = {}
        for key in [key for key in fields if key[0] in SUMS]:
            kind, value = SUMS[key[0]], fields.pop(key)
            if kind not in partial and 0 <= value <= MOST_COUNT:
                counts.setdefault(kind, {})[key] = value
        return counts

    def _speed(self, gpu: Any, busy: float | None) -> Answers:
        now = self.query.ask("speed.now", nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu)
        most = self.query.ask("speed.most", nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu)
        answers: Answers = {("gpu.pcie.generation",): now} if now else {}
        if now and most and (now >= most or (busy or 0) >= BUSY):
            answers["pcie_slow"] = now < most
        return answers

    def _heat(self, gpu: Any, limit: float) -> Answers:
        """Return the margin of temperature, and the fault of a GPU that is hot enough to shut down."""
        if margin := self.query.ask("margin", nvml.nvmlDeviceGetMarginTemperature, gpu):
            answers: Answers = {("gpu.temperature.margin",): margin[0]}
            return answers | {"too_hot": margin[0] <= limit} if limit < 0 else answers
        most = self.query.ask("shutdown", nvml.nvmlDeviceGetTemperatureThreshold, gpu, SHUTDOWN)
        now = self.query.ask("heat", nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU) if most else None
        return {} if now is None else {"too_hot": now >= most}

    def _slowdowns(self, gpu: Any, now: int) -> Answers:
        """Return fault -> True if a slowdown has lasted, absent while it is still short; and reasons for low clocks."""
        reasons = self.query.ask("reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu)
        if reasons is None:
            return {}
        self._reasons |= {reason for bit, reason in REASONS.items() if reasons & bit}
        answers: Answers = {
            ("gpu.clock.reduced", reason): bool(reasons & bit)
            for bit, reason in REASONS.items()
            if reason in self._reasons
        }
        if reasons & HARDWARE_WHY:
            reasons &= ~HARDWARE
        faults: dict[str, set[bool | None]] = {}
        for fault, bit, least in SLOWDOWNS:
            if reasons & bit:
                lasts = now - self._slow_since.setdefault(bit, now) >= least
                faults.setdefault(fault, set()).add(lasts or None)
            else:
                self._slow_since.pop(bit, None)
                faults.setdefault(fault, set()).add(False)
        known = {fault: True in states for fault, states in faults.items() if True in states or None not in states}
        return answers | known


def _judged(fields: Mapping[tuple[int, int], float]) -> Answers:
    """Convert fields to faults and values."""
    answers: Answers = {}
    down = low = c2c = 0
    for (number, _), value in fields.items():
        row = FIELDS.get(number)
        if row and row.metric is FAULT:
            answers[row.value] = answers.get(row.value, 0) or value
        elif row:
            answers[SERIES[number]] = value
        elif (limit := BIT_ERRORS.get(number)) is not None:
            rate = (int(value) >> 8 & 15) * 10.0 ** -(int(value) & 255)
            answers["nvlink_bit_errors"] = answers.get("nvlink_bit_errors", 0) or rate > limit
            worst: SeriesKey = "gpu.nvlink.bit_error_rate", "effective" if number == min(BIT_ERRORS) else "symbol"
            answers[worst] = max(answers.get(worst, 0), rate if rate > NO_ERRORS else 0)
        elif number == REMAPPED:
            answers["rows_many"] = value > MOST_REMAPPED
        elif number == C2C_STATUS:
            c2c, down = c2c + 1, down + (not value)
        elif number == C2C_POWER:
            low += value == 1
    return answers | (_states("c2c", up=c2c - down, down=down, low_power=low) if c2c else {})


def _states(kind: str, **counts: int) -> Answers:
    return {("gpu.links", kind, state): count for state, count in counts.items()}


def _links(gpu: Any) -> tuple[int, int]:
    """Return the number of NVLinks that are up, and of all NVLinks; raise NVMLError if the GPU has none."""
    up = 0
    for link in range(MOST_LINKS):
        try:
            up += nvml.nvmlDeviceGetNvLinkState(gpu, link)
        except nvml.NVMLError as error:
            if not link or error.value not in ABSENT:
                raise
            return up, link
    return up, MOST_LINKS


class Peers:
    """
    Finds NVLinks that should be up but are down, by comparing the GPUs of a machine.

    On a board, all links of a GPU should be up, unless the GPU is alone on the machine. A card may have a bridge, so it
    is compared with its peers: it should have as many links up as any GPU of its model has had.
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def read(self, gpus: Iterable[tuple[str, GpuHealth]]) -> list[Datapoint]:
        """Return, for each GPU with links, 1 if fewer are up than on peers, and 1 if none is up but peers have some."""
        points: list[Datapoint] = []
        present = [*gpus]
        linked = [(model, health, health.links) for model, health in present if health.links is not None]
        for model, health, links in linked:
            is_board = not BRIDGED.search(model) and (links or len(present) > 1)
            self._most[model] = max(links, self._most.get(model, 0), health.all_links if is_board else 0)
        for model, health, links in linked:
            if most := self._most[model]:
                has_none = not links and BRIDGED.search(model) is not None
                health.add_fault("nvlink_down", links < most and not has_none, points)
                health.add_fault("nvlink_none", has_none, points)
        return points
