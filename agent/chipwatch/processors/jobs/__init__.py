"""Charges the time of accelerators to jobs, by state, and finds why accelerators are idle; see docs/jobs.md."""

from __future__ import annotations

import logging
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, Final, Literal

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.extensions import DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.owner import Allocation, JobCollectives, JobFacts, Owner
from chipwatch.contract.processor import Processor
from chipwatch.processors.jobs.accounting import (
    LOST,
    MOST_INTERVALS,
    SECOND,
    STALLED,
    STATES,
    UNSEEN,
    DeviceReading,
    Holding,
    Key,
)
from chipwatch.processors.jobs.device import (
    PROCESS,
    Held,
    JobDevice,
    Place,
    UnnamedDevices,
    Use,
    holders_of,
    place_of,
    plausible,
)
from chipwatch.processors.jobs.evidence import FALLEN, STATE, DevicePoints, Evidences, Values, from_points
from chipwatch.processors.jobs.ledger import CAUSE, OTHER, Account, Hold, JobLedger
from chipwatch.processors.jobs.metrics import (
    ALL,
    BUSY,
    COST,
    COUNT,
    ENERGY,
    GPU_TIME,
    GPUS,
    HELD,
    IDLE,
    IMBALANCE,
    JOB_IDLE,
    JOBS,
    MEMORY,
)
from chipwatch.processors.jobs.reasons import Figure, Figures, Reasons, reasons
from chipwatch.processors.jobs.recent import LEAST_PEERS, MOST, DeviceMoment, JobMoment, RecentMoments, of_ranks

log: Final = logging.getLogger(__name__)
MISSED: Final = 3
"""Readings in a row that a device misses, while others answer, until it counts as lost."""
HOUR: Final = 3600
SAVED: Final = 60 * SECOND
"""Time after which the state is saved again where no job holds a device."""
STALE: Final = 60 * SECOND
"""Time for which facts of a collector count that is late, and for which holders go on without them."""


class JobsProcessor(Processor):
    """The jobs that hold accelerators, the activity of each accelerator, and the cause of idle time."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The dimensions of jobs, and the price of an accelerator."""

        max_jobs: int = 64
        """Jobs that have separate series at one time; others are added up as the job `other`."""
        dimensions: tuple[Literal["user"], ...] = ()
        """Dimensions of each job in addition to job, partition and namespace: user."""
        dollars_per_hour: float | None = None
        """Price of one accelerator for an hour; with it jobs have a cost."""
        interval: float = 5.0
        """Seconds between two ticks; set by --interval."""

    metrics: Sequence[Metric] = ALL
    facts: Sequence[object] = ()
    needs_devices = True
    append: Callable[[Sequence[Mapping[str, object]]], None] | None = None
    note: Callable[[str, str, bool], None] | None = None

    def __init__(self, config: Config) -> None:
        self._config = config
        if config.dollars_per_hour is None:
            self.metrics = tuple(metric for metric in self.metrics if metric is not COST)
        self.job_dims = config.dimensions
        """Dimensions of points of jobs that their metrics do not declare."""
        self._interval, self._with_user = round(config.interval * SECOND), "user" in config.dimensions
        self._lock = threading.Lock()
        """Held while a tick changes what `answer` and `saved` read."""
        self._devices: dict[Place, JobDevice] = {}
        self._ledger = JobLedger(config.max_jobs)
        self._evidences, self._unnamed = Evidences(), UnnamedDevices()
        self._jobs: JobFacts | None = None
        self._alive: set[Key] = set()
        """Jobs that have a cgroup, a device or a process on one."""
        self._is_late = False
        """True if the reading of jobs is stale."""
        self._forgotten = 0
        """Held time of partitions that no longer exist (ns)."""
        self._points = DevicePoints()
        self._recent = RecentMoments()
        self._collectives: Sequence[JobCollectives] = ()
        self._asked = 0
        """Time of the tick that brought these."""
        self._pids: dict[Key, dict[int, str]] = {}
        """The processes of each job, and their devices."""
        self._listings: dict[str, DeviceFacts] = {}
        """The last list of processes of each collector, for a minute."""
        self._causes: dict[Key, tuple[str, str]] = {}
        """The last cause of each job, and the last one that was logged."""
        self._before = 0
        """Time of the tick before this one (ns since the epoch)."""
        self._counts: dict[Dimensions, float] = {}
        """Accelerators by state and cause."""
        self._starts: dict[tuple[Place, str], int] = {}
        self._problem = ""
        """Why the last record could not be written."""
        self._stopped: int | None = None
        """Time of the last tick of an earlier process (ns since the epoch), until devices are read."""
        self._is_begun = False
        """True once devices and jobs were read."""
        self._offset = 0
        """From the clock of readings to ns since the epoch."""
        self._earlier: int | None = None
        """The same in an earlier process, unless the machine was booted since."""
        self._saved_at: int | None = None
        """Time of the tick whose state was saved last (ns since the epoch); None: it has changed since."""

    def derive(self, tick: Sequence[Datapoint], at: int) -> Iterable[Datapoint]:
        """Charge the time since the last tick; yield the family of each job, and the idle and busy time."""
        with self._lock:
            return [*self._derive(tick, at)]

    def _derive(self, tick: Sequence[Datapoint], at: int) -> Iterator[Datapoint]:
        about = [fact for fact in self.facts if isinstance(fact, DeviceFacts)]
        used = (fact for fact in about if fact.processes is not None or fact.activity)
        readings = sorted(used, key=lambda fact: fact.moment)
        for facts in self.facts:
            if isinstance(facts, JobFacts):
                self._know(facts)
        self._unnamed.take(readings, self._jobs)
        if not self._before:
            self._before = at if self._stopped is None else min(at, max(self._stopped, at - self._interval))
        self._begin(readings, at)
        values = self._points.take(tick) if readings else {}
        answered: set[Place] = set()
        moments: dict[str, int] = {}
        """When each collector last read a device."""
        for reading in readings:
            most = MOST_INTERVALS * self._interval
            self._is_late = self._jobs is not None and reading.moment - self._jobs.moment > most
            if not self._is_late:  # else this waits for the next reading of jobs
                mine = self._take(reading, values, at)
                answered |= mine
                moments |= {reading.source: reading.moment} if mine else {}
        if answered and self._jobs and not any(device.unclear_since for device in self._devices.values()):
            self._stopped = None
        if readings:
            self._offset = at - readings[-1].moment
        missing = self._devices.keys() - answered
        self._release(missing)
        for place in missing:
            if (moment := moments.get(self._devices[place].source)) is not None:
                self._miss(place, answered, moment, at)
        holders = {key for device in self._devices.values() for key in device.held}
        self._record(at)
        self._remember(tick, about, holders, at)
        self._saved_at = None if holders else self._saved_at
        ended = self._ledger.end(holders if len(holders) <= self._config.max_jobs else holders | {OTHER.key}, at)
        self._saved_at = None if ended else self._saved_at
        yield from self._of_jobs(ended, at)
        yield from self._of_devices(at)
        self._before = at

    def _begin(self, readings: Sequence[DeviceFacts], at: int) -> None:
        """Compare what an earlier run left with the first readings."""
        if readings and self._stopped is not None and not 0 <= at - self._stopped <= readings[-1].moment:
            self._earlier = None
            self._ledger.begin_again()  # of a boot that is over, or of a clock that was ahead
        if readings and self._jobs and not self._is_begun:
            self._is_begun = True
            self._ledger.begin(at)

    def _remember(
        self, tick: Sequence[Datapoint], about: Iterable[DeviceFacts], holders: Iterable[Key], at: int
    ) -> None:
        """Keep this tick as evidence, and log where the cause of a job's loss has changed."""
        listings = {**self._listings, **{facts.source: facts for facts in about if facts.processes is not None}}
        self._listings = {
            source: facts for source, facts in listings.items() if at - self._offset - facts.moment < STALE
        }
        if not self._recent.is_due(at):
            return
        collectives = [fact for fact in self.facts if isinstance(fact, JobCollectives)]
        if collectives or abs(at - self._asked) > STALE:
            self._collectives, self._asked = collectives, at
        self._pids = {}
        owners = self._jobs.owners if self._jobs else {}
        for process in chain.from_iterable(facts.processes or () for facts in self._listings.values()):
            if owner := owners.get(process.pid):
                self._pids.setdefault(owner.key, {})[process.pid] = ".".join(
                    number for _, number in place_of(process.dims)
                )
        moments = {}
        for key in holders & self._ledger.accounts.keys():
            account, busy, waited = self._ledger.accounts[key], Counter[str](), Counter[str]()
            for device in self._devices.values():
                busy.update(device.busy if key in device.held else {})
                waited.update({**device.idle, **device.shown} if key in device.held else {})
            transfers = self._jobs.transfers if self._jobs else {}
            moments[key] = JobMoment(
                {**account.times}, {**account.idle}, busy, waited, self._device_moments(key),
                {pid: transfers[pid] for pid in self._pids.get(key, {}) if pid in transfers},
            )  # fmt: skip
        self._recent.take(at, tick, [item for facts in about for item in facts.activity], moments)
        for key in moments:
            why = self._why(key)
            cause = why.causes[0].cause if why.causes else ""
            before, self._causes[key] = self._causes.get(key, ("", "")), (cause, self._causes.get(key, ("", ""))[1])
            if cause == before[0] != before[1] and (cause or why.nothing):
                self._causes[key] = cause, cause
                log.info("job %s: %s", key[-1], why.sentence, extra={"who": "jobs"})
                if self.note:
                    self.note(key[-1], why.sentence, bool(cause))
        self._causes = {key: self._causes[key] for key in moments}

    def _device_moments(self, key: Key) -> dict[Place, DeviceMoment]:
        """Return the figures by which the devices of a job are compared; none where there are too few."""
        devices = {place: device for place, device in self._devices.items() if key in device.held}
        if len(devices) < LEAST_PEERS or (jobs := self._jobs) is None:
            return {}
        pid_of = {label: pid for pid, label in self._pids.get(key, {}).items()}
        moments = {}
        for place, device in devices.items():
            pid = pid_of.get(".".join(number for _, number in place), 0)
            late = device.idle["data"] + device.idle["host"]
            moments[place] = DeviceMoment(
                device.allocated, late, device.busy["waiting"], pid, pid in jobs.blocked, jobs.delays.get(pid, 0.0)
            )
        return moments

    def _why(self, key: Key) -> Reasons:
        """Return why a job is slow."""
        places = [place for place, device in self._devices.items() if key in device.held]
        stopped = {pid: gpu for pid, gpu in self._pids.get(key, {}).items() if self._jobs and pid in self._jobs.stopped}
        named = ", ".join(f"{pid} on gpu {gpu}" for pid, gpu in [*stopped.items()][:MOST])
        reports = [report for report in self._collectives if report.owner.key == key]
        unknown = [f"{what} unknown: {why}" for what, why in self._missing().items()]
        unknown += [report.problem for report in reports if report.problem]
        reports = [report for report in reports if not report.problem]
        span = self._recent.of(key)
        every = [Figure("stopped", len(stopped), named), *of_ranks(reports), *span.figures(places)]
        numbers = {figure.name: figure.number for figure in every}
        words = {figure.name: figure.word for figure in every if figure.word}
        gpus = sum(self._devices[place].slices for place in places)
        return reasons(Figures(numbers, words, span.seconds, gpus, sum(report.ranks for report in reports), unknown))

    def _know(self, facts: JobFacts) -> None:
        self._jobs = facts
        self._evidences.take(facts)
        given, used = (fact.owner for fact in facts.allocations), (fact.owner for fact in facts.uses)
        self._alive = {owner.key for owner in chain(facts.owners.values(), given, used)}
        for use in facts.uses:
            if account := self._ledger.accounts.get(use.owner.key):
                account.cpu = account.cpu if use.cpu is None else use.cpu
                account.cpus = account.cpus if use.cores is None else use.cores
                account.host_memory = max(account.host_memory or 0, use.memory_max or 0) or None

    def _record(self, at: int) -> None:
        """Write the records of jobs that have ended; after an error, try again in each tick."""
        if self.append is None or self._jobs is None or not (ended := self._ledger.ended(self._alive, at)):
            return
        try:
            self.append([of_job(account, self._config.dollars_per_hour) for account in ended])
            self._problem = ""
        except OSError as problem:
            if self._problem != (text := problem.strerror or str(problem)):
                log.warning("jobs: records of jobs are not written: %s", text, extra={"who": "jobs"})
            self._problem = text
            return
        self._saved_at = None
        for account in ended:
            account.recorded = account.seen

    def _take(self, reading: DeviceFacts, values: Mapping[Place, Values], at: int) -> set[Place]:
        """Charge the reading of one collector; return the devices in it."""
        jobs = self._jobs
        processes: dict[Place, list[DeviceProcess]] = {}
        for process in reading.processes or ():
            processes.setdefault(place_of(process.dims), []).append(process)
        given: dict[Place, list[Allocation]] = {}
        for item in jobs.allocations if jobs else ():
            if (dims := reading.names.get(item.device)) is not None:
                given.setdefault(place_of(dims), []).append(item)
        answered = set()
        read = {place[:1]: device.last.moment for place, device in self._devices.items() if device.last}
        for activity in reading.activity or from_points(reading, values):
            place = place_of(activity.dims)
            answered.add(place)
            device = self._devices.get(place)
            if device is None:  # perhaps a part of a device that was divided otherwise until now
                begun = read.get(place[:1])
                last = None if begun is None else DeviceReading(begun, {}, paused=True)
                device = self._devices[place] = JobDevice(activity.dims, last)
            mine, granted = processes.get(place, ()), given.get(place, ())
            if len(place) > 1:  # parts have the processes and allocations of the whole
                mine, granted = [*mine, *processes.get(place[:1], ())], [*granted, *given.get(place[:1], ())]
            listed = None if reading.processes is None or (activity.unlisted and not mine) else mine
            use = Use(
                listed, jobs.owners if jobs else {}, granted, self._alive, reading.moment, at,
                doubt=activity.unlisted or self._unnamed.text or _unread(jobs),
            )  # fmt: skip
            figures: Values = values.get(place, {})
            device.dims, device.source = activity.dims, reading.source
            reported = plausible(activity)
            if FALLEN in figures:
                reported = reported._replace(lost=True)
            after = self._following(place, device, use, jobs, lost=reported.lost) if jobs else use
            if after:
                self._charge(device, reported, after, figures, at)
            if values.get(place[:1], {}).get(STATE) == 0 and not device.held:
                device.state, device.doubt = LOST, ""
        return answered

    def _following(self, place: Place, device: JobDevice, use: Use, jobs: JobFacts, *, lost: bool) -> Use | None:
        """Return the use of a device after the last one; None if it is unclear since the agent began, and waits."""
        goes_on = self._ledger.has_held or self._stopped is not None
        is_unclear = not lost and self._is_unclear(place, device, use, jobs)
        if is_unclear and goes_on and not device.is_begun:
            device.stop("its processes are not known yet")
            return None  # the next reading charges the time since the stop
        if goes_on:
            self._resume(place, device, use.moment, use.at)
        device.is_begun = True
        return use._replace(keeps=is_unclear)

    def _is_unclear(self, place: Place, device: JobDevice, use: Use, jobs: JobFacts) -> bool:
        """
        Return whether a reading does not say who holds the device, for at most a minute.

        Its processes were not listed, or are newer than the reading of jobs, or the kubelet did not answer.
        """
        followed = jobs.followed
        is_new = followed is not None and any(process.pid not in followed for process in use.processes or ())
        if is_new or use.processes is None or "kubelet" in jobs.missing:
            earlier = device.held.keys() | {owner.key for owner, _ in self._ledger.holds(_name(place))}
            now = holders_of(use) if earlier or is_new else {}
            if earlier - now.keys() or (is_new and not now):
                device.unclear_since = device.unclear_since or use.moment
                return use.moment - device.unclear_since < STALE
        device.unclear_since = 0
        return False

    def _resume(self, place: Place, device: JobDevice, moment: int, at: int) -> None:
        """Continue the charges of a device from its last reading before the agent stopped."""
        holds = self._ledger.resume(_name(place))
        if device.is_begun or (not holds and self._stopped is None):
            return  # it was read since then: the state folder was another agent's when this one started

        def then(when: int) -> int:
            return min(moment - (at - when) if self._earlier is None else when - self._earlier, moment - 1)

        begun = max(0, then(max((hold.last for _, hold in holds), default=self._stopped or 0)))  # not before a boot
        device.resume(
            begun,
            {
                owner.key: Held(owner, PROCESS, Holding(begun, ran=None if hold.ran is None else then(hold.ran)), None)
                for owner, hold in holds
            },
        )

    def _charge(self, device: JobDevice, activity: DeviceActivity, use: Use, values: Values, at: int) -> None:
        """Book time and energy on the accounts of the jobs; energy by the time that each was charged."""
        before, last = device.held, device.last
        evidence = self._evidences.of(before, [process.pid for process in use.processes or ()])
        charged = device.take(activity, use, evidence, self._interval, values)
        elapsed = use.moment - last.moment if last and not last.paused else 0
        energy = activity.energy
        if energy is None and "gpu.power" in values:
            energy = values["gpu.power"] * min(elapsed, MOST_INTERVALS * self._interval) / SECOND
        watts, used = energy / elapsed if energy and elapsed else 0.0, values.get("gpu.memory.used")
        if before or device.held:
            is_resumed = device.last is not last and bool(last and last.paused)
            self._book({**before, **device.held}, charged, device, watts, at, used=used, is_resumed=is_resumed)

    def _book(
        self,
        holders: Mapping[Key, Held],
        charged: Mapping[Key, Mapping[str, int]],
        device: JobDevice,
        watts: float,
        at: int,
        *,
        used: float | None = None,
        is_resumed: bool = False,
    ) -> None:
        """
        Add charges to the accounts; `watts` are joules a nanosecond, `used` the bytes in use of the device.

        `is_resumed`: the device was not read before in this run.
        """
        is_shared = len(device.held) > 1
        for key, holder in holders.items():
            states, earlier = charged.get(key, {}), self._ledger.accounts.get(key)
            seen = earlier.seen if earlier and not states and key not in device.held else at
            account = self._ledger.account(holder.owner, at)
            account.seen = seen
            if is_resumed and not account.times:
                self._ledger.open_at_zero(account, self._before)
            account.charge(states, device.slices, device.cause, self._before)
            account.energy += watts * sum(states.values())
            if key in device.held:
                memory = holder.memory if holder.memory is not None or is_shared else used
                account.memory, account.end_unseen = max(account.memory, memory or 0.0), 0

    def _release(self, places: Iterable[Place]) -> None:
        """End the jobs whose cgroup is gone on devices that did not answer; unknown where `max_jobs` left jobs out."""
        if self._jobs is None or "jobs" in self._jobs.missing:
            return
        for device in map(self._devices.__getitem__, places):
            lost = device.missed >= MISSED
            device.release({
                key for key, holder in device.held.items() if key not in self._alive and (holder.owner.cgroup or lost)
            })  # fmt: skip

    def _miss(self, place: Place, answered: Collection[Place], moment: int, at: int) -> None:
        """Charge a device as lost that misses readings while others answer; forget a part that no longer exists."""
        device = self._devices[place]
        device.missed += 1
        if any(place[:1] == other[:1] for other in answered):  # it was divided into instances, or divided again
            self._forgotten += self._devices.pop(place).allocated
            self._starts = {key: start for key, start in self._starts.items() if key[0] != place}
        elif device.missed >= MISSED and device.last and moment > device.last.moment:
            self._book(device.held, device.lose(moment, self._interval), device, 0.0, at)

    def _of_jobs(self, ended: Sequence[Account], at: int) -> Iterator[Datapoint]:
        """Yield the families of the jobs that hold a device, and the last values of those that ended."""
        families = {id(past): (past, dict[str, float](), list[float]()) for past in ended}
        for device in self._devices.values():
            shares: dict[Dimensions, float] = {}
            for holder in device.held.values():
                account = self._ledger.account(holder.owner, at)
                _, gpus, work = families.get(id(account)) or families.setdefault(id(account), (account, {}, []))
                gpus[holder.source] = gpus.get(holder.source, 0.0) + device.slices
                if device.work is not None and account.owner is not OTHER:
                    work.append(device.work)
                dims = _dims_of(OTHER if account.owner is OTHER else holder.owner, self._with_user, True)
                shares[dims] = shares.get(dims, 0.0) + holder.share
            for dims, share in shares.items():
                yield HELD.point(at, share, _both(dims, device.dims))
            if basis := _basis(device):
                yield JOBS.point(at, len(device.held), _with(device.dims, "basis", basis))
        for account, gpus, work in families.values():
            yield from self._family(account, gpus, work, at)

    def _family(
        self, account: Account, gpus: Mapping[str, float], work: Sequence[float], at: int
    ) -> Iterator[Datapoint]:
        """Yield the series of a job; `gpus` by source, `work` of each."""
        dims, price = _dims_of(account.owner, self._with_user, False), self._config.dollars_per_hour
        account = self._ledger.to_send(account)
        for source, count in gpus.items():
            yield GPUS.point(at, count, _with(dims, "source", source))
        for state, spent in account.times.items():
            yield GPU_TIME.point(at, spent / SECOND, _with(dims, "state", state), start_time=account.starts[state])
        for cause, spent in account.idle.items():
            start = account.starts[CAUSE + cause]
            yield JOB_IDLE.point(at, spent / SECOND, _with(dims, "cause", cause), start_time=start)
        if len(work) > 1:
            yield IMBALANCE.point(at, 100 * (max(work) - min(work)), dims)
        if account.memory:
            yield MEMORY.point(at, account.memory, dims)
        if account.times:
            start = min(account.starts.values())
            yield ENERGY.point(at, account.energy, dims, start_time=start)
            if price is not None:
                hours = sum(account.times.values()) / SECOND / HOUR
                yield COST.point(at, hours * price, dims, start_time=start)

    def _of_devices(self, at: int) -> Iterator[Datapoint]:
        self._counts = dict.fromkeys(self._counts, 0.0)  # what is no more is 0
        wholes = defaultdict[Place, float](float)
        for place, device in self._devices.items():
            wholes[place[:1]] += device.slices
            if device.last and at - self._offset - device.last.moment > MOST_INTERVALS * self._interval:
                device.stop("it was not read for over two intervals")
        for place, device in self._devices.items():
            dims = count_dims(device.state, device.cause)
            self._counts[dims] = self._counts.get(dims, 0.0) + device.slices / (wholes[place[:1]] or 1.0)
        for dims, count in self._counts.items():
            yield COUNT.point(at, count, dims)
        for place, device in self._devices.items():
            if place[0][0] != "gpu":
                continue
            for metric, key, spent in ((IDLE, "cause", device.idle), (BUSY, "kind", device.busy)):
                for what, time_spent in spent.items():
                    start = self._starts.setdefault((place, key + what), self._before)
                    yield metric.point(at, time_spent / SECOND, _with(device.dims, key, what), start_time=start)

    def saved(self) -> bytes | None:
        with self._lock:
            is_begun = self._stopped is None or any(device.is_begun for device in self._devices.values())
            at = (is_begun and self._before) or self._stopped or 0
            if self._saved_at is not None and 0 <= at - self._saved_at < SAVED:
                return None
            self._saved_at = at
            return self._ledger.saved(at, self._holds(), self._offset or self._earlier, self._config.dollars_per_hour)

    def restore(self, saved: bytes) -> None:
        state = self._ledger.restore(saved, self._config.dollars_per_hour)
        self._stopped, self._earlier = state.at or None, state.offset

    def _holds(self) -> dict[Key, dict[str, Hold]]:
        """Return the devices that each job holds, for the next start."""
        holds: dict[Key, dict[str, Hold]] = {}
        for place, device in self._devices.items():
            if (last := device.last) is None:
                continue
            for key, holding in last.holders.items():
                ran = None if holding.ran is None else max(0, self._offset + holding.ran)
                holds.setdefault(key, {})[_name(place)] = Hold(max(0, self._offset + last.moment), ran)
        return holds

    def describe(self) -> str:
        with self._lock:
            jobs = {key for device in self._devices.values() for key in device.held}
            parts = ["no accelerator"]
            if self._devices:
                parts = [f"jobs on accelerators: {len(jobs)}, accelerators: {len(self._devices)}"]
            if bases := sorted({device.basis for device in self._devices.values() if device.basis}):
                parts.append(f"utilization by {' and '.join(bases)}")
            charged, allocated = self._sums()
            if allocated:
                parts.append(f"{charged:.3f} s charged of {allocated:.3f} s allocated")
            parts += [f"{what} unknown: {why}" for what, why in self._missing().items()]
        return "; ".join(parts)

    def answer(self) -> Mapping[str, Any]:
        with self._lock:
            charged, allocated = self._sums()
            devices, price = sorted(self._devices.items(), key=by_number), self._config.dollars_per_hour
            holding = {
                place: [self._ledger.account(holder.owner, self._before).owner for holder in device.held.values()]
                for place, device in devices
            }
            return {
                "at": self._before / SECOND,
                "dollars_per_hour": price,
                "jobs": [
                    {**of_job(account, price), "why": self._why(account.owner.key).answer}
                    for account in self._ledger.holding()
                ],
                "ended": [of_job(account, price) for account in self._ledger.unrecorded()],
                "devices": [of_device(place, device, holding[place]) for place, device in devices],
                "counts": [{"dims": dict(dims), "gpus": count} for dims, count in self._counts.items() if count],
                "missing": self._missing(),
                "charged_seconds": charged,
                "allocated_seconds": allocated,
            }

    def _missing(self) -> dict[str, str]:
        """Return unknown things, and why."""
        late = {"holders": "the collector jobs has not answered for over two intervals"} if self._is_late else {}
        unnamed = {"devices": self._unnamed.text} if self._unnamed.text else {}
        return {**(self._jobs.missing if self._jobs else {}), **late, **unnamed}

    def _sums(self) -> tuple[float, float]:
        """Return the seconds charged to jobs and those in which devices were held, which are equal."""
        allocated = self._forgotten + sum(device.allocated for device in self._devices.values())
        return self._ledger.charged / SECOND, allocated / SECOND


def _unread(jobs: JobFacts | None) -> str:
    """Return why a job may hold a device on which no process is listed: what tells about it cannot be read."""
    told = jobs.missing if jobs else {"pids": "the collector jobs does not run, or has not answered yet"}
    return next((told[what] for what in ("pids", "mapping", "kubelet") if what in told), "")


def _name(place: Place) -> str:
    return ",".join(f"{key}={number}" for key, number in place)


@lru_cache(maxsize=1000)
def _dims_of(owner: Owner, with_user: bool, with_container: bool) -> Dimensions:  # noqa: FBT001  # keys of the cache
    return owner.dims(user=with_user, container=with_container)


@lru_cache(maxsize=10_000)
def _with(dims: Dimensions, key: str, value: str) -> Dimensions:
    return dims | {key: value}


@lru_cache
def count_dims(state: str, cause: str) -> Dimensions:
    """Return the dimensions of the number of accelerators in a state; a stalled one has a cause, if that is known."""
    has_cause = state == STALLED and cause not in ("", "other")
    return Dimensions(state=state, cause=cause) if has_cause else Dimensions(state=state)


@lru_cache(maxsize=10_000)
def _both(dims: Dimensions, others: Dimensions) -> Dimensions:
    return dims | others


def of_job(account: Account, price: float | None) -> dict[str, Any]:
    """Return the charges of a job since it began; `price` is dollars an hour of one accelerator."""
    owner, seconds = account.owner, {state: account.total(state) / SECOND for state in STATES}
    return {
        "job": owner.job,
        "kind": owner.kind,
        "user": owner.user,
        "partition": owner.partition,
        "namespace": owner.namespace,
        "since": account.since / SECOND,
        "until": account.seen / SECOND,
        "end_unseen": account.end_unseen / SECOND,
        "seconds": seconds,
        "idle": {cause: time / SECOND for cause, time in account.idle_by_cause().items()},
        "memory_max": account.memory,
        "energy": account.earlier_energy + account.energy,
        "cost": None if price is None else sum(seconds.values()) / 3600 * price,
        "cpu": account.cpu,
        "cpus": account.cpus,
        "host_memory_max": account.host_memory,
    }


def _basis(device: JobDevice) -> str:
    """Return how the parts of the jobs that share a device are known, "" for a device that is not shared."""
    return next((holder.basis for holder in device.held.values()), "")


def of_device(place: Place, device: JobDevice, owners: Sequence[Owner]) -> dict[str, Any]:
    """Return the holders of a device, and its state."""
    idle = None if device.ran is None or device.last is None else (device.last.moment - device.ran) / SECOND
    active = None if device.last is None or device.state == UNSEEN else device.last.active
    return {
        "device": ".".join(number for _, number in place),
        "place": dict(place),
        "slices": device.slices,
        "holders": [{"kind": holder.kind, "namespace": holder.namespace, "job": holder.job} for holder in owners],
        "shares": [holder.share for holder in device.held.values()],
        "basis": _basis(device),
        "jobs": [*dict.fromkeys(owner.job for owner in owners)],
        "users": [*dict.fromkeys(owner.user for owner in owners if owner.user)],
        "state": device.state,
        "cause": device.cause,
        "reason": device.doubt,
        "active": active,
        "seconds_since_kernel": idle,
    }


def by_number(item: tuple[Place, object]) -> list[tuple[str, int, str]]:
    """Return the key that sorts devices by their numbers."""
    return [(key, len(number), number) for key, number in item[0]]
