"""Collects CPU and memory of the container or job step in which the agent runs, from its cgroup (Linux)."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from chipwatch.contract.datapoint import Datapoint, Level, counter, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host import cgroup
from chipwatch.host.cgroup import Cgroup, CgroupLimits, GroupFiles
from chipwatch.host.counters import Counters
from chipwatch.host.process_tree import stat_of
from chipwatch.host.procfs import close_all, epoch
from chipwatch.host.prompt import PromptCollector

# fmt: off
CPU_UTILIZATION = gauge(
    "container.cpu.utilization", "%", "CPU used by the container, of the CPUs that it may use (quotas and CPU set).")
CPU_THROTTLED = counter(
    "container.cpu.throttled", "s", "Time for which the CPU quota held the container's threads back.", Level.DETAILED)
MEMORY_USED = gauge(
    "container.memory.used", "By", "Working set of the container: its memory without the inactive page cache.")
MEMORY_LIMIT = gauge(
    "container.memory.limit", "By", "Memory that the container may use: the least limit around it, or the machine's.")
MEMORY_UTILIZATION = gauge(
    "container.memory.utilization", "%", "Working set of the container, of the memory that it may use.")
OOM_KILLS = counter(
    "container.memory.oom_kills", "{kill}", "Processes of the container killed for lack of memory.", Level.DETAILED)
# fmt: on

REFRESH = 60 * 10**9
"""Interval (ns) between readings of the limits and of the process's cgroup, because both may change."""

CONTAINER = re.compile(
    r".*/(?:"
    r"(?:docker|cri-containerd|crio|libpod|nerdctl)-(?!conmon)[^/]+\.scope"  # named by systemd
    r"|[^/]+:cri-containerd:[^/]+"
    r"|(?:docker|libpod_parent|lxc|garden|ecs(?:/[^/]+)?|kubepods(?:/[^/]+)?/pod[^/]+)/[^/]+"  # by the runtime
    r"|lxc\.payload\.[^/]+"
    r"|job_\d+"  # Slurm
    r")(?=/|$)"
)
"""Matches a cgroup path up to the innermost container, but not docker.service and containerd.service."""


class ContainerCollector(PromptCollector):
    """Reads the cgroup of the container that this process runs in."""

    metrics = (CPU_UTILIZATION, CPU_THROTTLED, MEMORY_USED, MEMORY_LIMIT, MEMORY_UTILIZATION, OOM_KILLS)
    needs = Needs(level=True)

    @dataclass(frozen=True, slots=True)
    class Config:
        """Paths, and when to read."""

        proc: Path = Path("/proc")
        sys: Path = Path("/sys")
        root: Path = Path("/")
        when: Literal["auto", "always", "never"] = "auto"
        """`auto` reads only inside a container; `always` reads the cgroup of this process in any case."""

    def __init__(self, config: Config, environ: Mapping[str, str] = os.environ) -> None:
        """`environ`: in it some runtimes set the variable `container`."""
        self._config = config
        self._environ = environ
        self._marks = config.root / ".dockerenv", config.root / "run/.containerenv"
        self._clock = time.monotonic_ns
        self._usage: GroupFiles | None = None
        self._identity: object = None
        self._where = ""
        self._limits = CgroupLimits(None, None)
        self._counters = Counters()
        self._due = 0
        self._last: tuple[int, int] | None = None

    def open(self, given: Given) -> None:
        self._level = given.level
        if self._config.when == "never":
            raise Unavailable('collectors.container.when = "never"')
        around = cgroup.of_process(self._config.proc, self._config.sys)
        if not around.folders:
            raise Unavailable(
                f"no cgroup is mounted: see {self._config.proc}/self/cgroup and {self._config.proc}/self/mountinfo"
            )
        if self._container(around) is None:
            paths = ", ".join(sorted({folder.path for folder in around.folders.values()}))
            marks = " nor ".join(map(str, self._marks))
            raise Unavailable(
                f"not in a container: the cgroup is {paths}, and neither {marks} exists;"
                ' set collectors.container.when = "always" to read the cgroup anyway'
            )
        self._due, self._last, self._identity = 0, None, None

    def collect(self, at: int) -> Iterable[Datapoint]:
        try:
            self._refresh()
            yield from self._read(at)
        except OSError as error:
            self._due, self._last = 0, None
            raise PartlyCollected([f"the cgroup {self._where} is gone: {error.strerror}"]) from None

    def describe(self) -> str:
        cpus, memory = self._limits
        return f"{self._where}, {cpus or 0:g} CPUs, {(memory or 0) / 2**30:.1f} GiB"

    def close(self) -> None:
        close_all(self._usage)
        self._usage = self._identity = None

    def _container(self, around: Cgroup) -> Cgroup | None:
        """Return the cgroups of the container, None outside one; `around`: the cgroups of this process."""
        if self._config.when == "always":
            return around
        named = {
            controller: folder.up(folder.path.count("/", match.end()))
            for controller, folder in around.folders.items()
            if (match := CONTAINER.match(folder.path))
        }
        if named:
            return Cgroup(named)
        unified = around.folders.get("")
        # The machine's root cgroup has neither file. If one exists, this root belongs to a container's namespace.
        if unified and any((unified.chain[-1] / name).exists() for name in ("memory.current", "cgroup.type")):
            return Cgroup({**around.folders, "": unified.up(len(unified.chain))})
        return around if self._environ.get("container") or any(mark.exists() for mark in self._marks) else None

    def _refresh(self) -> None:
        """Every REFRESH, read the limits, and follow the process if it has moved to another cgroup."""
        now = self._clock()
        if now < self._due:
            return
        container = self._container(cgroup.of_process(self._config.proc, self._config.sys))
        if container:
            identity = {name: folder.chain[0].stat().st_ino for name, folder in container.folders.items()}
            if identity != self._identity:
                start_time = None if self._identity else self._started(container)
                self.close()
                words = ("cpu", "memory", "inactive", "throttled", "oom_kills")
                self._usage = GroupFiles(container, *words[: 5 if self._level >= Level.DETAILED else 3])
                self._identity, self._last = identity, None
                self._counters = Counters(start_time)
                self._where = str(next(iter(container.folders.values())).chain[0])
            # The agent may be pinned to fewer CPUs than the container, so its affinity counts only without a CPU set.
            pinned = container.cpuset() is None
            self._limits = cgroup.effective(self._config.proc, container, pinned=pinned)
        self._due = now + REFRESH

    def _read(self, at: int) -> Iterator[Datapoint]:
        limits = self._limits
        if not self._usage:
            return
        now, get = self._clock(), self._usage.read().get
        if (used := get("cpu")) is not None:
            if self._last and limits.cpus and now > self._last[0] and used >= self._last[1]:
                share = (used - self._last[1]) / (now - self._last[0]) / limits.cpus
                # It may exceed 100 % by a burst of the quota, or if a limit was raised since the last refresh.
                yield CPU_UTILIZATION.point(at, min(100.0, 100 * share))
            self._last = now, used
        memory, inactive = get("memory"), get("inactive")
        if memory is not None and inactive is not None:
            # Without the inactive page cache, which the kernel reclaims first; the files are read one after the other.
            working_set = max(0, memory - inactive)
            yield MEMORY_USED.point(at, working_set)
            if limits.memory:
                yield MEMORY_UTILIZATION.point(at, min(100.0, 100 * working_set / limits.memory))
        if limits.memory:
            yield MEMORY_LIMIT.point(at, limits.memory)
        if (throttled := get("throttled")) is not None:
            yield self._counters.point(CPU_THROTTLED, at, throttled / 1e9)
        if (kills := get("oom_kills")) is not None:
            yield self._counters.point(OOM_KILLS, at, kills)

    def _started(self, container: Cgroup) -> int | None:
        """
        Return the start of a container's first process (ns since the epoch); None if unknown.

        The kernel does not record the start of a cgroup. Process 1 is the container's first process only if it is in
        the container; it is not if the container shares the machine's PIDs.
        """
        proc, sys = self._config.proc, self._config.sys
        first = cgroup.of_process(proc, sys, 1).folders
        if not all(name in first and own.chain[0] in first[name].chain for name, own in container.folders.items()):
            return None
        stat = stat_of(proc, 1)
        return epoch(proc, stat.began) if stat else None
