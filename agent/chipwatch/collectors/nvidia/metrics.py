"""The metrics of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Final

from chipwatch.contract.datapoint import Level, Metric, counter, gauge
from chipwatch.host import gpu_metrics

BASIC, DETAILED = Level.BASIC, Level.DETAILED
GPU, MIG, UUID, MODEL, DRIVER = "gpu", "mig", "uuid", "model", "driver"


class PartMetrics:
    """Metrics that a whole GPU and a MIG instance have, with the dimensions `keys`."""

    def __init__(self, *keys: str) -> None:
        # fmt: off
        self.utilization = replace(gpu_metrics.UTILIZATION, dims=keys)
        self.memory_utilization = replace(gpu_metrics.MEMORY_UTILIZATION, dims=keys)
        self.memory_used = replace(gpu_metrics.MEMORY_USED, dims=keys)
        self.memory_total = replace(gpu_metrics.MEMORY_TOTAL, dims=keys)
        self.memory_available = gauge("gpu.memory.available", "By", "Memory that is free.", DETAILED, keys)
        self.memory_reserved = gauge(
            "gpu.memory.reserved", "By", "Memory that the driver and the firmware keep.", DETAILED, keys)
        self.process_memory_used = replace(gpu_metrics.PROCESS_MEMORY_USED, dims=keys)
        self.process_memory_utilization = replace(gpu_metrics.PROCESS_MEMORY_UTILIZATION, dims=keys)
        self.process_utilization = replace(gpu_metrics.PROCESS_UTILIZATION, dims=keys)
        self.active = {  # by metric id of GPM
            2: gauge("gpu.sm.active", "%", "Share of time in which a multiprocessor had work, mean.", DETAILED, keys),
            3: gauge("gpu.sm.occupancy", "%", "Resident warps, of the maximum.", DETAILED, keys),
            5: gauge("gpu.tensor.active", "%", "Share of time in which the tensor cores worked.", DETAILED, keys),
            10: gauge("gpu.dram.active", "%", "Memory bandwidth in use, of the maximum.", DETAILED, keys),
            11: gauge("gpu.fp64.active", "%", "Share of time in which the FP64 units worked.", DETAILED, keys),
            12: gauge("gpu.fp32.active", "%", "Share of time in which the FP32 units worked.", DETAILED, keys),
            13: gauge("gpu.fp16.active", "%", "Share of time in which the FP16 units worked.", DETAILED, keys),
        }
        # fmt: on

    def __iter__(self) -> Iterator[Metric]:
        """Iterate over the metrics."""
        for value in vars(self).values():
            yield from (value,) if isinstance(value, Metric) else value.values()


class GpuMetrics(PartMetrics):
    """Metrics of a whole GPU."""

    def __init__(self, *keys: str) -> None:
        super().__init__(*keys)
        # fmt: off
        self.active = {1: gauge("gpu.engine.active", "%", "Share of time in which any work ran.", DETAILED, keys),
                       **self.active}
        self.unified = replace(gpu_metrics.UNIFIED, dims=keys)
        self.memory_activity = replace(gpu_metrics.MEMORY_ACTIVITY, dims=keys)
        self.temperature = replace(gpu_metrics.TEMPERATURE, dims=keys)
        self.memory_temperature = replace(gpu_metrics.MEMORY_TEMPERATURE, dims=keys)
        self.power = replace(gpu_metrics.POWER, dims=keys)
        self.power_utilization = replace(gpu_metrics.POWER_UTILIZATION, dims=keys)
        self.power_limit = replace(gpu_metrics.POWER_LIMIT, dims=keys)
        self.energy = replace(gpu_metrics.ENERGY, dims=keys)
        self.clocks = {  # by clock type of NVML
            1: gauge("gpu.clock.sm", "MHz", "Clock of the multiprocessors.", DETAILED, keys),
            2: replace(gpu_metrics.CLOCK_MEMORY, dims=keys),
            0: replace(gpu_metrics.CLOCK_GRAPHICS, dims=keys),
        }
        self.ecc_corrected = replace(gpu_metrics.ECC_CORRECTED, dims=keys)
        self.ecc_uncorrected = replace(gpu_metrics.ECC_UNCORRECTED, dims=keys)
        self.encoder, self.decoder = (
            gauge(f"gpu.{word}.utilization", "%", f"Utilization of the video {word}.", DETAILED, keys)
            for word in ("encoder", "decoder")
        )
        self.fan = replace(gpu_metrics.FAN, dims=keys)
        self.pipe_active = gauge(
            "gpu.pipe.active", "%", "Share of time with integer operations, or operations of the tensor cores.",
            Level.ALL, (*keys, "pipe"))
        self.module_power = gauge(
            "gpu.module.power", "W", "Power of the module with GPU and CPU, such as Grace Hopper.", DETAILED, keys)
        self.context_switch = gauge(
            "gpu.context_switch.active", "%", "Share of time in which the GPU switched between contexts.", DETAILED,
            keys)
        self.tensor_stalled = gauge(
            "gpu.tensor.stalled", "%", "Share of time in which matrix operations waited.", Level.ALL, keys)
        self.c2c = {  # by metric id of GPM
            102: counter("gpu.c2c.sent", "By", "Sent by the GPU to the CPU over their own link.", DETAILED, keys),
            103: counter("gpu.c2c.received", "By", "Received by the GPU from the CPU over it.", DETAILED, keys),
        }
        self.pcie_sent = counter("gpu.pcie.sent", "By", "Sent by the GPU over PCIe.", DETAILED, keys)
        self.pcie_received = counter("gpu.pcie.received", "By", "Received by the GPU over PCIe.", DETAILED, keys)
        self.pcie_replays = replace(gpu_metrics.PCIE_REPLAYS, dims=keys)
        self.nvlink_sent = counter("gpu.nvlink.sent", "By", "Sent by the GPU over all its NVLinks.", DETAILED, keys)
        self.nvlink_received = counter(
            "gpu.nvlink.received", "By", "Received by the GPU over all its NVLinks.", DETAILED, keys)
        self.throttled = replace(gpu_metrics.THROTTLED, dims=(*keys, "reason"))
        self.xid = counter(
            "gpu.xid", "{error}", "Xid errors that the driver reported since the agent started.", BASIC,
            (*keys, "xid", "action"))
        self.event = counter(
            "gpu.event", "{event}", "Events that the driver reported since the agent started.", DETAILED,
            (*keys, "event"))
        self.rows_remapped = counter(
            "gpu.rows.remapped", "{row}", "Replaced rows of memory, by kind of error.", DETAILED, (*keys, "cause"))
        self.rows_failed = gauge(
            "gpu.rows.failed", "1", "1: a faulty row of memory could not be replaced.", DETAILED, keys)
        self.fault = gauge(
            "gpu.fault", "1", "1: the driver reports this fault; 0: it reports none.", Level.ALL,
            (*keys, "fault"))
        self.link_errors = replace(gpu_metrics.LINK_ERRORS, dims=(*keys, "kind"))
        self.links = replace(gpu_metrics.LINKS, dims=(*keys, "kind", "state"))
        self.fabric = gauge(
            "gpu.fabric", "1", "1: registered with the NVLink fabric as a member of this cluster and clique; 0: not.",
            DETAILED, (*keys, "cluster", "clique"))
        self.bit_error_rate = gauge(
            "gpu.nvlink.bit_error_rate", "1", "Rate of bit errors of the worst NVLink.", Level.ALL, (*keys, "kind"))
        self.ecc_lifetime = counter(
            "gpu.ecc.lifetime", "{error}", "Memory errors in the life of the GPU; of SRAM, those not corrected.",
            Level.ALL, (*keys, "kind"))
        self.rows_banks = gauge(
            "gpu.rows.banks", "{bank}", "Banks of memory, by the spare rows that they have left.", Level.ALL,
            (*keys, "spare"))
        self.rows_inactive = gauge(
            "gpu.rows.inactive", "{row}", "Replacements of rows that are not in use.", Level.ALL, (*keys, "cause"))
        self.banks_remapped, self.banks_groups = (
            gauge("gpu.banks.remapped", "{bank}", "Replaced banks of memory, in use or not.", Level.ALL,
                  (*keys, "state")),
            gauge("gpu.banks.groups", "{group}", "Groups of banks with all or none of their spare banks.", Level.ALL,
                  (*keys, "spare")),
        )
        self.nvlink_corrected = counter(
            "gpu.nvlink.corrected", "{error}", "Symbol errors that NVLinks corrected, by the driver's bin.", Level.ALL,
            (*keys, "bin"))
        self.nvlink_blocks = counter(
            "gpu.nvlink.blocks", "{block}", "Blocks that NVLinks sent, and sent again for errors.", Level.ALL,
            (*keys, "kind"))
        self.pages_retired = counter(
            "gpu.pages.retired", "{page}", "Pages of memory out of use for errors, before Ampere.", Level.ALL,
            (*keys, "cause"))
        self.pcie_width = gauge("gpu.pcie.width", "{lane}", "Lanes of the PCIe link in use.", Level.ALL, keys)
        self.pcie_generation = gauge("gpu.pcie.generation", "1", "Generation of PCIe in use.", Level.ALL, keys)
        self.temperature_margin = gauge(
            "gpu.temperature.margin", "Cel", "Degrees left until the nearest slowdown.", DETAILED, keys)
        self.temperature_limit = gauge(
            "gpu.temperature.limit", "Cel", "Margin at which the GPU acts; below 0 it is past the maximum.", Level.ALL,
            (*keys, "limit"))
        self.clock_reduced = replace(gpu_metrics.CLOCK_REDUCED, dims=(*keys, "reason"))
        self.state = replace(gpu_metrics.STATE, dims=keys)
        self.recovery = gauge(
            "gpu.recovery_action", "1", "1: the driver asks for this recovery of the GPU; 0: it no longer does.",
            DETAILED, (*keys, "action"))
        self.licensed, self.vgpus = (
            gauge("gpu.licensed", "1", "1: this guest's vGPU has a licence; 0: none, and the driver slows it down.",
                  Level.ALL, keys),
            gauge("gpu.vgpus", "{device}", "Virtual GPUs on the GPU of this host.", Level.ALL, (*keys, "licence")),
        )
        # fmt: on


@cache
def of_gpu(*further: str) -> GpuMetrics:
    """Return the metrics of a GPU with `further` dimensions (uuid, model, driver)."""
    return GpuMetrics(GPU, *further)


@cache
def of_instance(*further: str) -> PartMetrics:
    """Return the metrics of a MIG instance with `further` dimensions (uuid, model, driver)."""
    return PartMetrics(GPU, MIG, *further)


THROTTLES: Final = {
    74: "power", 75: "thermal", 76: "sync_boost", 77: "board_limit", 78: "low_utilization", 79: "reliability",
}  # fmt: skip
"""NVML_FI_DEV_PERF_POLICY_*, in ns; the fields of hardware slowdowns differ between drivers: fields.SLOWDOWNS."""
