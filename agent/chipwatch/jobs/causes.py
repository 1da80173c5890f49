"""Why a device was idle in a tick: one table of causes, each with its condition."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from chipwatch.contract.rules import RULES
from chipwatch.jobs.accounting import HELD_AFTER, SECOND

IDLE_CPU: Final = 0.05
"""CPUs in use below which a job counts as idle; timers and heartbeats use less."""
LIMITS: Final[Mapping[str, float]] = {name: limit for name, (limit, _, _) in RULES["figures"].items()}
"""Figure -> the value from which on it shows a cause: of `SIGNS` and of `chipwatch why` alike."""
CHILD_CPU: Final = 0.9
"""CPUs that a child of the process on the device uses; from here on the process waits for that child."""
SLEEPS: Final = 0.5
"""CPUs in use below which the process on the device counts as sleeping."""
AWAITS: Final = 0.2
"""CPUs in use below which the process on the device may be waiting for the network."""
WELL_BELOW: Final = 0.8
"""Share of a crowded job's CPUs in use; from here on its own tasks take the CPUs, not other work."""
KEPT: Final = 0.8
"""Factor for the limit of the last tick's cause: a figure close to its limit must not flip the cause."""
STARTUP: Final = 600 * SECOND
"""Time (ns) without a kernel and without CPU work for which a new process counts as starting up."""
ACTIVE: Final = 5.0
"""Percent of tensor, floating-point and memory activity; below it a kernel waits, for example in a collective."""
COMPUTE: Final = ("gpu.tensor.active", "gpu.fp64.active", "gpu.fp32.active", "gpu.fp16.active", "gpu.dram.active")


class Evidence(NamedTuple):
    """The host's readings of the jobs on one device in one tick; None is unknown."""

    cpu: float | None = None
    """CPUs that the job uses."""
    allowed: float | None = None
    """CPUs that the job may use."""
    io: float | None = None
    """Share of the time in which some task of the job waited for I/O."""
    blocked: bool = False
    """True if a process of the job is in an uninterruptible wait, for example for a file."""
    quota: float | None = None
    """Share of the periods in which the CPU quota throttled the job."""
    memory: float | None = None
    """Share of the time in which all tasks of the job waited for memory."""
    swaps: bool = False
    """True if the job's memory in swap grew."""
    crowded: float | None = None
    """Share of the time in which some task of the job waited for a CPU."""
    loader: bool = False
    """True if a process on the device mostly sleeps while a child of it computes."""
    network: bool = False
    """True if a process on the device, or a child of it, waits for data from a socket."""
    bound: float | None = None
    """Share in use of the CPUs to which a process on the device binds its children."""

    @property
    def cpus(self) -> float:
        """Return the share in use of the CPUs that the job or its loaders may use; 0 if unknown."""
        return max((self.cpu or 0.0) / self.allowed if self.allowed else 0.0, self.bound or 0.0)

    @property
    def files(self) -> float:
        """Return the share of the time in which the job waited for files; 1 while a process is blocked."""
        return max(self.io or 0.0, float(self.blocked))

    @property
    def is_idle(self) -> bool:
        """True if the job uses almost no CPU."""
        return self.cpu is not None and self.cpu < IDLE_CPU

    @property
    def works(self) -> bool:
        """True if the job computes on a CPU or waits for files; also if that is unknown."""
        return self.cpu is None or self.cpu >= CHILD_CPU or self.files > LIMITS["files"]


NOTHING: Final = Evidence()


class Situation(NamedTuple):
    """A device in one tick, with all that decides why it is idle."""

    evidence: Evidence = NOTHING
    lost: bool = False
    is_known: bool = True
    """True if the device's processes and its utilization are known."""
    has_process: bool = True
    ran: bool = True
    """True if a kernel ran since the device's processes started."""
    since_kernel: int = 0
    """Time (ns) since the last kernel."""
    since_work: int = 0
    """Time (ns) since the job last used a CPU, or since its process started."""
    before: str = ""
    """The cause in the last tick."""

    def limit(self, name: str) -> float:
        """Return the limit of a figure; it is lower if the last tick had the cause that the figure shows."""
        return LIMITS[name] * (KEPT if name in SIGNS.get(self.before, ()) else 1.0)

    def exceeds(self, name: str) -> bool:
        """Return True if a figure is above its limit."""
        return (getattr(self.evidence, name) or 0.0) > self.limit(name)

    @property
    def loads(self) -> bool:
        """True if data loaders use all CPUs that the job may use; False under a quota, which any work can use up."""
        limit = WELL_BELOW if self.exceeds("crowded") else self.limit("cpus")
        return not self.exceeds("quota") and (self.evidence.cpus >= limit or self.evidence.loader)


CAUSES: Final[tuple[tuple[str, Callable[[Situation], bool]], ...]] = (
    ("lost", lambda now: now.lost),
    ("unknown", lambda now: not now.is_known),
    ("no_process", lambda now: not now.has_process),
    ("startup", lambda now: not now.ran and now.since_work < STARTUP),
    ("held", lambda now: not now.ran or (now.since_kernel >= HELD_AFTER and now.evidence.is_idle)),
    # Memory comes before files: a page that returns from swap also counts as a read.
    ("host", lambda now: now.exceeds("memory")),
    ("data", lambda now: now.exceeds("files")),
    ("data", lambda now: now.loads),
    ("network", lambda now: now.evidence.network),
    ("host", lambda now: now.exceeds("quota") or now.exceeds("crowded") or now.evidence.swaps),
    ("other", lambda _: True),
)
"""Each cause with its condition; the first condition that is true gives the cause."""
SIGNS: Final = {"data": ("files", "loader", "cpus"), "host": ("quota", "memory", "crowded", "swaps")}
"""Cause -> the figures of `Evidence` (shares) that show it."""


def cause(now: Situation) -> str:
    """Return the cause for which a device is idle."""
    return next(name for name, holds in CAUSES if holds(now))


def kind_of_work(values: Mapping[str, float]) -> str:
    """Classify the work of kernels as compute, waiting or unknown, by the activity of a GPU's units (metric -> %)."""
    if "gpu.sm.active" not in values or not (shares := [values[name] for name in COMPUTE if name in values]):
        return "unknown"
    return "waiting" if values["gpu.sm.active"] >= ACTIVE and max(shares) < ACTIVE else "compute"
