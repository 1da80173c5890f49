"""The state of a machine as the screen shows it: accelerators, host, and their last hour."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from chipwatch.base.text import duration
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind
from chipwatch.host.xid import is_applications_own
from chipwatch.jobs.device_key import DeviceKey, device_label, device_of, device_order
from chipwatch.show.report.devices import FIGURES, TABLES, DeviceState

HOST_KEYS: Final = ("window", "kind", "path", "device", "interface", "cpu", "direction", "mode")
"""Dimensions that distinguish readings of the host; other dimensions identify the machine."""
OF_THE_DEVICE: Final = {"temperature", "power", "limit", "power share", "clock", "state"}
"""Figures that a partition takes from its whole device if it has no such reading."""
ANSWERS: Final = frozenset(metric for figure, names in FIGURES.items() if figure != "state" for metric in names)
"""Metrics that show that a device answers."""
ERRORS: Final = {"gpu.xid": ("Xid", "xid"), "gpu.ecc.uncorrected": ("ECC", ""), "neuron.ecc.events": ("ECC", "")}
"""Counter of errors -> its short name, and the dimension with the code of an Xid."""
FRESH: Final = 30.0
"""Seconds for which a reading is shown; some readings come only every ten seconds."""
LARGEST: Final = 1e30
"""Figures above this, or below its inverse, are dropped: sums and shares could become infinite."""
SILENT: Final = 3.0
"""Seconds without an answer, and missed readings, after which a device counts as silent."""
LATELY: Final = 60.0
"""Seconds over which an accelerator's bar, graph and state are taken."""
SHORT_HISTORY: Final = 600
"""Most ticks in the history of one accelerator."""
TRENDS: Final[Sequence[tuple[str, str, float, str]]] = TABLES["trends"]
"""A graph: trend of all devices, or metric of the host; title, value at the top (0: the largest value shown), unit."""
HISTORY: Final = 3600
"""Most samples in a trend."""


class ListedProcess(NamedTuple):
    """A row of the table of processes: a process on an accelerator, or on the host if `device` is ()."""

    device: DeviceKey = ()
    pid: int = 0
    user: str = ""
    memory: float | None = None
    """Bytes of the device's memory that it uses."""
    share: float | None = None
    """Share of the device's time (%)."""
    cpu: float | None = None
    """CPU usage (% of one core)."""
    command: str = ""
    job: str = ""
    resident: float | None = None
    """Share of the host's memory (%)."""
    age: float | None = None
    """Seconds since its start."""
    began: float = 0
    """Its start in the kernel's clock ticks. PID and start together identify a process."""

    @property
    def key(self) -> tuple[int, float, DeviceKey]:
        """The identity of its row."""
        return self.pid, self.began, self.device


@lru_cache(maxsize=20_000)
def host_key(name: str, dims: Dimensions) -> str:
    """Return the name of a reading of the host with the dimensions that distinguish it: `cpu.load 1m`."""
    return " ".join((name, *(dims[key] for key in HOST_KEYS if key in dims)))


class Trend:
    """The last hour of one figure, at one sample per second."""

    def __init__(self, samples: Iterable[tuple[int, float]] = ()) -> None:
        self._samples = deque(samples, HISTORY)

    def put(self, at: int, value: float | None) -> None:
        """Add a sample with its time (ns since the epoch); None is ignored."""
        if value is not None:
            self._samples.append((at, value))

    def __bool__(self) -> bool:
        """Return True if there is a sample."""
        return bool(self._samples)

    @property
    def first(self) -> int:
        """Return the time of the oldest sample (ns since the epoch)."""
        return self._samples[0][0]

    def means(self, end: int, step: float, count: int, longest: float = 0) -> list[float | None]:
        """
        Return the means of `count` consecutive intervals of `step` seconds; the last one contains `end` (ns).

        An interval without a sample has the mean of the one before, for at most `longest` seconds; then None.
        """
        intervals: list[list[float]] = [[] for _ in range(count)]
        size, age = int(step * 1e9), 0.0
        mean: float | None = None
        for at, value in reversed(self._samples):
            if (back := end // size - at // size) >= count:
                mean, age = value, (back - count) * step
                break
            if back >= 0:
                intervals[count - 1 - back].append(value)
        means: list[float | None] = []
        for values in intervals:
            age = 0.0 if values else age + step
            mean = sum(values) / len(values) if values else mean if age <= longest else None
            means.append(mean)
        return means


class Readings:
    """The last reading of each metric of a device or host; a counter is kept as its rate."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[float, int]] = {}
        self.fresh = FRESH
        """Seconds after which a reading is too old."""

    def put(self, name: str, point: Datapoint) -> None:
        """Keep a gauge's value, or a counter's rate (per second)."""
        value: float | None = point.value
        if point.metric.kind is Kind.COUNTER:
            start = point.window_start
            value = None
            if point.increase is not None and start is not None and start < point.at:
                value = point.increase / (point.at - start) * 1e9
        if value is not None and (not value or 1 / LARGEST < abs(value) < LARGEST):
            self._last[name] = value, point.at

    def get(self, name: str, now: int) -> float | None:
        """Return the last reading; None without one, or if it is too old."""
        value, at = self._last.get(name, (None, 0))
        return value if now - at <= self.fresh * 1e9 else None

    def names(self, beginning: str) -> list[str]:
        """Return the names that begin with `beginning`."""
        return [name for name in self._last if name.startswith(beginning)]


class Accelerator:
    """One accelerator or partition: its readings, its state, and its short history."""

    def __init__(self, key: DeviceKey, whole: Accelerator | None) -> None:
        """`whole`: the device of which it is a partition; None for a whole device."""
        self.key, self._whole = key, whole
        self.label = device_label(key)
        self.model: str = whole.model if whole else ""
        self.readings = Readings()
        self.errors: dict[str, str] = {}
        self.recovery = 0, ""
        """Time (ns) of the driver's last request for a recovery, and the recovery."""
        self.has_parts = False
        self.processes: Sequence[ListedProcess] = ()
        """The processes that its driver lists."""
        self.holding = DeviceState()
        """Its jobs, and what it does for them, from the processor `jobs`."""
        self._ticks: deque[tuple[int, float | None, DeviceState]] = deque(maxlen=SHORT_HISTORY)
        """The last ticks: time (ns), utilization (%; None while it was silent), and `holding`."""
        self._throttles: dict[str, int] = {}
        self._summed: dict[str, int] = {}
        self._gap, self.seen = 0, 0
        self.answered = 0
        """Time (ns) of its last reading of a metric of ANSWERS."""
        self.now = 0

    def take(self, point: Datapoint) -> None:
        """Take a reading."""
        name, at = point.metric.name, point.at
        if at > self.seen:
            self._gap, self.seen = at - self.seen if self.seen else 0, at
        if name in ANSWERS:
            self.answered = at
        if name == "gpu.throttled":
            self._throttles[point.dims.get("reason", "")] = at if point.increase else 0
        elif name == "gpu.recovery_action":
            if point.value:
                self.recovery = at, point.dims.get("action", "").replace("_", " ")
        elif name in ERRORS:
            word, which = ERRORS[name]
            code = point.dims.get(which, "")
            if point.value and not (is_applications_own(code) if which else point.dims.get("corrected") == "yes"):
                self.errors[word] = code or f"{point.value:.0f}"
        elif "category" in point.dims:  # the figure is the sum over categories
            before = self.readings.get(name, at) if self._summed.get(name) == at else None
            self._summed[name] = at
            self.readings.put(name, point._replace(value=point.value + (before or 0)))
        else:
            self.readings.put(name, point)

    def end_tick(self, now: int, gap: float) -> None:
        """End a tick: `now` is its time (ns), `gap` the seconds since the last one."""
        self.now = now
        self.readings.fresh = max(FRESH, 3 * gap)
        self._ticks.append((now, None if self.silent else self.get("utilization"), self.holding))

    def get(self, figure: str) -> float | None:
        """Return one of FIGURES, None if unknown. Utilization comes from the processor `jobs` if it knows it."""
        if figure == "utilization" and self.holding.active is not None:
            return 100 * self.holding.active
        for name in FIGURES[figure]:
            if (value := self.readings.get(name, self.now)) is not None:
                return value
        return self._whole.get(figure) if self._whole and figure in OF_THE_DEVICE else None

    def history(self, count: int) -> list[float | None]:
        """Return its utilization (%) in `count` equal parts of the last LATELY seconds; None while it was silent."""
        samples = ((at, value) for at, value, _ in self._ticks if value is not None)
        return Trend(samples).means(self.now, LATELY / count, count, longest=2e-9 * self._gap)

    @property
    def _lately(self) -> list[tuple[float | None, DeviceState]]:
        """Utilization and `holding` of the ticks of the last LATELY seconds in which it had the jobs of now."""
        least, jobs = self.now - LATELY * 1e9, self.holding.jobs
        return [(value, was) for at, value, was in self._ticks if at > least and was.jobs == jobs]

    @property
    def busy(self) -> float | None:
        """Mean utilization (%) of the last LATELY seconds, or since its jobs last changed."""
        return mean_of(value for value, _ in self._lately)

    @property
    def doing(self) -> DeviceState:
        """Its most frequent state in that time, as it was last; `held` is of a minute itself, so it counts at once."""
        newest = [was for _, was in reversed(self._lately)] or [self.holding]
        alike = [was for was in newest if (was.state == "held") == (newest[0].state == "held")]
        words = [(was.state, was.cause) for was in alike]
        return alike[words.index(Counter(words).most_common(1)[0][0])]

    @property
    def memory(self) -> float | None:
        """Share of the memory in use (%)."""
        used, total = self.get("used"), self.get("total")
        return 100 * used / total if used is not None and total else self.get("memory")

    @property
    def total(self) -> float | None:
        """Size of the memory (bytes)."""
        used, share = self.get("used"), self.get("memory")
        return self.get("total") or (100 * used / share if used and share else None)

    @property
    def power(self) -> float | None:
        """Share of the power limit in use (%)."""
        power, limit = self.get("power"), self.get("limit")
        return 100 * power / limit if power is not None and limit else self.get("power share")

    @property
    def flags(self) -> str:
        """A letter for each reason of throttling; the low clock of an idle device has none."""
        age = self.readings.fresh * 1e9
        reasons = (reason for reason, at in self._throttles.items() if at and self.now - at <= age)
        return "".join(sorted({TABLES["letters"].get(reason, "") for reason in reasons}))

    @property
    def silent(self) -> float:
        """Seconds without an answer; 0 while it answers."""
        age = self.now - self.seen
        return age / 1e9 if age > max(SILENT * 1e9, SILENT * self._gap) else 0.0

    @property
    def state(self) -> tuple[str, str]:
        """Its fault, or why it is idle; and the role of that text: bad, warn or dim."""
        errors = ", ".join(f"{word} {which}" for word, which in self.errors.items())
        whole = self._whole or self
        recovery = whole.recovery[1] if whole.recovery[0] == whole.seen else ""
        if self.get("state") == 0:
            word = recovery or ("failing" if whole.answered == whole.seen else "lost")
            return f"{word} ({errors})" if errors else word, "bad"
        if self.silent:
            return f"no answer for {self.silent:.0f} s", "bad"
        if errors:
            return errors, "bad"
        if recovery:
            return recovery, "warn"
        lately = self.doing
        since = lately.seconds_since_kernel if self.job else None
        doing = lately.doing(f"held {duration(since, 1)}" if since else "held")
        is_odd = lately.state == "held" if self.job else lately.reason
        return doing.removeprefix("busy, ").removeprefix("idle, "), "warn" if is_odd else "dim"

    @property
    def job(self) -> str:
        """The names of the jobs that hold it."""
        return ",".join(self.holding.jobs)

    @property
    def user(self) -> str:
        """The users of these jobs."""
        return ",".join(self.holding.users)


class MachineState:
    """The state of a machine after the last tick: its devices, its host, its trends."""

    def __init__(self) -> None:
        self.now = 0
        """Time of the last tick (ns since the epoch); 0 before the first."""
        self.gap = 1.0
        """Seconds between the last two ticks."""
        self.host = Readings()
        self.trends: dict[str, Trend] = {}
        self.processes: Sequence[ListedProcess] = ()
        """The processes of all accelerators, in the order of these; of the host if no driver lists any."""
        self._devices: dict[DeviceKey, Accelerator] = {}

    @property
    def devices(self) -> list[Accelerator]:
        """The accelerators in the order of their numbers, without devices that are only used as partitions."""
        devices = self._devices.values()
        shown = (device for device in devices if not device.has_parts or device.readings.names("gpu.memory"))
        return sorted(shown, key=lambda device: device_order(device.key))

    def device(self, key: DeviceKey) -> Accelerator:
        """Return the device with this key; a new one if there is none yet."""
        if (device := self._devices.get(key)) is None:
            whole = self.device(key[:1]) if len(key) > 1 else None
            if whole:
                whole.has_parts = True
            device = self._devices[key] = Accelerator(key, whole)
        return device

    def take(
        self,
        points: Iterable[Datapoint],
        at: int,
        processes: Iterable[ListedProcess] = (),
        holding: Mapping[DeviceKey, DeviceState] = {},
    ) -> None:
        """Take a tick at `at` (ns since the epoch): its points, processes, and the jobs of accelerators."""
        self.gap, self.now = (at - self.now) / 1e9 if self.now else self.gap, at
        for point in points:
            if key := device_of(point.dims):
                self.device(key).take(point)
            else:
                self.host.put(host_key(point.metric.name, point.dims), point)
        self.host.fresh = max(FRESH, 3 * self.gap)
        self.processes = sorted(processes, key=lambda process: device_order(process.device))
        for device in self._devices.values():
            device.processes = [process for process in self.processes if process.device == device.key]
            device.holding = holding.get(device.key, DeviceState())
            device.end_tick(at, self.gap)
        self._remember(at)

    def of_host(self, name: str) -> float | None:
        """Return a reading of the host; None if unknown or too old."""
        return self.host.get(name, self.now)

    def cores(self) -> list[float]:
        """Return the utilization of each logical CPU (%)."""
        names = sorted(self.host.names("cpu.core.utilization "), key=lambda name: (len(name), name))
        return [value for name in names if (value := self.of_host(name)) is not None]

    def _remember(self, at: int) -> None:
        """Add a sample to each trend."""
        devices = [device for device in self._devices.values() if not device.silent]
        power = [watts for device in devices if len(device.key) == 1 and (watts := device.get("power")) is not None]
        samples = {
            **{name: self.of_host(name) for name, *_ in TRENDS},
            "utilization": mean_of(device.get("utilization") for device in devices),
            "device memory": mean_of(device.memory for device in devices),
            "power": math.fsum(power) if power else None,
        }
        for name, value in samples.items():
            self.trends.setdefault(name, Trend()).put(at, value)


def mean_of(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values; None if there is none."""
    numbers = [value for value in values if value is not None]
    return sum(numbers) / len(numbers) if numbers else None
