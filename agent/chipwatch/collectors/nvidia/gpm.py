"""GPM: the driver's activity metrics on Hopper and later, computed between two samples."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import c_char
from struct import Struct
from typing import Any, Final

from chipwatch.collectors.nvidia import nvml
from chipwatch.collectors.nvidia.query import SECOND, NvmlQuery

GRAPHICS: Final = 1
"""Metric id of the share of time in which any work ran: the only utilization of a MIG instance."""
HEAD: Final = Struct("IIPP")
"""nvmlGpmMetricsGet_t without its metrics: version, count of metrics, samples."""
METRIC: Final = Struct("Iid24x")
"""nvmlGpmMetric_t without its names: number, code, value."""
MIN_ELAPSED: Final = SECOND // 10
"""Shortest time (ns) between two samples, from nvml.h."""


class Gpm:
    """
    Takes a sample in each tick and compares it with the previous one, without waiting.

    GPM does not use the profiling lock, so profilers can run at the same time.
    """

    def __init__(self, query: NvmlQuery, ids: Iterable[int], instance: int | None = None) -> None:
        """`ids` of the metrics; `instance`: id of the MIG instance to sample, None for the whole GPU."""
        self._query, self._instance = query, instance
        self._ids = tuple(ids)
        self._buffers: list[Any] = []
        self._sampled_at: int | None = None

    def read(self, gpu: Any, now: int) -> dict[int, float]:
        """Return values in percent by metric id, nothing in the first tick; `gpu` is the GPU's handle. Raise Lost."""
        if self._sampled_at is not None and now - self._sampled_at < MIN_ELAPSED:
            return {}
        if not self._buffers:
            self._allocate(gpu)
        if not self._buffers or self._sample(gpu) is None:
            return {}
        first, self._sampled_at = self._sampled_at is None, now
        self._buffers.reverse()
        if first:
            return {}
        earlier, later = (buffer.value for buffer in self._buffers)
        request = bytearray(HEAD.pack(1, len(self._ids), earlier, later))
        request += b"".join(METRIC.pack(number, 0, 0.0) for number in self._ids)
        if not self._query.ask("gpm.metrics", nvml.nvmlGpmMetricsGet, (c_char * len(request)).from_buffer(request)):
            return {}
        return {number: value for number, code, value in METRIC.iter_unpack(request[HEAD.size :]) if not code}

    def close(self) -> None:
        """Free the samples; NVML must still be open."""
        for buffer in self._buffers:
            nvml.nvmlGpmSampleFree(buffer)
        self._buffers, self._sampled_at = [], None

    def _sample(self, gpu: Any) -> Any:
        if self._instance is None:
            return self._query.ask("gpm", nvml.nvmlGpmSampleGet, gpu, self._buffers[0])
        return self._query.ask("gpm", nvml.nvmlGpmMigSampleGet, gpu, self._instance, self._buffers[0])

    def _allocate(self, gpu: Any) -> None:
        support = self._query.ask("gpm", nvml.nvmlGpmQueryDeviceSupport, gpu)
        if support is not None and not support[0]:
            self._query.failed("gpm", "gpm", nvml.NVML_ERROR_NOT_SUPPORTED)
        elif support is not None:
            buffers = [self._query.ask("gpm", nvml.nvmlGpmSampleAlloc) for _ in range(2)]
            self._buffers = buffers if None not in buffers else []
