"""Asks NCCL's RAS for ranks that are behind or missing, and reads PyTorch's dumps of collectives; docs/why.md."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.owner import JobCollectives, Owner
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.host.owners import MAX_BYTES, PERMISSION, Owners
from chipwatch.host.procfs import read
from chipwatch.host.prompt import PromptCollector

if TYPE_CHECKING:
    from chipwatch.collectors.nccl.service import RasService

RANKS: Final = gauge("job.ranks", "{rank}", "Ranks of the job on all machines, as NCCL counts them.", dims=("job",))
BEHIND: Final = gauge(
    "job.ranks.behind", "{rank}",
    "Ranks that have launched fewer collectives than others for half a minute, and none in that time.", dims=("job",),
)  # fmt: skip
MISSING: Final = gauge(
    "job.ranks.missing", "{rank}", "Ranks that have not answered the others for half a minute.", dims=("job",)
)
COLLECTIVES: Final = counter(
    "job.collectives", "{collective}", "Collectives that the job launched since its first answer.", dims=("job",)
)
FIGURES: Final = {RANKS: "ranks", BEHIND: "behind_count", MISSING: "missing_count", COLLECTIVES: "launched"}
"""Metric -> its field in JobCollectives."""

PORT: Final = 28028
"""Default port of RAS: NCCL_RAS_CLIENT_PORT in src/include/ras.h of github.com/NVIDIA/nccl."""
FRESH: Final = 4
"""Intervals for which an answer is reported."""
PATIENCE: Final = 5.0
"""Seconds to wait for what dumps say."""
ELSEWHERE: Final = "its NCCL listens in another network namespace: run the agent in the host's, or in that of the job"
HIDDEN: Final = f"the sockets of its processes cannot be read: {PERMISSION}"


class NcclCollector(PromptCollector):
    """Finds and asks the RAS service of each job on this machine, one after another, on a separate thread."""

    metrics = tuple(FIGURES)
    needs = Needs(pids=True, devices=Level.ALL)
    knows = (JobCollectives,)

    @dataclass(frozen=True, slots=True)
    class Config:
        """When and where RAS is asked."""

        every: float = 30.0
        """Seconds between two questions to a job; longer where answers take long, half while a rank is behind."""
        port: int = PORT
        """The port of RAS, where a job's environment has no NCCL_RAS_ADDR."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; filled from --root."""

    def __init__(self, config: Config) -> None:
        self._config, self._clock = config, time.monotonic
        self._owners = Owners(config.proc, config.root, config.root / "var/log", config.sys)
        self._pids: frozenset[int] = frozenset()
        self._endpoints: dict[tuple[str, int], RasService] = {}
        self._others: list[JobCollectives] = []
        """Facts from dumps, and problems."""
        self._asking = BlockingCall(self._ask, "ask-nccl")
        self._reading = BlockingCall(lambda read: [*read], "read-dumps")
        self._due = 0.0

    def open(self, given: Given) -> None:
        self.close()
        if not (proc := self._config.proc / "self/net/tcp").exists():
            raise Unavailable(f"{proc} is absent: RAS is found on Linux only")
        self._asking = BlockingCall(self._ask, "ask-nccl")

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        self._pids = frozenset(pids)

    def collect(self, at: int) -> Iterator[Datapoint]:
        now = self._clock()
        if not self._pids:
            self._endpoints, self._others = {}, []
        if self._asking.is_pending:
            if self._asking.wait(0.0):
                self._asking.close()  # the thread ends until the next question
                self._asking.take()
        elif self._pids and now >= min([self._due, *(endpoint.due for endpoint in self._endpoints.values())]):
            self._asking.begin(now, at)
        sums: dict[tuple[Metric, Dimensions], float] = {}
        starts: dict[Dimensions, int] = {}
        for endpoint in self._endpoints.values():
            facts, longest = endpoint.facts, FRESH * max(self._config.every, endpoint.due - endpoint.moment)
            if facts is None or facts.problem or now - endpoint.moment > longest:
                continue
            dims = facts.owner.dims()
            starts[dims] = min(endpoint.start, starts.get(dims, endpoint.start))
            for metric, name in FIGURES.items():
                if (value := getattr(facts, name)) is not None:
                    sums[metric, dims] = sums.get((metric, dims), 0) + value
        for (metric, dims), value in sums.items():
            yield metric.point(at, value, dims, start_time=starts[dims] if metric is COLLECTIVES else None)

    def facts(self) -> list[JobCollectives]:
        """Return the last answer about each job, what dumps say, and problems."""
        return [*self._others, *(item.facts for item in self._endpoints.values() if item.facts)]

    def describe(self) -> str:
        told = ((item, f"{item.ranks} ranks" if item.ranks else item.lag) for item in self.facts())
        return "; ".join(f"{item.owner.job}: {item.problem or text}" for item, text in told)

    def close(self) -> None:
        self._asking.close()
        self._endpoints, self._others, self._due = {}, [], 0.0

    def _ask(self, now: float, at: int) -> None:
        """Find services, and ask those that are due at `now` one after another; runs on a separate thread."""
        if now >= self._due:
            self._find()
            self._due = now + self._config.every / (1 if self._endpoints else 3)
        for endpoint in [endpoint for endpoint in self._endpoints.values() if now >= endpoint.due]:
            endpoint.ask(self._clock, at, self._config.every)

    def _find(self) -> None:
        """Find the RAS services of the processes on devices, and read their dumps."""
        proc = self._config.proc
        jobs = {pid: process.owner for pid, process in self._owners.of_drivers(self._pids).items()}
        from chipwatch.collectors.nccl.service import RasService, listeners, port_of, start_of

        environs = {pid: read(f"{proc}/{pid}/environ", MAX_BYTES) for pid in jobs}
        ports = {pid: port_of(environ, self._config.port) for pid, environ in environs.items()}
        jobs_by_address: dict[tuple[str, int], dict[int, Owner]] = {}
        problems = {
            owner.key: JobCollectives(owner, problem=HIDDEN)
            for pid, owner in jobs.items() if not os.access(f"{proc}/{pid}/fd", os.R_OK)
        }  # fmt: skip
        for pid, address, is_here in listeners(proc, ports):
            if is_here:
                jobs_by_address.setdefault(address, {})[pid] = jobs[pid]
            else:
                problems[jobs[pid].key] = JobCollectives(jobs[pid], problem=ELSEWHERE)
        starts = {(owner.key, start_of(environs[pid])): (pid, owner) for pid, owner in jobs.items()}
        dumps: list[JobCollectives] = []
        if places := [(start, *process) for (_, start), process in starts.items() if start]:
            from chipwatch.collectors.nccl.flight import read_dumps

            try:
                dumps = self._reading.ask(PATIENCE, read_dumps(proc, places, time.time_ns()))
            except TimeoutError:  # what was read by then is known the next time
                dumps = [JobCollectives(owner, problem="PyTorch's dumps take too long to read") for *_, owner in places]
            self._reading.close()
        self._others = [*problems.values(), *dumps]
        endpoints: dict[tuple[str, int], RasService] = {}
        for address, mine in jobs_by_address.items():
            service = self._endpoints.get(address)
            if not service or service.jobs.keys().isdisjoint(mine):  # another job had this address before
                service = RasService(*address)
            service.jobs, endpoints[address] = mine, service
        self._endpoints = endpoints  # replaced, not changed, because another thread may be reading the old one
