"""Facts about the jobs on accelerators: the collector `jobs` yields them, processors get them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Literal, NamedTuple

from chipwatch.contract.datapoint import Dimensions

SLURM: Final = "slurm"
KUBERNETES: Final = "kubernetes"
ECS: Final = "ecs"
DOCKER: Final = "docker"
UNIT: Final = "unit"
USER: Final = "user"
KINDS: Final = (SLURM, "pbs", "htcondor", "lsf", "nomad", KUBERNETES, ECS, "kata", DOCKER, UNIT, USER)
"""The kinds of owners. If the path of a cgroup names several, the first of these counts."""
BATCH: Final = KINDS[: KINDS.index("nomad")]
"""The kinds that are jobs of a batch system."""
OwnerLabel = Literal["pod", "namespace", "container", "job", "user", "partition", "hpc_job"]
"""Keys of dimensions that say who holds a device: fields of Owner, and hpc_job, a job of a batch system."""


class Owner(NamedTuple):
    """The job, pod, container, unit or user that a process belongs to. "" stands for unknown."""

    kind: str
    job: str
    """The name of the owner: a job id, a pod's name or uid, an ECS task, a container's id, a unit, or a user."""
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
    """Start of the process (ns since the epoch)."""

    @property
    def key(self) -> tuple[str, str, str]:
        """The identity of the job on this machine; the same from all sources."""
        return self.kind, self.namespace, self.job

    def label(self, key: str) -> str:
        """Return the value of an OwnerLabel; "" if this owner has none."""
        name = "job" if key == "hpc_job" else key
        return "" if name != key and self.kind not in BATCH else str(getattr(self, name))

    def dims(self, *, user: bool = False, container: bool = False) -> Dimensions:
        """Return the dimensions of the job's points; on request with its user, or with the container of a named pod."""
        pairs = {"job": self.job, "partition": self.partition, "namespace": self.namespace}
        if container and self.pod:
            pairs["container"] = self.container
        if user:
            pairs["user"] = self.user
        return Dimensions({key: value for key, value in pairs.items() if value})


class Allocation(NamedTuple):
    """A device that a scheduler gave to a job."""

    device: str
    """One of the ids of `chipwatch.Device`."""
    owner: Owner
    source: str
    """The source of this fact: a scheduler's `mapping` files, the `kubelet`, or a process's `environment`."""


class GroupUse(NamedTuple):
    """The use of resources by a job's cgroup since its creation; None if the kernel does not report it."""

    owner: Owner
    cpu: float | None = None
    """CPU time in seconds."""
    cores: float | None = None
    """Number of CPUs that it may use."""
    periods: int | None = None
    """Number of periods of its CPU quota so far."""
    throttled: int | None = None
    """Number of periods in which the quota held it back."""
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
    """Start of the oldest process that was seen in it (ns since the epoch)."""


class ProcessUse(NamedTuple):
    """The work of a process on an idle device, and of its children."""

    cpu: float
    """CPU seconds of the process."""
    children: Mapping[tuple[int, float], float]
    """CPU seconds of each child that uses no device itself, by pid and start."""
    waits: bool = False
    """True if it, or a child, has waited for data from a TCP socket since the last reading, and none came."""
    delays: Mapping[tuple[int, float], float] = {}
    """Seconds for which the main thread of each child was ready to run and had no CPU, by pid and start."""
    cpus: int = 0
    """Number of CPUs that its children together may use, by their affinity; 0: unknown, or no children."""
    shares_cpus: bool = False
    """True if it may use no CPU that its children may not use."""


class JobFacts(NamedTuple):
    """All facts of one reading of the collector `jobs`. A process is followed if it uses an accelerator."""

    moment: int
    """Time of the reading (monotonic ns)."""
    owners: Mapping[int, Owner]
    """The owner of each followed process, by pid; a process whose owner is unknown is missing."""
    allocations: Sequence[Allocation] = ()
    uses: Sequence[GroupUse] = ()
    cpu: Mapping[int, float] = {}
    """CPU seconds of followed processes whose job has no cgroup, by pid."""
    blocked: frozenset[int] = frozenset()
    """Followed processes in an uninterruptible wait."""
    missing: Mapping[str, str] = {}
    """The reason for each fact that is unknown."""
    processes: Mapping[int, ProcessUse] = {}
    """The work of processes on devices that were partly idle, by pid."""
    stopped: frozenset[int] = frozenset()
    """Followed processes that a signal or a debugger has stopped."""
    delays: Mapping[int, float] = {}
    """Seconds for which the main thread of a process was ready to run and had no CPU, by pid; up to 10 s old."""
    transfers: Mapping[int, tuple[int, int]] = {}
    """Bytes that processes on idle devices read from disks and servers, and wrote to them, by pid; up to 10 s old."""
    followed: Collection[int] | None = None
    """The pids that this reading was asked to follow; None: all. The owner of another process is not known yet."""
    used: int | None = None
    """Time (monotonic ns) of the last reading of `cpu`, `blocked`, `processes` and `stopped`; None for `moment`."""


class Rank(NamedTuple):
    """A rank of a distributed job. "" and -1 stand for unknown."""

    rank: int
    host: str = ""
    """Address of its machine."""
    pid: int = -1
    gpu: int = -1
    """Index of its GPU on that machine."""


class JobCollectives(NamedTuple):
    """The collective communication of a job on all its machines, as its processes last reported it."""

    owner: Owner
    ranks: int = 0
    launched: float | None = None
    """Collectives launched since the first report; None if unknown."""
    behind: Sequence[Rank] = ()
    """The first ranks that launched fewer collectives than others, and none since the last report."""
    behind_count: int = 0
    lag: str = ""
    """The last collective of the ranks behind, and of the others: `AllReduce 6649 of 6650`; or that of `absent`."""
    missing: Sequence[Rank] = ()
    """The first ranks that do not answer."""
    missing_count: int = 0
    dead: int = 0
    failed: Sequence[Rank] = ()
    """The first ranks with an error of the library."""
    problem: str = ""
    """Reason why nothing is known; "" if something is."""
    absent: Sequence[Rank] = ()
    """The ranks that have not joined a collective in which others wait, by the dumps of PyTorch's flight recorder."""
