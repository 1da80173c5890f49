"""GPM, the driver's counters of activity on Hopper and later: what happened between two snapshots."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

import pynvml

from agent.collectors.nvidia.query import SECOND, NvmlQuery

GRAPHICS: Final = 1
"""Share of time in which any work ran: the only utilization that an instance of MIG has."""
LEAST: Final = SECOND // 10
"""Between two snapshots; nvml.h asks for it."""


class HasHandle(Protocol):
    """What NVML has a handle of."""

    handle: Any


class Gpm:
    """
    Takes a snapshot a tick and compares it with that of the tick before; nobody waits.

    GPM takes no lock of the profilers, so it disturbs none of them.
    """

    def __init__(self, query: NvmlQuery, gpu: HasHandle, take: Callable[[Any], Any], numbers: Iterable[int]) -> None:
        """Take the GPU (whose handle may change), the call that fills a snapshot, and what to ask for."""
        self._asker, self._gpu, self._take = query, gpu, take
        self._query = pynvml.c_nvmlGpmMetricsGet_t(version=pynvml.NVML_GPM_METRICS_GET_VERSION)
        for n, number in enumerate(numbers):
            self._query.metrics[n].metricId = number
            self._query.numMetrics = n + 1
        self._metrics = [self._query.metrics[n] for n in range(self._query.numMetrics)]
        self._buffers: list[Any] = []
        self._taken: int | None = None
        """When the last buffer was filled, or None."""

    def read(self, now: int) -> dict[int, float]:
        """Return what is known by number, in percent; nothing in the first tick. Raise Lost."""
        if self._taken is not None and now - self._taken < LEAST:
            return {}
        if not self._buffers:
            self._prepare()
        if not self._buffers or self._asker.ask("gpm", self._take, self._buffers[0]) is None:
            return {}
        first, self._taken = self._taken is None, now
        self._buffers.reverse()
        if first:
            return {}
        self._query.sample1, self._query.sample2 = self._buffers
        if self._asker.ask("gpm.metrics", pynvml.nvmlGpmMetricsGet, self._query) is None:
            return {}
        return {got.metricId: got.value for got in self._metrics if not got.nvmlReturn}

    def close(self) -> None:
        """Free the snapshots; the driver must be there."""
        for buffer in self._buffers:
            pynvml.nvmlGpmSampleFree(buffer)
        self._buffers, self._taken = [], None

    def _prepare(self) -> None:
        support = self._asker.ask("gpm", pynvml.nvmlGpmQueryDeviceSupport, self._gpu.handle)
        if support is None:
            return
        if not support.isSupportedDevice:
            self._asker.refused("gpm", "gpm", pynvml.NVML_ERROR_NOT_SUPPORTED)
            return
        buffers = [self._asker.ask("gpm", pynvml.nvmlGpmSampleAlloc) for _ in range(2)]
        if None not in buffers:
            self._buffers = buffers
