"""The metrics of NVIDIA GPUs and MIG instances, and tables that map each value of NVML to a metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache, partial
from typing import Final, NamedTuple

from chipwatch.contract import datapoint
from chipwatch.contract.datapoint import Level, Metric
from chipwatch.host import gpu_metrics as shared

BASIC, DETAILED, ALL = Level.BASIC, Level.DETAILED, Level.ALL
GPU, MIG, UUID, MODEL, DRIVER = "gpu", "mig", "uuid", "model", "driver"


SeriesKey = tuple[str, ...]
"""A series of a GPU: the name of a metric, and the values of its further dimensions."""


class FieldRow(NamedTuple):
    """A value of NVML: its metric, and how to convert it."""

    metric: Metric
    value: str = ""
    """Value of the metric's further dimension; "" if it has none."""
    unit: float = 1
    """NVML's units in one unit of the metric; the value is divided by it."""
    query: str = ""
    """Name of the query in messages; "" if failures are not reported."""

    @property
    def key(self) -> SeriesKey:
        """Return the series that gets the value."""
        return (self.metric.name, self.value) if self.value else (self.metric.name,)


def _gauge(name: str, unit: str, help: str, level: Level, *further: str) -> Metric:  # noqa: A002  # as the field
    return datapoint.gauge(name, unit, help, level, (GPU, *further))


def _counter(name: str, unit: str, help: str, level: Level, *further: str) -> Metric:  # noqa: A002
    return datapoint.counter(name, unit, help, level, (GPU, *further))


def _rows(metric: Metric, values: Mapping[int, str], unit: float = 1, query: str = "") -> dict[int, FieldRow]:
    """Return field -> row, for a metric with several fields; `values`: field -> value of the further dimension."""
    return {number: FieldRow(metric, value, unit, query) for number, value in values.items()}


# fmt: off
ACTIVE: Final = {
    2: FieldRow(_gauge("gpu.sm.active", "%", "Share of time in which a multiprocessor had work, mean.", DETAILED)),
    3: FieldRow(_gauge("gpu.sm.occupancy", "%", "Resident warps, of the maximum.", DETAILED)),
    5: FieldRow(_gauge("gpu.tensor.active", "%", "Share of time in which the tensor cores worked.", DETAILED)),
    10: FieldRow(_gauge("gpu.dram.active", "%", "Memory bandwidth in use, of the maximum.", DETAILED)),
    11: FieldRow(_gauge("gpu.fp64.active", "%", "Share of time in which the FP64 units worked.", DETAILED)),
    12: FieldRow(_gauge("gpu.fp32.active", "%", "Share of time in which the FP32 units worked.", DETAILED)),
    13: FieldRow(_gauge("gpu.fp16.active", "%", "Share of time in which the FP16 units worked.", DETAILED)),
}
"""Metric of GPM -> row, for shares that GPUs and instances have."""
TENSOR: Final = 5
"""Metric of GPM: the share of time in which the tensor cores worked."""
PEAKS: Final = {
    "NVIDIA H100 80GB HBM3": 1830, "NVIDIA H200": 1830, "NVIDIA GH200 480GB": 1830, "NVIDIA GH200 144G HBM3e": 1830,
    "NVIDIA H100 PCIe": 1620, "NVIDIA H100 NVL": 1545, "NVIDIA H200 NVL": 1545, "NVIDIA B200": 1856,
    "NVIDIA GB200": 2062,
}
"""
Model -> clock (MHz) at which its tensor cores reach the maker's dense peak; of 29 November 2026.

The peak divided by the operations of all multiprocessors in a clock; docs/nvidia-fields.md has both, with sources.
"""
SHARES: Final = {
    1: FieldRow(_gauge("gpu.engine.active", "%", "Share of time in which any work ran.", DETAILED)),
    **ACTIVE,
    **_rows(
        _gauge("gpu.pipe.active", "%", "Share of time with integer operations, or operations of the tensor cores.",
               ALL, "pipe"),
        {4: "integer", 6: "dfma", 7: "hmma", 8: "dmma", 9: "imma"}),
}
"""Metric of GPM -> row, for shares of a whole GPU; operations of tensor cores are divided by precision."""
C2C: Final = {
    102: FieldRow(_counter("gpu.c2c.sent", "By", "Sent by the GPU to the CPU over their own link.", DETAILED)),
    103: FieldRow(_counter("gpu.c2c.received", "By", "Received by the GPU from the CPU over it.", DETAILED)),
}
"""Metric of GPM, a rate (MiB/s) -> row, for the link to the CPU."""
CLOCKS: Final = {
    1: FieldRow(_gauge("gpu.clock.sm", "MHz", "Clock of the multiprocessors.", DETAILED), query="clock.sm"),
    2: FieldRow(shared.CLOCK_MEMORY, query="clock.memory"),
    0: FieldRow(shared.CLOCK_GRAPHICS, query="clock.graphics"),
}
"""NVML's type of clock -> row."""

ENERGY, THERMAL = 83, 75
"""Fields that jobs need at every level: the energy, and NVML_FI_DEV_PERF_POLICY_THERMAL."""
THROTTLES: Final = {
    74: "power", 75: "thermal", 76: "sync_boost", 77: "board_limit", 78: "low_utilization", 79: "reliability",
}
"""Field -> reason of throttling, a time in ns: NVML_FI_DEV_PERF_POLICY_*. 74 includes the software power cap."""
NVLINK_SENT: Final = _counter("gpu.nvlink.sent", "By", "Sent by the GPU over all its NVLinks.", DETAILED)
NVLINK_RECEIVED: Final = _counter("gpu.nvlink.received", "By", "Received by the GPU over all its NVLinks.", DETAILED)
throttled: Final = partial(_rows, shared.THROTTLED, unit=1e9, query="throttled")
"""Returns rows for fields with a time in ns; argument: field -> reason."""
FAST: Final = {
    ENERGY: FieldRow(shared.ENERGY, unit=1e3, query="energy"),
    **throttled({THERMAL: THROTTLES[THERMAL]}),
    82: FieldRow(shared.MEMORY_TEMPERATURE, query="temperature"),
    **_rows(_gauge("gpu.module.power", "W", "Power of the module with GPU and CPU, such as Grace Hopper.", DETAILED),
            {186: ""}, unit=1e3),
}
"""Fields that each tick reads; 186 is NVML_FI_DEV_POWER_INSTANT."""
SLOW: Final = {
    4: FieldRow(shared.ECC_UNCORRECTED, query="ecc"),
    3: FieldRow(shared.ECC_CORRECTED, query="ecc"),
    197: FieldRow(_counter("gpu.pcie.sent", "By", "Sent by the GPU over PCIe.", DETAILED), query="pcie"),
    198: FieldRow(_counter("gpu.pcie.received", "By", "Received by the GPU over PCIe.", DETAILED), query="pcie"),
    138: FieldRow(NVLINK_SENT, unit=1 / 1024, query="nvlink"),
    202: FieldRow(NVLINK_SENT, query="nvlink"),
    139: FieldRow(NVLINK_RECEIVED, unit=1 / 1024, query="nvlink"),
    204: FieldRow(NVLINK_RECEIVED, query="nvlink"),
    94: FieldRow(shared.PCIE_REPLAYS, query="pcie"),
    **_rows(_gauge("gpu.rows.failed", "1", "1: a faulty row of memory could not be replaced.", DETAILED), {145: ""},
            query="rows"),
    **_rows(_counter("gpu.rows.remapped", "{row}", "Replaced rows of memory, by kind of error.", DETAILED, "cause"),
            {142: "correctable", 143: "uncorrectable"}, query="rows"),
    **throttled({number: reason for number, reason in THROTTLES.items() if number != THERMAL}),
}
"""Fields that are read every ten seconds, by their numbers in nvml.h."""
LINKS: Final = {138: 202, 139: 204}
"""Field in KiB up to NVLink 4 -> the field in bytes that replaces it from NVLink 5 on."""
SCOPES: Final = {186: 1, **dict.fromkeys((*LINKS, *LINKS.values()), 0xFFFFFFFF)}
"""Field -> its scope, if not 0: NVML_POWER_SCOPE_MODULE (an NVIDIA CPU with its GPUs), or all links."""

FAULT: Final = _gauge("gpu.fault", "1", "1: the driver reports this fault; 0: it reports none.", ALL, "fault")
errors: Final = partial(_rows, shared.LINK_ERRORS)
"""Returns rows for errors of links; argument: field -> kind."""
FIELDS: Final = {
    **_rows(FAULT, {31: "rows_pending", 144: "rows_pending", 145: "rows_failed", 307: "rows_pending"}),
    **errors({
        94: "pcie_replay", 169: "pcie_recovery", 173: "pcie_correctable", 174: "pcie_nak_received",
        175: "pcie_receiver", 176: "pcie_bad_tlp", 177: "pcie_nak_sent", 178: "pcie_bad_dllp", 179: "pcie_nonfatal",
        180: "pcie_fatal", 181: "pcie_unsupported_request", 182: "pcie_lcrc", 183: "pcie_lane",
    }),
    **_rows(
        _counter("gpu.ecc.lifetime", "{error}", "Memory errors in the life of the GPU; of SRAM, those not corrected.",
                 ALL, "kind"),
        {5: "corrected", 6: "uncorrected"}),
    **_rows(
        _counter("gpu.pages.retired", "{page}", "Pages of memory out of use for errors, before Ampere.", ALL, "cause"),
        {29: "correctable", 30: "uncorrectable"}),
    **_rows(
        _gauge("gpu.temperature.limit", "Cel", "Margin at which the GPU acts; below 0 it is past the maximum.", ALL,
               "limit"),
        {193: "shutdown", 194: "slowdown", 195: "memory", 196: "clock"}),
    297: FieldRow(_gauge("gpu.tensor.stalled", "%", "Share of time in which matrix operations waited.", ALL)),
    **_rows(_gauge("gpu.rows.inactive", "{row}", "Replacements of rows that are not in use.", ALL, "cause"),
            {301: "correctable", 302: "uncorrectable"}),
    **_rows(_gauge("gpu.banks.remapped", "{bank}", "Replaced banks of memory, in use or not.", ALL, "state"),
            {303: "active", 304: "inactive"}),
    **_rows(
        _gauge("gpu.banks.groups", "{group}", "Groups of banks with all or none of their spare banks.", ALL, "spare"),
        {305: "max", 306: "none"}),
}
"""
Fields that are read every 30 seconds.

NVML_FI_DEV_RETIRED_PENDING (before Ampere), _REMAPPED_PENDING, _REMAPPED_FAILURE, _PENDING_BANK_REMAPPING, counters of
PCIe, _ECC_{SBE,DBE}_AGG_TOTAL, _RETIRED_{SBE,DBE}, _TEMPERATURE_{SHUTDOWN,SLOWDOWN,MEM_MAX,GPU_MAX}_TLIMIT.
"""
LINK_FIELDS: Final = {
    **errors({
        161: "nvlink_replay", 162: "nvlink_recovery", 163: "nvlink_crc", 206: "nvlink_malformed",
        207: "nvlink_overrun", 208: "nvlink_receive", 209: "nvlink_remote", 210: "nvlink_header",
        211: "nvlink_integrity", 212: "nvlink_discard", 213: "nvlink_recovery", 214: "nvlink_recovery_failed",
        219: "nvlink_effective", 221: "nvlink_symbol",
    }),
    **_rows(
        _counter("gpu.nvlink.corrected", "{error}", "Symbol errors that NVLinks corrected, by the driver's bin.", ALL,
                 "bin"),
        {235 + n: str(n) for n in range(16)}),
    **_rows(
        _counter("gpu.nvlink.blocks", "{block}", "Blocks that NVLinks sent, and sent again for errors.", ALL, "kind"),
        {294: "sent", 295: "sent_again"}),
}
"""Counters of NVLinks (nvml.h), read every 30 seconds and summed over all links; NVLink 5 has 213 and later."""
C2C_FIELDS: Final = errors({231: "c2c", 232: "c2c_replay", 233: "c2c_replay_again"})
"""Counters of links to the CPU, read every 30 seconds."""
JUDGED: Final = frozenset({
    "pcie_replay", "pcie_nonfatal", "pcie_fatal", "nvlink_replay", "nvlink_recovery", "nvlink_crc",
    "nvlink_recovery_failed", "c2c",
})
"""Errors of links that the verdict judges, so that every level reads them; 215 is the sum of 213 and 214."""

OF_PART: Final = (
    shared.UTILIZATION, shared.MEMORY_UTILIZATION, shared.MEMORY_USED, shared.MEMORY_TOTAL, shared.PROCESS_MEMORY_USED,
    shared.PROCESS_MEMORY_UTILIZATION, shared.PROCESS_UTILIZATION,
    _gauge("gpu.memory.available", "By", "Memory that is free.", DETAILED),
    _gauge("gpu.memory.reserved", "By", "Memory that the driver and the firmware keep.", DETAILED),
    *(row.metric for row in ACTIVE.values()),
    _gauge("gpu.efficiency", "%", "Work of the tensor cores, of their dense peak: OFU (docs/efficiency.md).", DETAILED),
)
OF_GPU: Final = (
    shared.UNIFIED, shared.MEMORY_ACTIVITY, shared.TEMPERATURE, shared.POWER, shared.POWER_UTILIZATION,
    shared.POWER_LIMIT, shared.FAN, shared.LINKS, shared.CLOCK_REDUCED, shared.STATE, FAULT,
    _gauge("gpu.encoder.utilization", "%", "Utilization of the video encoder.", DETAILED),
    _gauge("gpu.decoder.utilization", "%", "Utilization of the video decoder.", DETAILED),
    _gauge("gpu.context_switch.active", "%", "Share of time in which the GPU switched between contexts.", DETAILED),
    _counter("gpu.xid", "{error}", "Xid errors that the driver reported since the agent started.", BASIC, "xid",
             "action"),
    _counter("gpu.event", "{event}", "Events that the driver reported since the agent started.", DETAILED, "event"),
    _gauge("gpu.recovery_action", "1", "1: the driver asks for this recovery of the GPU; 0: it no longer does.",
           DETAILED, "action"),
    _gauge("gpu.fabric", "1", "1: registered with the NVLink fabric as a member of this cluster and clique; 0: not.",
           DETAILED, "cluster", "clique"),
    _gauge("gpu.nvlink.bit_error_rate", "1", "Rate of bit errors of the worst NVLink.", ALL, "kind"),
    _gauge("gpu.rows.banks", "{bank}", "Banks of memory, by the spare rows that they have left.", ALL, "spare"),
    _gauge("gpu.pcie.width", "{lane}", "Lanes of the PCIe link in use.", ALL),
    _gauge("gpu.pcie.generation", "1", "Generation of PCIe in use.", ALL),
    _gauge("gpu.temperature.margin", "Cel", "Degrees left until the nearest slowdown.", DETAILED),
    _gauge("gpu.licensed", "1", "1: this guest's vGPU has a licence; 0: none, and the driver slows it down.", ALL),
    _gauge("gpu.vgpus", "{device}", "Virtual GPUs on the GPU of this host.", ALL, "licence"),
    *(row.metric for table in (SHARES, C2C, CLOCKS, FAST, SLOW, FIELDS, LINK_FIELDS, C2C_FIELDS)
      for row in table.values()),
)
# fmt: on
INSTANCE: Final = {metric.name: metric for metric in OF_PART}
"""Name -> metric of a MIG instance."""
WHOLE: Final = {metric.name: metric for metric in (*OF_PART, *OF_GPU)}
"""Name -> metric of a whole GPU."""
ALWAYS: Final = frozenset({"gpu.fault", "gpu.link.errors", "gpu.recovery_action"})
"""Metrics that every level reads, because the verdict judges them."""


@cache
def shaped(metric: Metric, *keys: str) -> Metric:
    """Return a metric with the dimensions `keys` instead of its first one, `gpu`."""
    return replace(metric, dims=(*keys, *metric.dims[1:]))


@cache
def metrics_of(*keys: str) -> Mapping[str, Metric]:
    """Return name -> metric of a GPU or, if `keys` has `mig`, of an instance; each as `shaped` returns it."""
    return {name: shaped(metric, *keys) for name, metric in (INSTANCE if MIG in keys else WHOLE).items()}


def declared(*further: str) -> tuple[Metric, ...]:
    """Return the metrics of GPUs and instances, with `further` dimensions (uuid, model, driver)."""
    return (*metrics_of(GPU, *further).values(), *metrics_of(GPU, MIG, *further).values())
