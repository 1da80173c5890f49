"""Reads the GPU's energy and states from IOReport, the private library that powermetrics uses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Final

from chipwatch.collectors.apple.foundation import REF, Foundation, Functions, Libraries, bind
from chipwatch.contract.datapoint import Metric
from chipwatch.contract.errors import Unavailable
from chipwatch.host.gpu_metrics import CLOCK_GRAPHICS, POWER, UTILIZATION

WORD, INT32, INT64 = ctypes.c_uint64, ctypes.c_int32, ctypes.c_int64
REPORT: Final[Functions] = {
    "IOReportCopyChannelsInGroup": (REF, REF, REF, WORD, WORD, WORD),
    "IOReportMergeChannels": (None, REF, REF, REF),
    "IOReportCreateSubscription": (REF, REF, REF, ctypes.POINTER(REF), WORD, REF),
    "IOReportCreateSamples": (REF, REF, REF, REF),
    "IOReportCreateSamplesDelta": (REF, REF, REF, REF),
    "IOReportChannelGetGroup": (REF, REF),
    "IOReportChannelGetChannelName": (REF, REF),
    "IOReportChannelGetUnitLabel": (REF, REF),
    "IOReportSimpleGetIntegerValue": (INT64, REF, REF),  # sources disagree on the last type; it is 0 here
    "IOReportStateGetCount": (INT32, REF),
    "IOReportStateGetNameForIndex": (REF, REF, INT32),
    "IOReportStateGetResidency": (INT64, REF, INT32),
}
CHANNELS: Final = "IOReportChannels"
ENERGY: Final = "Energy Model", None, "GPU Energy"
"""Group, subgroup and name of the channel of energy, which the GPU's driver provides."""
STATES: Final = "GPU Stats", "GPU Performance States", "GPUPH"
JOULES: Final = {"mJ": 1e-3, "uJ": 1e-6, "nJ": 1e-9}
"""Label of the unit, which differs between chips -> joules."""
OFF: Final = frozenset({"OFF", "IDLE", "DOWN"})
"""Names of states in which the GPU does nothing."""
MIN_SECONDS: Final = 0.1
"""Least seconds between two samples: the energy counter is updated about eight times a second."""
MAX_STATES: Final = 64
"""Most states of a channel; 16 have been seen."""


class Report:
    """A subscription to the GPU's channels, and their last sample."""

    def __init__(
        self, foundation: Foundation, libraries: Libraries, clocks: Sequence[int], clock: Callable[[], float]
    ) -> None:
        """`clocks`: clocks (Hz) of the GPU's states; `clock` returns monotonic seconds. Raise Unavailable."""
        self._foundation, self._clocks, self._clock = foundation, clocks, clock
        self._io = bind(libraries.report, REPORT)
        self._subscription = self._sample = None
        self._at = 0.0
        self.names: set[str] = set()
        """Names of the channels that were found."""
        with foundation.scope():
            self._channels = self._find_channels()
            if self._channels:
                used = REF()
                create = self._io.IOReportCreateSubscription
                self._subscription = foundation.keep(create(None, self._channels, ctypes.byref(used), 0, None))
                foundation.keep(used.value)
                self._sample = self._take_sample()
        if not self._sample:
            raise Unavailable("IOReport has no channel of a GPU" if not self.names else "IOReport refuses its channels")

    def read(self, problems: list[str]) -> dict[Metric, float | None]:
        """Return power, utilization and mean clock since the last sample; {} if that is too recent (MIN_SECONDS)."""
        if self._clock() - self._at < MIN_SECONDS:
            return {}
        with self._foundation.scope() as own:
            before, since = self._sample, self._at
            sample = self._take_sample()
            if not sample:
                problems.append("IOReport returned no sample")
                return {}
            own(before)
            self._sample = sample
            change = own(self._io.IOReportCreateSamplesDelta(before, sample, None))
            if not change:
                problems.append("IOReport returned no difference of two samples")
            return self._values(change, self._at - since, problems)

    def close(self) -> None:
        """Release the last sample; the foundation releases the rest."""
        sample, self._sample = self._sample, None
        self._foundation.release(sample)

    def _find_channels(self) -> int | None:
        """Return a description of only our channels: an M5 Max has 364 of energy, and we read one."""
        parts = [part for channel in (ENERGY, STATES) if (part := self._find(*channel))]
        for part in parts[1:]:
            self._io.IOReportMergeChannels(parts[0], part, None)
        return parts[0] if parts else None

    def _find(self, group: str, subgroup: str | None, name: str) -> int | None:
        """Return a description of the channels with this name in a group; None if there are none."""
        foundation, io = self._foundation, self._io
        strings = foundation.string(group), foundation.string(subgroup) if subgroup else None
        if not strings[0] or (subgroup and not strings[1]):
            return None
        with foundation.scope() as own:
            whole = own(io.IOReportCopyChannelsInGroup(*strings, 0, 0, 0))
            channels = foundation.dictionaries(foundation.value(whole, CHANNELS))
            named = [ref for ref in channels if foundation.text(io.IOReportChannelGetChannelName(ref)) == name]
            part = foundation.keep(foundation.altered(whole, CHANNELS, named)) if whole and named else None
        if part:
            self.names.add(name)
        return part

    def _take_sample(self) -> int | None:
        """Take a sample, which we own, and note its time; None on failure."""
        if not self._subscription:
            return None
        sample: int | None = self._io.IOReportCreateSamples(self._subscription, self._channels, None)
        if sample:
            self._at = self._clock()
        return sample

    def _values(self, change: int | None, seconds: float, problems: list[str]) -> dict[Metric, float | None]:
        foundation, io = self._foundation, self._io
        values: dict[Metric, float | None] = {}
        for ref in foundation.dictionaries(foundation.value(change, CHANNELS)):
            name = foundation.text(io.IOReportChannelGetChannelName(ref))
            group = foundation.text(io.IOReportChannelGetGroup(ref))
            if (group, name) == ENERGY[::2]:
                unit = foundation.text(io.IOReportChannelGetUnitLabel(ref))
                count = io.IOReportSimpleGetIntegerValue(ref, None)  # far below 0 if the channel is of another kind
                if unit in JOULES:
                    values[POWER] = count * JOULES[unit] / seconds  # `valid` drops it if the count has decreased
                else:
                    problems.append(f"IOReport counts the energy in {unit or 'nothing'}")
            elif (group, name) == STATES[::2]:
                states = range(min(MAX_STATES, io.IOReportStateGetCount(ref)))
                names = [foundation.text(io.IOReportStateGetNameForIndex(ref, n)) for n in states]
                times = [io.IOReportStateGetResidency(ref, n) for n in states]
                values[UTILIZATION], clock = shares(list(zip(names, times, strict=True)), self._clocks)
                values[CLOCK_GRAPHICS] = None if clock is None else clock / 1e6
        return values


def shares(states: Sequence[tuple[str, int]], clocks: Sequence[int]) -> tuple[float | None, float | None]:
    """
    Return the share of time (%) in which the GPU was not off, and its mean clock (Hz) in that time.

    `states`: names and times; P1, P2, … are in the order of `clocks`. Some chips have more states than clocks: if a
    state without a clock was used, the mean is None.
    """
    if not states or any(time < 0 for _, time in states):
        return None, None
    active = [time for name, time in states if name not in OFF]
    total, on = sum(time for _, time in states), sum(active)
    if not total:
        return None, None
    known = on and not any(active[len(clocks) :])
    clock = sum(time * hz for time, hz in zip(active, clocks, strict=False)) / on if known else None
    return 100.0 * on / total, clock
