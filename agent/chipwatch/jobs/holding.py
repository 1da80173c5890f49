"""Finds the jobs that hold a device in one reading, from its processes and the schedulers' allocations."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple

from chipwatch.contract.facts import DeviceFacts, DeviceProcess
from chipwatch.contract.owner import SLURM, Allocation, JobFacts, Owner
from chipwatch.jobs.accounting import Holding, JobKey

log: Final = logging.getLogger(__name__)
SCHEDULERS: Final = ("mapping", "kubelet")
"""Sources that are schedulers: if one of them gave the device to a job, only that job holds it."""
PROCESS: Final = "process"
"""Source of a job that is known only by its process on the device."""
UTILIZATION, OCCUPANCY, EQUAL = "utilization", "occupancy", "equal"


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


class Use(NamedTuple):
    """The processes and allocations of a device in one reading."""

    processes: Sequence[DeviceProcess] | None
    """None if the driver does not list processes."""
    owners: Mapping[int, Owner]
    allocations: Sequence[Allocation]
    alive: Collection[JobKey]
    """Jobs with a cgroup, an allocated device, or a process on a device."""
    moment: int
    """Time of the reading (monotonic ns); `at` is the same time in ns since the epoch."""
    at: int
    keeps: bool = False
    """True if the reading cannot say who holds the device, so that the jobs of the last reading stay."""
    doubt: str = ""
    """Why an unknown job may hold the device; "" if none can."""


def holders_of(use: Use, *, has_worked: bool = False) -> dict[JobKey, Held]:
    """Return the jobs that hold a device: schedulers decide, then processes. `has_worked`: a kernel has run."""
    present: dict[JobKey, list[DeviceProcess]] = {}
    has_strangers = use.processes is None
    for process in use.processes or ():
        if owner := use.owners.get(process.pid):
            present.setdefault(owner.key, []).append(process)
        else:
            has_strangers = True
    owners = {key: use.owners[mine[0].pid] for key, mine in present.items()}
    given = [item for item in use.allocations if item.source in SCHEDULERS and not _is_stale(item, owners)]
    others = [item for item in use.allocations if item.source not in SCHEDULERS]
    sources = {item.owner.key: item for item in reversed(given or others)}
    if not given:
        sources |= {key: Allocation("", owner, PROCESS) for key, owner in owners.items() if key not in sources}
    parts, basis = _parts(sources, present, has_worked=has_worked)
    by_job = {}
    for key, source in sources.items():
        mine, work = present.get(key, []), parts.get(key)
        starts = (owner.since for owner in (source.owner, *(use.owners[each.pid] for each in mine)))
        age = use.at - min((since for since in starts if since is not None), default=use.at)
        memory = [each.memory for each in mine if each.memory is not None]
        by_job[key] = Held(
            owners.get(key, source.owner), source.source,
            Holding(use.moment - max(0, age), bool(mine), not mine and has_strangers, work=work),
            sum(memory) if memory else None, 1 / len(sources) if work is None else work, basis,
        )  # fmt: skip
    return by_job


def _parts(
    jobs: Collection[JobKey], present: Mapping[JobKey, Sequence[DeviceProcess]], *, has_worked: bool
) -> tuple[Mapping[JobKey, float], str]:
    """Return each job's share of the device's work, and how it was measured; ({}, "") if one job is alone."""
    if len(jobs) < 2:
        return {}, ""
    for basis in (UTILIZATION, OCCUPANCY):
        works = {
            key: [work for each in present[key] if (work := getattr(each, basis)) is not None]
            for key in jobs if key in present
        }  # fmt: skip
        if any(works.values()):
            sums = {key: sum(work for work in works.get(key, ()) if work > 0) for key in jobs}
            total = sum(sums.values())
            if 0 < total < inf:
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
