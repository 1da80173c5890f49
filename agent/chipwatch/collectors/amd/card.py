"""Reads one AMD GPU from its files in sysfs."""

from __future__ import annotations

import errno
import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.host import gpu_metrics
from chipwatch.host.counters import Counters
from chipwatch.host.drm import CardFiles, cards
from chipwatch.host.gpu_metrics import Readings
from chipwatch.host.procfs import text
from chipwatch.host.rows import FileRow

if TYPE_CHECKING:
    from chipwatch.collectors.amd.chip import TableFields

# fmt: off
PARTITIONS: Final = gauge(
    "gpu.partitions", "{partition}", "Partitions of the card, in its modes of compute (XCP) and memory (NPS).",
    Level.ALL, ("gpu", "compute", "memory"))
XGMI_SENT: Final = counter(
    "gpu.xgmi.sent", "By", "Sent by the GPU over all its XGMI links.", Level.ALL, ("gpu",))
XGMI_RECEIVED: Final = counter(
    "gpu.xgmi.received", "By", "Received by the GPU over all its XGMI links.", Level.ALL, ("gpu",))
RAS_ERRORS: Final = counter(
    "gpu.ras.errors", "{error}", "Errors that a block of the chip reported.", Level.ALL, ("gpu", "block", "kind"))
BELOW: Final = counter(
    "gpu.clock.below_limit", "s", "Time in which the chiplets ran below the clock that the host allows, by reason.",
    Level.ALL, ("gpu", "reason"))
# fmt: on
PART_UTILIZATION: Final = replace(gpu_metrics.UTILIZATION, dims=("gpu", "mig"))
PART_BELOW: Final = replace(BELOW, dims=("gpu", "mig", "reason"))
CHIP_METRICS: Final[tuple[Metric, ...]] = (
    PARTITIONS, XGMI_SENT, XGMI_RECEIVED, RAS_ERRORS, BELOW, PART_UTILIZATION, PART_BELOW,
)  # fmt: skip
HOTSPOT: Final = gauge(
    "gpu.hotspot.temperature", "Cel", "Temperature of the hottest place of the chip.", Level.DETAILED, gpu_metrics.KEYS
)
AMD: Final = "0x1002"
EXPECTED: Final = frozenset({errno.EINVAL, errno.EOPNOTSUPP, errno.ENODATA, errno.EBUSY, errno.EPERM, errno.EACCES})
"""Errors that amdgpu returns for a reading that it lacks, or lacks now: asleep (EBUSY) or in a reset (EPERM)."""
ENERGY_STEP: Final = 15.259e-6
"""Joules per step of the counter: https://rocm.docs.amd.com/projects/rocm_smi_lib rsmi_dev_energy_count_get."""
CURRENT: Final = re.compile(rb"^\w+:\s*(\d{1,9})\s*mhz\s*\*", re.IGNORECASE | re.MULTILINE)
"""Matches the marked line of a table of clocks: `1: 700Mhz *`."""
NORTH_BRIDGE: Final = "vddnb"
"""Label of in1 on APUs, except MI300A, which has separate VRAM: hwmon_attributes_visible of Linux."""
APU_FORMATS: Final = (b"\2", b"\3")
"""Format revisions of the table gpu_metrics on APUs: kgd_pp_interface.h."""
ROWS: Final = (
    FileRow(gpu_metrics.UTILIZATION, "device/gpu_busy_percent"),
    FileRow(gpu_metrics.MEMORY_USED, "device/mem_info_vram_used"),
    FileRow(gpu_metrics.MEMORY_TOTAL, "device/mem_info_vram_total"),
    FileRow(gpu_metrics.MEMORY_ACTIVITY, "device/mem_busy_percent"),
    FileRow(gpu_metrics.POWER, "{hwmon}/power1_average", 1e-6),
    FileRow(gpu_metrics.POWER, "{hwmon}/power1_input", 1e-6),  # MI300 has only this one
    FileRow(gpu_metrics.POWER_LIMIT, "{hwmon}/power1_cap", 1e-6),
    FileRow(gpu_metrics.FAN, "{hwmon}/pwm1", 100 / 255),
    FileRow(gpu_metrics.TEMPERATURE, "{hwmon}/{edge}", 1e-3),
    FileRow(gpu_metrics.TEMPERATURE, "{hwmon}/{junction}", 1e-3),  # MI300 has no edge
    FileRow(HOTSPOT, "{hwmon}/{junction}", 1e-3),
    FileRow(gpu_metrics.MEMORY_TEMPERATURE, "{hwmon}/{mem}", 1e-3),
    FileRow(gpu_metrics.CLOCK_GRAPHICS, "{hwmon}/freq1_input", 1e-6),
    FileRow(gpu_metrics.CLOCK_GRAPHICS, "device/pp_dpm_sclk", pattern=CURRENT),
    FileRow(gpu_metrics.CLOCK_MEMORY, "{hwmon}/freq2_input", 1e-6),  # an APU has none
    FileRow(gpu_metrics.CLOCK_MEMORY, "device/pp_dpm_mclk", pattern=CURRENT),
)
"""
Files below /sys/class/drm/cardN. If a metric has several rows, the first one whose file exists counts.

https://docs.kernel.org/gpu/amdgpu/thermal.html and https://docs.kernel.org/gpu/amdgpu/driver-misc.html
"""
APU_ROWS: Final = (
    FileRow(gpu_metrics.MEMORY_USED, "device/mem_info_vram_used+device/mem_info_gtt_used"),
    FileRow(gpu_metrics.MEMORY_TOTAL, "device/mem_info_vram_total+device/mem_info_gtt_total"),
)
KINDS: Final = {
    word: re.compile(rb"^%b:\s*(\d{1,18})\s*$" % key, re.MULTILINE)
    for word, key in (("uncorrected", b"ue"), ("corrected", b"ce"), ("deferred", b"de"))
}
"""Kind of error -> its line in a file of RAS counts, such as `ue: 0`."""
RARE_ROWS: Final = (
    FileRow(gpu_metrics.ECC_UNCORRECTED, "device/ras/umc_err_count", pattern=KINDS["uncorrected"]),
    FileRow(gpu_metrics.ECC_CORRECTED, "device/ras/umc_err_count", pattern=KINDS["corrected"]),
)
"""Files with the RAS counts of memory, which are read less often."""
METRICS: Final = tuple(dict.fromkeys((*gpu_metrics.FAMILY, *(of.metric for of in (*ROWS, *RARE_ROWS)), *CHIP_METRICS)))
LIMITS: Final = frozenset({gpu_metrics.MEMORY_TOTAL, gpu_metrics.POWER_LIMIT})
"""Metrics that are read at every level, to compute shares from them."""
TABLE: Final = "device/gpu_metrics"


def amd_cards(sys: Path) -> Iterator[tuple[str, Path]]:
    """Yield the kernel's number and the folder of each AMD card, in order; wake no card."""
    for index, folder in cards(sys, AMD):
        if "DRIVER=radeon" not in text(folder / "device/uevent"):
            yield index, folder


class AmdCard(CardFiles):
    """One AMD card: its open files."""

    expected = EXPECTED

    def __init__(self, index: str, folder: Path, level: Level) -> None:
        """Open the files for metrics of `level`; raise LookupError if there are none."""
        super().__init__(index, folder)
        self._has_table = self.keep(TABLE)
        form = self.text(TABLE) if self._has_table and self.begin() else None
        self.is_apu = text(self.hwmon / "in1_label") == NORTH_BRIDGE or (form or b"")[2:3] in APU_FORMATS
        rows = (*APU_ROWS, *ROWS) if self.is_apu else ROWS
        self._rows = self.keep_rows(row for row in rows if row.metric.level <= level or row.metric in LIMITS)
        if not self._rows:
            self.close()
            raise LookupError(folder)
        self._rare_rows = self.keep_rows([*RARE_ROWS, *(self._block_rows() if level >= RAS_ERRORS.level else ())])
        from chipwatch.collectors.amd.chip import Chip

        self.chip, self._level = Chip(self.device), level
        self._values: TableFields = {}
        self._slow, self._now = False, 0
        self._errors: list[tuple[Dimensions, float]] = []
        """Errors of the chip's blocks in the last reading."""
        self._counters = Counters()

    def _block_rows(self) -> Iterator[FileRow]:
        """Yield a row for each kind of error of each block of the chip."""
        for path in sorted(self.device.glob("ras/*_err_count")):
            for kind, pattern in KINDS.items():
                dims = Dimensions(block=path.name.removesuffix("_err_count"), kind=kind)
                yield FileRow(RAS_ERRORS, f"device/ras/{path.name}", pattern=pattern, dims=dims)

    def read_card(self, now: int, *, slow: bool) -> Readings | None:
        self._values, self._errors = {}, []
        self._slow, self._now = slow, now
        if not self.begin():
            return None
        readings = {row.metric: value for row, value in self.read(self._rows)}
        answered = bool(readings)
        if answered or self.lost:
            readings[gpu_metrics.STATE] = int(answered)
        if answered:
            self._decode(slow=slow)
            readings |= {gpu_metrics.UNIFIED: 1} if self.is_apu else {}
        if answered and slow:
            readings |= self._rare()
        self.total = readings.get(gpu_metrics.MEMORY_TOTAL, self.total)
        if not (readings.get(gpu_metrics.POWER) or readings.get(gpu_metrics.POWER_LIMIT)):
            readings.pop(gpu_metrics.POWER, None)  # the second die of a package reports 0, and no limit
        if self.chip.partitions(self._values) > 1 and "busy" in self._values:
            readings.pop(gpu_metrics.UTILIZATION, None)  # each partition has its own
        return readings

    def _rare(self) -> Readings:
        """Return the readings that are made less often."""
        self.chip.read_modes()
        readings: Readings = {}
        for row, value in self.read(self._rare_rows):
            if row.metric is RAS_ERRORS:
                self._errors.append((row.dims, value))
            else:
                readings[row.metric] = value
        if steps := self._values.get("energy", [None])[0]:
            readings[gpu_metrics.ENERGY] = steps * ENERGY_STEP
        return readings

    def _decode(self, *, slow: bool) -> None:
        """Read the table gpu_metrics: in each tick for partitions, otherwise only on slow ticks."""
        if self._has_table and (self.chip.is_divided or (slow and self._level >= gpu_metrics.ENERGY.level)):
            with suppress(struct.error):  # the table ends early
                self._values = self.chip.parse_table(self.text(TABLE) or b"")

    def further(self, at: int) -> Iterator[Datapoint]:
        yield from self.chip.busy(at, self.dims, self._values)
        if self._slow and self._values:
            yield from self.chip.points(at, self._now, self.dims, self._values)
        for dims, count in self._errors:
            yield self._counters.point(RAS_ERRORS, at, count, self.dims | dims)
