"""Faults and link errors of a GPU that the driver reports, for `chipwatch verdict`, and values that change seldom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, product
from typing import Any, Final

from chipwatch.collectors.nvidia.metrics import GPU, GpuMetrics
from chipwatch.collectors.nvidia.query import ABSENT, SECOND, FieldSet, NvmlQuery
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric
from chipwatch.host import nvml
from chipwatch.host.counters import Counters
from chipwatch.host.gpu_metrics import MOST
from chipwatch.host.pace import SLOW, Pace

EVERY: Final = 30 * SECOND
"""Interval between readings; a link's state is a call each."""
HELD: Final = 120 * SECOND
"""Least duration of a slowdown by software: a short one is normal under load."""
AGAIN: Final = SECOND // 4
"""The same by hardware, which may show for a moment when clocks change: two readings."""
BUSY: Final = 50.0
"""Utilization (%) from which on a GPU does not lower the speed of its PCIe link to save power."""
MOST_LINKS: Final = 36
"""NVML_NVLINK_MAX_LINKS."""
SHUTDOWN: Final = 0
"""NVML_TEMPERATURE_THRESHOLD_SHUTDOWN."""
BRIDGED: Final = re.compile(
    r"PCI|CNX|\b[AH]\d+X\b|\bH\d+ NVL|RTX|GeForce|TITAN|Quadro|\b(A2|A10|A16|A30|A40|L\d+S?)\b|[AH]800|[PV]100|GH200"
)
"""
Models whose NVLinks may be down on a healthy machine: cards with a bridge or none, boards that leave some unused, and
GPUs that may have no peer. All others are boards with all links in use.
"""
SLOWDOWNS: Final = (
    ("thermal_slowdown", 0x20, HELD), ("thermal_slowdown", 0x40, AGAIN), ("power_brake", 0x80, AGAIN),
    ("hardware_slowdown", 0x8, AGAIN),
)  # fmt: skip
"""nvmlClocksEventReasons: by software and by hardware for heat; by the power brake of the machine; by hardware."""
HARDWARE, HARDWARE_WHY = 0x8, 0x40 | 0x80
"""The reason that stands beside each reason of the hardware, and these."""
BIT_ERRORS: Final = {220: 1e-12, 222: 1.6e-237}
"""
NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER and _SYMBOL_BER -> the rate above which DCGM 4.6 fails a link.

NVML packs a rate into mantissa (bits 8 to 11) and negative exponent (bits 0 to 7). Hardware reports 15e-255 or, from
Blackwell on, 15e-238 for none.
"""
NO_ERRORS: Final = 15e-238
"""Largest rate of bit errors that means none."""
MOST_COUNT: Final = 2**53
"""Largest number of errors that is a reading."""
SRAM_UNITS: Final = ("l2", "sm", "pcie", "mcu", "other")
"""Units of which nvmlEccSramErrorStatus_v1_t counts the uncorrected errors, in its order."""
LINK_STATE: Final = 165
"""NVML_FI_DEV_NVLINK_GET_STATE: 0 is down, 1 up, 2 asleep."""
LINK_COUNT: Final = 91
"""NVML_FI_DEV_NVLINK_LINK_COUNT."""
C2C_COUNT, C2C_STATUS, C2C_POWER = 170, 171, 234
"""NVML_FI_DEV_C2C_LINK_COUNT, _GET_STATUS (0: down) and _POWER_STATE (1: low power)."""
MOST_REMAPPED: Final = 8
"""
Rows replaced for uncorrected errors that a healthy GPU may have: as many as one bank has to spare.

https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/ (row-remapping failures)
"""
REMAPPED: Final = 143
"""NVML_FI_DEV_REMAPPED_UNC."""
SHUTDOWN_LIMIT: Final = 193
"""NVML_FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT: the margin, below 0, at which the GPU shuts down; Ada and later."""
SINGLE: Final = (LINK_COUNT, C2C_COUNT, REMAPPED, SHUTDOWN_LIMIT)
FIELDS: Final = {31: "rows_pending", 144: "rows_pending", 145: "rows_failed", 307: "rows_pending"}
"""NVML_FI_DEV_RETIRED_PENDING (before Ampere), _REMAPPED_PENDING, _REMAPPED_FAILURE, _PENDING_BANK_REMAPPING."""
COUNTS: Final = {94: "pcie_replay", 179: "pcie_nonfatal", 180: "pcie_fatal"}
SINCE_LOADED: Final = {179: "pcie_nonfatal", 180: "pcie_fatal"}
"""Counters of which one error since the driver was loaded is a fault."""
LINK_COUNTS: Final = {
    161: "nvlink_replay", 162: "nvlink_recovery", 163: "nvlink_crc", 213: "nvlink_recovery",
    214: "nvlink_recovery_failed",
}  # fmt: skip
"""Counters by field (nvml.h); 213 and 214 are NVLink 5's."""
C2C_COUNTS: Final = {231: "c2c"}
"""The same of the links to the CPU."""
ALL_COUNTS: Final = {
    169: "pcie_recovery", 173: "pcie_correctable", 174: "pcie_nak_received", 175: "pcie_receiver", 176: "pcie_bad_tlp",
    177: "pcie_nak_sent", 178: "pcie_bad_dllp", 181: "pcie_unsupported_request", 182: "pcie_lcrc", 183: "pcie_lane",
}  # fmt: skip
Place = tuple[str, ...]
"""An attribute of GpuMetrics, then keys and values of further dimensions."""
ALL_LINK_COUNTS: Final[Mapping[int, str | Place]] = {
    206: "nvlink_malformed", 207: "nvlink_overrun", 208: "nvlink_receive", 209: "nvlink_remote", 210: "nvlink_header",
    211: "nvlink_integrity", 212: "nvlink_discard", 219: "nvlink_effective", 221: "nvlink_symbol",
    **{235 + n: ("nvlink_corrected", "bin", str(n)) for n in range(16)},
    294: ("nvlink_blocks", "kind", "sent"), 295: ("nvlink_blocks", "kind", "sent_again"),
}  # fmt: skip
ALL_C2C_COUNTS: Final = {232: "c2c_replay", 233: "c2c_replay_again"}
"""Counters without a rule of the verdict, which are read at level all only; 215 is the sum of 213 and 214."""
ALL_FIELDS: Final[Mapping[int, Place]] = {
    5: ("ecc_lifetime", "kind", "corrected"), 6: ("ecc_lifetime", "kind", "uncorrected"),
    29: ("pages_retired", "cause", "correctable"), 30: ("pages_retired", "cause", "uncorrectable"),
    193: ("temperature_limit", "limit", "shutdown"), 194: ("temperature_limit", "limit", "slowdown"),
    195: ("temperature_limit", "limit", "memory"), 196: ("temperature_limit", "limit", "clock"),
    297: ("tensor_stalled",),
    301: ("rows_inactive", "cause", "correctable"), 302: ("rows_inactive", "cause", "uncorrectable"),
    303: ("banks_remapped", "state", "active"), 304: ("banks_remapped", "state", "inactive"),
    305: ("banks_groups", "spare", "max"), 306: ("banks_groups", "spare", "none"),
}  # fmt: skip
"""NVML_FI_DEV_ECC_{SBE,DBE}_AGG_TOTAL, _RETIRED_{SBE,DBE}, _TEMPERATURE_{SHUTDOWN,SLOWDOWN,MEM_MAX,GPU_MAX}_TLIMIT."""
REASONS: Final = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "power_cap", 0x8: "hardware", 0x10: "sync_boost", 0x20: "sw_thermal",
    0x40: "hw_thermal", 0x80: "power_brake", 0x100: "display",
}  # fmt: skip
"""nvmlClocksEventReason*."""
Answers = dict[str | Place, float]
"""Faults by name, and values by place."""


def _known(members: tuple[int, ...]) -> tuple[int, ...]:
    """Return the members of a struct; raise NVMLError if one has no value."""
    if not nvml.NOT_AVAILABLE.isdisjoint(members):
        raise nvml.NVMLError(nvml.NO_DATA)
    return members


def _sram(gpu: Any) -> Answers:
    _, _, _, parity, secded, _, *counts, threshold = _known(nvml.nvmlDeviceGetSramEccErrorStatus(gpu))
    buckets: Answers = {
        ("ecc_lifetime", "kind", f"sram_{unit}"): count for unit, count in zip(SRAM_UNITS, counts, strict=True)
    }
    return {"sram_threshold": threshold, "sram_uncorrected": parity + secded, **buckets}


def _dram(gpu: Any) -> Answers:
    return {"dram_uncorrected": nvml.nvmlDeviceGetMemoryErrorCounter(gpu, 1, 0, nvml.NVML_MEMORY_LOCATION_DRAM)}


def _spare(gpu: Any) -> Answers:
    banks, words = _known(nvml.nvmlDeviceGetRowRemapperHistogram(gpu)), ("max", "high", "partial", "low", "none")
    histogram: Answers = {("rows_banks", "spare", word): count for word, count in zip(words, banks, strict=True)}
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
        ("fabric", "cluster", names[0], "clique", names[1]): is_member,
    }


def _width(gpu: Any) -> Answers:
    """Compare with the width that both ends of the link can use, which NVML calls the maximum."""
    now, most = nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu), nvml.nvmlDeviceGetMaxPcieLinkWidth(gpu)
    return {"pcie_narrow": 0 < now < most, ("pcie_width",): now}


def _virtual(gpu: Any) -> Answers:
    """Return the licence of this guest's vGPU, or the vGPUs of this host, by licence."""
    mode = nvml.nvmlDeviceGetVirtualizationMode(gpu)
    if mode == GUEST:
        applies, number, *features = nvml.nvmlDeviceGetGridLicensableFeatures_v4(gpu)
        if applies and number:
            return {("licensed",): any(features[1::12][:number])}
    if mode in HOSTS:
        licences = [nvml.nvmlVgpuInstanceGetLicenseInfo_v2(vgpu)[0] for vgpu in nvml.nvmlDeviceGetActiveVgpus(gpu)]
        valid = sum(map(bool, licences))
        return {("vgpus", "licence", "valid"): valid, ("vgpus", "licence", "none"): len(licences) - valid}
    raise nvml.NVMLError(nvml.NVML_ERROR_NOT_SUPPORTED)


GUEST, HOSTS = 2, (3, 4)
"""NVML_GPU_VIRTUALIZATION_MODE_VGPU; _HOST_VGPU and _HOST_VSGA."""
VIRTUAL: Final = {"virtual": _virtual}
"""A query of level all."""
QUERIES: Final[Mapping[str, Callable[[Any], Answers]]] = {
    "sram": _sram, "dram": _dram, "spare": _spare, "fabric": _fabric, "width": _width,
    "repair": lambda gpu: {"repair_pending": any(_known(nvml.nvmlDeviceGetRepairStatus(gpu)))},
    "unrepairable": lambda gpu: {"memory_unrepairable": _known(nvml.nvmlDeviceGetUnrepairableMemoryFlag_v1(gpu))[0]},
    "ecc": lambda gpu: {"ecc_off": nvml.nvmlDeviceGetDefaultEccMode(gpu) > nvml.nvmlDeviceGetEccMode(gpu)},
}  # fmt: skip
"""Query -> the function that returns its faults and values."""


class GpuHealth:
    """The faults and link errors of one GPU; what this driver does not report is absent."""

    def __init__(self, dims: Dimensions, metrics: GpuMetrics, level: Level) -> None:
        self.query = NvmlQuery(f"GPU {dims[GPU]}")
        self._dims, self._metrics, self._level = dims, metrics, level
        self._pace = Pace(EVERY / SECOND, shift=SLOW * (int(dims[GPU]) % (EVERY // SECOND // int(SLOW))))
        self._further: dict[Place, Dimensions] = {}
        is_all = level >= Level.ALL
        self._queries = {**QUERIES, **(VIRTUAL if is_all else {})}
        self._counts: dict[int, str | Place] = {**COUNTS, **LINK_COUNTS, **C2C_COUNTS}
        self._link_numbers, self._c2c_numbers = [*LINK_COUNTS, *BIT_ERRORS], [*C2C_COUNTS]
        if is_all:
            self._counts |= {**ALL_COUNTS, **ALL_LINK_COUNTS, **ALL_C2C_COUNTS}
            self._link_numbers += ALL_LINK_COUNTS
            self._c2c_numbers += ALL_C2C_COUNTS
        if level >= Level.DETAILED:
            self._c2c_numbers += (C2C_STATUS, C2C_POWER)
        numbers = [*FIELDS, *COUNTS, *SINGLE, *((*ALL_COUNTS, *ALL_FIELDS) if is_all else ())]
        self._fields = self._set([(number, 0) for number in numbers], [(LINK_STATE, n) for n in range(MOST_LINKS)])
        self._link_fields, self._links = self._set(), (0, 0)
        """Fields of links, and for how many NVLinks and links to the CPU."""
        self._counters = Counters()
        self._slow_since: dict[int, int] = {}
        """Time (monotonic ns) since which a slowdown lasts, by its bit."""
        self._reasons: set[str] = set()
        """Reasons of low clocks so far."""
        self.links: int | None = None
        """NVLinks that are up in this tick; None if not known, as with MIG, where NVML shows all of them as down."""
        self.all_links = 0
        """NVLinks that the GPU has, up or not."""

    def read(self, at: int, now: int, gpu: Any, *, busy: float | None, is_mig: bool) -> Iterator[Datapoint]:
        """Yield the faults, the counts of errors and the values, if it is time; raise Lost."""
        self.links = None
        if not self._pace.is_due(now / SECOND):
            return
        self.query.begin(now)
        fields = self._fields.read(gpu)
        up, links = self._count_links(gpu, fields)
        self.links, self.all_links = None if is_mig else up, links
        fields |= self._of_links(gpu, links, int(fields.get((C2C_COUNT, 0), 0)))
        answers: Answers = {fault: fields[n, 0] for n, fault in SINCE_LOADED.items() if (n, 0) in fields}
        answers |= self._heat(gpu, fields.get((SHUTDOWN_LIMIT, 0), 0))
        counts = self._counted(fields)
        answers |= self._judged(fields) | self._speed(gpu, busy) | self._slowdowns(gpu, now)
        if self.links is not None:
            answers |= _states("nvlink", up=self.links, down=links - self.links)
        for name, call in self._queries.items():
            answers |= self.query.ask(name, call, gpu) or {}
        for about, value in answers.items():
            if isinstance(about, str):
                yield self.fault(at, about, value)
            elif point := self._value(at, about, value):
                yield point
        for kind, members in counts.items():
            name, *further = ("link_errors", "kind", kind) if isinstance(kind, str) else kind
            yield self._counters.total(getattr(self._metrics, name), at, members, self._with(*further))

    def fault(self, at: int, fault: str, value: object) -> Datapoint:
        """Return the point of a fault."""
        return self._metrics.fault.point(at, 1 if value else 0, self._with("fault", fault))

    def _value(self, at: int, place: Place, value: float) -> Datapoint | None:
        metric: Metric = getattr(self._metrics, place[0])
        if metric.level > self._level:
            return None
        if metric.kind is Kind.COUNTER:
            return self._counters.point(metric, at, value, self._with(*place[1:])) if _is_count(value) else None
        is_possible = abs(value) <= MOST.get(metric.unit, MOST_COUNT)
        return metric.point(at, +value, self._with(*place[1:])) if is_possible else None

    def _with(self, *further: str) -> Dimensions:
        """Return the GPU's dimensions and `further` ones: keys and values in turn."""
        if (dims := self._further.get(further)) is None:
            dims = self._further[further] = self._dims | dict(zip(further[::2], further[1::2], strict=True))
        return dims

    def _set(self, *keys: Iterable[tuple[int, int]]) -> FieldSet:
        """Return fields whose failures are not reported: a link or a field may not exist."""
        return FieldSet(self.query, dict.fromkeys(chain(*keys), ""), ABSENT)

    def _of_links(self, gpu: Any, links: int, c2c: int) -> dict[tuple[int, int], float]:
        """Return the fields of so many links."""
        if (links, min(c2c, MOST_LINKS)) != self._links:
            self._links = links, min(c2c, MOST_LINKS)
            nvlink, others = (range(number) for number in self._links)
            self._link_fields = self._set(product(self._link_numbers, nvlink), product(self._c2c_numbers, others))
        return self._link_fields.read(gpu)

    def _count_links(self, gpu: Any, fields: dict[tuple[int, int], float]) -> tuple[int | None, int]:
        """Take the states of links out of the fields; return the links that are up, None if not known, and all."""
        if not (keys := [key for key in fields if key[0] == LINK_STATE]):
            up, links = self.query.ask("links", _links, gpu) or (None, 0)
            # The function may call links down that are not there.
            return (up, links) if up or fields.get((LINK_COUNT, 0)) else (None, 0)
        up = sum([fields.pop(key) > 0 for key in keys])
        return None if LINK_STATE in self._fields.partial else up, max(keys)[1] + 1

    def _counted(self, fields: dict[tuple[int, int], float]) -> dict[str | Place, dict[tuple[int, int], float]]:
        """Take the counters out of the fields, by kind; a kind without some of its members is left out."""
        partial = {self._counts.get(number) for number in self._fields.partial | self._link_fields.partial}
        counts: dict[str | Place, dict[tuple[int, int], float]] = {}
        for key in [key for key in fields if key[0] in self._counts]:
            kind, value = self._counts[key[0]], fields.pop(key)
            if kind not in partial and _is_count(value):
                counts.setdefault(kind, {})[key] = value
        return counts

    def _judged(self, fields: Mapping[tuple[int, int], float]) -> Answers:
        """Return faults and values in the fields."""
        answers: Answers = {}
        down = low = c2c = 0
        for (number, _), value in fields.items():
            if (fault := FIELDS.get(number)) is not None:
                answers[fault] = answers.get(fault, 0) or value
            elif (limit := BIT_ERRORS.get(number)) is not None:
                rate = (int(value) >> 8 & 15) * 10.0 ** -(int(value) & 255)
                answers["nvlink_bit_errors"] = answers.get("nvlink_bit_errors", 0) or rate > limit
                worst: Place = "bit_error_rate", "kind", "effective" if number == min(BIT_ERRORS) else "symbol"
                answers[worst] = max(answers.get(worst, 0), rate if rate > NO_ERRORS else 0)
            elif number == REMAPPED:
                answers["rows_many"] = value > MOST_REMAPPED
            elif place := ALL_FIELDS.get(number):
                answers[place] = value
            elif number == C2C_STATUS:
                c2c, down = c2c + 1, down + (not value)
            elif number == C2C_POWER:
                low += value == 1
        if c2c:
            answers |= _states("c2c", up=c2c - down, down=down, low_power=low)
        return answers

    def _speed(self, gpu: Any, busy: float | None) -> Answers:
        now = self.query.ask("speed.now", nvml.nvmlDeviceGetCurrPcieLinkGeneration, gpu)
        most = self.query.ask("speed.most", nvml.nvmlDeviceGetMaxPcieLinkGeneration, gpu)
        answers: Answers = {("pcie_generation",): now} if now else {}
        if now and most and (now >= most or (busy or 0) >= BUSY):
            answers["pcie_slow"] = now < most
        return answers

    def _heat(self, gpu: Any, limit: float) -> Answers:
        """Return the margin, and whether the GPU is past the temperature at which it shuts down."""
        if margin := self.query.ask("margin", nvml.nvmlDeviceGetMarginTemperature, gpu):
            answers: Answers = {("temperature_margin",): margin[0]}
            return answers | {"too_hot": margin[0] <= limit} if limit < 0 else answers
        most = self.query.ask("shutdown", nvml.nvmlDeviceGetTemperatureThreshold, gpu, SHUTDOWN)
        now = self.query.ask("heat", nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU) if most else None
        return {} if now is None else {"too_hot": now >= most}

    def _slowdowns(self, gpu: Any, now: int) -> Answers:
        """Return which slowdowns have lasted, one that is shorter so far is left out; and the reasons so far."""
        reasons = self.query.ask("reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu)
        if reasons is None:
            return {}
        self._reasons |= {reason for bit, reason in REASONS.items() if reasons & bit}
        answers: Answers = {
            ("clock_reduced", "reason", reason): bool(reasons & bit)
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


def _is_count(value: float) -> bool:
    return 0 <= value <= MOST_COUNT


def _states(kind: str, **counts: int) -> Answers:
    return {("links", "kind", kind, "state", state): count for state, count in counts.items()}


def _links(gpu: Any) -> tuple[int, int]:
    """Return the number of NVLinks that are up, and of all; raise NVMLError if the GPU has none."""
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
    Tells of NVLinks that should be up.

    On a board, all links of a GPU should be up, unless the GPU is alone on the machine. A card has a bridge or none, so
    its links are compared with its peers': each should have as many up as any GPU of its model has had.
    """

    def __init__(self) -> None:
        self._most: dict[str, int] = {}

    def read(self, at: int, gpus: Iterable[tuple[str, GpuHealth]]) -> Iterator[Datapoint]:
        """Yield for each GPU whether links are down, and whether peers alone have some; nothing without links."""
        present = [*gpus]
        linked = [(model, health, health.links) for model, health in present if health.links is not None]
        for model, health, links in linked:
            is_board = not BRIDGED.search(model) and (links or len(present) > 1)
            self._most[model] = max(links, self._most.get(model, 0), health.all_links if is_board else 0)
        for model, health, links in linked:
            if most := self._most[model]:
                has_none = not links and BRIDGED.search(model) is not None
                yield health.fault(at, "nvlink_down", links < most and not has_none)
                yield health.fault(at, "nvlink_none", has_none)
