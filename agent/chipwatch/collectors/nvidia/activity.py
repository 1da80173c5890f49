"""Measures the share of time in which a GPU or MIG instance worked since the last reading, for processors."""

from __future__ import annotations

from collections.abc import Iterator
from ctypes import byref, c_uint, c_ulonglong
from itertools import compress, groupby
from operator import itemgetter, mul, sub
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from chipwatch.collectors.nvidia.gpm import GRAPHICS, Gpm
from chipwatch.collectors.nvidia.query import MINUTE, SECOND, TYPES, Rows
from chipwatch.contract.facts import DeviceActivity
from chipwatch.host import nvml

if TYPE_CHECKING:
    from chipwatch.collectors.nvidia.device import Gpu, Part

POWER_BRAKE: Final = 0x80
SLOWDOWNS: Final = 0x08 | 0x20 | 0x40 | POWER_BRAKE
"""Reasons for low clocks (nvml.h) that count as throttling: hardware, heat by software or hardware, power brake."""
SAMPLES_OF: Final = tuple(Struct(f"Q{code}0Q") for code in TYPES)
"""nvmlSample_t: time (us) and value, by the type of the value."""
STILL: Final = 5 * SECOND
"""Longest time (ns) between two steps of an energy counter that works."""
SAMPLES, COUNTER, POINT = "driver samples", "GPM", "point value"


class Activity:
    """The activity of a GPU and its instances since the last reading; used by the collector's thread."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._last: int | None = None
        self._unpaid = 0
        """Time (ns) whose energy is not returned yet: a counter grows in steps."""
        self._thermal = self._joules = 0.0
        self._samples = Rows(SAMPLES_OF[0])
        self.basis = ""
        """The method by which utilization was measured: SAMPLES, COUNTER or POINT."""

    def read(self, now: int) -> Iterator[DeviceActivity]:
        """Yield the activity of the GPU, or of each instance, since the last call; `now`: monotonic ns. Raise Lost."""
        gpu = self._gpu
        if gpu.lost or gpu.handle is None:
            self._last = None
            for part in gpu.parts:
                yield DeviceActivity(part.dims, lost=True, slices=part.slices or 1 / len(gpu.parts))
            return
        elapsed, self._last = now - self._last if self._last is not None else 0, now
        throttled, energy = self._throttled(elapsed), self._energy(elapsed)
        for part in gpu.parts:
            active, idle = self._active(part, now)
            slices = self._slices(part)
            joules = None if energy is None else energy * slices
            yield DeviceActivity(
                part.dims, active, self.basis, idle, throttled, joules, slices, unlisted=part.lists.unlisted()
            )

    def _active(self, part: Part, now: int) -> tuple[float | None, float | None]:
        """Return the share of time with work, and the seconds since the last work; None if unknown."""
        point = None if part.now.busy is None else part.now.busy / 100
        if part is not self._gpu:  # for an instance, NVML has neither samples nor utilization
            self.basis = COUNTER
            return point, None
        before = part.lists.sampled_until.get(SAMPLES, 0)
        samples = part.query.ask("samples", _samples, self._samples, part.handle, before)
        if samples or (samples is not None and before):
            part.lists.sampled_until[SAMPLES] = samples[-1][0] if samples else before
            self.basis = SAMPLES if samples else POINT
            return _integrated(samples, before) if samples and before else (point, None)
        part.gpm = part.gpm or Gpm(part.query, [GRAPHICS])
        share = part.now.engine if part.detailed else part.gpm.read(part.handle, now).get(GRAPHICS)
        if share is not None:
            self.basis = COUNTER
            return min(1.0, share / 100), None
        self.basis = POINT
        for name in ("samples", "gpm"):  # try these again soon, because they measure better
            if part.query.due_at(name) > part.query.now + MINUTE:
                part.query.postpone(name, MINUTE)
        return point, None

    def _throttled(self, elapsed: int) -> float:
        """Return the share of time in which heat, the power brake or other hardware slowed the GPU."""
        query, handle = self._gpu.query, self._gpu.handle
        counted = self._gpu.now.hot
        now = query.ask("throttle.reasons", nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle) or 0
        if counted is None:
            return float(bool(now & SLOWDOWNS))
        before, self._thermal = self._thermal, counted
        hot = min(1.0, max(0.0, counted - before) / elapsed) if elapsed else 0.0
        return 1.0 if now & POWER_BRAKE else hot

    def _energy(self, elapsed: int) -> float | None:
        """Return the joules since the last reading: by the counter if it works, otherwise by power; None if unknown."""
        joules, watts = self._gpu.now.joules, self._gpu.now.watts
        before, self._joules = self._joules, joules or 0.0
        unpaid = self._unpaid + elapsed
        is_between_steps = joules == before and unpaid < STILL
        self._unpaid = unpaid if is_between_steps else 0
        if is_between_steps or 0 < before < self._joules:
            return self._joules - before
        return None if watts is None else watts * unpaid / SECOND

    def _slices(self, part: Part) -> float:
        """Return the share of the GPU's compute slices that an instance has; 1 for a whole GPU."""
        if part.slices is None:
            ask, gpu = part.query.ask, self._gpu
            attributes = ask("attributes", nvml.nvmlDeviceGetAttributes_v2, part.handle)
            count = ask("slices", nvml.nvmlDeviceGetMaxMigDeviceCount, gpu.handle)
            part.slices = min(1.0, attributes[7] / count) if attributes and count else 1 / len(gpu.parts)
        return part.slices


def _samples(rows: Rows, handle: Any, since: int) -> list[tuple[int, float]]:
    """Return (time in us, percent) of the driver's samples after `since`, the oldest first."""
    kind, call = c_uint(), nvml.functions["nvmlDeviceGetSamples"]
    raw = rows.read(call, handle, nvml.NVML_GPU_UTILIZATION_SAMPLES, c_ulonglong(since), byref(kind))
    if kind.value >= len(SAMPLES_OF):
        return []
    each = SAMPLES_OF[kind.value].iter_unpack(raw)
    samples = sorted([(at, percent) for at, percent in each if at > since and percent <= 100])
    if len(dict(samples)) < len(samples):  # of several samples at one time, the mean counts
        groups = [[*same] for _, same in groupby(samples, itemgetter(0))]
        return [(same[0][0], sum(one for _, one in same) / len(same)) for same in groups]
    return samples


def _integrated(samples: list[tuple[int, float]], since: int) -> tuple[float, float | None]:
    """Return the share of time with work, each sample weighted by its time; and the seconds since the last work."""
    times, percents = zip(*samples, strict=True)
    gaps = [*map(sub, times, (since, *times))]
    ordered, middle = sorted(gaps), len(gaps) // 2
    usual = ordered[middle] + ordered[~middle]  # twice the median limits the first gap: the driver keeps some seconds
    weights = [min(gap, usual) for gap in gaps]
    share = sum(map(mul, weights, percents)) / (100 * sum(weights))
    worked = max(compress(times, percents), default=None)
    return min(1.0, share), None if worked is None else (times[-1] - worked) / 1e6
