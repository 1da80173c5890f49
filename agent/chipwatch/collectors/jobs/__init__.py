"""Finds the jobs on this machine: Slurm's jobs, and the owners of processes on accelerators; docs/job-sources.md."""

from __future__ import annotations

import math
import re
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from chipwatch.collectors.jobs.allocations import Allocations
from chipwatch.collectors.jobs.group import JobGroup
from chipwatch.collectors.jobs.slurm import REFRESH, SlurmJobs
from chipwatch.collectors.jobs.waits import Waits
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Kind, Level, counter, gauge
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.owner import Allocation, GroupUse, JobFacts, Owner
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host import cgroup
from chipwatch.host.owners import OwnedProcess, Owners
from chipwatch.host.pace import CALM, SLOW, Pace
from chipwatch.host.process_tree import ProcTree, stat_of
from chipwatch.host.procfs import close_all, read

CPU_TIME: Final = counter("job.cpu.time", "s", "CPU time of the job on this machine.", Level.DETAILED, ("job",))
MEMORY_MAX: Final = gauge(
    "job.memory.max", "By", "The most memory that the job had on this machine.", Level.DETAILED, ("job",))  # fmt: skip
OOM_KILLS: Final = counter(
    "job.oom_kills", "{kill}", "Processes of the job killed for lack of memory.", Level.DETAILED, ("job",))  # fmt: skip

PROCESSES: Final = 16
"""Most processes of a job whose state is read in a tick."""
MAX_OTHERS: Final = 256
"""Most processes without a job's cgroup whose CPU time is read in a tick."""
MAX_DELAYS: Final = 1024
"""Most processes whose waits for a CPU are read."""
TRANSFERS: Final = re.compile(rb"^(?:read|write)_bytes: (\d+)", re.MULTILINE)
BLOCKED: Final = "D"
"""State of a process in an uninterruptible wait."""
STOPPED: Final = ("T", "t")
"""States of a process that a signal or a debugger has stopped."""


class JobsCollector(Collector):
    """
    Finds jobs and reads their cgroups.

    Slurm's jobs are found by their cgroups, all others by the processes that drivers of accelerators list. Processors
    also get `facts` that are not sent: owners, allocations, and the waits of cgroups.
    """

    metrics = (CPU_TIME, MEMORY_MAX, OOM_KILLS)
    needs = Needs(level=True, pids=True, devices=Level.ALL)
    knows = (JobFacts,)

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where jobs are found, and how they are shown."""

        dimensions: tuple[Literal["user"], ...] = ()
        """Dimensions of each point in addition to job, partition and namespace: user."""
        max_jobs: int = 64
        """The most jobs that are read."""
        mapping: Path | None = None
        """Folder in which Slurm's prolog writes the job of each GPU; the usual folders unless set."""
        kubelet: Path | None = None
        """The kubelet's socket; var/lib/kubelet/pod-resources/kubelet.sock below `root` unless set."""
        logs: Path | None = None
        """The host's /var/log, which names pods; var/log below `root` unless set."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; filled from --root."""

    def __init__(self, config: Config) -> None:
        self._config, self._clock = config, time.monotonic_ns
        self._followed: tuple[tuple[int, ...], frozenset[int]] = (), frozenset()
        """Processes on devices; and those on devices that were partly idle since the last reading of their waits."""
        self._waits = Waits(config.proc)
        self._groups: dict[str, JobGroup] = {}
        """Path of a cgroup -> its job."""
        logs = config.logs or config.root / "var/log"
        self._owners = Owners(config.proc, config.root, logs, config.sys, config.mapping)
        self._slurm = SlurmJobs(config.proc, config.sys, self._owners)
        self._allocations = Allocations(config.root, config.mapping, config.kubelet)
        self._facts: JobFacts | None = None
        self._pace, self._slow = Pace(CALM), Pace(SLOW)

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        if not (self._config.proc / "self/cgroup").exists():
            raise Unavailable(f"{self._config.proc}/self/cgroup is absent: jobs are found on Linux only")

    def rests(self) -> float:
        """Return 0 while there are Slurm's jobs to show; otherwise the seconds until slurmd may have come."""
        if self._level < Level.DETAILED:
            return math.inf
        return 0.0 if self._slurm.folders else REFRESH / 1e9

    def follow(self, pids: Collection[int], idle: Collection[int]) -> None:
        self._followed = tuple(pids), self._followed[1].union(idle)

    def collect(self, at: int) -> Iterator[Datapoint]:
        owners, allocations = self._owners, self._allocations
        followed = frozenset(self._followed[0])
        stats = {pid: stat for pid in followed if (stat := self._waits.files.again(pid, "stat"))}
        processes = owners.of_drivers(followed, stats)
        owners_of = {pid: process.owner for pid, process in processes.items()}
        left_out = self._find_groups(owners_of.values(), at)
        granted = allocations.read()
        if not granted and not allocations.source:
            granted = self._by_environment(processes.values())
        missing = owners.missing | allocations.missing
        plain = [grant for grant in granted if grant.source == "kubelet" or not grant.device.isdecimal()]
        # with MIG, Slurm numbers the instances of all GPUs together
        if len(plain) < len(granted) and any((self._config.proc / "driver/nvidia/capabilities").glob("gpu*/mig/gi*")):
            granted = plain
            missing["numbers"] = "with MIG, Slurm numbers the GPUs differently: jobs have what they use"
        named = {group.owner.key: group.owner for group in self._groups.values()} if granted else {}
        granted = [
            grant._replace(owner=named[key]._replace(container=grant.owner.container or named[key].container))
            if (key := grant.owner.key) in named else grant
            for grant in granted
        ]  # fmt: skip
        if left_out:
            missing["jobs"] = f"{left_out} jobs are left out: max_jobs is {self._config.max_jobs}"
        moment = self._clock()
        last = self._facts or JobFacts(moment, {})
        if self._pace.is_due(moment) or owners_of != last.owners:
            last = self._evidence(last, owners_of, stats, moment)
        elif self._level >= Level.DETAILED:
            last = last._replace(uses=self._uses(owners_of, last.blocked))
        self._facts = last._replace(
            moment=moment, owners=owners_of, allocations=granted, missing=missing, followed=followed
        )
        if self._level < Level.DETAILED:  # no sink wants points; only processors need the facts
            return
        for use in {use.owner.key: use for use in last.uses}.values():  # one for each job: a pod may have several
            dims = use.owner.dims(user="user" in self._config.dimensions)
            for metric, value in zip(self.metrics, (use.cpu, use.memory_max, use.oom_kills), strict=True):
                if value is not None:
                    yield metric.point(at, value, dims, start_time=use.since if metric.kind is Kind.COUNTER else None)

    def facts(self) -> Iterable[JobFacts]:
        return (self._facts,) if self._facts else ()

    def describe(self) -> str:
        if not self._facts:
            return ""
        by_environment = "their environment" if self._facts.allocations else "processes only"
        count = f"jobs found: {len(self._groups)}, devices by {self._allocations.source or by_environment}"
        if sources := self._owners.numbers.sources:
            count += f", jobs' numbers by {', '.join(sources)}"
        return "; ".join((count, *self._facts.missing.values()))

    def close(self) -> None:
        close_all(*self._groups.values(), self._allocations, self._waits.files)
        self._groups, self._facts = {}, None

    def _find_groups(self, followed: Collection[Owner], at: int) -> int:
        """Open the cgroups of new jobs, up to `max_jobs` in all; return the number of jobs that are left out."""
        new = {owner.cgroup: owner for owner in followed if owner.cgroup and owner.cgroup not in self._groups}
        room = self._config.max_jobs - len(self._groups)
        new = {**new, **self._slurm.find(self._clock(), self._groups.keys(), room), **new}  # jobs on devices come first
        left_out = 0
        for path, owner in new.items():
            if len(self._groups) >= self._config.max_jobs:
                left_out += 1
            elif (group := cgroup.at(self._config.proc, self._config.sys, path)).folders:
                self._groups[path] = JobGroup(owner, group, at)
        return left_out

    def _by_environment(self, processes: Iterable[OwnedProcess]) -> list[Allocation]:
        """Return the allocations that the environment variables of jobs' processes show."""
        of_steps = self._slurm.devices
        granted = {path: (group.owner, {*of_steps.get(path, ())}) for path, group in self._groups.items()}
        for process in processes:
            if process.devices and process.owner.cgroup in granted:
                granted[process.owner.cgroup][1].update(process.devices)
        named = ((device, owner) for owner, devices in granted.values() for device in sorted(devices))
        return [Allocation(device, owner, "environment") for device, owner in named]

    def _states(self, owners: Mapping[int, Owner], stats: dict[int, bytes]) -> tuple[dict[int, float], dict[int, str]]:
        """
        Complete `stats`, the texts of /proc/PID/stat, for at most PROCESSES of a job.

        Return PID -> CPU seconds, for processes without a job's cgroup; and PID -> state.
        """
        cpu, states, count = dict[int, float](), dict[int, str](), defaultdict[str, int](int)
        for pid, owner in owners.items():
            own = owner.cgroup if owner.cgroup in self._groups else ""
            count[own] += 1
            if count[own] > (PROCESSES if own else MAX_OTHERS):
                continue
            stats[pid] = stats.get(pid) or self._waits.stat(pid)
            if stat := stat_of(self._config.proc, pid, stats[pid]):  # else the process has ended
                states[pid] = stat.state
                if not own:
                    cpu[pid] = stat.own / ProcTree.second
        return cpu, states

    def _evidence(self, facts: JobFacts, owners: Mapping[int, Owner], stats: dict[int, bytes], now: int) -> JobFacts:
        """
        Return the facts with new evidence of why devices are idle, read at `now` (monotonic ns).

        Delays and transfers are read again after ten seconds, and where a process or its owner has changed. Bytes of
        other users' processes need root.
        """
        cpu, states = self._states(owners, stats)
        blocked = frozenset(pid for pid, state in states.items() if state == BLOCKED)
        stopped = frozenset(pid for pid, state in states.items() if state in STOPPED)
        pids, idle = self._followed
        idle, self._followed = idle & owners.keys(), (pids, frozenset())
        if self._slow.is_due(now) or owners != facts.owners:
            delays = {pid: delay for pid in islice(owners, MAX_DELAYS) if (delay := self._waits.delay(pid)) is not None}
            moved = {pid: TRANSFERS.findall(read(f"{self._config.proc}/{pid}/io")) for pid in idle}
            transfers = {pid: (int(each[0]), int(each[1])) for pid, each in moved.items() if len(each) == 2}
            facts = facts._replace(delays=delays, transfers=transfers)
        used, uses = self._waits.read(idle, pids, now / 1e9, stats), self._uses(owners, blocked)
        return facts._replace(uses=uses, cpu=cpu, blocked=blocked, processes=used, stopped=stopped, used=now)

    def _uses(self, owners: Mapping[int, Owner], blocked: Collection[int]) -> list[GroupUse]:
        """Read the usage of all cgroups; some of their processes are `blocked`."""
        waiting = {owners[pid].cgroup for pid in blocked}
        return [use for path in [*self._groups] if (use := self._use(path, waiting))]

    def _use(self, path: str, waiting: Collection[str]) -> GroupUse | None:
        """Read the usage of a cgroup; forget the cgroup and return None if it is gone."""
        try:
            return self._groups[path].usage(self._clock(), blocked=path in waiting)
        except OSError:
            self._groups.pop(path).close()
            return None
