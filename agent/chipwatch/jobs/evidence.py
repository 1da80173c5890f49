"""Evidence for the cause of idle time: the host's figures of a job between two readings, and values of devices."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.facts import DeviceActivity, DeviceFacts
from chipwatch.contract.owner import GroupUse, JobFacts, ProcessUse
from chipwatch.jobs.accounting import SECOND, JobKey
from chipwatch.jobs.causes import AWAITS, CHILD_CPU, COMPUTE, LIMITS, NOTHING, SLEEPS, Evidence
from chipwatch.jobs.device_key import DeviceKey, device_of


class Evidences:
    """The evidence of the last reading: by job, and by process if its job has no cgroup."""

    def __init__(self) -> None:
        self._last: JobFacts | None = None
        self._jobs: dict[JobKey, Evidence] = {}
        self._rates: dict[int, float | None] = {}
        """Process of a job without a cgroup -> CPUs that it uses; None if unknown."""
        self._blocked: frozenset[int] = frozenset()
        self._waits: dict[int, Evidence] = {}
        """Process on a device -> evidence of what it waits for."""

    def take(self, facts: JobFacts) -> None:
        """Take a reading; compare it with the one before, unless it has nothing new."""
        last = self._last or facts
        begun, now = (each.moment if each.used is None else each.used for each in (last, facts))
        if self._last and now == begun:
            return
        seconds, self._last = (now - begun) / SECOND, facts
        before, uses = ({use.owner.key: use for use in each.uses} for each in (last, facts))
        self._jobs = {key: _between(before.get(key, use), use, seconds) for key, use in uses.items()}
        self._rates = {pid: _rate(last.cpu.get(pid), cpu, seconds) for pid, cpu in facts.cpu.items()}
        self._blocked = facts.blocked
        both = ((pid, now, last.processes.get(pid)) for pid, now in facts.processes.items())
        self._waits = {pid: _waits(old, now, seconds) for pid, now, old in both if old and (now.children or now.waits)}

    def of(self, jobs: Iterable[JobKey], pids: Collection[int]) -> Evidence:
        """Combine the evidence of all jobs and processes on a device: the sum of CPUs, the largest of other figures."""
        evidences = [self._jobs[key] for key in jobs if key in self._jobs]
        allowed = evidences[0].allowed if len(evidences) == 1 else None
        if len(evidences) != 1 and (known := self._rates.keys() & pids):
            rates = [rate for pid in known if (rate := self._rates[pid]) is not None]
            evidences.append(Evidence(sum(rates) if rates else None, blocked=not self._blocked.isdisjoint(known)))
        evidences += [self._waits[pid] for pid in self._waits.keys() & pids]
        if len(evidences) < 2:
            return evidences[0] if evidences else NOTHING
        used, _, *others = zip(*evidences, strict=True)
        cpu = [value for value in used if value is not None]
        return Evidence(sum(cpu) if cpu else None, allowed, *map(_most, others))


def _waits(before: ProcessUse, now: ProcessUse, seconds: float) -> Evidence:
    """Return the evidence of what one process waited for between two readings."""
    own = _rate(before.cpu, now.cpu, seconds)
    used = {key: _rate(before.children.get(key), cpu, seconds) or 0.0 for key, cpu in now.children.items()}
    delays = {key: _rate(before.delays.get(key), now.delays.get(key), seconds) or 0.0 for key in used}
    busiest = max(used, key=lambda key: used[key] + delays[key], default=None)
    wants = busiest is not None and used[busiest] + delays[busiest] >= CHILD_CPU
    crowded = delays[busiest] if busiest and wants else None
    total = sum(used.values()) + (own or 0.0) * now.shares_cpus
    is_crowded = (crowded or 0.0) > LIMITS["crowded"]  # then the child is slow because it waits for a CPU
    return Evidence(
        loader=own is not None and own < SLEEPS and wants and not is_crowded, crowded=crowded,
        network=own is not None and own < AWAITS and now.waits, bound=total / now.cpus if now.cpus else None,
    )  # fmt: skip


def _between(before: GroupUse, now: GroupUse, seconds: float) -> Evidence:
    return Evidence(
        cpu=_rate(before.cpu, now.cpu, seconds), allowed=now.cores, blocked=now.blocked,
        io=_rate(before.io_some, now.io_some, seconds), crowded=_rate(before.cpu_some, now.cpu_some, seconds),
        memory=_rate(before.memory_full, now.memory_full, seconds),
        quota=_rate(before.throttled, now.throttled, (now.periods or 0) - (before.periods or 0)),
        swaps=before.swapped is not None and (now.swapped or 0) > before.swapped,
    )  # fmt: skip


def _rate(before: float | None, now: float | None, over: float) -> float | None:
    """Return the increase of a cumulative figure divided by `over`; None if unknown or if the figure was reset."""
    return None if before is None or now is None or over <= 0 or now < before else (now - before) / over


def _most(values: Iterable[Any]) -> Any:
    return max((value for value in values if value is not None), default=None)


UTILIZATIONS: Final = ("gpu.utilization", "neuron.core.utilization", "ipu.utilization", "tpu.duty_cycle")
"""Metrics of utilization, used if a device's collector reports no activity."""
OFU: Final = ("gpu.efficiency", "tpu.tensorcore.utilization")
"""Metrics of the efficiency of a device: its operations, of its peak (%)."""
STATE: Final = "gpu.state"
FALLEN: Final = "gpu.xid"
XID_FALLEN: Final = "79"
"""The Xid of a GPU that has fallen off the bus: https://docs.nvidia.com/deploy/xid-errors/."""
NEEDED: Final = frozenset((*UTILIZATIONS, *COMPUTE, *OFU, "gpu.sm.active", "gpu.memory.used", "gpu.power", STATE))
ValuesByName = dict[str, float]
"""The values of a device by metric."""


class DevicePoints:
    """Picks the values that the accounting needs from the points of a tick."""

    def __init__(self) -> None:
        self._fallen: dict[DeviceKey, float] = {}
        """GPU -> its last count of Xid 79."""

    def take(self, tick: Iterable[Datapoint]) -> dict[DeviceKey, ValuesByName]:
        """Return the needed values of each device, and FALLEN for a GPU that fell off the bus in this tick."""
        values: dict[DeviceKey, ValuesByName] = {}
        for point in tick:
            name = point.metric.name
            if name in NEEDED and (place := device_of(point.dims)):
                values.setdefault(place, {})[name] = point.value
            elif name == FALLEN and point.dims.get("xid") == XID_FALLEN:
                place = device_of(point.dims)
                if point.value > self._fallen.get(place, 0):
                    values.setdefault(place, {})[name] = point.value
                self._fallen[place] = point.value
        return values


def from_points(reading: DeviceFacts, values: Mapping[DeviceKey, ValuesByName]) -> Iterator[DeviceActivity]:
    """Yield the activity of devices whose collector reports none, from the utilization in their points."""
    used = (process.dims for process in reading.processes or ())
    named = {device_of(dims): dims for dims in (*used, *reading.names.values())}
    for place, figures in values.items():
        percent = next((figures[name] for name in UTILIZATIONS if name in figures), None)
        if percent is not None and (place in named or place[:1] in named):
            yield DeviceActivity(named.get(place) or Dimensions(dict(place)), min(1.0, percent / 100), "point value")
