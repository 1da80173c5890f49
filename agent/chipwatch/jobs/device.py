"""One accelerator or partition from reading to reading: its jobs, its activity, and why it is idle."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Container, Mapping
from math import inf, isfinite, isnan
from typing import Final

from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.facts import DeviceActivity
from chipwatch.jobs import accounting, causes
from chipwatch.jobs.accounting import LOST, MOST_INTERVALS, SECOND, UNKNOWN, UNSEEN, DeviceReading, JobKey
from chipwatch.jobs.causes import NOTHING, SIGNS, Evidence, Situation
from chipwatch.jobs.holding import Held, Use, holders_of

FREE: Final = "free"
AVERAGED: Final = 300 * SECOND
"""Time constant (ns) of the mean of a device's work: GPUs that take turns within minutes count as balanced."""


def plausible(activity: DeviceActivity) -> DeviceActivity:
    """Return an activity with shares from 0 to 1 and no NaN or infinity: a plugin may yield any number."""
    active, idle, energy = activity.active, activity.idle, activity.energy
    return activity._replace(
        active=None if active is None or isnan(active) else _share(active),
        idle=None if idle is None or not isfinite(idle) else max(0.0, idle),
        throttled=_share(activity.throttled),
        energy=None if energy is None or not 0 <= energy < inf else energy,
        slices=_share(activity.slices),
    )


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))  # NaN becomes 0.0


class Spent:
    """Sums of a device's time since the agent started, by use (ns, weighted by its slices)."""

    def __init__(self) -> None:
        self.allocated = 0
        """Time in which jobs held the device."""
        self.idle, self.busy, self.energy = Counter[str](), Counter[str](), Counter[str]()
        """Time without a kernel, by cause; time with a kernel, by kind of work; energy (nJ) by state."""
        self.shown: dict[str, float] = defaultdict(float)
        """Sums of the figures that show a cause, each weighted by the idle time of its tick."""
        self.owed = 0.0
        """Energy (nJ) that is not in `energy` yet, since its time is not charged yet."""
        self.starts: dict[str, int] = {}
        """Key of a counter above -> its start time (ns since the epoch)."""


class Kernels:
    """When kernels last ran on a device."""

    def __init__(self) -> None:
        self.ran: int | None = None
        """Time of the last kernel since the processes started, or None. The first reading counts as a kernel."""
        self.worked = 0
        """Time at which the job last used a CPU, or at which its processes were first seen."""
        self._strange: int | None = None
        """Time of the last kernel that ran while the driver listed no process."""
        self._pids: frozenset[int] = frozenset()

    def take(self, now: DeviceReading, use: Use, ran: int | None) -> None:
        """Take a reading. If all its processes are new, `ran` is the time of their last kernel."""
        pids = self._pids if use.processes is None else use.roster.pids
        if now.active and not (pids or self._pids):
            self._strange = now.moment - now.idle
        if not pids & self._pids:
            self.ran = ran if pids else None
            self.worked = now.moment
        self._pids = pids
        if now.active:
            self.ran = now.moment - now.idle

    def is_strange(self, moment: int) -> bool:
        """Return True if a kernel ran in the last minute while the driver listed no process."""
        return self._strange is not None and moment - self._strange < accounting.HELD_AFTER


class JobDevice:
    """One device: the jobs that hold it, its last reading, and sums of its time."""

    def __init__(self, dims: Dimensions, last: DeviceReading | None = None) -> None:
        """`last`: an earlier reading of the same device, after which it was not read for a while."""
        self.dims = dims
        """The device's dimensions. Its UUID changes if the device is replaced."""
        self.source = ""
        """The collector that reads the device."""
        self.activity = DeviceActivity(dims, basis="")
        self.held: dict[JobKey, Held] = {}
        self.last = last
        self._has_resumed = False
        """True if `last` is from an earlier run of the agent."""
        self.is_begun = last is not None
        """True once the device was read in this run together with facts about jobs."""
        self.unclear_since = 0
        """Time of the first reading that did not say who holds the device; 0 if the last reading said it."""
        self.missed = 0
        """Consecutive readings without this device, although other devices answered."""
        self.state, self.cause, self.doubt = UNSEEN, "", ""
        """Its state, why it is idle, and why nobody knows who holds it ("" if that is known)."""
        self.work: float | None = None
        """Share of the last minutes in which kernels ran for the present jobs; None if unknown."""
        self.spent, self.kernels = Spent(), Kernels()

    @property
    def sharing(self) -> str:
        """Return how the shares of the jobs were measured; "" if one job has the whole device."""
        return next((holder.basis for holder in self.held.values()), "")

    def resume(self, moment: int, holding: dict[JobKey, Held]) -> None:
        """Continue from the last reading of an earlier run of the agent."""
        holders = {key: holder.holding for key, holder in holding.items()}
        self.held, self.last, self._has_resumed = holding, DeviceReading(moment, holders, paused=True), True

    def rests(self, activity: DeviceActivity, moment: int, interval: int) -> bool:
        """Take a reading of an empty device that was free and did no work since; return False if it is not so."""
        last, before = self.last, self.activity
        is_idle = activity.active == 0 and not activity.lost and activity.slices == before.slices
        was_free = self.state == FREE and self.cause == "no_process" and activity.basis == before.basis
        if last is None or not (is_idle and was_free) or last.paused or moment <= last.moment:
            return False
        self.spend(moment - last.moment)
        self.last, self.missed, self.kernels.worked = DeviceReading(moment, {}, 0.0), 0, moment
        self.spent.idle[self.cause] += round(min(moment - last.moment, MOST_INTERVALS * interval) * before.slices)
        return True

    def take(
        self, activity: DeviceActivity, use: Use, evidence: Evidence, interval: int, values: Mapping[str, float]
    ) -> dict[JobKey, dict[str, int]]:
        """Take a reading; return the time since the last one by job and state (ns). An older reading is ignored."""
        if self.last and use.moment <= self.last.moment:
            return {}
        holding = holders_of(use, has_worked=bool(activity.active))
        if use.keeps or (activity.lost and not holding):  # a lost device lists no processes, but they may live
            stay = {
                key: holder for key, holder in self.held.items()
                if key in use.alive or (use.keeps and not holder.owner.cgroup)
            }  # fmt: skip
            holding = stay | holding
        holders = {key: holder.holding for key, holder in holding.items()}
        idle = round((activity.idle or 0.0) * SECOND)
        now = DeviceReading(use.moment, holders, activity.active, idle, activity.throttled, activity.lost)
        before, ran = self.last, now.moment if self.last is None else None
        if before and self._has_resumed:
            last, (before, now) = before, accounting.across(before, now)
            stayed = (last.holders[key].ran for key in before.holders)
            ran = max((time for time in stayed if time is not None), default=None)
            self._has_resumed = False
        now = accounting.following(before, now)
        self._average(before, now)
        self.held, self.last, self.activity, self.missed = holding, now, activity, 0
        self.kernels.take(now, use, ran)
        self.kernels.worked = use.moment if evidence.works else self.kernels.worked
        self.cause = causes.cause(self._situation(use, now, evidence))
        self.doubt = "" if holding or now.lost else self._doubt(use, now)
        charged = {} if before is None else accounting.charges(before, now, interval)
        self.state = _state(now, charged, self.doubt)
        if before:
            elapsed = 0 if before.paused else min(now.moment - before.moment, MOST_INTERVALS * interval)
            self._count(before, now, elapsed, causes.kind_of_work(values), evidence)
        return charged

    def _situation(self, use: Use, now: DeviceReading, evidence: Evidence) -> Situation:
        """Collect all that decides why the device is idle."""
        ran, roster = self.kernels.ran, use.roster
        is_listed = bool(roster.pids) or (use.processes is not None and not self.kernels.is_strange(now.moment))
        return Situation(
            evidence, now.lost, now.active is not None and is_listed and not roster.has_strangers,
            bool(roster.pids),
            ran is not None, 0 if ran is None else now.moment - ran, now.moment - self.kernels.worked, self.cause,
        )  # fmt: skip

    def _doubt(self, use: Use, now: DeviceReading) -> str:
        """Return why nobody knows whether a job holds the device; "" if it is known that none does."""
        if use.processes is None:
            return use.doubt or "its processes are not listed"
        if use.roster.pids:
            return f"process {min(use.roster.pids)} has no owner in /proc"
        if now.active is None:
            return "whether kernels run is not known"
        return "kernels ran and the driver lists no process" if self.kernels.is_strange(now.moment) else use.doubt

    def stop(self, why: str) -> None:
        """Mark the device as unseen: nobody reads it now, for the reason `why`."""
        if self.state != LOST:
            self.state, self.doubt = UNSEEN, "" if self.held else why

    def _average(self, before: DeviceReading | None, now: DeviceReading) -> None:
        """Add this reading to the mean of the device's work; start a new mean if the jobs have changed."""
        if before is None or now.active is None or before.holders.keys() != now.holders.keys():
            self.work = now.active
        elif self.work is not None:
            weight = min(1.0, (now.moment - before.moment) / AVERAGED)
            self.work += (now.active - self.work) * weight

    def _count(
        self, before: DeviceReading, now: DeviceReading, elapsed: int, kind: str, evidence: Evidence = NOTHING
    ) -> None:
        weighted, spent = elapsed * self.activity.slices, self.spent
        spent.allocated += round(accounting.allocated(before, now) * self.activity.slices)
        active = 0.0 if now.lost or now.active is None else now.active
        if idle := round(weighted * (1 - active)):
            spent.idle[self.cause] += idle
            for name in SIGNS.get(self.cause, ()):
                spent.shown[name] += idle * float(getattr(evidence, name) or 0.0)
        if busy := round(weighted * active):
            spent.busy[kind] += busy

    def owe(self, activity: DeviceActivity, moment: int, interval: int, watts: float | None = None) -> None:
        """Add the energy since the last reading, by `watts` if the activity has none."""
        energy, last = activity.energy, self.last
        if last and not last.paused:
            elapsed = max(0, min(moment - last.moment, MOST_INTERVALS * interval))
            self.spent.owed += elapsed * (watts or 0.0) if energy is None else energy * SECOND

    def spend(self, elapsed: int, charged: Mapping[JobKey, Mapping[str, int]] = {}) -> float:
        """Divide the energy that is owed by the time (ns) in each state; return the power (W)."""
        times, state = accounting.added(charged.values()), FREE if self.held else self.state
        times[state] = times.get(state, 0) + max(0, elapsed - sum(times.values()))
        power = self.spent.owed / max(1, total := sum(times.values()))
        self.spent.owed -= power * total  # without any time, the next reading divides it
        for state, time in times.items():
            if time:
                self.spent.energy[state] += round(power * time)
        return power

    def release(self, jobs: Container[JobKey]) -> None:
        """Remove jobs that ended while the device did not answer; they are charged until its last reading."""
        self.held = {key: holder for key, holder in self.held.items() if key not in jobs}
        if self.last:
            holders = {key: holder for key, holder in self.last.holders.items() if key in self.held}
            self.last = self.last._replace(holders=holders)

    def lose(self, last: DeviceReading, moment: int, interval: int) -> dict[JobKey, dict[str, int]]:
        """Mark a device that does not answer as lost; return the time since its last reading by job and state (ns)."""
        self.last = last._replace(moment=moment, lost=True, active=None)
        self.state, self.cause, self.doubt = LOST, "lost", ""
        self._count(last, self.last, moment - last.moment, "unknown")
        return accounting.charges(last, self.last, interval)


def _state(now: DeviceReading, charged: Mapping[JobKey, Mapping[str, int]], doubt: str) -> str:
    """Return the state that took most of the jobs' time; without a job `free`, or `unknown` if that is in doubt."""
    if now.lost or not now.holders:
        return LOST if now.lost else UNKNOWN if doubt else FREE
    total = accounting.added(charged[key] for key in charged.keys() & now.holders.keys())
    worked = {state: total.get(state, 0) for state in (accounting.BUSY, accounting.THROTTLED)}
    if 2 * sum(worked.values()) >= sum(total.values()) > 0:
        total = worked  # busy and throttled together took most of the time, so one of them is the state
    return max(total, key=total.__getitem__, default=UNSEEN)
