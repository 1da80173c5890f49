"""Reads one GPU and its MIG instances."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from chipwatch.collectors.nvidia.activity import Activity
from chipwatch.collectors.nvidia.fields import STOPS, DriverFields, GpuFields
from chipwatch.collectors.nvidia.gpm import CYCLES, ELAPSED, GRAPHICS, SWITCHES, Gpm
from chipwatch.collectors.nvidia.health import GpuHealth
from chipwatch.collectors.nvidia.metrics import ACTIVE, C2C, CLOCKS, GPU, MIG, PEAKS, SHARES, TENSOR, FieldRow
from chipwatch.collectors.nvidia.points import PartPoints
from chipwatch.collectors.nvidia.power import Power
from chipwatch.collectors.nvidia.processes import LISTS, ProcessLists
from chipwatch.collectors.nvidia.query import SECOND, Lost, NvmlQuery
from chipwatch.collectors.nvidia.unified import Kernel
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.host import nvml
from chipwatch.host.procfs import close_all

MOST_MIB: Final = 1 << 24
"""Largest possible rate of a link (MiB/s)."""
MOST_BYTES: Final = 1 << 50


class PartReading:
    """Readings of a tick that processors and the process tree need; None if unknown."""

    used: int | None = None
    """Bytes of memory in use."""
    total: int | None = None
    busy: float | None = None
    """Utilization (%)."""
    engine: float | None = None
    """Utilization (%) by GPM, if the level includes that."""
    speed: float | None = None
    """Clock of the multiprocessors divided by the clock of the dense peak."""
    joules: float | None = None
    """Energy counter of the GPU (J)."""
    watts: float | None = None
    hot: float | None = None
    """Counter of the time of thermal slowdowns (ns)."""


class Part:
    """A whole GPU or a MIG instance: what both have in common."""

    def __init__(
        self, handle: Any, dims: Dimensions, keys: tuple[str, ...], level: Level, rows: Mapping[int, FieldRow] = ACTIVE
    ) -> None:
        """`dims`: has `gpu`, and `mig` for an instance; `keys`: its keys in the order of metrics' declarations."""
        self.handle, self.dims = handle, dims
        self.query = NvmlQuery(" ".join(f"{key.upper()} {dims[key]}" for key in (GPU, MIG) if key in dims))
        self.points = PartPoints(dims, keys, level)
        self.detailed = level >= Level.DETAILED
        self.gpm: Gpm | None = None
        self._shares = {number: row.key for number, row in rows.items() if row.metric.level <= level}
        self.now = PartReading()
        self.slices: float | None = None
        """Share of the whole GPU's compute slices; None until it is known."""
        self.lists = ProcessLists(self.query)

    def begin(self, at: int, now: int, points: list[Datapoint]) -> None:
        """Start the tick `at` (ns since the epoch), at `now` (monotonic ns). Readings are added to `points`."""
        self.query.begin(now)
        self.points.at, self.points.points = at, points
        self.now = PartReading()

    def restart(self) -> None:
        """Forget earlier samples: the driver or the clock has changed, so they cannot be compared."""
        self.lists.sampled_until.clear()
        if self.gpm:
            self.gpm.restart()

    def close(self) -> None:
        """Free the driver's resources."""
        close_all(self.gpm)

    def running(self) -> dict[int, int | None]:
        """Return the driver's PID -> bytes in use, None if unknown; raise Lost."""
        return self.lists.running(self.handle, self.now.total or MOST_BYTES, self.now.used)

    def _read_memory(self) -> None:
        ask = self.query.ask
        info = ask("memory", nvml.nvmlDeviceGetMemoryInfo_v2, self.handle)
        if info is None and self.query.due_at("memory") > self.query.now:
            # Drivers before 510 have only the first version, which counts memory that the driver reserves as used.
            info = ask("memory.v1", nvml.nvmlDeviceGetMemoryInfo, self.handle)
        total, *reserved, free, used = info or (0, 0, 0)
        if total <= MOST_BYTES and self._use(used, total) and self.detailed:
            for name, value in zip(("gpu.memory.available", "gpu.memory.reserved"), (free, *reserved), strict=False):
                if value <= total:
                    self.points.put(name, value)

    def _use(self, used: int, total: int) -> bool:
        """Add the memory in use and its total; return False if these cannot be true."""
        if not 0 < total >= used:
            return False
        put, self.now.used, self.now.total = self.points.put, used, total
        put("gpu.memory.used", used)
        put("gpu.memory.utilization", 100 * used / total)
        if self.detailed:
            put("gpu.memory.total", total)
        return True

    def _read_gpm(self, gpu: Any, now: int) -> Mapping[int, float]:
        """Add the shares that GPM measures; return all its values."""
        values = self.gpm.read(gpu, now) if self.gpm else {}
        self.now.engine, add = values.get(GRAPHICS), self.points.add
        for number, key in self._shares.items():
            if number in values:
                add(key, values[number])
        if TENSOR in values and self.now.speed is not None:
            add(("gpu.efficiency",), values[TENSOR] * self.now.speed)
        return values

    def _utilization(self, value: float) -> None:
        if self.points.add(("gpu.utilization",), value):
            self.now.busy = min(100, value)


class Instance(Part):
    """A MIG instance. It has separate memory and processes; only GPM measures its utilization."""

    def __init__(self, handle: Any, dims: Dimensions, keys: tuple[str, ...], level: Level) -> None:
        super().__init__(handle, dims, keys, level)
        self.number: int | None = None
        """The driver's number of the GPU instance; None if unknown."""
        self.place = ""
        """Its profile and its first slice, as in 19-4; "" if unknown."""

    def identify(self, gpu: Any) -> None:
        """Find the instance's number, if it is unknown; then its profile and first slice, which need a permission."""
        if self.number is not None:
            return
        self.number = number = self.query.ask("instance", nvml.nvmlDeviceGetGpuInstanceId, self.handle)
        if number is not None:
            self.gpm = Gpm(self.query, [GRAPHICS, *self._shares], number)
            with suppress(nvml.NVMLError):
                instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, number)
                _, _, profile, first, _ = nvml.nvmlGpuInstanceGetInfo(instance)
                self.place = f"{profile}-{first}"

    def read(self, now: int, gpu: Any) -> None:
        """Add all readings to the points; `gpu`: handle of the whole GPU. Raise Lost."""
        self._read_memory()
        values = self._read_gpm(gpu, now)
        if GRAPHICS in values:
            self._utilization(values[GRAPHICS])


class Gpu(Part):
    """A whole GPU: its readings, its health, and its instances."""

    def __init__(
        self, handle: Any, dims: Dimensions, keys: tuple[str, ...], level: Level,
        *, driver: DriverFields, kernel: Kernel,
    ) -> None:  # fmt: skip
        """`handle`: None if the driver lists the GPU but gives no handle."""
        super().__init__(handle, dims, keys, level, SHARES)
        self.number, self.kernel, self.slices = int(dims[GPU]), kernel, 1.0
        self.health = GpuHealth(self.number, self.points, level)
        self.minor: int | None = None
        """Number N of its device file /dev/nvidiaN."""
        self.instances: dict[str, Instance] = {}
        """UUID -> MIG instance."""
        self.activity = Activity(self)
        self.is_mig = False
        """True in MIG mode, even without instances."""
        self.lost = False
        self.is_due = False
        """True if an event requires the slow readings in this tick."""
        self._is_failing = self._is_silent = False
        """In the last tick that asked all queries: True if most groups failed; True if none gave a value."""
        self._power, self._fields = Power(), GpuFields(self.query, self.points, level, driver)
        if self.detailed:
            wanted = [*self._shares, *C2C, *SWITCHES, ELAPSED]
            wanted += [cycles for share, cycles in CYCLES.items() if share in wanted]
            self.gpm = Gpm(self.query, filter(driver.has_metric, wanted))

    @property
    def all_parts(self) -> list[Part]:
        """The GPU and its instances."""
        return [self, *self.instances.values()]

    @property
    def parts(self) -> list[Part]:
        """The parts that run processes: the instances, or without any the GPU."""
        return [*self.instances.values()] or [self]

    def read(self, at: int, now: int, *, slow: bool) -> list[Datapoint]:
        """Return the readings of a tick, expensive ones only if `slow`; for a lost GPU, only its state."""
        points = list[Datapoint]()
        for part in self.all_parts:
            part.begin(at, now, points)
            if slow:
                part.lists.empty.clear()
        self.lost, self.is_due = self.handle is None, False
        try:
            if not self.lost:
                self._read_all(now, slow=slow)
        except Lost:
            self.lost = True
        if self.lost:
            self._fields.action = None
            for part in self.all_parts:
                part.restart()
        elif slow:
            self._is_failing = len(self.query.broken) > len({name.partition(".")[0] for name in self.query.answered})
            self._is_silent = not points and not self.health.query.answered
        if self.lost or self.query.reset or self._is_failing or self._fields.action in STOPS:
            self.points.put("gpu.state", 0)
        elif self.query.answered:
            self.points.put("gpu.state", 1)
        return points

    @property
    def silence(self) -> str:
        """Why the driver answers no query about a GPU that is not lost; "" if it answers."""
        if not self._is_silent or self.lost or self.query.reset or self._is_failing:
            return ""
        why = ", ".join(f"{nvml.NVMLError(code)} (NVML {code})" for code in sorted(self.query.refusals))
        return f"the driver answers no query about it{f': {why}' if why else ''}"

    def troubles(self) -> list[str]:
        """Return the error messages of this tick, including the instances'."""
        queries = [self.query, self.health.query, *(part.query for part in self.instances.values())]
        texts = [text for query in queries if query.troubles for text in query.troubles.values()]
        return [*dict.fromkeys(texts)] if texts else texts

    def close(self) -> None:
        """Free the driver's resources, including the instances'."""
        close_all(self.gpm, *self.instances.values())

    def _read_all(self, now: int, *, slow: bool) -> None:
        """Add all readings to the points; raise Lost."""
        kernel, ask, add = self.kernel, self.query.ask, self.points.add
        load = kernel.utilization() if kernel.is_integrated else None
        if load is not None:
            self._utilization(load)
        elif not kernel.is_tegra and (rates := ask("utilization", nvml.nvmlDeviceGetUtilizationRates, self.handle)):
            self._utilization(rates[0])
            if self.detailed:
                add(("gpu.memory.activity",), rates[1])
        self._read_memory()
        add(("gpu.temperature",), self._temperature())
        if slow:
            self._read_slowly()
        self._read_fields(now, slow=slow)
        if self.detailed:
            for number, row in CLOCKS.items():
                mhz = ask(row.query, nvml.nvmlDeviceGetClockInfo, self.handle, number)
                if add((row.metric.name,), mhz) and row.query == "clock.sm" and kernel.model in PEAKS:
                    self.now.speed = mhz / PEAKS[kernel.model]
            add(("gpu.encoder.utilization",), ask("encoder", nvml.nvmlDeviceGetEncoderUtilization, self.handle))
            add(("gpu.decoder.utilization",), ask("decoder", nvml.nvmlDeviceGetDecoderUtilization, self.handle))
            self._read_rates(self._read_gpm(self.handle, now))
        if slow:
            self.health.read(now, self.handle, busy=self.now.busy, is_mig=self.is_mig)
        for instance in self.instances.values():
            instance.now.speed = self.now.speed
            instance.read(now, self.handle)

    def _read_memory(self) -> None:
        if not self.kernel.is_integrated:
            super()._read_memory()
        elif total := self.kernel.memory():  # an integrated GPU uses the machine's memory, which NVML does not report
            self.now.total, used = total, self.running().values()
            if self.query.answered.intersection(LISTS) and None not in used:
                self._use(sum(memory or 0 for memory in used), total)

    def _temperature(self) -> float | None:
        kernel, ask = self.kernel, self.query.ask
        value: float | None = kernel.temperature() if kernel.is_integrated else None
        if value is None and not kernel.is_tegra:
            value = ask("temperature", nvml.nvmlDeviceGetTemperature, self.handle, nvml.NVML_TEMPERATURE_GPU)
            if value is None and (now := ask("temperature.v", nvml.nvmlDeviceGetTemperatureV, self.handle)):
                value = now[1]  # from CUDA 14 on, instead of the first function
        return value

    def _read_slowly(self) -> None:
        ask, add, kernel = self.query.ask, self.points.add, self.kernel
        node = None if kernel.is_integrated else ask("numa", nvml.nvmlDeviceGetNumaNodeId, self.handle)
        if kernel.is_integrated or (node is not None and kernel.is_node_of_gpu(node)):  # as with Grace
            self.points.put("gpu.unified_memory", 1)
        limit = ask("limit", nvml.nvmlDeviceGetEnforcedPowerLimit, self.handle)
        watts = None if limit is None else limit / 1e3
        self._power.take_limit(watts if add(("gpu.power.limit",), watts) else None)
        if self.detailed:
            add(("gpu.fan.utilization",), ask("fan", nvml.nvmlDeviceGetFanSpeed, self.handle))

    def _read_fields(self, now: int, *, slow: bool) -> None:
        """Add the fields, and the power that is computed from the energy."""
        power, put, reading = self._power, self.points.put, self.now
        energy, reading.hot = self._fields.read(self.handle, power.most_energy(now), slow=slow)
        watts = None
        if energy is not None:
            reading.joules = energy / 1e3
            watts = power.mean(energy, self.points.life(("gpu.energy",)).start_time, now)
        if not watts or watts > power.most:  # the first tick, or no working energy counter
            milliwatts = self.query.ask("power", nvml.nvmlDeviceGetPowerUsage, self.handle)
            watts = None if milliwatts is None or milliwatts > 1e3 * power.most else milliwatts / 1e3
        if watts is not None:
            reading.watts = watts
            put("gpu.power", watts)
            if power.limit:
                put("gpu.power.utilization", min(100, 100 * watts / power.limit))

    def _read_rates(self, values: Mapping[int, float]) -> None:
        """Add other values of GPM: switches between contexts, and bytes over the link to the CPU."""
        if switches := SWITCHES & values.keys():
            self.points.add(("gpu.context_switch.active",), max(values[number] for number in switches))
        for number in C2C.keys() & values.keys():
            if self.gpm and 0 <= values[number] <= MOST_MIB:
                key = C2C[number].key
                life = self.points.life(key)
                if life.start_time is None:
                    life.start_time = self.points.at - self.gpm.elapsed
                self.points.add(key, life.value + values[number] * self.gpm.elapsed / SECOND * 2**20)
