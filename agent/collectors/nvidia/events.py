"""Xid errors, which the driver reports as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ctypes import c_void_p, cast
from typing import Any, Final

import pynvml

from agent.collectors.nvidia.device import Gpu
from agent.collectors.nvidia.query import Lost, NvmlQuery
from agent.datapoint import Datapoint, Dimensions, Metric

XID: Final = pynvml.nvmlEventTypeXidCriticalError
MOST: Final = 1000
"""Events that one tick takes; the rest waits for the next."""
PATIENCE: Final = 1
"""Milliseconds: the least that no version of the driver can take for `without end`."""


def address(handle: Any) -> int | None:
    """Return what tells NVML's handles apart."""
    return cast(handle, c_void_p).value


class Xids:
    """
    Counts the Xid errors of each GPU, from the moment on at which the agent began.

    The kernel module queues events for whoever registered (nv_post_event of NVIDIA/open-gpu-kernel-modules), so none
    is missed between two ticks, and no thread need wait: each tick takes what has come. On Windows the driver keeps
    but the last. Instances of MIG have no events of their own.
    """

    def __init__(self, metric: Metric) -> None:
        """Take what to say."""
        self._metric = metric
        self.query = NvmlQuery("Xid events")
        self._set: Any = None
        self._gpus: dict[int | None, Gpu] = {}
        self._seen: dict[tuple[Dimensions, int], tuple[int, Dimensions, int]] = {}
        """By GPU and Xid: how many came, under which dimensions, since when they count."""
        self._last: int | None = None

    def watch(self, gpus: Iterable[Gpu]) -> None:
        """Register for the events of those that work and are not watched yet."""
        for gpu in gpus:
            if gpu.lost or gpu.handle is None or address(gpu.handle) in self._gpus:
                continue
            try:
                kinds = gpu.query.ask("events", pynvml.nvmlDeviceGetSupportedEventTypes, gpu.handle)
                if not (kinds or 0) & XID:
                    continue
                if self._set is None:
                    self._set = gpu.query.ask("events", pynvml.nvmlEventSetCreate)
                gpu.query.ask("events", pynvml.nvmlDeviceRegisterEvents, gpu.handle, XID, self._set)
            except Lost:
                continue  # its readings will tell
            self._gpus[address(gpu.handle)] = gpu

    def read(self, at: int, now: int) -> Iterator[Datapoint]:
        """Yield how often each Xid came, of those that came at all."""
        self.query.begin(now)
        for gpu, xid in self._take():
            # None had come when we looked the last time: that is when the count was zero.
            new = 0, gpu.dims | {"xid": str(xid)}, at if self._last is None else self._last
            count, dims, start_time = self._seen.get((gpu.dims, xid), new)
            self._seen[gpu.dims, xid] = count + 1, dims, start_time
        for count, dims, start_time in self._seen.values():
            yield self._metric.point(at, count, dims, start_time=start_time)
        self._last = at

    def close(self) -> None:
        """Register for nothing any more; what was counted stays."""
        if self._set is not None:
            pynvml.nvmlEventSetFree(self._set)
        self._set, self._gpus = None, {}

    def _take(self) -> Iterator[tuple[Gpu, int]]:
        for _ in range(MOST if self._set is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, PATIENCE)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                    self.close()  # or it would say so for ever; the others are registered anew
                elif error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self.query.refused("events", "events", error.value)
                return
            gpu = self._gpus.get(address(event.device))
            if gpu and event.eventType & XID:
                yield gpu, int(event.eventData)
