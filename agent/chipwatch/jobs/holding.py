"""Finds the jobs that hold a device in one reading, from its processes and the schedulers' allocations."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from operator import itemgetter
from typing import Any, Final, NamedTuple, TypeVar

from chipwatch.contract.facts import DeviceFacts, DeviceProcess
from chipwatch.contract.owner import SLURM, Allocation, JobFacts, Owner
from chipwatch.jobs.accounting import Holding, JobKey
from chipwatch.jobs.device_key import DeviceKey, device_of

T = TypeVar("T")

log: Final = logging.getLogger(__name__)
SCHEDULERS: Final = ("mapping", "kubelet")
"""Sources that are schedulers: if one of them gave the device to a job, only that job holds it."""
PROCESS: Final = "process"
"""Source of a job that is known only by its process on the device."""
UTILIZATION, OCCUPANCY, EQUAL = "utilization", "occupancy", "equal"
WHO: Final = itemgetter(0, 1)
"""Returns the dimensions and the pid of a `DeviceProcess`."""


class Held(NamedTuple):
    """A job that holds a device."""

    owner: Owner
    source: str
    holding: Holding
    memory: float | None
    """Bytes of the device's memory that the job's processes use; None if unknown."""
    share: float = 1.0
    """The job's share of the device's work; 1/n for n jobs if their work is unknown."""
    basis: str = ""
    """Measurement behind `share`: `utilization`, `occupancy` or `equal`; "" if the job is alone."""


RosterJobs = Mapping[JobKey, tuple[Owner, str, int | None, Sequence[int]]]
"""Job -> its owner, its source, its start (ns since the epoch), and the numbers of its processes in the reading."""


class Roster(NamedTuple):
    """The jobs on a device, which stay the same until a process, an owner or an allocation changes."""

    pids: frozenset[int]
    jobs: RosterJobs
    has_strangers: bool
    """True if the owner of a process is unknown."""


class Use(NamedTuple):
    """The processes and jobs of a device in one reading."""

    processes: Sequence[DeviceProcess] | None
    """All processes of the reading; None if the driver does not list the processes of this device."""
    roster: Roster
    alive: Collection[JobKey]
    """Jobs with a cgroup, an allocated device, or a process on a device."""
    moment: int
    """Time of the reading (monotonic ns); `at` is the same time in ns since the epoch."""
    at: int
    keeps: bool = False
    """True if the reading cannot say who holds the device, so that the jobs of the last reading stay."""
    doubt: str = ""
    """Why an unknown job may hold the device; "" if none can."""


class Rosters(dict[DeviceKey, Roster]):
    """The rosters of one collector's devices: all are made again when a process, an owner or an allocation changes."""

    def __init__(self) -> None:
        super().__init__()
        self._facts: tuple[Any, ...] = ()
        """The source of the rosters: dimensions and pids of processes, owners, allocations, names of devices."""
        self._processes: Mapping[DeviceKey, Sequence[int]] = {}
        """Device -> the numbers of its processes in the reading."""
        self._given: Mapping[DeviceKey, Sequence[Allocation]] = {}

    def take(self, reading: DeviceFacts, owners: Mapping[int, Owner], allocations: Sequence[Allocation]) -> None:
        """Take a reading, with the owner of each process by pid."""
        listed, names = [*map(WHO, reading.processes or ())], reading.names
        if (facts := (listed, owners, allocations, names)) != self._facts:
            self.clear()
            self._facts = facts
            self._processes = _by_place((device_of(dims), number) for number, (dims, _) in enumerate(listed))
            given = ((device_of(names[each.device]), each) for each in allocations if each.device in names)
            self._given = _by_place(given)

    def __missing__(self, place: DeviceKey) -> Roster:
        listed, owner_of, *_ = self._facts
        owners = {number: owner_of.get(listed[number][1]) for number in _of(self._processes, place)}
        pids = frozenset(listed[number][1] for number in owners)
        self[place] = roster = Roster(pids, _jobs(owners, _of(self._given, place)), None in owners.values())
        return roster


def _by_place(items: Iterable[tuple[DeviceKey, T]]) -> dict[DeviceKey, list[T]]:
    places = defaultdict[DeviceKey, list[T]](list)
    for place, item in items:
        places[place].append(item)
    return places


def _of(items: Mapping[DeviceKey, Sequence[T]], place: DeviceKey) -> list[T]:
    """Return the items of a device; a partition also has those that belong to its whole device."""
    whole = items.get(place[:1], ()) if len(place) > 1 else ()
    return [*items.get(place, ()), *whole]


def _jobs(owners: Mapping[int, Owner | None], allocations: Sequence[Allocation]) -> RosterJobs:
    """
    Return the jobs of a roster from the owner of each process, by its number, and from allocations.

    Schedulers decide first.
    """
    present: dict[JobKey, list[int]] = {}
    for number, owner in owners.items():
        if owner:
            present.setdefault(owner.key, []).append(number)
    firsts = {key: owner for key, mine in present.items() if (owner := owners[mine[0]])}
    given = [item for item in allocations if item.source in SCHEDULERS and not _is_stale(item, firsts)]
    others = [item for item in allocations if item.source not in SCHEDULERS]
    sources = {item.owner.key: item for item in reversed(given or others)}
    if not given:
        sources |= {key: Allocation("", owner, PROCESS) for key, owner in firsts.items() if key not in sources}
    jobs = {}
    for key, source in sources.items():
        mine = present.get(key, [])
        starts = [owner.since for owner in (source.owner, *(owners[number] for number in mine)) if owner]
        since = min((start for start in starts if start is not None), default=None)
        jobs[key] = firsts.get(key, source.owner), source.source, since, mine
    return jobs


def holders_of(use: Use, *, has_worked: bool) -> dict[JobKey, Held]:
    """Return the jobs that hold a device in this reading. `has_worked`: a kernel has run."""
    by_job, roster, processes = {}, use.roster, use.processes or ()
    has_strangers = use.processes is None or roster.has_strangers
    parts, basis = _parts(roster, processes, has_worked=has_worked)
    for key, (owner, source, since, mine) in roster.jobs.items():
        work, memory = parts.get(key), [each for n in mine if (each := processes[n].memory) is not None]
        begun = use.moment if since is None else min(use.moment, use.moment - use.at + since)
        by_job[key] = Held(
            owner, source, Holding(begun, bool(mine), not mine and has_strangers, work=work),
            sum(memory) if memory else None, 1 / len(roster.jobs) if work is None else work, basis,
        )  # fmt: skip
    return by_job


def _parts(
    roster: Roster, processes: Sequence[DeviceProcess], *, has_worked: bool
) -> tuple[Mapping[JobKey, float], str]:
    """Return each job's share of the device's work, and how it was measured; ({}, "") if one job is alone."""
    if len(roster.jobs) < 2:
        return {}, ""
    for basis in (UTILIZATION, OCCUPANCY):
        works = {key: [getattr(processes[n], basis) for n in mine] for key, (_, _, _, mine) in roster.jobs.items()}
        if any(work is not None for each in works.values() for work in each):
            sums = {key: sum([max(0.0, work) for work in each if work is not None]) for key, each in works.items()}
            if 0 < (total := sum(sums.values())) < inf:
                return {key: work / total for key, work in sums.items()}, basis
            if not has_worked:
                return {}, basis
    return {}, EQUAL


def _is_stale(allocation: Allocation, owners: Mapping[JobKey, Owner]) -> bool:
    """Return True if a Slurm job without a cgroup has ended: another Slurm job uses its device."""
    has_ended = allocation.owner.kind == SLURM and not allocation.owner.cgroup and allocation.owner.key not in owners
    return has_ended and any(owner.kind == SLURM and owner.cgroup for owner in owners.values())


SHOWN: Final = 4
TICKS: Final = 3
"""Ticks after which an unknown device is logged; a slow collector may still name it before."""


class UnnamedDevices:
    """Devices that a scheduler gave to jobs and that no collector knows by that name; logs each change."""

    def __init__(self) -> None:
        self._names: dict[str, Mapping[str, object]] = {}
        """Collector -> the names of its devices in its last reading."""
        self._ticks = 0
        self._logged = ""
        self.text = ""
        """A sentence that names the unknown devices; "" if there are none."""

    def take(self, readings: Iterable[DeviceFacts], jobs: JobFacts | None) -> None:
        """Compare the devices that collectors read in a tick with the schedulers' allocations."""
        self._names |= {reading.source: reading.names for reading in readings}
        allocations = jobs.allocations if jobs else ()
        given = dict.fromkeys(grant.device for grant in allocations if grant.source in SCHEDULERS)
        unnamed = [name for name in given if not any(name in names for names in self._names.values())]
        rest = f" and {len(unnamed) - SHOWN} more" if len(unnamed) > SHOWN else ""
        some = ", ".join(unnamed[:SHOWN]) + rest
        text = f"no collector has {some}, which the scheduler gave to jobs" if unnamed else ""
        self._ticks = self._ticks + 1 if text == self.text else 0
        self.text = text
        if text and text != self._logged and self._ticks >= TICKS:
            self._logged = text
            log.warning("jobs: %s", text, extra={"who": "jobs"})
