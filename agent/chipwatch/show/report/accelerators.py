"""Adds up the readings of each accelerator during a run, for the summary at its end."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from statistics import fmean
from typing import Final

from chipwatch.base.redaction import one_line
from chipwatch.base.table import TableColumn, table
from chipwatch.base.text import duration
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.facts import DeviceFacts
from chipwatch.jobs.device_key import DeviceKey, device_label, device_of, device_order
from chipwatch.show.report import amounts
from chipwatch.show.report.devices import FAMILIES, FIGURES, TABLES

UTILIZATION, MEMORY, POWER, EFFICIENCY = "utilization", "used", "power", "efficiency"
ENERGY, THROTTLED, PROCESS, IDLE, BUSY, STATE = "energy", "throttled", "process", "idle", "busy", "state"
ROLES: Final[Mapping[str, str]] = {
    metric: figure for figure in (UTILIZATION, MEMORY, POWER, EFFICIENCY) for metric in FIGURES[figure]
} | TABLES["roles"]
"""Metric -> the figure of the summary to which it contributes."""
WORDS: Final = {THROTTLED: "reason", IDLE: "cause", STATE: "state"}
"""Role of a counter -> the dimension by which it is summed."""
LITTLE_TO_DO: Final = "low_utilization"
"""Reason for low clocks that does not count as throttling."""
ADVICE: Final[Mapping[str, str]] = TABLES["advice"]
"""Cause of idle time -> its meaning, and what to do."""
WORTH: Final = 0.1
"""Share of a run that one cause of idle time must reach to get a line of advice."""
FIRST_COLUMN: Final = 8
LONGEST: Final = 40
"""Most characters of an accelerator's number and model."""


class Utilization:
    """Weighted mean and percentiles of a utilization. It is a histogram, so its memory does not grow with the run."""

    def __init__(self) -> None:
        self._percents = [0.0] * 101  # the weight of 0 %, 1 %, ... 100 %, rounded
        self._sum = 0.0

    def take(self, percent: float, weight: float = 1.0) -> None:
        """Add a reading (%)."""
        percent = min(100.0, max(0.0, percent))
        self._percents[round(percent)] += weight
        self._sum += percent * weight

    @property
    def mean(self) -> float | None:
        """Mean (%); None without a reading."""
        weights = sum(self._percents)
        return self._sum / weights if weights else None

    def percentile(self, share: float) -> int | None:
        """Return the percentile `share` (0 to 1) in whole percent; None without a reading."""
        rank = share * sum(self._percents)
        return next((n for n, seen in enumerate(accumulate(self._percents)) if seen >= rank), 100) if rank else None


class DeviceUsage:
    """Sums over the readings of one accelerator; its memory does not grow with the run."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.slices = 1.0
        """A partition's share (0 to 1) of the device's compute. It already weights the times by cause."""
        self.is_used = self.has_others = False
        """True once a process of the command was listed on it; True once another process was."""
        self.may_be_used = True
        """False if every list of processes shows that only others used it."""
        self._is_listed = self._has_worked = self._had_users = False
        """True once its processes were listed; True if it has worked since; True if that list was not empty."""
        self.read, self.spans = Utilization(), Utilization()
        """Utilization as the driver reports it; utilization from busy and idle time."""
        self.memory: float | None = None
        """Most bytes in use."""
        self.sums = {role: Counter[str]() for role in WORDS}
        """Milliseconds of throttling by reason, which may overlap, and without a kernel by cause; mJ by state."""
        self.efficiency = Utilization()
        self.busy = 0.0
        """Seconds with a kernel."""
        self.joules: float | None = None
        """Energy (J) by the device's counter; without a counter, and after its last reading, by power readings."""
        self._counted: float | None = None
        self._drawn = 0.0
        """Energy (J) by power readings alone."""
        self._power_at: int | None = None

    def take(self, at: int, points: Mapping[str, Sequence[Datapoint]]) -> None:
        """Take one reading: points by role. Utilization is the mean of the device's cores, memory their sum."""
        values = {role: [point.value for point in read] for role, read in points.items()}
        if cores := values.get(UTILIZATION):
            self.read.take(fmean(cores))
        shares = values.get(EFFICIENCY, [])
        self.efficiency.take(fmean(shares or [0.0]), len(shares))
        if memory := values.get(MEMORY):
            self.memory = max(self.memory or 0.0, sum(memory))
        if power := values.get(POWER):
            if self._power_at is not None:
                drawn = sum(power) * (at - self._power_at) / 1e9
                self.joules, self._drawn = (self.joules or 0.0) + drawn, self._drawn + drawn
            self._power_at = at
        for point in points.get(ENERGY, ()):
            if point.increase is not None:
                self.joules = self._counted = (self._counted or 0.0) + point.increase
        for role, key in WORDS.items():
            for point in points.get(role, ()):
                self.sums[role][point.dims.get(key, "")] += round(1000 * (point.increase or 0))
        self.is_used |= PROCESS in points
        busy = sum(point.increase or 0 for point in points.get(BUSY, ()))
        self.busy += busy
        self._has_worked |= busy > 0 or any(values.get(UTILIZATION, ()))
        seconds = busy + sum(point.increase or 0 for point in points.get(IDLE, ()))
        if seconds > 0:
            self.spans.take(100 * busy / seconds, seconds)

    def list_users(self, users: Collection[bool | None]) -> None:
        """Take the list of its processes: True for one of the command, False for another, None if unknown."""
        self.is_used |= True in users
        is_unclear = None in users or (self._is_listed and self._has_worked and not (users or self._had_users))
        self.may_be_used = is_unclear or (self.may_be_used and self._is_listed)
        self.has_others |= False in users
        self._is_listed, self._has_worked, self._had_users = True, False, bool(users)

    @property
    def energy(self) -> str | None:
        """Energy as text; by power readings if the energy counter stands still."""
        if self._counted is not None and amounts.stands_still(self._counted, self._drawn):
            return f"{amounts.energy(self._drawn)} by power"
        return _unless_none(self.joules, amounts.energy)


def _throttled(device: DeviceUsage) -> str | None:
    """Return the longest reason with its time. A sum would count overlapping reasons twice."""
    reasons = Counter({reason: ms for reason, ms in device.sums[THROTTLED].items() if reason != LITTLE_TO_DO})
    for reason, ms in reasons.most_common(1):
        return f"{amounts.clock(ms / 1000)} {reason if ms >= 500 else ''}".strip()
    return None


def _idle(device: DeviceUsage) -> str | None:
    """Return the idle time by cause, the longest first; causes below a second are left out."""
    times = [(cause, ms / 1000 / device.slices) for cause, ms in device.sums[IDLE].most_common()]
    return ", ".join(f"{cause} {amounts.clock(seconds)}" for cause, seconds in times if seconds >= 1) or None


def _read(device: DeviceUsage) -> Utilization:
    """Return the driver's readings of utilization; none if busy time is known, which is better."""
    return device.read if device.spans.mean is None else Utilization()


def _unless_none(value: float | None, text: Callable[[float], str] = "{:.0f} %".format) -> str | None:
    return None if value is None else text(value)


COLUMNS: Final[Mapping[str, Callable[[DeviceUsage], str | None]]] = {
    "busy": lambda device: _unless_none(device.spans.mean),
    "busy p95": lambda device: _unless_none(device.spans.percentile(0.95)),
    "util mean": lambda device: _unless_none(_read(device).mean),
    "util p95": lambda device: _unless_none(_read(device).percentile(0.95)),
    "memory peak": lambda device: _unless_none(device.memory, amounts.binary),
    "efficiency": lambda device: _unless_none(device.efficiency.mean),
    "energy": lambda device: device.energy,
    "energy, by state": lambda device: amounts.shares(device.sums[STATE]) or None,
    "throttled": _throttled,
    "idle, by cause": _idle,
}
"""Title of a column -> function for its cell; a column that no device fills is left out."""


class Accelerators:
    """All accelerators of this machine during a run. The cores of a Neuron device count as one device."""

    def __init__(self, *, of_command: bool = False) -> None:
        """`of_command`: the run is one command, which may not use all of them."""
        self._devices: dict[DeviceKey, DeviceUsage] = {}
        self._of_command = of_command

    def take(self, points: Iterable[Datapoint]) -> None:
        """Take the points of one tick, counters with their increase; a late reading has an earlier time."""
        readings: dict[tuple[DeviceUsage, int], dict[str, list[Datapoint]]] = defaultdict(lambda: defaultdict(list))
        for point in points:
            if (role := ROLES.get(point.metric.name)) and (key := device_of(point.dims)):
                readings[self._device(key, point.dims), point.at][role].append(point)
        for (device, at), by_role in readings.items():
            device.take(at, by_role)

    def list_users(self, facts: DeviceFacts, is_mine: Callable[[int], bool | None]) -> None:
        """Take a list of processes; `is_mine` says if a PID belongs to the command, None if that is unknown."""
        users: defaultdict[DeviceKey, list[bool | None]] = defaultdict(list)
        for process in facts.processes or ():
            users[whole_of(device_of(process.dims))].append(is_mine(process.pid))
        for item in facts.activity:
            if item.unlisted:
                users[whole_of(device_of(item.dims))].append(None)
        listed = facts.devices if facts.processes is not None else ()
        for key in {whole_of(device_of(device.dims)) for device in listed}:
            if device := self._devices.get(key):
                device.list_users(users[key])

    def set_slices(self, slices: Mapping[DeviceKey, float]) -> None:
        """Set the share of each partition in its device's compute; devices that `slices` lacks get 1."""
        for key, device in self._devices.items():
            device.slices = slices.get(key, 1.0)

    def _used(self) -> dict[DeviceKey, DeviceUsage]:
        """Return the devices that the command used; if it is known of none, those that it may have used."""
        seen = {key: device for key, device in self._devices.items() if device.is_used}
        return seen or {key: device for key, device in self._devices.items() if device.may_be_used}

    def _is_doubtful(self) -> bool:
        """Return True if no list of processes shows that the command used a device."""
        return self._of_command and not any(device.is_used for device in self._devices.values())

    def lines(self) -> Iterator[str]:
        """Yield a table for each family of devices that the command used or may have used."""
        used = self._used()
        for family, title in FAMILIES.items():
            present = [key for key in sorted(self._devices, key=device_order) if key[0][0] == family]
            if shown := [self._devices[key] for key in present if key in used]:
                yield from _table(title, shown)
                if others := len(present) - len(shown):
                    yield f"{'':{FIRST_COLUMN}}  {others} more, not used by the command"
                if self._is_doubtful():
                    which = "them" if shown[1:] else "it"
                    yield f"{'':{FIRST_COLUMN}}  it is not known whether the command used {which}"
            elif present:
                here = {key[:1] for key in present}
                taken = {key[:1] for key in present if self._devices[key].has_others}
                who = "used by others" if here == taken else f"{len(taken)} used by others"
                yield f"{title:<{FIRST_COLUMN}}  used no {title} ({len(here)} here{f', {who}' if taken else ''})"

    def cost(self, seconds: float, dollars_per_hour: float) -> Iterator[str]:
        """Yield a line with the cost of these devices, and of their idle time."""
        used = self._used()
        cut = {key[:1] for key in used if key[1:]}
        if counted := [device for key, device in used.items() if key not in cut]:
            number = sum(device.slices for device in counted)
            total, idle = number * seconds, sum(device.sums[IDLE].total() for device in counted) / 1000
            most = "at most " * self._is_doubtful()
            yield (
                f"cost      {most}{number:.3g} x {duration(seconds, 2)} at ${dollars_per_hour:.2f} an hour ="
                f" ${total / 3600 * dollars_per_hour:.2f}, of which idle ${idle / 3600 * dollars_per_hour:.2f}"
            )

    def time(self) -> Iterator[str]:
        """Yield a line with the busy share of these devices, and the causes of their idle time."""
        used = self._used().values()
        busy, idle = sum(device.busy for device in used), sum((device.sums[IDLE] for device in used), Counter[str]())
        if total := busy + idle.total() / 1000:
            causes = amounts.shares(idle, 1000 * total)
            spent = f"busy {100 * busy / total:.0f} %, idle {100 - 100 * busy / total:.0f} %"
            yield f"time      accelerators {spent}{f': {causes}' if causes else ''}"

    def advice(self, seconds: float) -> Iterator[str]:
        """Yield advice on the longest idle time by one cause on one device, if it is a tenth of the run or more."""
        used = [(f"{FAMILIES[key[0][0]]} {device_label(key)}", device) for key, device in self._used().items()]
        times = ((one.sums[IDLE][cause] / 1000 / one.slices, cause, name) for name, one in used for cause in ADVICE)
        idle, cause, name = max(times, default=(0.0, "", ""))
        if seconds and idle >= WORTH * seconds:
            yield f"advice    {name} was idle {100 * idle / seconds:.0f} % of the time; {ADVICE[cause]}"

    def _device(self, key: DeviceKey, dims: Dimensions) -> DeviceUsage:
        """Return the sums of a device, new ones for a new device; `dims` has its model."""
        key = whole_of(key)
        if (device := self._devices.get(key)) is None:
            parts = (f"{dimension.upper()} {number}" for dimension, number in key[1:])
            name = one_line(" ".join(filter(None, (key[0][1], *parts, dims.get("model", "")))), LONGEST)
            device = self._devices[key] = DeviceUsage(name)
        return device


def whole_of(key: DeviceKey) -> DeviceKey:
    """Return the key that is counted: of a Neuron core its device, otherwise the same key."""
    return key[:1] if key[:1] and key[0][0] == "neuron_device" else key


def _table(title: str, devices: Sequence[DeviceUsage]) -> Iterator[str]:
    first = [f"{title:<{FIRST_COLUMN}}", *(f"  {device.name}" for device in devices)]
    columns = ([name, *(cell(device) or "-" for device in devices)] for name, cell in COLUMNS.items())
    yield from table([TableColumn(first), *(TableColumn(cells, right=True, empty=("-",)) for cells in columns)])
