"""Finds the jobs that hold a device in one reading, by its processes and its allocations."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import DEVICES, Dimensions
from chipwatch.contract.facts import DeviceFacts, DeviceProcess
from chipwatch.contract.owner import SLURM, Allocation, JobFacts, Owner
from chipwatch.jobs.accounting import Holding, Key

log: Final = logging.getLogger(__name__)
SCHEDULERS: Final = ("mapping", "kubelet")
"""Sources that are schedulers: if one of them gave a device to a job, its other users are not its holders."""
PROCESS: Final = "process"
"""The source of an allocation that is known only from the device's use."""
UTILIZATION, OCCUPANCY, EQUAL = "utilization", "occupancy", "equal"
Place = tuple[tuple[str, str], ...]
"""The name of a device or of a part of it: (("gpu", "0"), ("mig", "1"))."""


@lru_cache(maxsize=10_000)
def place_of(dims: Dimensions) -> Place:
    """Return the device, and the part of it, that these dimensions name; nothing for the host's."""
    return tuple((key, dims[key]) for key in DEVICES if key in dims)


def label_of(place: Place) -> str:
    """Return the number of a device, with that of its part."""
    return ".".join(number for _, number in place)


class Held(NamedTuple):
    """A job that holds a device."""

    owner: Owner
    source: str
    holding: Holding
    memory: float | None
    """Bytes of the device's memory that its processes use, if known."""
    share: float = 1.0
    """Its part of the device: of the work of all holders, if that is known, else an nth."""
    basis: str = ""
    """Measurement of `share`: `utilization`, `occupancy` or `equal`; "" if no other job holds the device."""


class Use(NamedTuple):
    """The processes and allocations of a device in one reading."""

    processes: Sequence[DeviceProcess] | None
    """None if the driver lists none."""
    owners: Mapping[int, Owner]
    allocations: Sequence[Allocation]
    alive: Collection[Key]
    """Jobs that have a cgroup, a device or a process on one."""
    moment: int
    """Monotonic ns, and the same in ns since the epoch."""
    at: int
    keeps: bool = False
    """The reading does not say whether the holders of the last one have gone."""
    doubt: str = ""
    """Why another job may hold the device than those that are known; "" if none may."""


def holders_of(use: Use, *, has_worked: bool = False) -> dict[Key, Held]:
    """Return the jobs that hold a device, by the best source that knows; `has_worked`: since the last reading."""
    present: dict[Key, list[DeviceProcess]] = {}
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
    jobs: Collection[Key], present: Mapping[Key, Sequence[DeviceProcess]], *, has_worked: bool
) -> tuple[Mapping[Key, float], str]:
    """Return the part of each job in the work of a device, none where a job is alone, and how the parts are known."""
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


def _is_stale(allocation: Allocation, owners: Mapping[Key, Owner]) -> bool:
    """Return whether a job of Slurm without a cgroup has a device that another job of Slurm uses: it has ended."""
    has_ended = allocation.owner.kind == SLURM and not allocation.owner.cgroup and allocation.owner.key not in owners
    return has_ended and any(owner.kind == SLURM and owner.cgroup for owner in owners.values())


SHOWN: Final = 4
TICKS: Final = 3
"""Ticks for which a late collector is awaited."""


class UnnamedDevices:
    """Finds devices of jobs whose name in the scheduler no collector knows; logs each change."""

    def __init__(self) -> None:
        self._names: dict[str, Mapping[str, object]] = {}
        """Collector -> names of its devices, as of its last reading."""
        self._ticks = 0
        self._logged = ""
        self.text = ""
        """The unknown devices, for a person; "" if every device has a name."""

    def take(self, readings: Iterable[DeviceFacts], jobs: JobFacts | None) -> None:
        """Compare the devices of a tick with the schedulers' allocations."""
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
