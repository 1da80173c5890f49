"""Counts Xid errors and other events that the driver reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from ctypes import c_ulonglong
from typing import Any, Final

from chipwatch.collectors.nvidia.device import Gpu
from chipwatch.collectors.nvidia.query import GONE, Lost, NvmlQuery
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.host import nvml
from chipwatch.host.xid import action_of

XID: Final = nvml.nvmlEventTypeXidCriticalError
RECOVERY: Final = 0x8000
EVENTS: Final = {
    0x1000: "nonfatal_poison", 0x2000: "fatal_poison", 0x4000: "unavailable", RECOVERY: "recovery_action",
}  # fmt: skip
"""Events of newer drivers: nvmlEventType{NonFatalPoison,FatalPoison,GpuUnavailable}Error and GpuRecoveryAction."""
MAX_EVENTS: Final = 1000
"""Most events that one tick reads; the next tick reads the rest."""


def _register(handle: Any, kinds: int, events: Any) -> None:
    """Register for events, or only for Xid errors if the driver refuses the others. Raise NVMLError."""
    try:
        nvml.nvmlDeviceRegisterEvents(handle, c_ulonglong(kinds), events)
    except nvml.NVMLError:
        if kinds == XID:
            raise
        nvml.nvmlDeviceRegisterEvents(handle, c_ulonglong(XID), events)


class Xids:
    """
    Counts the Xid errors and EVENTS of each GPU since the agent started; MIG instances have none.

    The kernel module queues events for its clients (nv_post_event of NVIDIA/open-gpu-kernel-modules). So a tick reads
    all events since the last tick, and no thread has to wait.
    """

    def __init__(self) -> None:
        self.query = NvmlQuery("Xid events")
        self._set: Any = None
        self._gpus: dict[int | None, Gpu] = {}
        self._seen: dict[tuple[Metric, Dimensions], tuple[int, int]] = {}
        """Series -> its count and start time (ns since the epoch)."""
        self._last: int | None = None

    def watch(self, gpus: Iterable[Gpu]) -> None:
        """Register for the events of working GPUs, if not done yet."""
        for gpu in gpus:
            ask, handle = gpu.query.ask, gpu.handle
            if handle is not None and handle.value in self._gpus:
                self._gpus[handle.value] = gpu  # a new GPU may have the handle of a lost one
                continue
            if gpu.lost or handle is None:
                continue
            with suppress(Lost):  # the next reading reports it
                kinds = (ask("events", nvml.nvmlDeviceGetSupportedEventTypes, handle) or 0) & (XID | sum(EVENTS))
                if kinds:
                    self._set = self._set or ask("events", nvml.nvmlEventSetCreate)
                    ask("events", _register, handle, kinds, self._set)
                    self._gpus[handle.value] = gpu

    def read(self, at: int, now: int) -> list[Datapoint]:
        """Return the count of each Xid and event that has occurred."""
        self.query.begin(now)
        for gpu, kind, data in self._take():
            if kind & XID:
                series = gpu.points.metrics["gpu.xid"], gpu.dims | {"xid": str(data), "action": action_of(data)}
            else:
                series = gpu.points.metrics["gpu.event"], gpu.dims | {"event": EVENTS[kind]}
                gpu.is_due |= kind == RECOVERY
            # A new counter starts at the last reading.
            count, start_time = self._seen.get(series, (0, at if self._last is None else self._last))
            self._seen[series] = count + 1, start_time
        self._last = at
        return [
            metric.point(at, count, dims, start_time=since) for (metric, dims), (count, since) in self._seen.items()
        ]

    def close(self) -> None:
        """Unregister from all events; keep the counts."""
        if self._set is not None:
            nvml.functions["nvmlEventSetFree"](self._set)  # it may fail if a GPU is lost
        self._set, self._gpus = None, {}

    def _take(self) -> Iterator[tuple[Gpu, int, int]]:
        for _ in range(MAX_EVENTS if self._set is not None else 0):
            try:
                device, kind, data, *_ = nvml.nvmlEventSetWait_v2(self._set)
            except nvml.NVMLError as error:
                if error.value in GONE:
                    self.close()  # every further call would fail; `watch` registers the other GPUs again
                elif error.value != nvml.NVML_ERROR_TIMEOUT:
                    self.query.failed("events", "events", error.value)
                return
            gpu = self._gpus.get(device)
            if gpu and (kind & XID or kind in EVENTS):
                yield gpu, kind, data
