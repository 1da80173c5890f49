"""Why a device is idle: pure functions of one tick."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from chipwatch.processors.jobs.accounting import HELD_AFTER, SECOND

IDLE_CPU: Final = 0.05
"""CPUs that a process without work uses at most: timers and heartbeats take less."""
IO_PRESSURE: Final = 0.2
"""Share of the time in which some task of the job waited for I/O, above which data counts as late."""
LOADER_CPU: Final = 0.9
"""Share of the job's CPUs in use from which its loaders cannot be faster."""
CHILD_CPU: Final = 0.9
"""CPUs in use from which a child of the process on the device counts as computing; the process waits for it."""
SLEEPS: Final = 0.5
"""CPUs in use up to which the process on the device counts as sleeping."""
AWAITS: Final = 0.2
"""CPUs in use up to which the process on the device may be waiting for the network."""
CROWDED: Final = 0.3
"""Share of the time in which some task of the job waited for a CPU, above which others count as taking its CPUs."""
WELL_BELOW: Final = 0.8
"""Share of the job's CPUs in use from which its tasks wait for each other, and not for other work."""
KEPT: Final = 0.8
"""Part of a limit above which the cause of the last tick goes on, so that a figure at a limit does not flip it."""
STARTUP: Final = 600 * SECOND
"""Time from the start of a process, without a kernel and without work, for which it counts as starting up."""
QUOTA_PERIODS: Final = 0.1
"""Share of the periods in which the CPU quota held the job back; bursts of a healthy job reach a few percent."""
MEMORY_PRESSURE: Final = 0.05
"""Share of the time in which all tasks of the job waited for memory; healthy is zero."""
ACTIVE: Final = 5.0
"""Percent of tensor, floating point and memory activity below which kernels wait, for example in a collective."""
COMPUTE: Final = ("gpu.tensor.active", "gpu.fp64.active", "gpu.fp32.active", "gpu.fp16.active", "gpu.dram.active")


class Evidence(NamedTuple):
    """The host's readings of the jobs on a device over the tick; None if unknown."""

    cpu: float | None = None
    """CPUs in use by the job."""
    cpus: float | None = None
    """CPUs that the job may use."""
    io: float | None = None
    """Share of the time in which some of its tasks waited for I/O."""
    blocked: bool = False
    """A process of it is in an uninterruptible wait, as for a file."""
    quota: float | None = None
    """Share of the periods in which its CPU quota held it back."""
    memory: float | None = None
    """Share of the time in which all of its tasks waited for memory."""
    swaps: bool = False
    """Its memory in swap grew."""
    crowded: float | None = None
    """Share of the time in which some of its tasks waited for a CPU."""
    loader: bool = False
    """A child of a process on the device computes, and the process mostly sleeps."""
    network: bool = False
    """A process on the device, or a child of it, waits for data of a socket, and none came."""
    bound: float | None = None
    """Share in use, by the children of a process on the device, of the CPUs to which they are bound."""

    @property
    def full(self) -> float:
        """Return the share in use of the CPUs that the job, or its loaders, may use; 0 if it is unknown."""
        return max((self.cpu or 0.0) / self.cpus if self.cpus else 0.0, self.bound or 0.0)

    @property
    def works(self) -> bool:
        """True if the job uses a CPU or waits for files, or if that is unknown."""
        return self.cpu is None or self.cpu >= CHILD_CPU or (self.io or 0) > IO_PRESSURE or self.blocked


def cause(
    *,
    lost: bool,
    is_known: bool,
    processes: int,
    ran: bool,
    since_kernel: int,
    since_work: int,
    evidence: Evidence,
    before: str = "",
) -> str:
    """
    Return why a device was idle: the first cause that applies.

    `is_known`: processes and utilization are known. `ran`: a kernel ran since a process came, `since_kernel` ns ago.
    `since_work`: time since the job used a CPU, or since its process came. `before`: the cause of the last tick.
    """
    if lost or not is_known or not processes:
        return "lost" if lost else "no_process" if is_known else "unknown"
    cpu = evidence.cpu
    is_idle = cpu is not None and cpu < IDLE_CPU
    data, host = (KEPT if before == name else 1.0 for name in ("data", "host"))
    throttled = (evidence.quota or 0) > QUOTA_PERIODS * host
    crowded = (evidence.crowded or 0) > CROWDED * host
    # A job that its quota throttles uses all CPUs that it may use, whether or not it loads data.
    loads = evidence.full >= (WELL_BELOW if crowded else LOADER_CPU * data) and not throttled
    holds = (
        ("startup", not ran and since_work < STARTUP),
        ("held", not ran or (since_kernel >= HELD_AFTER and is_idle)),
        ("host", (evidence.memory or 0) > MEMORY_PRESSURE * host),  # pages that come back are reads, too
        ("data", (evidence.io or 0) > IO_PRESSURE * data or evidence.blocked),
        ("data", loads or (evidence.loader and not throttled)),
        ("network", evidence.network),
        ("host", throttled or evidence.swaps or crowded),
    )
    return next((name for name, is_so in holds if is_so), "other")


def shown(cause: str, evidence: Evidence) -> Iterator[tuple[str, float]]:
    """Yield the figures of a tick that show its cause, as shares."""
    if cause == "data":
        yield "files", max(evidence.io or 0.0, float(evidence.blocked))
        yield "loader", float(evidence.loader)
        yield "cpus", evidence.full
    elif cause == "host":
        for name in ("quota", "memory", "crowded"):
            yield name, getattr(evidence, name) or 0.0
        yield "swaps", float(evidence.swaps)


def kind_of_work(values: Mapping[str, float]) -> str:
    """Return the work of kernels by the activity of a GPU's units (metric -> percent): compute, waiting or unknown."""
    if "gpu.sm.active" not in values or not (shares := [values[name] for name in COMPUTE if name in values]):
        return "unknown"
    return "waiting" if values["gpu.sm.active"] >= ACTIVE and max(shares) < ACTIVE else "compute"
