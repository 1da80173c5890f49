"""The processor `jobs`: charges the time of accelerators to jobs, and finds why accelerators are idle; docs/jobs.md."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric
from chipwatch.contract.owner import Owner
from chipwatch.contract.plugin import Given, Needs
from chipwatch.contract.processor import Processor
from chipwatch.jobs.accounting import SECOND
from chipwatch.jobs.answers import JobAnswers
from chipwatch.jobs.device_key import device_of
from chipwatch.jobs.holders import Holders
from chipwatch.jobs.ledger import Amount, JobLedger
from chipwatch.jobs.metrics import ALL, COST, SPENT
from chipwatch.jobs.points import JobPoints

SAVED: Final = 60 * SECOND
"""Time (ns) after which the state is saved again while no job holds a device."""


class JobsProcessor(Processor):
    """The jobs that hold accelerators, the activity of each accelerator, and the cause of idle time."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The dimensions of jobs, and the price of an accelerator."""

        max_jobs: int = 64
        """Jobs that have separate series at one time; others are added up as the job `other`."""
        dimensions: tuple[Literal["user"], ...] = ()
        """Dimensions of each job in addition to job, partition and namespace: user."""
        dollars_per_hour: Amount | None = None
        """Price of one accelerator for an hour; with it jobs have a cost."""
        interval: float = 5.0
        """Seconds between two ticks; set by --interval."""

    metrics: Sequence[Metric] = ALL
    needs = Needs(level=True, facts=True, state=True, records=True, devices=Level.ALL, always=(SPENT.name,))

    def __init__(self, config: Config) -> None:
        if config.dollars_per_hour is None:
            self.metrics = tuple(metric for metric in ALL if metric is not COST)
        self._job_dims, self._given = config.dimensions, Given()
        self._lock = threading.Lock()
        """Protects the accounts: `derive` changes them, `answer` and `saved` read them on other threads."""
        self._ledger = JobLedger(config.max_jobs, config.dollars_per_hour)
        self._holders = Holders(self._ledger, round(config.interval * SECOND))
        self._points = JobPoints(self._ledger, with_user="user" in config.dimensions)
        self._answers = JobAnswers(self._holders, self._ledger)
        self._logger = ThrottledLogger(logging.getLogger(__name__), "jobs")
        self._saved_at: int | None = None
        """Time of the tick whose state was saved last (ns since the epoch); None if the state has changed since."""

    def open(self, given: Given) -> None:
        self._given, self._points.level = given, given.level

    def derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object]) -> Iterable[Datapoint]:
        """Charge the time since the last tick to jobs; return the points of jobs and devices."""
        with self._lock:
            holders = self._holders
            holders.take(facts, tick, at)
            self._record(at)
            self._answers.take(facts, tick, at, self._given.note)
            ended = self._ledger.end(holders.keys, at)
            if holders.keys or ended:
                self._saved_at = None
            points = [*self._points.of_jobs(holders.devices, ended, at), *self._points.of_devices(holders.devices, at)]
            self._ledger.clocks.ticked = at
            return points

    def _record(self, at: int) -> None:
        """Write the records of jobs that ended; after an error, try again in each tick."""
        ended = self._ledger.ended(self._holders.alive, at) if self._holders.jobs else ()
        try:
            if ended and self._given.append([self._ledger.row(account) for account in ended]):
                self._logger.resolved("file")
                self._saved_at = None
                for account in ended:
                    account.recorded = account.seen
        except OSError as problem:
            self._logger.log(logging.WARNING, "file", f"records of jobs are not written: {problem.strerror or problem}")

    def owners_of(self, device: Dimensions) -> Sequence[Owner]:
        return self._holders.owners_of(device_of(device))

    def job_dims(self) -> Sequence[str]:
        return self._job_dims

    def saved(self) -> bytes | None:
        with self._lock:
            clocks, devices = self._ledger.clocks, self._holders.devices.values()
            is_begun = clocks.stopped is None or any(device.is_begun for device in devices)
            at = (is_begun and clocks.ticked) or clocks.stopped or 0
            if self._saved_at is not None and 0 <= at - self._saved_at < SAVED:
                return None
            self._saved_at = at
            return self._ledger.saved(at, self._holders.holds)

    def restore(self, saved: bytes) -> None:
        self._ledger.restore(saved)

    def describe(self) -> str:
        with self._lock:
            return self._answers.as_text()

    def answer(self) -> Mapping[str, Any]:
        with self._lock:
            return self._answers.as_json()
