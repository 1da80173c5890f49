"""Reads GPM, the driver's activity metrics on Hopper and later, which are computed between two samples."""

from __future__ import annotations

from collections.abc import Iterable
from ctypes import c_char
from struct import Struct
from typing import Any, Final

from chipwatch.collectors.nvidia.query import ABSENT, HOUR, SECOND, NvmlQuery
from chipwatch.host import nvml

SWITCHES: Final = frozenset(range(174, 210, 5))
"""Shares of time in which an engine switched contexts: NVML_GPM_METRIC_GR{0..7}_CTXSW_ACTIVE_PCT."""
ELAPSED: Final = 248
"""Counter of all cycles: NVML_GPM_METRIC_SM_CYCLES_ELAPSED."""
CYCLES: Final = {2: 249, 5: 250, 8: 251, 7: 252, 9: 253, 6: 254, 4: 257, 11: 258, 12: 259, 13: 260}
"""Metric in percent -> the counter of its active cycles, NVML_GPM_METRIC_*_CYCLES_ACTIVE."""
AGREES: Final = 2.0
"""Largest difference (%) from the driver's rounded share at which a share of cycles is used; not tried on a chip."""
GRAPHICS: Final = 1
"""Metric of the share of time in which any work ran, the only utilization of a MIG instance."""
HEAD: Final = Struct("IIPP")
"""nvmlGpmMetricsGet_t without its metrics: version, number of metrics, two samples."""
METRIC: Final = Struct("Iid24x")
"""nvmlGpmMetric_t without its names: metric, code, value."""
MIN_ELAPSED: Final = SECOND // 10
"""Shortest time (ns) between two samples, by nvml.h."""


class Gpm:
    """
    Takes a sample in each tick and compares it with the last one, without waiting.

    GPM does not take the profiling lock, so profilers can run at the same time.
    """

    def __init__(self, query: NvmlQuery, ids: Iterable[int], instance: int | None = None) -> None:
        """`ids`: metrics to read; `instance`: MIG instance to sample, None for the whole GPU."""
        self._query, self._instance = query, instance
        self._wanted = frozenset(ids)
        self._ask(self._wanted)
        self._ask_all_at = 0
        self._cycles: dict[int, float] = {}
        """Counter -> cycles at the last sample."""
        self.elapsed = 0
        """Time (ns) between the last two samples."""
        self._buffers: list[Any] = []
        self._sampled_at: int | None = None

    def read(self, gpu: Any, now: int) -> dict[int, float]:
        """Return metric -> value, {} in the first tick; `gpu`: the GPU's handle. Raise Lost."""
        if self._sampled_at is not None and now - self._sampled_at < MIN_ELAPSED:
            return {}
        if not self._buffers:
            self._allocate(gpu)
        if not self._buffers or self._sample(gpu) is None:
            return {}
        before, self._sampled_at = self._sampled_at, now
        self._buffers.reverse()
        if before is None:
            return {}
        self.elapsed = now - before
        if now >= self._ask_all_at:
            self._ask_all_at = now + HOUR
            self._ask(self._wanted)
        if not self._ids:
            return {}
        earlier, later = self._buffers[0].value, self._buffers[1].value
        request = bytearray(HEAD.pack(1, len(self._ids), earlier, later) + self._asked)
        if not self._query.ask("gpm.metrics", nvml.nvmlGpmMetricsGet, (c_char * len(request)).from_buffer(request)):
            return {}
        numbers, codes, values = zip(*METRIC.iter_unpack(request[HEAD.size :]), strict=True)
        answers = dict(zip(numbers, values, strict=True))
        if any(codes):
            failed = {number: code for number, code in zip(numbers, codes, strict=True) if code}
            self._ask(self._ids - {number for number, code in failed.items() if code in ABSENT})
            answers = {number: value for number, value in answers.items() if number not in failed}
        earlier_values, self._cycles = self._cycles, answers
        both_count = ELAPSED in answers and ELAPSED in earlier_values
        return _exact(earlier_values, answers) if both_count else answers

    def _ask(self, ids: frozenset[int]) -> None:
        """Request only these metrics from now on."""
        self._ids, self._asked = ids, b"".join(METRIC.pack(number, 0, 0.0) for number in ids)

    def restart(self) -> None:
        """Forget the last sample."""
        self._cycles, self._sampled_at = {}, None

    def close(self) -> None:
        """Free the samples; call it before NVML is closed."""
        for buffer in self._buffers:
            nvml.functions["nvmlGpmSampleFree"](buffer)  # it may fail if a GPU is lost
        self._buffers = []
        self.restart()

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


def _exact(before: dict[int, float], values: dict[int, float]) -> dict[int, float]:
    """Replace the driver's rounded shares by shares of cycles, if both agree."""
    if (elapsed := values[ELAPSED] - before[ELAPSED]) <= 0:
        return values
    exact = {
        share: 100 * (values[cycles] - before[cycles]) / elapsed
        for share, cycles in CYCLES.items()
        if share in values and cycles in values and cycles in before
    }
    return values | {share: value for share, value in exact.items() if abs(value - values[share]) <= AGREES}
