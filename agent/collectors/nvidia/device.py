"""One GPU, and its instances if it is divided (MIG)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import pynvml

from agent.collectors.nvidia.gpm import GRAPHICS, Gpm
from agent.collectors.nvidia.metrics import THROTTLES, GpuMetrics, PartMetrics
from agent.collectors.nvidia.query import SECOND, Lost, NvmlQuery
from agent.datapoint import Datapoint, Dimensions, Level, Metric
from agent.host.counters import Life

ALL_LINKS: Final = 0xFFFFFFFF
ENERGY: Final = pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
MEMORY_TEMPERATURE: Final = pynvml.NVML_FI_DEV_MEMORY_TEMP
RECOVERY: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, which the oldest nvidia-ml-py that we take does not name."""
ECC_CORRECTED, ECC_UNCORRECTED = pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL
LINKS: Final = {
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: pynvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
    pynvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: pynvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
}
"""Fields in KiB, and those in bytes that stand in for them from NVLink 5 on."""
LEAST: Final = SECOND // 2
"""Over a shorter time the counter of energy, which moves in steps, would make a rough power."""
FASTEST: Final = 200
"""Percent: nvmlDeviceGetFanSpeed may exceed 100; this is no reading."""


def percent(value: float) -> float | None:
    """Return a share between 0 and 100, or None for what is none; a fraction above is the rounding of GPM's doubles."""
    return min(100, value) if 0 <= value < 101 else None


class Name(NamedTuple):
    """What a part is called."""

    who: str
    """In sentences."""
    number: int
    """Of the GPU, or of the instance within its GPU."""
    uuid: str
    model: str
    dims: Dimensions


class Part:
    """What computes: a whole GPU, or an instance of MIG."""

    metrics: PartMetrics

    def __init__(self, handle: Any, name: Name, metrics: PartMetrics, level: Level) -> None:
        """Take NVML's handle, and what to say under which name."""
        self.handle, self.name, self.dims, self.metrics = handle, name, name.dims, metrics
        self.query = NvmlQuery(name.who)
        self.detailed = level >= Level.DETAILED
        self.gpm: Gpm | None = None
        self.used: int | None = None
        """Bytes in use as of this tick, or None."""
        self.total: int | None = None
        self.busy: float | None = None
        """Utilization of this tick, or None."""

    def begin(self, now: int) -> None:
        """Begin a tick at `now` (monotonic ns)."""
        self.query.begin(now)
        self.used = self.total = self.busy = None

    def close(self) -> None:
        """Free what the driver holds for us."""
        if self.gpm:
            self.gpm.close()

    def _memory(self, at: int) -> Iterator[Datapoint]:
        ask, call, m = self.query.ask, pynvml.nvmlDeviceGetMemoryInfo, self.metrics
        info = ask("memory", call, self.handle, pynvml.nvmlMemory_v2)
        if info is None:  # drivers before 510; what the driver keeps for itself counts as used there
            info = ask("memory.v1", call, self.handle)
        if info is not None and (used := info.used) <= (total := info.total) and total:
            self.used, self.total = used, total
            yield m.memory_used.point(at, used, self.dims)
            yield m.memory_utilization.point(at, 100 * used / total, self.dims)
            if self.detailed:
                yield m.memory_total.point(at, total, self.dims)

    def _activity(self, at: int, now: int) -> Iterator[Datapoint]:
        for number, value in self.gpm.read(now).items() if self.gpm else ():
            if number == GRAPHICS:
                yield from self._utilization(at, value)
            else:
                yield from self._share(self.metrics.active[number], at, value)

    def _utilization(self, at: int, value: float) -> Iterator[Datapoint]:
        self.busy = percent(value)
        yield from self._share(self.metrics.utilization, at, value)

    def _share(self, metric: Metric, at: int, value: float | None) -> Iterator[Datapoint]:
        if value is not None and (share := percent(value)) is not None:
            yield metric.point(at, share, self.dims)


class Instance(Part):
    """An instance of MIG: it has memory and processes of its own; its utilization is known to GPM alone."""

    def __init__(self, handle: Any, gpu: Gpu, name: Name, metrics: PartMetrics, level: Level) -> None:
        """Take the handle of the instance, and the GPU which it is part of."""
        super().__init__(handle, name, metrics, level)
        number = self.query.ask("instance", pynvml.nvmlDeviceGetGpuInstanceId, handle)
        if number is not None:
            wanted = [GRAPHICS, *(metrics.active if self.detailed else ())]
            self.gpm = Gpm(self.query, gpu, lambda into: pynvml.nvmlGpmMigSampleGet(gpu.handle, number, into), wanted)

    def read(self, at: int, now: int) -> Iterator[Datapoint]:
        """Yield what can be read now; raise Lost."""
        yield from self._memory(at)
        yield from self._activity(at, now)


class _Counter(NamedTuple):
    metric: Metric
    unit: float
    dims: Dimensions
    life: Life


class Gpu(Part):
    """A whole GPU."""

    metrics: GpuMetrics

    def __init__(self, handle: Any, name: Name, metrics: GpuMetrics, level: Level) -> None:
        """Take what Part takes; the handle is None of one that the driver lists, but does not hand out."""
        super().__init__(handle, name, metrics, level)
        self.minor: int | None = None
        """The number in the name of its file in /dev."""
        self.instances: list[Instance] = []
        self.lost = False
        self._limit: float | None = None
        self._recovery = False
        self._base: tuple[int | None, int, float] | None = None
        self._counters: dict[int, _Counter] = {}
        m = metrics
        self._count(m.energy, 1e3, ENERGY)
        self._count(m.ecc_uncorrected, 1, ECC_UNCORRECTED)
        often, seldom = {(ENERGY, 0): "energy"}, {(ECC_UNCORRECTED, 0): "ecc", (RECOVERY, 0): "recovery"}
        if self.detailed:
            self.gpm = Gpm(self.query, self, lambda into: pynvml.nvmlGpmSampleGet(self.handle, into), m.active)
            often[MEMORY_TEMPERATURE, 0] = "temperature"
            seldom[ECC_CORRECTED, 0] = "ecc"
            self._count(m.ecc_corrected, 1, ECC_CORRECTED)
            seldom |= self._count_more()
        self._often, self._all = often, often | seldom
        self._clocks = [(f"clock.{number}", number, metric) for number, metric in m.clocks.items()]

    @property
    def parts(self) -> list[Part]:
        """What runs processes: the instances, or the GPU if it has none."""
        return [*self.instances] or [self]

    def read(self, at: int, now: int, *, seldom: bool) -> Iterator[Datapoint]:
        """Yield what can be read now, with `seldom` also what is dear; of a GPU that is lost just that."""
        for part in (self, *self.instances):
            part.begin(now)
        self.lost = self.handle is None
        try:
            if not self.lost:
                yield from self._readings(at, now, seldom=seldom)
        except Lost:
            self.lost = True
        if self.lost or self.query.reset or self._recovery:
            yield self.metrics.state.point(at, 0, self.dims)
        elif self.query.answered:
            yield self.metrics.state.point(at, 1, self.dims)

    def troubles(self) -> list[str]:
        """Return what went wrong in this tick, here and in the instances."""
        return [text for part in (self, *self.instances) for text in part.query.troubles.values()]

    def close(self) -> None:
        """Free what the driver holds for us."""
        super().close()
        for instance in self.instances:
            instance.close()

    def _readings(self, at: int, now: int, *, seldom: bool) -> Iterator[Datapoint]:
        yield from self._rates(at)
        yield from self._memory(at)
        yield from self._temperature(at)
        if seldom:
            yield from self._dear(at)
        yield from self._fields(at, now, seldom=seldom)
        if self.detailed:
            yield from self._detail(at, now)
        for instance in self.instances:
            yield from instance.read(at, now)

    def _rates(self, at: int) -> Iterator[Datapoint]:
        rates = self.query.ask("utilization", pynvml.nvmlDeviceGetUtilizationRates, self.handle)
        if rates is not None:
            yield from self._utilization(at, rates.gpu)
            if self.detailed:
                yield from self._share(self.metrics.memory_activity, at, rates.memory)

    def _temperature(self, at: int) -> Iterator[Datapoint]:
        ask, chip = self.query.ask, pynvml.NVML_TEMPERATURE_GPU
        value = ask("temperature", pynvml.nvmlDeviceGetTemperature, self.handle, chip)
        if value is None and hasattr(pynvml, "nvmlDeviceGetTemperatureV"):  # what is to replace it from CUDA 14 on
            value = ask("temperature.v", pynvml.nvmlDeviceGetTemperatureV, self.handle, chip)
        if value is not None:
            yield self.metrics.temperature.point(at, value, self.dims)

    def _dear(self, at: int) -> Iterator[Datapoint]:
        limit = self.query.ask("limit", pynvml.nvmlDeviceGetEnforcedPowerLimit, self.handle)
        self._limit = limit / 1e3 if limit else None
        if self.detailed:
            if self._limit:
                yield self.metrics.power_limit.point(at, self._limit, self.dims)
            fan = self.query.ask("fan", pynvml.nvmlDeviceGetFanSpeed, self.handle)
            yield from self._share(self.metrics.fan, at, min(100, fan) if fan and fan <= FASTEST else fan)

    def _detail(self, at: int, now: int) -> Iterator[Datapoint]:
        ask, m = self.query.ask, self.metrics
        for name, number, metric in self._clocks:
            if (clock := ask(name, pynvml.nvmlDeviceGetClockInfo, self.handle, number)) is not None:
                yield metric.point(at, clock, self.dims)
        if encoder := ask("encoder", pynvml.nvmlDeviceGetEncoderUtilization, self.handle):
            yield from self._share(m.encoder, at, encoder[0])
        if decoder := ask("decoder", pynvml.nvmlDeviceGetDecoderUtilization, self.handle):
            yield from self._share(m.decoder, at, decoder[0])
        yield from self._activity(at, now)

    def _fields(self, at: int, now: int, *, seldom: bool) -> Iterator[Datapoint]:
        found = self.query.fields(self.handle, self._all if seldom else self._often)
        for first, other in LINKS.items():
            if first in found:
                found.pop(other, None)
        if seldom:
            self._recovery = bool(found.get(RECOVERY))
        if (value := found.get(MEMORY_TEMPERATURE)) is not None:
            yield self.metrics.memory_temperature.point(at, value, self.dims)
        counted = {n: v for n, v in found.items() if n in self._counters and self._counters[n].life.take(v, at)}
        for number, value in counted.items():
            metric, unit, dims, life = self._counters[number]
            if self.detailed or metric.level == Level.BASIC:
                yield metric.point(at, value / unit, dims, start_time=life.start_time)
        yield from self._power(at, now, counted.get(ENERGY))

    def _power(self, at: int, now: int, energy: float | None) -> Iterator[Datapoint]:
        """Yield the mean since the last tick, which the sensor's readings of a moment cannot give."""
        watts = None
        if energy is not None:
            life, base = self._counters[ENERGY].life.start_time, self._base
            if base is None or base[0] != life:
                self._base = life, now, energy
            elif now - base[1] >= LEAST:
                self._base = life, now, energy
                watts = (energy - base[2]) / (now - base[1]) * 1e6
        if not watts:  # the first tick, an old device, or one that does not really count
            sensor = self.query.ask("power", pynvml.nvmlDeviceGetPowerUsage, self.handle)
            watts = None if sensor is None else sensor / 1e3
        if watts is not None:
            yield self.metrics.power.point(at, watts, self.dims)
            if self._limit:
                yield from self._share(self.metrics.power_utilization, at, min(100, 100 * watts / self._limit))

    def _count(self, metric: Metric, unit: float, number: int, **more: str) -> None:
        """Have the field of that number read as a counter, `unit` of which make one of the metric's."""
        self._counters[number] = _Counter(metric, unit, self.dims | more, Life())

    def _count_more(self) -> dict[tuple[int, int], str]:
        m = self.metrics
        groups: dict[tuple[int, int], str] = {}
        for number, metric in (
            (pynvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, m.pcie_sent),
            (pynvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, m.pcie_received),
        ):
            self._count(metric, 1, number)
            groups[number, 0] = "pcie"
        for (first, other), metric in zip(LINKS.items(), (m.nvlink_sent, m.nvlink_received), strict=True):
            self._count(metric, 1 / 1024, first)
            self._count(metric, 1, other)
            groups |= {(first, ALL_LINKS): "nvlink", (other, ALL_LINKS): "nvlink"}
        for number, cause in (
            (pynvml.NVML_FI_DEV_REMAPPED_COR, "correctable"),
            (pynvml.NVML_FI_DEV_REMAPPED_UNC, "uncorrectable"),
        ):
            self._count(m.rows_remapped, 1, number, cause=cause)
            groups[number, 0] = "rows"
        for number, reason in THROTTLES.items():
            self._count(m.throttled, 1e9, number, reason=reason)
            groups[number, 0] = "throttled"
        return groups
