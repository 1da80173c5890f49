"""One accelerator, or a part of one: its holders, and its activity since the last reading."""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache
from math import inf, isfinite, isnan
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import DEVICES, Dimensions
from chipwatch.contract.extensions import DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.owner import SLURM, Allocation, JobFacts, Owner
from chipwatch.processors.jobs import accounting, causes
from chipwatch.processors.jobs.accounting import LOST, MOST_INTERVALS, SECOND, DeviceReading, Holding, Key
from chipwatch.processors.jobs.causes import SIGNS, Evidence, Situation

log: Final = logging.getLogger(__name__)
SCHEDULERS: Final = ("mapping", "kubelet")
"""Sources that are schedulers: if one of them gave a device to a job, its other users are not its holders."""
PROCESS: Final = "process"
"""The source of an allocation that is known only from the device's use."""
FREE: Final = "free"
UTILIZATION, OCCUPANCY, EQUAL = "utilization", "occupancy", "equal"
AVERAGED: Final = 300 * SECOND
"""Time constant of the mean of a device's work: GPUs that take turns within minutes are in balance."""
Place = tuple[tuple[str, str], ...]
"""The name of a device or of a part of it: (("gpu", "0"), ("mig", "1"))."""


@lru_cache(maxsize=10_000)
def place_of(dims: Dimensions) -> Place:
    """Return the device, and the part of it, that these dimensions name; nothing for the host's."""
    return tuple((key, dims[key]) for key in DEVICES if key in dims)


Used = tuple[Owner, DeviceProcess]
"""A process on a device, and its owner."""


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
    alive: AbstractSet[Key]
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
    present: dict[Key, list[Used]] = {}
    has_strangers = use.processes is None
    for process in use.processes or ():
        if (owner := use.owners.get(process.pid)) is None:
            has_strangers = True
        else:
            present.setdefault(owner.key, []).append((owner, process))
    given = [item for item in use.allocations if item.source in SCHEDULERS and not _is_stale(item, present)]
    others = [item for item in use.allocations if item.source not in SCHEDULERS]
    sources = {item.owner.key: (item.owner, item.source) for item in reversed(given or others)}
    if not given:
        sources |= {key: (mine[0][0], PROCESS) for key, mine in present.items() if key not in sources}
    if not sources:
        return {}
    parts, basis = _parts(sources, present, has_worked=has_worked)
    by_job = {}
    for key, (owner, source) in sources.items():
        mine, begun, memory, work = present.get(key), owner.since, None, parts.get(key)
        for user, process in mine or ():
            if user.since is not None and (begun is None or user.since < begun):
                begun = user.since
            if process.memory is not None:
                memory = process.memory + (memory or 0)
        since = use.moment if begun is None or begun > use.at else use.moment - use.at + begun
        holding = Holding(since, bool(mine), not mine and has_strangers, work=work)
        share = 1 / len(sources) if work is None else work
        by_job[key] = Held(mine[0][0] if mine else owner, source, holding, memory, share, basis)
    return by_job


def _parts(
    jobs: Collection[Key], present: Mapping[Key, Sequence[Used]], *, has_worked: bool
) -> tuple[dict[Key, float], str]:
    """Return the part of each job in the work of a device that they share, {} if it is unknown, and its basis."""
    if len(jobs) < 2:
        return {}, ""
    for basis in (UTILIZATION, OCCUPANCY):
        works = {
            key: [work for _, process in present.get(key, ()) if (work := getattr(process, basis)) is not None]
            for key in jobs
        }
        if any(works.values()):
            sums = {key: sum(work for work in mine if work > 0) for key, mine in works.items()}
            total = sum(sums.values())
            if 0 < total < inf:
                return {key: work / total for key, work in sums.items()}, basis
            if not has_worked:
                return {}, basis
    return {}, EQUAL


def _is_stale(allocation: Allocation, present: Mapping[Key, Sequence[Used]]) -> bool:
    """Return whether a job of Slurm without a cgroup has a device that another job of Slurm uses: it has ended."""
    has_ended = allocation.owner.kind == SLURM and not allocation.owner.cgroup and allocation.owner.key not in present
    return has_ended and any(mine[0][0].kind == SLURM and mine[0][0].cgroup for mine in present.values())


def plausible(activity: DeviceActivity) -> DeviceActivity:
    """Return an activity with shares from 0 to 1, without NaN and infinity: a plugin may give anything."""
    active, energy = activity.active, activity.energy
    if (
        0 <= (active or 0) <= 1
        and 0 <= activity.throttled <= 1
        and 0 <= activity.slices <= 1
        and 0 <= (energy or 0) < inf
        and 0 <= (activity.idle or 0) < inf
    ):
        return activity
    return activity._replace(
        active=None if active is None or isnan(active) else _share(active),
        idle=max(0.0, activity.idle) if activity.idle is not None and isfinite(activity.idle) else None,
        throttled=_share(activity.throttled),
        energy=energy if energy is not None and isfinite(energy) and energy >= 0 else None,
        slices=_share(activity.slices),
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))  # 0.0 of NaN


class JobDevice:
    """Remembers one device from reading to reading."""

    def __init__(self, dims: Dimensions, last: DeviceReading | None = None) -> None:
        """`last`: a reading before the first one, if the time since then was not read."""
        self.dims = dims
        """Another device may take its place: its UUID changes then."""
        self.held: dict[Key, Held] = {}
        self.last = last
        self._has_resumed = False
        """True if `last` was read before the agent stopped."""
        self.is_begun = last is not None
        """True if it was read since the agent began, with facts of jobs."""
        self.unclear_since = 0
        """Moment of the first reading of a row that did not say who holds it; 0: the last one did."""
        self.allocated = 0
        """Time (ns) that jobs held it, weighted by its slices."""
        self.slices, self.missed = 1.0, 0
        self.state, self.cause, self.basis = accounting.UNSEEN, "", ""
        self.doubt = ""
        """Why nobody knows who holds it; "" if that is known."""
        self.strange: int | None = None
        """Time of the last kernel of a process that the driver did not list."""
        self.source = ""
        """The collector that reads it."""
        self.ran: int | None = None
        """Time of the last kernel, or of the first reading with a process; None: no kernel since the processes came."""
        self.worked = 0
        """When its job last used a CPU, or when its processes came."""
        self.work: float | None = None
        """Share of the last minutes in which kernels ran for the jobs that hold it, or None."""
        self._pids: frozenset[int] = frozenset()
        self.idle: Counter[str] = Counter()
        """Time without a kernel by cause, and with one by kind of work (ns, weighted)."""
        self.busy: Counter[str] = Counter()
        self.shown: dict[str, float] = defaultdict(float)
        """Figures that show the cause, each times the idle time of its tick (ns)."""

    def resume(self, moment: int, holding: dict[Key, Held]) -> None:
        """Continue from the last reading before the agent stopped."""
        holders = {key: holder.holding for key, holder in holding.items()}
        self.held, self.last, self._has_resumed = holding, DeviceReading(moment, holders, paused=True), True

    def take(
        self, activity: DeviceActivity, use: Use, evidence: Evidence, interval: int, values: Mapping[str, float]
    ) -> dict[Key, dict[str, int]]:
        """Return the time since the last reading by job and state, not weighted; nothing for one that is older."""
        if self.last and use.moment <= self.last.moment:
            return {}
        holding = holders_of(use, has_worked=bool(activity.active))
        if use.keeps or (activity.lost and not holding):  # the driver no longer lists its processes
            holding = {
                key: holder for key, holder in self.held.items()
                if key in use.alive or (use.keeps and not holder.owner.cgroup)
            } | holding  # fmt: skip
        idle = round((activity.idle or 0.0) * SECOND)
        now = DeviceReading(
            use.moment, {key: holder.holding for key, holder in holding.items()},
            activity.active, idle, activity.throttled, activity.lost,
        )  # fmt: skip
        before, ran = self.last, now.moment if self.last is None else None
        if before and self._has_resumed:
            last, (before, now) = before, accounting.across(before, now)
            stayed = (last.holders[key].ran for key in before.holders)
            ran = max((time for time in stayed if time is not None), default=None)
            self._has_resumed = False
        now = accounting.following(before, now)
        self._average(before, now)
        self.held, self.last, self.slices, self.missed = holding, now, activity.slices, 0
        self.basis = activity.basis
        pids = self._pids if use.processes is None else frozenset(process.pid for process in use.processes)
        if now.active and not (pids or self._pids):
            self.strange = now.moment - now.idle
        self._note(pids, now, ran)
        self.worked = use.moment if evidence.works else self.worked
        has_list = use.processes is not None and use.owners.keys() >= pids
        self.cause = causes.cause(
            Situation(
                evidence,
                lost=now.lost,
                is_known=now.active is not None and has_list and (bool(pids) or not self._is_strange(now)),
                has_process=bool(use.processes),
                ran=self.ran is not None,
                since_kernel=use.moment - (use.moment if self.ran is None else self.ran),
                since_work=use.moment - self.worked,
                before=self.cause,
            )
        )
        self.doubt = "" if holding or now.lost else self._doubt(use, now)
        charged = {} if before is None else accounting.charges(before, now, interval)
        self.state = _state(now, charged, self.doubt)
        if before is None:
            return {}
        elapsed = 0 if before.paused else min(now.moment - before.moment, MOST_INTERVALS * interval)
        self._count(now, elapsed, causes.kind_of_work(values), evidence)
        self.allocated += round(accounting.allocated(before, now) * self.slices)
        return charged

    def _doubt(self, use: Use, now: DeviceReading) -> str:
        """Return why nobody knows whether a job holds the device; "" if it was idle and its list was answered."""
        if use.processes is None:
            return use.doubt or "its processes are not listed"
        if use.processes:
            return f"process {use.processes[0].pid} has no owner in /proc"
        if now.active is None:
            return "whether kernels run is not known"
        return "kernels ran and the driver lists no process" if self._is_strange(now) else use.doubt

    def _is_strange(self, now: DeviceReading) -> bool:
        """Return whether a process that the driver does not list ran a kernel, as far back as one that holds may."""
        return self.strange is not None and now.moment - self.strange < accounting.HELD_AFTER

    def stop(self, why: str) -> None:
        """Note that the device is not read: what it does now is not known."""
        if self.state != LOST:
            self.state, self.doubt = accounting.UNSEEN, "" if self.held else why

    def _average(self, before: DeviceReading | None, now: DeviceReading) -> None:
        """Move the mean of the work by this tick; it begins again with other holders."""
        if before is None or now.active is None or before.holders.keys() != now.holders.keys():
            self.work = now.active
        elif self.work is not None:
            weight = min(1.0, (now.moment - before.moment) / AVERAGED)
            self.work += (now.active - self.work) * weight

    def _note(self, pids: frozenset[int], now: DeviceReading, ran: int | None) -> None:
        """Note when a kernel last ran since the processes came; if all of them are new, that is `ran`."""
        if not pids & self._pids:
            self.ran = ran if pids else None
            self.worked = now.moment
        self._pids = pids
        if now.active:
            self.ran = now.moment - now.idle

    def _count(self, now: DeviceReading, elapsed: int, kind: str, evidence: Evidence = Evidence()) -> None:
        weighted = elapsed * self.slices
        active = 0.0 if now.lost or now.active is None else now.active
        if idle := round(weighted * (1 - active)):
            self.idle[self.cause] += idle
            for name, share in SIGNS.get(self.cause, {}).items():
                self.shown[name] += idle * share(evidence)
        if busy := round(weighted * active):
            self.busy[kind] += busy

    def release(self, jobs: Container[Key]) -> None:
        """Forget holders that have ended, while the device does not answer; they count until its last reading."""
        self.held = {key: holder for key, holder in self.held.items() if key not in jobs}
        if self.last:
            holders = {key: holder for key, holder in self.last.holders.items() if key in self.held}
            self.last = self.last._replace(holders=holders)

    def lose(self, moment: int, interval: int) -> dict[Key, dict[str, int]]:
        """Return the time since the last reading as lost: the device no longer answers."""
        assert self.last is not None
        before, self.last = self.last, self.last._replace(moment=moment, lost=True, active=None)
        charged = accounting.charges(before, self.last, interval)
        self.state, self.cause, self.doubt = LOST, "lost", ""
        self._count(self.last, moment - before.moment, "unknown")
        self.allocated += round(accounting.allocated(before, self.last) * self.slices)
        return charged


def _state(now: DeviceReading, charged: Mapping[Key, Mapping[str, int]], doubt: str) -> str:
    """Return the state in which the device was longest for its jobs; without one `free`, or `unknown` in doubt."""
    if now.lost or not now.holders:
        return LOST if now.lost else accounting.UNKNOWN if doubt else FREE
    total = Counter[str]()
    for key in charged.keys() & now.holders.keys():
        total.update(charged[key])
    worked = {state: total[state] for state in (accounting.BUSY, accounting.THROTTLED)}
    if 2 * sum(worked.values()) >= total.total() > 0:
        total = Counter(worked)  # else one of two states with kernels might be less than one without
    return max(total, key=lambda state: total[state], default=accounting.UNSEEN)


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
        text = ""
        if unnamed:
            rest = f" and {len(unnamed) - SHOWN} more" if len(unnamed) > SHOWN else ""
            text = f"no collector has {', '.join(unnamed[:SHOWN])}{rest}, which the scheduler gave to jobs"
        self._ticks = self._ticks + 1 if text == self.text else 0
        self.text = text
        if text and text != self._logged and self._ticks >= TICKS:
            self._logged = text
            log.warning("jobs: %s", text, extra={"who": "jobs"})
