"""What is said of NVIDIA GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from agent.datapoint import Level, Metric, counter, gauge

BASIC, DETAILED = Level.BASIC, Level.DETAILED
GPU, MIG, UUID, MODEL = "gpu", "mig", "uuid", "model"


class PartMetrics:
    """Of what computes, a whole GPU or an instance of MIG; every point carries the dimensions `keys`."""

    def __init__(self, *keys: str) -> None:
        """Declare them."""
        # fmt: off
        self.utilization = gauge(
            "gpu.utilization", "%", "Share of the driver's last sample period in which a kernel ran.", BASIC, keys)
        self.memory_utilization = gauge(
            "gpu.memory.utilization", "%", "Memory in use, of the memory of the device.", BASIC, keys)
        self.memory_used = gauge(
            "gpu.memory.used", "By", "Memory in use, without what the driver keeps for itself.", BASIC, keys)
        self.memory_total = gauge("gpu.memory.total", "By", "Memory of the device.", DETAILED, keys)
        self.process_memory_used = gauge(
            "gpu.process.memory.used", "By", "Memory of the device that the watched process tree uses.", BASIC, keys)
        self.process_memory_utilization = gauge(
            "gpu.process.memory.utilization", "%", "The same, of the memory of the device.", BASIC, keys)
        self.process_utilization = gauge(
            "gpu.process.utilization", "%", "Share of the device's time in which kernels of the watched process tree "
            "ran.", BASIC, keys)
        self.active = {  # by GPM's number of the metric
            2: gauge("gpu.sm.active", "%", "Time in which a multiprocessor had work, mean of all.", DETAILED, keys),
            3: gauge("gpu.sm.occupancy", "%", "Warps that were resident, of all that could be.", DETAILED, keys),
            5: gauge("gpu.tensor.active", "%", "Time in which the tensor cores worked.", DETAILED, keys),
            10: gauge("gpu.dram.active", "%", "Bandwidth of the memory in use, of the maximum.", DETAILED, keys),
            11: gauge("gpu.fp64.active", "%", "Time in which the FP64 units worked.", DETAILED, keys),
            12: gauge("gpu.fp32.active", "%", "Time in which the FP32 units worked.", DETAILED, keys),
            13: gauge("gpu.fp16.active", "%", "Time in which the FP16 units worked.", DETAILED, keys),
        }
        # fmt: on

    def __iter__(self) -> Iterator[Metric]:
        """Iterate over the metrics."""
        for value in vars(self).values():
            if isinstance(value, Metric):
                yield value
            else:
                yield from value.values()


class GpuMetrics(PartMetrics):
    """Of a whole GPU."""

    def __init__(self, *keys: str) -> None:
        """Declare them."""
        super().__init__(*keys)
        # fmt: off
        self.memory_activity = gauge(
            "gpu.memory.activity", "%", "Share of the driver's last sample period in which memory was read or "
            "written.", DETAILED, keys)
        self.temperature = gauge("gpu.temperature", "Cel", "Temperature of the chip.", BASIC, keys)
        self.memory_temperature = gauge(
            "gpu.memory.temperature", "Cel", "Temperature of the memory.", DETAILED, keys)
        self.power = gauge("gpu.power", "W", "Power of the board, from its energy where that is counted.", BASIC, keys)
        self.power_utilization = gauge(
            "gpu.power.utilization", "%", "Power of the board, of the limit that is enforced.", BASIC, keys)
        self.power_limit = gauge("gpu.power.limit", "W", "Power limit that is enforced.", DETAILED, keys)
        self.energy = counter("gpu.energy", "J", "Energy that the board used.", DETAILED, keys)
        self.clocks = {  # by NVML's number of the clock
            1: gauge("gpu.clock.sm", "MHz", "Clock of the multiprocessors.", DETAILED, keys),
            2: gauge("gpu.clock.memory", "MHz", "Clock of the memory.", DETAILED, keys),
            0: gauge("gpu.clock.graphics", "MHz", "Clock of the graphics engine.", DETAILED, keys),
        }
        self.ecc_corrected = counter(
            "gpu.ecc.corrected", "{error}", "Memory errors that ECC corrected.", DETAILED, keys)
        self.ecc_uncorrected = counter(
            "gpu.ecc.uncorrected", "{error}", "Memory errors that ECC could not correct.", BASIC, keys)
        self.encoder = gauge("gpu.encoder.utilization", "%", "Utilization of the video encoder.", DETAILED, keys)
        self.decoder = gauge("gpu.decoder.utilization", "%", "Utilization of the video decoder.", DETAILED, keys)
        self.fan = gauge("gpu.fan.utilization", "%", "Speed of the fan, of its maximum.", DETAILED, keys)
        self.pcie_sent = counter("gpu.pcie.sent", "By", "Sent by the GPU over PCIe.", DETAILED, keys)
        self.pcie_received = counter("gpu.pcie.received", "By", "Received by the GPU over PCIe.", DETAILED, keys)
        self.nvlink_sent = counter("gpu.nvlink.sent", "By", "Sent by the GPU over all its NVLinks.", DETAILED, keys)
        self.nvlink_received = counter(
            "gpu.nvlink.received", "By", "Received by the GPU over all its NVLinks.", DETAILED, keys)
        self.throttled = counter(
            "gpu.throttled", "s", "Time in which something held the clocks down, by reason.", DETAILED,
            (*keys, "reason"))
        self.xid = counter(
            "gpu.xid", "{error}", "Errors that the driver reported as Xid since the agent began.", BASIC,
            (*keys, "xid"))
        self.rows_remapped = counter(
            "gpu.rows.remapped", "{row}", "Rows of the memory that were replaced, by the kind of error.", DETAILED,
            (*keys, "cause"))
        self.state = gauge("gpu.state", "1", "1: works; 0: is lost or needs a reset.", BASIC, keys)
        # fmt: on


@cache
def of_gpu(*further: str) -> GpuMetrics:
    """Return what is declared of GPUs whose points carry `further` dimensions (uuid, model)."""
    return GpuMetrics(GPU, *further)


@cache
def of_instance(*further: str) -> PartMetrics:
    """Return the same of instances of MIG."""
    return PartMetrics(GPU, MIG, *further)


THROTTLES: Final = {
    74: "power",
    75: "thermal",
    76: "sync_boost",
    77: "board_limit",
    78: "low_utilization",
    79: "reliability",
}
"""
NVML_FI_DEV_PERF_POLICY_*, in ns. The three fields for hardware slowdowns are left out: their numbers, and what stands
at those numbers, moved between drivers (251 to 253 in 580, 269 to 271 in later headers).
"""
