"""One GPU and its MIG instances."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from chipwatch.collectors.nvidia.fields import NONE, STOPS, DriverFields
from chipwatch.collectors.nvidia.gpm import CYCLES, ELAPSED, GRAPHICS, PIPES, SWITCHES, Gpm
from chipwatch.collectors.nvidia.health import GpuHealth
from chipwatch.collectors.nvidia.metrics import GPU, MIG, THROTTLES, GpuMetrics, PartMetrics
from chipwatch.collectors.nvidia.query import SECOND, UNSUPPORTED, FieldSet, Lost, NvmlQuery, Rows
from chipwatch.collectors.nvidia.unified import INTEGRATED, TEGRA, Kernel
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric
from chipwatch.host import nvml
from chipwatch.host.counters import Life
from chipwatch.host.gpu_metrics import MOST, OVERSHOOT, possible

ALL_LINKS: Final = 0xFFFFFFFF
ENERGY: Final = nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION
MEMORY_TEMPERATURE: Final = nvml.NVML_FI_DEV_MEMORY_TEMP
LINKS: Final = {
    nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX: nvml.NVML_FI_DEV_NVLINK_COUNT_XMIT_BYTES,
    nvml.NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_RX: nvml.NVML_FI_DEV_NVLINK_COUNT_RCV_BYTES,
}
"""Fields in KiB up to NVLink 4, and the fields in bytes that replace them from NVLink 5 on."""
MODULE: Final = 186, 1
"""NVML_FI_DEV_POWER_INSTANT of NVML_POWER_SCOPE_MODULE (mW): a CPU of NVIDIA with its GPUs."""
MIN_ELAPSED: Final = SECOND // 2
"""Shortest time (ns) for computing power from the energy counter, which increases in steps."""
THERMAL: Final = 75
"""NVML_FI_DEV_PERF_POLICY_THERMAL, in ns. POWER (74) is not read for jobs: it also counts the software power cap."""
REPLAYS: Final = nvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER
ROWS_FAILED: Final = nvml.NVML_FI_DEV_REMAPPED_FAILURE
MOST_MIB: Final = 1 << 24
"""Largest possible rate of a link (MiB/s)."""
MAX_FAN: Final = 200
"""The fan's speed may exceed 100 percent; a value above this is invalid."""

COMPUTE: Final = "processes.compute"
LISTS: Final = {
    COMPUTE: "nvmlDeviceGetComputeRunningProcesses_v3",
    "processes.graphics": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "processes.mps": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}
PROCESS: Final = Struct("I4xQ8x")
"""nvmlProcessInfo_t: pid, bytes in use, and two numbers of instances."""
SAMPLE: Final = Struct("I4xQI12x")
"""nvmlProcessUtilizationSample_t: pid, time, share of the multiprocessors, and three of other engines."""
NOT_AVAILABLE: Final = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE, -1, as the bytes of a process."""
MOST_PID: Final = 1 << 22
"""PID_MAX_LIMIT of Linux; Jetsons list processes with larger numbers."""
MOST_BYTES: Final = 1 << 50


MOST_SHARE: Final = 101


def percent(value: float) -> float | None:
    """Return a share from 0 to 100, or None; GPM's rounding errors below 101 become 100."""
    return min(100, value) if 0 <= value < MOST_SHARE else None


class Part:
    """A whole GPU or a MIG instance."""

    metrics: PartMetrics

    def __init__(self, handle: Any, dims: Dimensions, metrics: PartMetrics, level: Level) -> None:
        """`dims` has `gpu`, and `mig` for an instance."""
        self.handle, self.dims, self.metrics = handle, dims, metrics
        self.query = NvmlQuery(" ".join(f"{key.upper()} {dims[key]}" for key in (GPU, MIG) if key in dims))
        self._processes = Rows(PROCESS)
        self.detailed = level >= Level.DETAILED
        self.gpm: Gpm | None = None
        self.used: int | None = None
        """Bytes in use in this tick, or None."""
        self.total: int | None = None
        self.busy: float | None = None
        """Utilization in this tick, or None."""
        self.engine: float | None = None
        """The same by GPM, if the level has that."""
        self.slices: float | None = None
        """Share of the whole GPU's compute slices, once it is known."""
        self.sampled_until: dict[str, int] = {}
        """Time of the driver's last sample of the processes' utilization, by its reader; none before the first one."""
        self.samples = Rows(SAMPLE)
        self.servers: dict[int, bool] = {}
        """The pids on it -> True for a server of MPS."""

    def begin(self, now: int) -> None:
        """Start a tick at `now` (monotonic ns)."""
        self.query.begin(now)
        self.used = self.total = self.busy = self.engine = None

    def restart(self) -> None:
        """Start again at the next reading: what came before is of another driver, or of another time."""
        self.sampled_until.clear()
        if self.gpm:
            self.gpm.restart()

    def close(self) -> None:
        """Free the driver's resources."""
        if self.gpm:
            self.gpm.close()

    def running(self) -> dict[int, int | None]:
        """Return the bytes in use by each process (None: unknown), by the driver's pid; raise Lost."""
        running: dict[int, int | None] = {}
        most = MOST_BYTES if self.total is None else self.total
        ask, read = self.query.ask, self._processes.read
        for name, function in LISTS.items():
            for pid, used in ask(name, read, partial(nvml.call, function, self.handle)) or ():
                if not 0 < pid <= MOST_PID:
                    continue
                if used <= most:
                    running[pid] = max(used, running.get(pid) or 0)  # a process may be in two lists
                elif used == NOT_AVAILABLE:
                    running.setdefault(pid)
        return running

    def unlisted(self) -> str:
        """Return why the driver did not list all processes; "" if it did, or has no list but that of compute."""
        refused = self.query.refused
        if refused.keys().isdisjoint(LISTS):
            return ""
        for name in LISTS:
            code = 0 if name in self.query.answered else refused.get(name, 0)
            if code and (name == COMPUTE or code not in UNSUPPORTED):
                return f"NVML does not list its processes: {nvml.NVMLError(code)} (NVML {code})"
        return ""

    def _memory(self, at: int) -> list[Datapoint]:
        ask, handle, m = self.query.ask, self.handle, self.metrics
        info = ask("memory", nvml.nvmlDeviceGetMemoryInfo_v2, handle)
        if info is None and self.query.due_at("memory") > self.query.now:
            # Drivers before 510 only have the first version, which counts memory reserved by the driver as used.
            info = ask("memory.v1", nvml.nvmlDeviceGetMemoryInfo, handle)
        total, *reserved, free, used = info or (0, 0, 0)
        points = self._use(at, used, total) if total <= MOST_BYTES else []
        if not points or not self.detailed:
            return points
        further = zip((m.memory_available, m.memory_reserved), (free, *reserved), strict=False)
        return points + [metric.point(at, value, self.dims) for metric, value in further if value <= total]

    def _use(self, at: int, used: int, total: int) -> list[Datapoint]:
        """Return the memory in use, of all; nothing if it is not possible."""
        if not 0 < total >= used:
            return []
        m, self.used, self.total = self.metrics, used, total
        share = m.memory_utilization.point(at, 100 * used / total, self.dims)
        further = [m.memory_total.point(at, total, self.dims)] if self.detailed else []
        return [m.memory_used.point(at, used, self.dims), share, *further]

    def _add_activity(self, points: list[Datapoint], at: int, now: int, gpu: Any) -> None:
        values = self.gpm.read(gpu, now) if self.gpm else {}
        self.engine = values.get(GRAPHICS)
        for number, metric in self.metrics.active.items():
            if number in values and 0 <= values[number] < MOST_SHARE:
                points.append(metric.point(at, min(100, values[number]), self.dims))
        points += self._further(at, values)

    def _further(self, at: int, values: Mapping[int, float]) -> Iterable[Datapoint]:
        """Return the points of the metrics of GPM beside `active`."""
        return self._utilization(at, values[GRAPHICS]) if GRAPHICS in values else ()

    def _utilization(self, at: int, value: float) -> tuple[Datapoint, ...]:
        self.busy = percent(value)
        return self._share(self.metrics.utilization, at, value)

    def _gauge(self, metric: Metric, at: int, value: float | None) -> tuple[Datapoint, ...]:
        return (metric.point(at, value, self.dims),) if value is not None and possible(metric, value) else ()

    def _share(self, metric: Metric, at: int, value: float | None) -> tuple[Datapoint, ...]:
        return (metric.point(at, min(100, value), self.dims),) if value is not None and 0 <= value < MOST_SHARE else ()


class Instance(Part):
    """A MIG instance, with separate memory and processes; only GPM reports its utilization."""

    def __init__(self, handle: Any, dims: Dimensions, metrics: PartMetrics, level: Level) -> None:
        super().__init__(handle, dims, metrics, level)
        self.number: int | None = None
        """The driver's number of the GPU instance; None: not known."""
        self.place = ""
        """Number of its profile and its first slice, as 19-4; "" if not known."""

    def identify(self, gpu: Any) -> None:
        """Find its number until that is known, then profile and first slice, which this user may not be let ask."""
        if self.number is not None:
            return
        self.number = number = self.query.ask("instance", nvml.nvmlDeviceGetGpuInstanceId, self.handle)
        if number is not None:
            self.gpm = Gpm(self.query, [GRAPHICS, *(self.metrics.active if self.detailed else ())], number)
            with suppress(nvml.NVMLError):
                instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, number)
                _, _, profile, first, _ = nvml.nvmlGpuInstanceGetInfo(instance)
                self.place = f"{profile}-{first}"

    def read(self, points: list[Datapoint], at: int, now: int, gpu: Any) -> None:
        """Add all readings to `points`; `gpu` is the handle of the whole GPU. Raise Lost."""
        points += self._memory(at)
        self._add_activity(points, at, now, gpu)


class _Counter(NamedTuple):
    metric: Metric
    unit: float
    """One unit of the metric in units of the field."""
    dims: Dimensions
    life: Life
    most: float
    """The largest possible value, in units of the metric."""


class Gpu(Part):
    """A whole GPU."""

    metrics: GpuMetrics

    def __init__(
        self,
        handle: Any,
        dims: Dimensions,
        metrics: GpuMetrics,
        level: Level,
        *,
        model: str,
        fields: DriverFields,
        kernel: Kernel,
    ) -> None:
        """`handle`: None if the driver lists the GPU but returns no handle; `fields` are its driver's."""
        super().__init__(handle, dims, metrics, level)
        self.model, self.number, self._kernel = model, int(dims[GPU]), kernel
        self._is_integrated, self._is_tegra = bool(INTEGRATED.search(model)), bool(TEGRA.search(model))
        self.health = GpuHealth(dims, metrics, level)
        self.minor: int | None = None
        """Number of its device file, /dev/nvidiaN."""
        self.instances: dict[str, Instance] = {}
        """The MIG instances by UUID."""
        self.is_mig = False
        """True in MIG mode, also without instances."""
        self.lost = False
        self.is_due = False
        """True if an event asks for the slow readings in the next tick."""
        self.joules: float | None = None
        """The energy counter in this tick, and the power; None if not known."""
        self.watts: float | None = None
        self.hot: float | None = None
        """The counter of thermal slowdowns in this tick (ns); None if not known."""
        self._limit: float | None = None
        self._is_failing = self._is_silent = False
        """True if most groups of queries failed, or none gave a value, in the last tick that asked all."""
        self._driver = fields
        self._action: str | None = None
        """The recovery action that the driver asks for; None if not known."""
        self._actions: set[str] = set()
        """All requested recovery actions so far."""
        self._base: tuple[int | None, int, float] | None = None
        self._counters: dict[int, _Counter] = {}
        self._links: dict[int, int] = {}
        """The field of LINKS that answered first, by the older one: the other may have another count."""
        self._c2c: dict[int, tuple[float, int]] = {}
        """Bytes over the link to the CPU since a time, by metric id."""
        self._names: dict[tuple[int, int], str] = {}
        """Names of queries by number and scope of the field."""
        m, count = metrics, self._count
        count("energy", ENERGY, m.energy, 1e3)
        self._names[THERMAL, 0] = "throttled"
        if self.detailed:
            self._names[MEMORY_TEMPERATURE, 0] = "temperature"
            self._names[MODULE] = ""
        self._fast_fields = FieldSet(self.query, dict(self._names))
        self._names.update(((number, 0), "recovery") for number in fields.recovery)
        count("ecc", nvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL, m.ecc_uncorrected)
        if self.detailed:
            self._detail_from(fields, level)
        self._all_fields = FieldSet(self.query, self._names)

    def _detail_from(self, fields: DriverFields, level: Level) -> None:
        """Add what level detailed reads and what level all reads."""
        m, count = self.metrics, self._count
        pipes = PIPES if level >= Level.ALL else {}
        wanted = [*m.active, *pipes, *SWITCHES, *m.c2c, ELAPSED]
        wanted += [cycles for share, cycles in CYCLES.items() if share in wanted]
        self.gpm = Gpm(self.query, filter(fields.has_metric, wanted))
        count("ecc", nvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL, m.ecc_corrected)
        count("pcie", nvml.NVML_FI_DEV_PCIE_COUNT_TX_BYTES, m.pcie_sent)
        count("pcie", nvml.NVML_FI_DEV_PCIE_COUNT_RX_BYTES, m.pcie_received)
        for (in_kib, in_bytes), metric in zip(LINKS.items(), (m.nvlink_sent, m.nvlink_received), strict=True):
            count("nvlink", in_kib, metric, 1 / 1024, scope=ALL_LINKS)
            count("nvlink", in_bytes, metric, scope=ALL_LINKS)
        count("pcie", REPLAYS, m.pcie_replays)
        self._names[ROWS_FAILED, 0] = "rows"
        count("rows", nvml.NVML_FI_DEV_REMAPPED_COR, m.rows_remapped, cause="correctable")
        count("rows", nvml.NVML_FI_DEV_REMAPPED_UNC, m.rows_remapped, cause="uncorrectable")
        for field, reason in {**THROTTLES, **fields.slowdowns}.items():
            count("throttled", field, m.throttled, 1e9, reason=reason)

    @property
    def all_parts(self) -> list[Part]:
        """The GPU and its instances."""
        return [self, *self.instances.values()]

    @property
    def parts(self) -> list[Part]:
        """The parts that run processes: the instances, or the GPU if it has none."""
        return [*self.instances.values()] or [self]

    def read(self, at: int, now: int, *, slow: bool) -> list[Datapoint]:
        """Return all readings, expensive ones only if `slow`; for a lost GPU only its state."""
        points = list[Datapoint]()
        for part in self.all_parts:
            part.begin(now)
        self.lost, self.joules, self.watts, self.hot, self.is_due = self.handle is None, None, None, None, False
        try:
            if not self.lost:
                self._readings(points, at, now, slow=slow)
        except Lost:
            self.lost = True
        if self.lost:
            self._action = None
            for part in self.all_parts:
                part.restart()
        elif slow:
            self._is_failing = self.query.is_failing()
            self._is_silent = not points and not self.health.query.answered
        if self.lost or self.query.reset or self._is_failing or self._action in STOPS:
            points.append(self.metrics.state.point(at, 0, self.dims))
        elif self.query.answered:
            points.append(self.metrics.state.point(at, 1, self.dims))
        return points

    @property
    def silence(self) -> str:
        """Why the driver answers no query about a GPU that is not lost; else empty."""
        if not self._is_silent or self.lost or self.query.reset or self._is_failing:
            return ""
        why = ", ".join(f"{nvml.NVMLError(code)} (NVML {code})" for code in sorted(self.query.refusals))
        return f"the driver answers no query about it{f': {why}' if why else ''}"

    def troubles(self) -> list[str]:
        """Return the error messages of this tick, also the instances'."""
        queries = [self.query, self.health.query, *(part.query for part in self.instances.values())]
        texts = [text for query in queries if query.troubles for text in query.troubles.values()]
        return [*dict.fromkeys(texts)] if texts else texts

    def close(self) -> None:
        """Free the driver's resources, also the instances'."""
        super().close()
        for instance in self.instances.values():
            instance.close()

    def _readings(self, points: list[Datapoint], at: int, now: int, *, slow: bool) -> None:
        """Add all readings to `points`, also those before an error; raise Lost."""
        load = self._kernel.utilization() if self._is_integrated else None
        ask_driver = load is None and not self._is_tegra
        rates = self.query.ask("utilization", nvml.nvmlDeviceGetUtilizationRates, self.handle) if ask_driver else None
        if load is not None:
            points += self._utilization(at, load)
        elif rates is not None:
            points += self._utilization(at, rates[0])
            if self.detailed:
                points += self._share(self.metrics.memory_activity, at, rates[1])
        points += self._shared_memory(at) if self._is_integrated else self._memory(at)
        points += self._temperature(at)
        if slow:
            points += self._slow_readings(at)
        self._add_fields(points, at, now, slow=slow)
        if self.detailed:
            self._add_detail(points, at)
            self._add_activity(points, at, now, self.handle)
        if slow:
            points += self.health.read(at, now, self.handle, busy=self.busy, is_mig=self.is_mig)
        for instance in self.instances.values():
            instance.read(points, at, now, self.handle)

    def _temperature(self, at: int) -> tuple[Datapoint, ...]:
        ask, chip = self.query.ask, nvml.NVML_TEMPERATURE_GPU
        value: float | None = self._kernel.temperature() if self._is_integrated else None
        if value is None and not self._is_tegra:
            value = ask("temperature", nvml.nvmlDeviceGetTemperature, self.handle, chip)
            if value is None and (now := ask("temperature.v", nvml.nvmlDeviceGetTemperatureV, self.handle)):
                value = now[1]  # replaces it from CUDA 14 on
        return self._gauge(self.metrics.temperature, at, value)

    def _shared_memory(self, at: int) -> Iterator[Datapoint]:
        """Yield the machine's memory that processes use on the GPU; NVML has no memory of an integrated GPU."""
        self.total = self._kernel.memory()
        used = self.running().values()
        if self.total and self.query.answered.intersection(LISTS) and None not in used:
            yield from self._use(at, sum(memory or 0 for memory in used), self.total)

    def _is_unified(self) -> bool:
        """Return whether the memory is a part of the machine's: integrated, or a NUMA node as with Grace."""
        if self._is_integrated:
            return True
        node = self.query.ask("numa", nvml.nvmlDeviceGetNumaNodeId, self.handle)
        return node is not None and self._kernel.is_node_of_gpu(node)

    def _slow_readings(self, at: int) -> Iterator[Datapoint]:
        if self._is_unified():
            yield self.metrics.unified.point(at, 1, self.dims)
        limit = self.query.ask("limit", nvml.nvmlDeviceGetEnforcedPowerLimit, self.handle)
        self._limit = limit / 1e3 if limit and limit <= 1e3 * MOST["W"] else None
        if self.detailed:
            if self._limit:
                yield self.metrics.power_limit.point(at, self._limit, self.dims)
            fan = self.query.ask("fan", nvml.nvmlDeviceGetFanSpeed, self.handle)
            yield from self._share(self.metrics.fan, at, min(100, fan) if fan and fan <= MAX_FAN else fan)

    def _add_detail(self, points: list[Datapoint], at: int) -> None:
        ask, m = self.query.ask, self.metrics
        for number, metric in m.clocks.items():
            points += self._gauge(metric, at, ask(f"clock.{number}", nvml.nvmlDeviceGetClockInfo, self.handle, number))
        points += self._share(m.encoder, at, ask("encoder", nvml.nvmlDeviceGetEncoderUtilization, self.handle))
        points += self._share(m.decoder, at, ask("decoder", nvml.nvmlDeviceGetDecoderUtilization, self.handle))

    def _add_fields(self, points: list[Datapoint], at: int, now: int, *, slow: bool) -> None:
        answers = (self._all_fields if slow else self._fast_fields).read(self.handle)
        values = {number: value for (number, _), value in answers.items()}
        self.hot = values.get(THERMAL)
        if slow:
            for in_kib, in_bytes in LINKS.items():
                if in_bytes in values or in_kib in values:
                    chosen = self._links.setdefault(in_kib, in_kib if in_kib in values else in_bytes)
                    values.pop(in_kib + in_bytes - chosen, None)
            self._action = self._driver.action(values)
        if self._action is not None:
            points += self._recovery(at, self._action)
        if self.detailed:
            points += self._gauges(at, values)
        energy, counters = None, self._counters
        for number, value in values.items():
            if number not in counters:
                continue
            metric, unit, dims, life, most = counters[number]
            rise = self._most_energy(now) if number == ENERGY else math.inf
            if 0 <= value / unit <= most and life.take(value, at, rise):
                energy = value if number == ENERGY else energy
                if self.detailed or metric.level == Level.BASIC:
                    points.append(metric.point(at, value / unit, dims, start_time=life.start_time))
        self._add_power(points, at, now, energy)

    def _gauges(self, at: int, values: Mapping[int, float]) -> Iterator[Datapoint]:
        """Yield the fields that are gauges."""
        m = self.metrics
        yield from self._gauge(m.memory_temperature, at, values.get(MEMORY_TEMPERATURE))
        if value := values.get(MODULE[0]):
            yield from self._gauge(m.module_power, at, value / 1e3)
        if (value := values.get(ROWS_FAILED)) is not None:
            yield m.rows_failed.point(at, 1 if value else 0, self.dims)

    def _further(self, at: int, values: Mapping[int, float]) -> Iterator[Datapoint]:
        m = self.metrics
        for number in PIPES.keys() & values.keys():
            if (share := percent(values[number])) is not None:
                yield m.pipe_active.point(at, share, self.dims | {"pipe": PIPES[number]})
        if switches := [values[number] for number in SWITCHES if number in values]:
            yield from self._share(m.context_switch, at, max(switches))
        for number, metric in m.c2c.items():
            if self.gpm and 0 <= values.get(number, -1) <= MOST_MIB:
                sent, since = self._c2c.get(number, (0.0, at - self.gpm.elapsed))
                self._c2c[number] = sent + values[number] * self.gpm.elapsed / SECOND * 2**20, since
                yield metric.point(at, self._c2c[number][0], self.dims, start_time=since)

    def _recovery(self, at: int, requested: str) -> Iterator[Datapoint]:
        """Yield the requested recovery, and earlier ones as 0; a GPU that never needed one has no series."""
        self._actions |= {requested} - {NONE}
        for action in sorted(self._actions):
            yield self.metrics.recovery.point(at, action == requested, self.dims | {"action": action})

    def _most_energy(self, now: int) -> float:
        """Return the largest possible rise of the energy (mJ): of a second more, since it increases in steps."""
        return 1e3 * MOST["W"] * ((now - self._base[1]) / SECOND + 1) if self._base else math.inf

    def _add_power(self, points: list[Datapoint], at: int, now: int, energy: float | None) -> None:
        """Add the mean power since the last tick, computed from energy, since the sensor gives momentary values."""
        watts = None
        if energy is not None:
            life, base = self._counters[ENERGY].life.start_time, self._base
            if base is None or base[0] != life:
                self._base = life, now, energy
            elif now - base[1] >= MIN_ELAPSED:
                self._base = life, now, energy
                watts = (energy - base[2]) / (now - base[1]) * 1e6
        if not watts or not self._is_power(watts):  # the first tick, or no working energy counter
            sensor = self.query.ask("power", nvml.nvmlDeviceGetPowerUsage, self.handle)
            watts = None if sensor is None or not self._is_power(sensor / 1e3) else sensor / 1e3
        self.joules, self.watts = None if energy is None else energy / 1e3, watts
        if watts is not None:
            points.append(self.metrics.power.point(at, watts, self.dims))
            if self._limit:
                share = min(100, 100 * watts / self._limit)
                points.append(self.metrics.power_utilization.point(at, share, self.dims))

    def _is_power(self, watts: float) -> bool:
        """Return whether the GPU can draw so much for a moment."""
        return 0 <= watts <= MOST["W"] and (not self._limit or watts <= OVERSHOOT * self._limit)

    def _count(self, query: str, field: int, metric: Metric, unit: float = 1, scope: int = 0, **more: str) -> None:
        """Read a field as a counter, with the dimensions `more`."""
        self._counters[field] = _Counter(metric, unit, self.dims | more, Life(), MOST.get(metric.unit, 2**63))
        self._names[field, scope] = query
