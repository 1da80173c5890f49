"""Adds up the readings of each accelerator during a run, for the summary at its end and for reports."""

from __future__ import annotations

from collections import defaultdict
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
"""Metric -> the figure of an accelerator to which it contributes."""
WORDS: Final = {THROTTLED: "reason", IDLE: "cause", BUSY: "kind", STATE: "state"}
"""Role of a counter -> the dimension by which it is summed."""
LITTLE_TO_DO: Final = "low_utilization"
"""Reason for low clocks that does not count as throttling."""
ADVICE: Final[Mapping[str, str]] = TABLES["advice"]
"""Cause of idle time -> its meaning, and what to do."""
WORTH: Final = 0.1
"""Share of a run that one cause of idle time must reach to get a line of advice."""
PAUSE: Final = 300 * 10**9
"""Time (ns) without a reading that no reading covers if it is over three times the usual one: nobody read meanwhile."""
FIRST_COLUMN: Final = 8
LONGEST: Final = 40
"""Most characters of an accelerator's number and model."""
Reading = tuple[str, str, float]
"""Role of a metric, the word by which it is summed, and the value of a gauge or the increase of a counter."""


def role_of(metric: str, dims: Dimensions) -> tuple[str, str] | None:
    """Return the first two parts of a metric's readings; None if it contributes to no figure."""
    role = ROLES.get(metric)
    return (role, dims.get(WORDS.get(role, ""), "")) if role else None


class Utilization:
    """Weighted mean and percentiles of a utilization. It is a histogram, so its memory does not grow with the run."""

    def __init__(self) -> None:
        self._percents = [0.0] * 101  # the weight of 0 %, 1 %, ... 100 %, rounded
        self.total = self.used = 0.0
        """Sum of the weights, such as seconds; and of the weights times the utilization (0 to 1)."""

    def take(self, percent: float, weight: float = 1.0) -> None:
        """Add a reading (%)."""
        percent = min(100.0, max(0.0, percent))
        self._percents[round(percent)] += weight
        self.total += weight
        self.used += percent * weight / 100

    @property
    def mean(self) -> float | None:
        """Mean (%); None without a reading."""
        return 100 * self.used / self.total if self.total else None

    def percentile(self, share: float) -> int | None:
        """Return the percentile `share` (0 to 1) in whole percent; None without a reading."""
        rank = share * self.total
        return next((n for n, seen in enumerate(accumulate(self._percents)) if seen >= rank), 100) if rank else None


class DeviceUsage:
    """Sums over the readings of one accelerator, for summaries and reports; its memory does not grow with the run."""

    def __init__(self, name: str, since: int | None = None) -> None:
        """`since`: time (ns) that the first reading of a gauge covers from there on; None if it covers no time."""
        self.name = name
        self.slices = 1.0
        """A partition's share (0 to 1) of the device's compute. It already weights the times by cause."""
        self.is_used = self.has_others = False
        """True once a process of the command was listed on it; True once another process was."""
        self.may_be_used = True
        """False if every list of processes shows that only others used it."""
        self._is_listed = self._has_worked = self._had_users = False
        """True once its processes were listed; True if it has worked since; True if that list was not empty."""
        self.read, self.spans, self._guess = Utilization(), Utilization(), Utilization()
        """Utilization as the driver reports it; from busy and idle time (s); and as reported, weighted by time (s)."""
        self.memory: float | None = None
        """Most bytes in use."""
        self.sums = {role: defaultdict[str, float](float) for role in WORDS}
        """Seconds of throttling by reason (which overlap), without a kernel by cause, with one by kind; J by state."""
        self.efficiency = Utilization()
        self._counted: float | None = None
        self._drawn: float | None = None
        self._later = 0.0
        """Energy (J) by the device's counter; by power readings; and by these after the counter's last reading."""
        self._read_at = {} if since is None else dict.fromkeys((UTILIZATION, POWER), (since, 0))
        """Role -> time (ns) of its last reading, from which on the next one counts, and the time that it covered."""

    def take(self, at: int, readings: Iterable[Reading]) -> None:
        """Take all readings of a moment (ns). Utilization is the mean of the device's cores, memory their sum."""
        amounts: defaultdict[str, list[float]] = defaultdict(list)
        for role, word, amount in readings:
            amounts[role].append(amount)
            if role in WORDS:
                self.sums[role][word] += amount
        if cores := amounts.get(UTILIZATION):
            self.read.take(percent := fmean(cores))
            self._guess.take(percent, self._seconds(UTILIZATION, at) or 0.0)
        for share in amounts.get(EFFICIENCY, ()):
            self.efficiency.take(share)
        if memory := amounts.get(MEMORY):
            self.memory = max(self.memory or 0.0, sum(memory))
        if (power := amounts.get(POWER)) and (seconds := self._seconds(POWER, at)) is not None:
            self._drawn, self._later = (before + seconds * sum(power) for before in (self._drawn or 0.0, self._later))
        if energy := amounts.get(ENERGY):
            self._counted, self._later = (self._counted or 0.0) + sum(energy), 0.0
        busy = sum(amounts.get(BUSY, ()))
        self.is_used |= PROCESS in amounts
        self._has_worked |= busy > 0 or any(cores or ())
        if (known := busy + sum(amounts.get(IDLE, ()))) > 0:
            self.spans.take(100 * busy / known, known)

    def _seconds(self, role: str, at: int) -> float | None:
        """Return the seconds since the last reading of a gauge, which this one covers; 0 after PAUSE; None at first."""
        before, usual = self._read_at.get(role, (None, 0))
        time = 0 if before is None else max(0, at - before)
        self._read_at[role] = at, time or usual
        return None if before is None else 0.0 if time > max(PAUSE, 3 * (usual or time)) else time / 1e9

    def list_users(self, users: Collection[bool | None]) -> None:
        """Take the list of its processes: True for one of the command, False for another, None if unknown."""
        self.is_used |= True in users
        is_unclear = None in users or (self._is_listed and self._has_worked and not (users or self._had_users))
        self.may_be_used = is_unclear or (self.may_be_used and self._is_listed)
        self.has_others |= False in users
        self._is_listed, self._has_worked, self._had_users = True, False, bool(users)

    @property
    def time(self) -> Utilization:
        """Seconds of which the use is known, and with a kernel; by `read` where busy and idle time are not counted."""
        return self.spans if self.spans.total else self._guess

    @property
    def idle(self) -> Mapping[str, float]:
        """Cause -> seconds of `time` without a kernel."""
        return self.sums[IDLE] if self.spans.total else {"unknown": self._guess.total - self._guess.used}

    @property
    def is_by_power(self) -> bool:
        """True if the energy counter counted less than a tenth of the energy by power: then it stands still."""
        return self._counted is not None and self._counted < (self._drawn or 0.0) / 10

    @property
    def joules(self) -> float | None:
        """Energy (J) by the counter, and after its last reading by power; without a counter, by power."""
        return self._drawn if self._counted is None or self.is_by_power else self._counted + self._later


def _energy(device: DeviceUsage) -> str | None:
    text = _unless_none(device.joules, amounts.energy)
    return f"{text} by power" if device.is_by_power else text


def _throttled(device: DeviceUsage) -> str | None:
    """Return the longest reason with its time. A sum would count overlapping reasons twice."""
    times = [(seconds, reason) for reason, seconds in device.sums[THROTTLED].items() if reason != LITTLE_TO_DO]
    seconds, reason = max(times, default=(0.0, ""))
    return f"{amounts.clock(seconds)} {amounts.plain(reason) if seconds >= 0.5 else ''}".strip() if times else None


def _idle(device: DeviceUsage) -> str | None:
    """Return the idle time by cause, the longest first; causes below a second are left out."""
    times = sorted(((seconds / device.slices, cause) for cause, seconds in device.sums[IDLE].items()), reverse=True)
    return ", ".join(f"{amounts.plain(cause)} {amounts.clock(time)}" for time, cause in times if time >= 1) or None


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
    "energy": _energy,
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
        readings = defaultdict[tuple[DeviceUsage, int], list[Reading]](list)
        for point in points:
            if (role := role_of(point.metric.name, point.dims)) and (key := device_of(point.dims)):
                amount = point.value if point.increase is None else point.increase
                readings[self._device(key, point.dims), point.at].append((*role, amount))
        for (device, at), moment in readings.items():
            device.take(at, moment)

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
            total, idle = number * seconds, sum(sum(device.idle.values()) for device in counted)
            most = "at most " * self._is_doubtful()
            yield (
                f"cost      {most}{number:.3g} x {duration(seconds, 2)} at ${dollars_per_hour:.2f} an hour ="
                f" ${total / 3600 * dollars_per_hour:.2f}, of which idle ${idle / 3600 * dollars_per_hour:.2f}"
            )

    def time(self) -> Iterator[str]:
        """Yield a line with the busy share of these devices, and the causes of their idle time."""
        used = self._used().values()
        idle = {cause: sum(each.idle.get(cause, 0.0) for each in used) for one in used for cause in one.idle}
        if total := sum(device.time.total for device in used):
            busy, causes = sum(device.time.used for device in used), amounts.shares(idle, total)
            spent = f"busy {100 * busy / total:.0f} %, idle {100 - 100 * busy / total:.0f} %"
            yield f"time      accelerators {spent}{f': {causes}' if causes else ''}"

    def advice(self, seconds: float) -> Iterator[str]:
        """Yield advice on the longest idle time by one cause on one device, if it is a tenth of the run or more."""
        used = [(f"{FAMILIES[key[0][0]]} {device_label(key)}", device) for key, device in self._used().items()]
        times = ((one.idle.get(cause, 0.0) / one.slices, cause, name) for name, one in used for cause in ADVICE)
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
