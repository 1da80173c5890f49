"""Limits, links, errors and partitions of an AMD chip, from the kernel; docs/decisions/0072-partitions-of-amd.md."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from chipwatch.collectors.amd import metrics as m
from chipwatch.collectors.amd.table import Values, decode
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.host import gpu_metrics
from chipwatch.host.counters import Counters
from chipwatch.host.procfs import text

MODES: Final = {"DPX": 2, "TPX": 3, "QPX": 4}
"""Partitions by mode; CPX has one for each chiplet."""
REASONS: Final = {
    "prochot": "prochot", "ppt": "power", "socket": "thermal", "regulator": "thermal_regulator",
    "hbm": "thermal_memory",
}  # fmt: skip
"""
Reasons by field of the table. AMD names these violations: prochot_thrm, ppt_pwr (PVIOL), socket_thrm (TVIOL), vr_thrm
and hbm_thrm of amdsmi_violation_status_t, in amdsmi 7.0.2.
"""
HELD: Final = {"below_power": "power", "below_heat": "thermal", "idle": "low_utilization", "below": "total"}
"""Of chiplets: gfx_clk_below_host_limit_{pwr,thm,total} and low_utilization of the same struct."""
ERRORS: Final = {
    "recoveries": "pcie_recovery", "rollovers": "pcie_replay_rollover", "naks_sent": "pcie_nak_sent",
    "naks_received": "pcie_nak_received",
}  # fmt: skip
KILOBYTE: Final = 1024
"""The tables count "KB", and AMD's tools print MiB as "MB"."""
Series = tuple[Metric, Dimensions]


class Chip:
    """The state of one card over its readings."""

    def __init__(self, device: Path) -> None:
        self._device, self.decode = device, decode
        self.read_modes()
        self._counters = Counters()
        self._last: tuple[int, int, Mapping[Series, float]] = 0, 0, {}
        """Monotonic ns, the count of all cycles, and of the cycles of each reason, of the last reading."""
        self._seconds: dict[Series, float] = {}

    def read_modes(self) -> None:
        """Read the modes of compute and memory: https://docs.kernel.org/gpu/amdgpu/driver-misc.html ."""
        compute, memory = (text(self._device / f"current_{part}_partition") for part in ("compute", "memory"))
        self.modes = compute, memory

    @property
    def is_divided(self) -> bool:
        """True in a mode of several partitions."""
        return self.modes[0] not in ("", "SPX")

    def partitions(self, values: Values) -> int:
        """Return the number of partitions: 1 without a known mode."""
        given, compute = values.get("partitions", [None])[0], self.modes[0]
        return given or (len(values.get("busy", ())) if compute == "CPX" else MODES.get(compute, 1)) or 1

    def busy(self, at: int, dims: Dimensions, values: Values) -> Iterator[Datapoint]:
        """Yield the utilization of each partition: the mean of its chiplets; nothing for a card in one part."""
        if (number := self.partitions(values)) > 1:
            for part, busy in enumerate(_split(values.get("busy", ()), number)):
                if busy:
                    share = min(100.0, sum(busy) / len(busy))
                    yield m.PART_UTILIZATION.point(at, share, dims | {"mig": str(part)})

    def points(self, at: int, now: int, dims: Dimensions, values: Values) -> Iterator[Datapoint]:
        """Yield what changes slowly, from a table that was read at `now` (monotonic ns)."""
        number = self.partitions(values)
        if self.modes[0]:
            compute, memory = self.modes
            yield m.PARTITIONS.point(at, number, dims | {"compute": compute, "memory": memory or "unknown"})
        yield from self._throttled(at, now, dims, values, number)
        for name, kind in ERRORS.items():
            if (count := values.get(name, [None])[0]) is not None:
                yield self._counters.point(gpu_metrics.LINK_ERRORS, at, count, dims | {"kind": kind})
        if (count := values.get("replays", [None])[0]) is not None:
            yield self._counters.point(gpu_metrics.PCIE_REPLAYS, at, count, dims)
        up = sum(state == 1 for state in values.get("up", ()))
        if up:  # slots without a link are down too, so only these are counted
            yield gpu_metrics.LINKS.point(at, up, dims | {"kind": "xgmi", "state": "up"})
        for name, metric in (("read", m.XGMI_RECEIVED), ("write", m.XGMI_SENT)):
            moved = {link: KILOBYTE * size for link, size in enumerate(values.get(name, ())) if size is not None}
            if up or any(moved.values()):
                yield self._counters.total(metric, at, moved, dims)

    def _throttled(self, at: int, now: int, dims: Dimensions, values: Values, number: int) -> Iterator[Datapoint]:
        """Yield the seconds of each reason: the share of the cycles that it had, of the time between two readings."""
        cycles = values.get("counter", [None])[0]
        if cycles is None:
            return
        counts: dict[Series, float] = {}
        for name, reason in REASONS.items():
            count = values.get(name, [None])[0]
            if count is not None and count != cycles:  # an MI300X with driver 6.10.5 counts all cycles, also idle
                counts[gpu_metrics.THROTTLED, dims | {"reason": reason}] = count
        for name, reason in HELD.items():
            for part, held in enumerate(_split(values.get(name, ()), number)):
                place = dims | ({"mig": str(part)} if number > 1 else {}) | {"reason": reason}
                if held:
                    counts[m.PART_BELOW if number > 1 else m.BELOW, place] = sum(held) / len(held)
        (then, before, earlier), self._last = self._last, (now, cycles, counts)
        passed = cycles - before
        for (metric, named), held_for in counts.items():
            gained = held_for - earlier.get((metric, named), held_for)
            is_valid = 0 < gained <= passed
            total = self._seconds.get((metric, named), 0.0)
            total += gained / passed * (now - then) / 1e9 if is_valid else 0.0
            self._seconds[metric, named] = total
            yield self._counters.point(metric, at, total, named)
            if total and metric is gpu_metrics.THROTTLED:
                yield gpu_metrics.CLOCK_REDUCED.point(at, int(is_valid), named)


def _split(values: Sequence[int | None], number: int) -> list[list[int]]:
    """Return the known values of each partition; chiplets are numbered by partition."""
    size = len(values) // number
    return [[v for v in values[n * size : (n + 1) * size] if v is not None] for n in range(number)] if size else []
