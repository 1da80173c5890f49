"""Xid errors, which the driver reports as events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from ctypes import c_void_p, cast
from typing import Any, Final

import pynvml

from chipwatch.collectors.nvidia.device import Gpu
from chipwatch.collectors.nvidia.query import Lost, NvmlQuery
from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.host.xid import action_of

XID: Final = pynvml.nvmlEventTypeXidCriticalError
MAX_EVENTS: Final = 1000
"""Events that one tick reads; the next tick reads the rest."""
TIMEOUT: Final = 1
"""Milliseconds; 0 means `forever` in some versions of the driver."""


def address(handle: Any) -> int | None:
    """Return the address in an NVML handle, which identifies the device."""
    return cast(handle, c_void_p).value


class Xids:
    """
    Counts the Xid errors of each GPU since the agent started; MIG instances have no events.

    The kernel module queues events for registered clients (nv_post_event of NVIDIA/open-gpu-kernel-modules), so a tick
    reads all events since the last one and no thread has to wait. On Windows the driver keeps only the last event.
    """

    def __init__(self, metric: Metric) -> None:
        self._metric = metric
        self.query = NvmlQuery("Xid events")
        self._set: Any = None
        self._gpus: dict[int | None, Gpu] = {}
        self._seen: dict[Dimensions, tuple[int, int]] = {}
        """Count and start time by GPU and Xid."""
        self._last: int | None = None

    def watch(self, gpus: Iterable[Gpu]) -> None:
        """Register for the events of working GPUs that are not registered yet."""
        for gpu in gpus:
            ask, handle = gpu.query.ask, gpu.handle
            if address(handle) in self._gpus:
                self._gpus[address(handle)] = gpu  # a new one may have the handle of a lost one
                continue
            if gpu.lost or handle is None:
                continue
            with suppress(Lost):  # the next reading reports it
                if (ask("events", pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0) & XID:
                    self._set = self._set or ask("events", pynvml.nvmlEventSetCreate)
                    ask("events", pynvml.nvmlDeviceRegisterEvents, handle, XID, self._set)
                    self._gpus[address(handle)] = gpu

    def read(self, at: int, now: int) -> Iterator[Datapoint]:
        """Yield the count of each Xid that has occurred."""
        self.query.begin(now)
        for gpu, xid in self._take():
            dims = gpu.dims | {"xid": str(xid), "action": action_of(xid)}
            # A new count was zero at the last reading.
            count, start_time = self._seen.get(dims, (0, at if self._last is None else self._last))
            self._seen[dims] = count + 1, start_time
        for dims, (count, start_time) in self._seen.items():
            yield self._metric.point(at, count, dims, start_time=start_time)
        self._last = at

    def close(self) -> None:
        """Unregister from all events; the counts stay."""
        if self._set is not None:
            pynvml.nvmlEventSetFree(self._set)
        self._set, self._gpus = None, {}

    def _take(self) -> Iterator[tuple[Gpu, int]]:
        for _ in range(MAX_EVENTS if self._set is not None else 0):
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, TIMEOUT)
            except pynvml.NVMLError as error:
                if error.value == pynvml.NVML_ERROR_GPU_IS_LOST:
                    self.close()  # else every call fails; `watch` registers the other GPUs again
                elif error.value != pynvml.NVML_ERROR_TIMEOUT:
                    self.query.failed("events", "events", error.value)
                return
            gpu = self._gpus.get(address(event.device))
            if gpu and event.eventType & XID:
                yield gpu, int(event.eventData)
