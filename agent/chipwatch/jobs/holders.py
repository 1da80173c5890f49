"""All devices and the jobs that hold them, from reading to reading; charges each job for its share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Final

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.facts import DeviceActivity, DeviceFacts
from chipwatch.contract.owner import JobFacts, Owner
from chipwatch.jobs.accounting import LOST, MOST_INTERVALS, SECOND, DeviceReading, Holding, JobKey
from chipwatch.jobs.device import JobDevice, plausible
from chipwatch.jobs.device_key import DeviceKey, device_of
from chipwatch.jobs.evidence import FALLEN, OFU, STATE, DevicePoints, Evidences, ValuesByName, from_points
from chipwatch.jobs.holding import PROCESS, Held, Rosters, UnnamedDevices, Use
from chipwatch.jobs.ledger import Hold, JobLedger

MISSED: Final = 3
"""Consecutive readings without a device, although others answer, after which it counts as lost."""
STALE: Final = 60 * SECOND
"""Time (ns) for which jobs keep a device if no reading says who holds it."""


class Holders:
    """Finds the jobs that hold each device, and adds its time and energy to their accounts."""

    def __init__(self, ledger: JobLedger, interval: int) -> None:
        """`interval`: ns between two ticks."""
        self.devices: dict[DeviceKey, JobDevice] = {}
        self.jobs: JobFacts | None = None
        """The last reading of jobs."""
        self.alive: set[JobKey] = set()
        """Jobs with a cgroup, an allocated device, or a process on a device."""
        self.keys: set[JobKey] = set()
        """Jobs that hold a device."""
        self._ledger, self._clocks, self._interval = ledger, ledger.clocks, interval
        self._evidences, self._points, self._unnamed = Evidences(), DevicePoints(), UnnamedDevices()
        self._is_begun = self._is_late = False
        """True once devices and jobs were read; True if the reading of jobs is stale."""
        self._keys: tuple[Mapping[int, Owner], set[JobKey]] = {}, set()
        """The owners of processes in the last reading of jobs, and their jobs."""
        self._rosters = defaultdict[str, Rosters](Rosters)
        """The jobs on devices, by collector."""
        self._forgotten = 0
        """Time (ns) for which jobs held partitions that no longer exist."""

    def of(self, key: JobKey) -> dict[DeviceKey, JobDevice]:
        """Return the devices that a job holds."""
        return {place: device for place, device in self.devices.items() if key in device.held}

    def owners_of(self, place: DeviceKey) -> list[Owner]:
        """Return who holds a device or a part of it; of a part that is not read itself, who holds the device."""
        near = [of for key, of in self.devices.items() if place and (key[: len(place)] == place or key == place[:1])]
        return [*{key: held.owner for device in near for key, held in device.held.items()}.values()]

    @property
    def allocated(self) -> int:
        """Time (ns) in which jobs held devices; it must equal the time that was charged to them."""
        return self._forgotten + sum(device.spent.allocated for device in self.devices.values())

    @property
    def missing(self) -> dict[str, str]:
        """Return each thing that is unknown, and why."""
        late = {"holders": "the collector jobs has not answered for over two intervals"} if self._is_late else {}
        unnamed = {"devices": self._unnamed.text} if self._unnamed.text else {}
        return {**(self.jobs.missing if self.jobs else {}), **late, **unnamed}

    @property
    def holds(self) -> dict[JobKey, dict[str, Hold]]:
        """Return the devices of each job, to save them for the next run."""
        holds: dict[JobKey, dict[str, Hold]] = {}
        offset = self._clocks.offset
        for place, device in self.devices.items():
            if (last := device.last) and last.holders:
                name = _name(place)
                for key, holding in last.holders.items():
                    ran = None if holding.ran is None else max(0, offset + holding.ran)
                    holds.setdefault(key, {})[name] = Hold(max(0, offset + last.moment), ran)
        return holds

    def take(self, facts: Sequence[object], tick: Sequence[Datapoint], at: int) -> None:
        """Charge the jobs for the time up to the readings of a tick."""
        devices = (fact for fact in facts if isinstance(fact, DeviceFacts))
        told = (fact for fact in devices if fact.processes is not None or fact.activity)
        readings = sorted(told, key=attrgetter("moment"))
        for fact in facts:
            if isinstance(fact, JobFacts):
                self.jobs = fact
                self._evidences.take(fact)
                if fact.owners != self._keys[0]:
                    self._keys = fact.owners, {owner.key for owner in fact.owners.values()}
                given, used = (item.owner.key for item in fact.allocations), (item.owner.key for item in fact.uses)
                self.alive = self._keys[1].union(given, used)
                for use in fact.uses:
                    self._ledger.note(use)
        self._unnamed.take(readings, self.jobs)
        self._clocks.begin(at, self._interval)
        if readings:
            moment, stopped = readings[-1].moment, self._clocks.stopped
            if stopped is not None and not 0 <= at - stopped <= moment:  # a boot, or a clock that was ahead
                self._clocks.earlier = None
                self._ledger.begin_again()
            if self.jobs and not self._is_begun:
                self._is_begun = True
                self._ledger.begin(at)
            self._clocks.offset = at - moment
        self._charge_all(readings, self._points.take(tick) if readings else {}, at)
        for device in self.devices.values():
            if device.last and at - self._clocks.offset - device.last.moment > MOST_INTERVALS * self._interval:
                device.stop("it was not read for over two intervals")
        self.keys = {key for device in self.devices.values() for key in device.held}

    def _charge_all(self, readings: Iterable[DeviceFacts], values: Mapping[DeviceKey, ValuesByName], at: int) -> None:
        answered, moments = set[DeviceKey](), dict[str, int]()
        for reading in readings:
            most = MOST_INTERVALS * self._interval
            self._is_late = self.jobs is not None and reading.moment - self.jobs.moment > most
            if self._is_late:  # the next reading charges the time
                for activity in reading.activity:
                    if device := self.devices.get(device_of(activity.dims)):
                        device.owe(plausible(activity), reading.moment, self._interval)
                continue
            if mine := self._take(reading, values, at):
                answered |= mine
                moments[reading.source] = reading.moment
        if answered and self.jobs and not any(device.unclear_since for device in self.devices.values()):
            self._clocks.stopped = None
        self._pass_over(answered, moments, at)

    def _pass_over(self, answered: Collection[DeviceKey], moments: Mapping[str, int], at: int) -> None:
        """Handle the devices that did not answer; `moments`: time of each collector's last reading."""
        for place in self.devices.keys() - answered:
            device = self.devices[place]
            if self.jobs and "jobs" not in self.jobs.missing:  # else `max_jobs` left out jobs, which may be alive
                gone = ((key, holder.owner) for key, holder in device.held.items() if key not in self.alive)
                device.release({key for key, owner in gone if owner.cgroup or device.missed >= MISSED})
            if (moment := moments.get(device.source)) is not None:
                self._miss(place, answered, moment, at)

    def _take(self, reading: DeviceFacts, values: Mapping[DeviceKey, ValuesByName], at: int) -> set[DeviceKey]:
        """Charge the reading of one collector; return its devices."""
        jobs, answered, rosters = self.jobs, set(), self._rosters[reading.source]
        rosters.take(reading, self._keys[0], jobs.allocations if jobs else ())
        read = {place[:1]: device.last.moment for place, device in self.devices.items() if device.last}
        unread = self._unnamed.text or _unread(jobs)
        for activity in reading.activity or from_points(reading, values):
            place = device_of(activity.dims)
            answered.add(place)
            if (device := self.devices.get(place)) is None:
                begun = read.get(place[:1])  # the device was partitioned differently until now
                last = None if begun is None else DeviceReading(begun, {}, paused=True)
                device = self.devices[place] = JobDevice(activity.dims, last)
            device.dims, device.source = activity.dims, reading.source
            roster = rosters[place]
            figures: ValuesByName = values.get(place, {})
            reported = plausible(activity)
            device.owe(reported, reading.moment, self._interval, figures.get("gpu.power"))
            doubt, is_fallen = activity.unlisted or unread, FALLEN in figures
            is_empty = not (roster.jobs or roster.pids or doubt or is_fallen or reading.processes is None)
            if not (is_empty and device.rests(activity, reading.moment, self._interval)):
                listed = None if activity.unlisted and not roster.pids else reading.processes
                use = Use(listed, roster, self.alive, reading.moment, at, doubt=doubt)
                if is_fallen:
                    reported = reported._replace(lost=True)
                after = self._following(place, use, jobs, lost=reported.lost) if jobs else use
                if after:
                    self._charge(device, reported, after, figures)
            if values.get(place[:1], {}).get(STATE) == 0 and not device.held:
                device.state, device.doubt = LOST, ""
        return answered

    def _following(self, place: DeviceKey, use: Use, jobs: JobFacts, *, lost: bool) -> Use | None:
        """Continue a device's use from its last reading; None if nobody knows yet who holds it after a restart."""
        device = self.devices[place]
        goes_on = self._ledger.has_held or self._clocks.stopped is not None
        is_unclear = not lost and self._is_unclear(place, use, jobs)
        if is_unclear and goes_on and not device.is_begun:
            device.stop("its processes are not known yet")
            return None  # the next reading charges the time since the stop
        if goes_on:
            self._resume(place, use.moment, use.at)
        device.is_begun = True
        return use._replace(keeps=is_unclear)

    def _is_unclear(self, place: DeviceKey, use: Use, jobs: JobFacts) -> bool:
        """
        Return True if a reading cannot say who holds the device; at most for a minute.

        Then its processes were not listed, or are newer than the reading of jobs, or the kubelet did not answer.
        """
        device, followed = self.devices[place], jobs.followed
        is_new = followed is not None and not use.roster.pids.issubset(followed)
        if is_new or use.processes is None or "kubelet" in jobs.missing:
            earlier = device.held.keys() | {owner.key for owner, _ in self._ledger.holds(_name(place))}
            now = use.roster.jobs if earlier or is_new else {}
            if earlier - now.keys() or (is_new and not now):
                device.unclear_since = device.unclear_since or use.moment
                return use.moment - device.unclear_since < STALE
        device.unclear_since = 0
        return False

    def _resume(self, place: DeviceKey, moment: int, at: int) -> None:
        """Continue the charges of a device from its last reading in an earlier run of the agent."""
        device, clocks = self.devices[place], self._clocks
        holds = self._ledger.resume(_name(place))
        if device.is_begun or (not holds and clocks.stopped is None):
            return  # the device was read in this run: another agent held the state folder when this one started
        last = max((hold.last for _, hold in holds), default=clocks.stopped or 0)
        begun = max(0, clocks.moment_of(last, at, moment))  # not before the last boot
        holding = {}
        for owner, hold in holds:
            ran = None if hold.ran is None else clocks.moment_of(hold.ran, at, moment)
            holding[owner.key] = Held(owner, PROCESS, Holding(begun, ran=ran), None)
        device.resume(begun, holding)

    def _charge(self, device: JobDevice, activity: DeviceActivity, use: Use, values: ValuesByName) -> None:
        """Take a reading of one device; charge its jobs for the time, and for energy in proportion to it."""
        before, last = device.held, device.last
        charged = device.take(activity, use, self._evidences.of(before, use.roster.pids), self._interval, values)
        elapsed = use.moment - last.moment if last and not last.paused else 0
        power = device.spend(elapsed, charged)
        holders, is_resumed = {**before, **device.held}, device.last is not last and bool(last and last.paused)
        self._book(device, holders, charged, use.at, power=power, values=values, is_resumed=is_resumed)

    def _book(
        self, device: JobDevice, holders: Mapping[JobKey, Held], charged: Mapping[JobKey, Mapping[str, int]], at: int,
        *, power: float = 0.0, values: Mapping[str, float] = {}, is_resumed: bool = False,
    ) -> None:  # fmt: skip
        """
        Add the time since the last reading to the accounts of `holders`: jobs that hold the device, or held it then.

        `charged`: nanoseconds by job and state; `power`: watts; `values`: readings by metric;
        `is_resumed`: this is the first reading of the run.
        """
        ticked = self._clocks.ticked
        percent = next((values[name] for name in OFU if name in values and len(charged) == 1), None)
        for key, holder in holders.items():
            states, earlier = charged.get(key, {}), self._ledger.accounts.get(key)
            seen = earlier.seen if earlier and not states and key not in device.held else at
            account = self._ledger.account(holder.owner, at)
            account.seen = seen
            self._ledger.charged += round(sum(states.values()) * device.activity.slices)
            if is_resumed and not account.sums:
                self._ledger.open_at_zero(account, ticked)
            account.charge(states, device.activity.slices, device.cause, ticked, power=power, percent=percent)
            if key in device.held:
                is_shared = len(device.held) > 1
                memory = holder.memory if holder.memory is not None or is_shared else values.get("gpu.memory.used")
                account.memory, account.end_unseen = max(account.memory, memory or 0.0), 0

    def _miss(self, place: DeviceKey, answered: Collection[DeviceKey], moment: int, at: int) -> None:
        """Count a missed reading. The third makes a device lost. A partition that no longer exists is forgotten."""
        device = self.devices[place]
        device.missed += 1
        if any(place[:1] == other[:1] for other in answered):  # the device was partitioned differently
            self._forgotten += self.devices.pop(place).spent.allocated
        elif device.missed >= MISSED and device.last and moment > device.last.moment:
            self._book(device, device.held, device.lose(device.last, moment, self._interval), at)


def _unread(jobs: JobFacts | None) -> str:
    """Return why a job may hold a device although it has no listed process: a source of jobs cannot be read."""
    told = jobs.missing if jobs else {"pids": "the collector jobs does not run, or has not answered yet"}
    return next((told[what] for what in ("pids", "mapping", "kubelet") if what in told), "")


def _name(place: DeviceKey) -> str:
    return ",".join(f"{key}={number}" for key, number in place)
