"""Why a device is idle: one table of causes, each with its condition on one tick."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from chipwatch.jobs.accounting import HELD_AFTER, SECOND

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
    allowed: float | None = None
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
    def cpus(self) -> float:
        """Return the share in use of the CPUs that the job, or its loaders, may use; 0 if it is unknown."""
        return max((self.cpu or 0.0) / self.allowed if self.allowed else 0.0, self.bound or 0.0)

    @property
    def files(self) -> float:
        """Return the share of the time in which it waited for files, 1 while a process is in such a wait."""
        return max(self.io or 0.0, float(self.blocked))

    @property
    def is_idle(self) -> bool:
        """True if the job uses no CPU."""
        return self.cpu is not None and self.cpu < IDLE_CPU

    @property
    def works(self) -> bool:
        """True if the job uses a CPU or waits for files, or if that is unknown."""
        return self.cpu is None or self.cpu >= CHILD_CPU or (self.io or 0) > IO_PRESSURE or self.blocked


NOTHING: Final = Evidence()


class Situation(NamedTuple):
    """An idle device in one tick."""

    evidence: Evidence = NOTHING
    lost: bool = False
    is_known: bool = True
    """Its processes and its utilization are known."""
    has_process: bool = True
    ran: bool = True
    """A kernel ran since a process came."""
    since_kernel: int = 0
    """Time (ns) since the last kernel."""
    since_work: int = 0
    """Time (ns) since the job used a CPU, or since its process came."""
    before: str = ""
    """The cause of the last tick."""

    def exceeds(self, figure: float | None, limit: float, cause: str) -> bool:
        """Return whether a figure is above the limit of a cause; that is lower where the cause goes on."""
        return (figure or 0.0) > limit * (KEPT if self.before == cause else 1.0)

    @property
    def is_throttled(self) -> bool:
        """True if the CPU quota holds the job back."""
        return self.exceeds(self.evidence.quota, QUOTA_PERIODS, "host")

    @property
    def is_crowded(self) -> bool:
        """True if others use the CPUs for which the job waits."""
        return self.exceeds(self.evidence.crowded, CROWDED, "host")

    @property
    def loads(self) -> bool:
        """True if loaders cannot be faster; a job that its quota throttles uses all its CPUs, whatever it does."""
        limit = WELL_BELOW if self.is_crowded else LOADER_CPU * (KEPT if self.before == "data" else 1.0)
        return not self.is_throttled and (self.evidence.cpus >= limit or self.evidence.loader)


CAUSES: Final[tuple[tuple[str, Callable[[Situation], bool]], ...]] = (
    ("lost", lambda now: now.lost),
    ("unknown", lambda now: not now.is_known),
    ("no_process", lambda now: not now.has_process),
    ("startup", lambda now: not now.ran and now.since_work < STARTUP),
    ("held", lambda now: not now.ran or (now.since_kernel >= HELD_AFTER and now.evidence.is_idle)),
    # Memory comes before files: pages that come back are reads, too.
    ("host", lambda now: now.exceeds(now.evidence.memory, MEMORY_PRESSURE, "host")),
    ("data", lambda now: now.exceeds(now.evidence.io, IO_PRESSURE, "data") or now.evidence.blocked),
    ("data", lambda now: now.loads),
    ("network", lambda now: now.evidence.network),
    ("host", lambda now: now.is_throttled or now.is_crowded or now.evidence.swaps),
    ("other", lambda _: True),
)
"""The causes and their conditions: the first one that holds is the cause."""
SIGNS: Final = {"data": ("files", "loader", "cpus"), "host": ("quota", "memory", "crowded", "swaps")}
"""The figures of `Evidence` that show a cause, as shares."""


def cause(now: Situation) -> str:
    """Return why a device is idle."""
    return next(name for name, holds in CAUSES if holds(now))


def kind_of_work(values: Mapping[str, float]) -> str:
    """Return the work of kernels by the activity of a GPU's units (metric -> percent): compute, waiting or unknown."""
    if "gpu.sm.active" not in values or not (shares := [values[name] for name in COMPUTE if name in values]):
        return "unknown"
    return "waiting" if values["gpu.sm.active"] >= ACTIVE and max(shares) < ACTIVE else "compute"
