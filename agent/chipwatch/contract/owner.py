"""Facts about the jobs on accelerators, from the collector `jobs` to processors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple

from chipwatch.contract.datapoint import Dimensions

SLURM: Final = "slurm"
KUBERNETES: Final = "kubernetes"
ECS: Final = "ecs"
DOCKER: Final = "docker"
UNIT: Final = "unit"
USER: Final = "user"
KINDS: Final = (SLURM, "pbs", "htcondor", "lsf", "nomad", KUBERNETES, ECS, "kata", DOCKER, UNIT, USER)
"""The kinds of owners; of several that a cgroup's path names, the first one counts."""


class Owner(NamedTuple):
    """The job, pod, container, unit or user that a process belongs to; "" stands for unknown."""

    kind: str
    job: str
    """The scheduler's job id, the pod's name or its uid, the ECS task, the container's id, the unit, or the user."""
    step: str = ""
    """Slurm's step: a number, `batch`, `extern` or `interactive`."""
    user: str = ""
    partition: str = ""
    namespace: str = ""
    pod: str = ""
    container: str = ""
    unit: str = ""
    cgroup: str = ""
    """Path of the job's cgroup, as in /proc/PID/cgroup."""
    since: int | None = None
    """When the process began (ns since the epoch)."""

    @property
    def key(self) -> tuple[str, str, str]:
        """Identity of the job on this machine, from whatever source."""
        return self.kind, self.namespace, self.job

    def dims(self, *, user: bool = False, container: bool = False) -> Dimensions:
        """Return the dimensions of the job's points; `user`: with its user; `container`: with that of a named pod."""
        pairs = {"job": self.job, "partition": self.partition, "namespace": self.namespace}
        if container and self.pod:
            pairs["container"] = self.container
        if user:
            pairs["user"] = self.user
        return Dimensions({key: value for key, value in pairs.items() if value})


class Allocation(NamedTuple):
    """A device that a scheduler gave to a job."""

    device: str
    """As the source names it; an id of `chipwatch.Device`."""
    owner: Owner
    source: str
    """`mapping`, `kubelet` or `environment`."""


class GroupUse(NamedTuple):
    """Usage of a job's cgroup since its creation; None where the kernel does not report it."""

    owner: Owner
    cpu: float | None = None
    """CPU time in seconds."""
    cores: float | None = None
    """CPUs that it may use."""
    periods: int | None = None
    """Periods of its CPU quota."""
    throttled: int | None = None
    """Periods in which the quota held it back."""
    io_some: float | None = None
    """Seconds in which some of its tasks waited for I/O."""
    cpu_some: float | None = None
    """Seconds in which some of its tasks waited for a CPU."""
    memory_full: float | None = None
    """Seconds in which all of its tasks waited for memory."""
    memory_max: int | None = None
    """The most memory that it had, in bytes."""
    swapped: int | None = None
    """Bytes in swap now."""
    oom_kills: int | None = None
    blocked: bool = False
    """True if one of its processes on an accelerator is in an uninterruptible wait."""
    since: int | None = None
    """When the oldest process began that was seen in it (ns since the epoch)."""


class ProcessUse(NamedTuple):
    """Work of a process on an idle device, and of its children."""

    cpu: float
    """CPU seconds of the process."""
    children: Mapping[tuple[int, float], float]
    """CPU seconds of each child that is not on a device itself, by pid and start."""
    waits: bool = False
    """True if it, or a child, waited for data of a TCP socket since the last reading, and none came."""
    delays: Mapping[tuple[int, float], float] = MappingProxyType({})
    """Seconds for which the main thread of each child was ready to run and had no CPU."""
    cpus: int = 0
    """CPUs to which its children are bound together, by their affinity; 0: unknown, or no children."""
    shares_cpus: bool = False
    """True if it is bound to no other CPUs than its children."""


class JobFacts(NamedTuple):
    """One reading of the collector `jobs`."""

    moment: int
    """Time of the reading (monotonic ns)."""
    owners: Mapping[int, Owner]
    """The owner of each followed process that is known, by pid."""
    allocations: Sequence[Allocation] = ()
    uses: Sequence[GroupUse] = ()
    cpu: Mapping[int, float] = MappingProxyType({})
    """CPU seconds of each followed process whose job has no cgroup, by pid."""
    blocked: frozenset[int] = frozenset()
    """Followed processes in an uninterruptible wait."""
    missing: Mapping[str, str] = MappingProxyType({})
    """Unknown facts, and why they are unknown."""
    processes: Mapping[int, ProcessUse] = MappingProxyType({})
    """Work of processes on devices that had time without work, by pid."""
    stopped: frozenset[int] = frozenset()
    """Followed processes that a signal or a debugger has stopped."""
    delays: Mapping[int, float] = MappingProxyType({})
    """Seconds for which the main thread of each followed process was ready to run and had no CPU, by pid."""
    transfers: Mapping[int, tuple[int, int]] = MappingProxyType({})
    """Bytes that processes on devices without work read from disks and file servers, and wrote to them, by pid."""
    followed: Collection[int] | None = None
    """The processes that it was asked about; None: all. The owner of another one is not known yet."""


class Rank(NamedTuple):
    """A rank of a job; "" and -1 stand for unknown."""

    rank: int
    host: str = ""
    """Address of its machine."""
    pid: int = -1
    gpu: int = -1
    """Its number on that machine."""


class JobCollectives(NamedTuple):
    """Collective communication of a job on all machines, as its processes last reported it."""

    owner: Owner
    ranks: int = 0
    launched: float | None = None
    """Collectives launched since the first report; None if unknown."""
    behind: Sequence[Rank] = ()
    """Ranks that launched fewer collectives than others, and none since the last report; the first of them."""
    behind_count: int = 0
    lag: str = ""
    """Their last collective and that of the others: `AllReduce 6649 of 6650`."""
    missing: Sequence[Rank] = ()
    """Ranks that do not answer; the first of them."""
    missing_count: int = 0
    dead: int = 0
    failed: Sequence[Rank] = ()
    """Ranks with an error of the library; the first of them."""
    problem: str = ""
    """Why nothing is known."""
