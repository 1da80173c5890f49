"""Answers for `chipwatch jobs`, `why` and `check`: who holds which device, and why jobs are slow."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.facts import DeviceFacts
from chipwatch.contract.owner import JobCollectives, Owner
from chipwatch.jobs.accounting import SECOND, UNSEEN, JobKey
from chipwatch.jobs.device import JobDevice
from chipwatch.jobs.device_key import DeviceKey, device_label, device_of, device_order
from chipwatch.jobs.holders import STALE, Holders
from chipwatch.jobs.ledger import CAUSE, STATE, JobLedger, sums_of
from chipwatch.jobs.points import counted
from chipwatch.jobs.reasons import Figures, JobFigure, Reasons, reasons
from chipwatch.jobs.recent import LEAST_PEERS, MOST, DeviceMoment, JobMoment, RecentMoments, of_ranks

log: Final = logging.getLogger(__name__)
JUDGED: Final = 16
"""Most jobs that are judged in one tick, for the log; if there are more, they take turns."""
Note = Callable[[str, str, bool], None]
"""Called with a job, a sentence about it, and True if the job is slow."""


class JobAnswers:
    """Answers questions about jobs, from the last five minutes; logs why a job is slow when that changes."""

    def __init__(self, holders: Holders, ledger: JobLedger) -> None:
        self._holders, self._ledger = holders, ledger
        self._recent = RecentMoments()
        self._listings: dict[str, DeviceFacts] = {}
        """Collector -> its last list of processes; a list older than a minute is dropped."""
        self._collectives: Sequence[JobCollectives] = ()
        self._asked = 0
        """Time of the tick that brought `_collectives` (ns since the epoch)."""
        self._pids: dict[JobKey, dict[int, str]] = {}
        """Job -> its processes -> the device of each."""
        self._causes: dict[JobKey, tuple[str, str]] = {}
        """
        Job -> the cause that slows it, when it was last judged, and as of the last log message; "" for none.

        The job that was not judged for longest is first.
        """

    def take(self, facts: Sequence[object], tick: Sequence[Datapoint], at: int, note: Note) -> None:
        """Remember a tick; log the cause that slows a job if it has changed."""
        about = [fact for fact in facts if isinstance(fact, DeviceFacts)]
        self._listings |= {fact.source: fact for fact in about if fact.processes is not None}
        oldest = at - self._ledger.clocks.offset - STALE
        self._listings = {source: fact for source, fact in self._listings.items() if fact.moment > oldest}
        if not self._recent.is_due(at):
            return
        collectives = [fact for fact in facts if isinstance(fact, JobCollectives)]
        if collectives or abs(at - self._asked) > STALE:
            self._collectives, self._asked = collectives, at
        self._pids = {}
        owners = self._holders.jobs.owners if self._holders.jobs else {}
        for process in chain.from_iterable(fact.processes or () for fact in self._listings.values()):
            if owner := owners.get(process.pid):
                self._pids.setdefault(owner.key, {})[process.pid] = device_label(device_of(process.dims))
        moments = {key: self._moment(key) for key in self._holders.keys & self._ledger.accounts.keys()}
        self._recent.take(at, tick, [item for fact in about for item in fact.activity], moments)
        order = [*dict.fromkeys(key for key in (*self._causes, *moments) if key in moments)]
        rest = {key: self._causes.get(key, ("", "")) for key in order[JUDGED:]}
        self._causes = rest | {key: self._name(key, note) for key in order[:JUDGED]}

    def _name(self, key: JobKey, note: Note) -> tuple[str, str]:
        """Find the cause that slows a job; log a new one when it is found twice in a row."""
        why, (last, logged) = self.why(key), self._causes.get(key, ("", ""))
        cause = why.causes[0].cause if why.causes else ""
        if cause != last or cause == logged or not (cause or why.nothing):
            return cause, logged
        log.info("job %s: %s", key[-1], why.sentence, extra={"who": "jobs"})
        note(key[-1], why.sentence, bool(cause))
        return cause, cause

    def _moment(self, key: JobKey) -> JobMoment:
        """Return the cumulative figures of a job; with four or more devices, also figures to compare them."""
        account, devices, jobs = self._ledger.accounts[key], self._holders.of(key), self._holders.jobs
        pids, busy, waited = self._pids.get(key, {}), Counter[str](), Counter[str]()
        pid_of = {label: pid for pid, label in pids.items()}
        compared = {}
        for place, device in devices.items():
            spent, pid = device.spent, pid_of.get(device_label(place), 0)
            busy.update(spent.busy)
            waited.update({**spent.idle, **spent.shown})
            if jobs and len(devices) >= LEAST_PEERS:
                late, is_blocked = spent.idle["data"] + spent.idle["host"], pid in jobs.blocked
                compared[place] = DeviceMoment(
                    spent.allocated, late, spent.busy["waiting"], pid, is_blocked, jobs.delays.get(pid, 0.0)
                )
        transfers = jobs.transfers if jobs else {}
        moved = {pid: transfers[pid] for pid in pids if pid in transfers}
        return JobMoment(sums_of(account.sums, STATE), sums_of(account.sums, CAUSE), busy, waited, compared, moved)

    def why(self, key: JobKey) -> Reasons:
        """Return the reasons why a job is slow."""
        devices, jobs = self._holders.of(key), self._holders.jobs
        pids = self._pids.get(key, {}).items()
        stopped = [f"{pid} on gpu {gpu}" for pid, gpu in pids if jobs and pid in jobs.stopped]
        reports = [report for report in self._collectives if report.owner.key == key]
        unknown = [f"{what} unknown: {why}" for what, why in self._holders.missing.items()]
        unknown += [report.problem for report in reports if report.problem]
        reports = [report for report in reports if not report.problem]
        span = self._recent.of(key)
        about_stopped = JobFigure("stopped", len(stopped), ", ".join(stopped[:MOST]))
        figures = [about_stopped, *of_ranks(reports), *span.figures(devices)]
        numbers = {figure.name: figure.number for figure in figures}
        words = {figure.name: figure.word for figure in figures if figure.word}
        gpus = sum(device.activity.slices for device in devices.values())
        return reasons(Figures(numbers, words, span.seconds, gpus, sum(report.ranks for report in reports), unknown))

    def as_json(self) -> dict[str, Any]:
        """Return the jobs, the devices and the sums of time, for JSON."""
        ledger, at = self._ledger, self._ledger.clocks.ticked
        devices = []
        for place, device in sorted(self._holders.devices.items(), key=lambda item: device_order(item[0])):
            owners = [ledger.account(holder.owner, at).owner for holder in device.held.values()]
            devices.append(_of_device(place, device, owners))
        return {
            "at": at / SECOND,
            "dollars_per_hour": ledger.price,
            "jobs": [{**ledger.row(job), "why": self.why(job.owner.key).answer} for job in ledger.holding()],
            "ended": [ledger.row(account) for account in ledger.unrecorded()],
            "devices": devices,
            "counts": [
                {"dims": dict(dims), "gpus": count} for dims, count in counted(self._holders.devices).items() if count
            ],
            "missing": self._holders.missing,
            "charged_seconds": ledger.charged / SECOND,
            "allocated_seconds": self._holders.allocated / SECOND,
        }

    def as_text(self) -> str:
        """Return the number of jobs and devices, and unknown things, in one line."""
        devices, allocated = self._holders.devices, self._holders.allocated
        count = f"jobs on accelerators: {len(self._holders.keys)}, accelerators: {len(devices)}"
        parts = [count if devices else "no accelerator"]
        if bases := sorted({device.activity.basis for device in devices.values() if device.activity.basis}):
            parts.append(f"utilization by {' and '.join(bases)}")
        if allocated:
            parts.append(f"{self._ledger.charged / SECOND:.3f} s charged of {allocated / SECOND:.3f} s allocated")
        return "; ".join((*parts, *(f"{what} unknown: {why}" for what, why in self._holders.missing.items())))


def _of_device(place: DeviceKey, device: JobDevice, owners: Sequence[Owner]) -> dict[str, Any]:
    """Return a device's jobs and its state, for JSON."""
    last, ran = device.last, device.kernels.ran
    return {
        "device": device_label(place), "place": dict(place), "slices": device.activity.slices,
        "holders": [{"kind": owner.kind, "namespace": owner.namespace, "job": owner.job} for owner in owners],
        "shares": [holder.share for holder in device.held.values()], "basis": device.sharing,
        "jobs": [*dict.fromkeys(owner.job for owner in owners)],
        "users": [*dict.fromkeys(owner.user for owner in owners if owner.user)],
        "state": device.state, "cause": device.cause, "reason": device.doubt,
        "active": None if last is None or device.state == UNSEEN else last.active,
        "seconds_since_kernel": None if last is None or ran is None else (last.moment - ran) / SECOND,
    }  # fmt: skip
