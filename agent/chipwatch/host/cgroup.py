"""
Linux control groups (v1, v2 and hybrid): finds the cgroups of a process, and reads their limits and usage.

Files: https://docs.kernel.org/admin-guide/cgroup-v2.html and https://docs.kernel.org/admin-guide/cgroup-v1/index.html
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.host.mounts import parsed
from chipwatch.host.procfs import KeptFile, close_all, count, field, open_kept, read, status_of, text

CONTROLLERS = ("", "cpu", "cpuacct", "cpuset", "memory")
NO_LIMIT = 1 << 62
"""From this number on, a memory limit of v1 means "no limit": it is the largest number of pages, in bytes."""
MAX_CPUS = 1 << 16
"""Limit for the number of a CPU; no kernel supports so many."""


class CgroupFolder(NamedTuple):
    """The cgroup of a process in one hierarchy."""

    v2: bool
    path: str
    """The cgroup's path, as seen from the agent's cgroup namespace."""
    chain: tuple[Path, ...]
    """The cgroup's directory, then its ancestors up to the mount; never empty."""

    def up(self, levels: int) -> CgroupFolder:
        """Return the ancestor so many `levels` above, or the top one."""
        return self._replace(chain=self.chain[min(levels, len(self.chain) - 1) :])


class Cgroup(NamedTuple):
    """The cgroups of one process, by v1 controller; the key "" stands for all v2 controllers."""

    folders: Mapping[str, CgroupFolder]

    def folder(self, controller: str) -> CgroupFolder | None:
        """Return the cgroup of `controller`, which is in v1 or in v2; None if there is none."""
        return self.folders.get(controller) or self.folders.get("")

    def cpu_quota(self) -> float | None:
        """Return the lowest CPU quota of the cgroup and its ancestors, in CPUs; None if there is none."""
        texts = self._texts("cpu", "cpu.max", "cpu.cfs_quota_us", "cpu.cfs_period_us")
        return min(filter(None, map(_quota, texts)), default=None)

    def cpuset(self) -> int | None:
        """Return the number of CPUs in the cpuset of the nearest cgroup that has one, or None."""
        texts = self._texts("cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
        return next(filter(None, (len(cpu_list(word)) for words in texts for word in words.split())), None)

    def memory_limit(self) -> int | None:
        """Return the lowest memory limit of the cgroup and its ancestors, in bytes; None if there is none."""
        limits = map(count, self._texts("memory", "memory.max", "memory.limit_in_bytes"))
        return min((limit for limit in limits if limit and limit < NO_LIMIT), default=None)

    def _texts(self, controller: str, v2: str, *v1: str) -> Iterator[str]:
        """Yield the content of a file, by its name in v2 and v1, for the cgroup and its ancestors; "" if unreadable."""
        if folder := self.folder(controller):
            for directory in folder.chain:
                yield " ".join(text(directory / name) for name in ((v2,) if folder.v2 else v1))


def of_process(proc: Path, sys: Path, pid: int | None = None) -> Cgroup:
    """
    Return the cgroups of `pid`, by default of this process; empty if no cgroup is mounted.

    A mount point below /sys is looked up below `sys`.
    """
    table = list(cgroup_mounts(proc, sys))
    folders = {}
    for line in os.fsdecode(read(proc / str(pid or "self") / "cgroup")).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            if controller in CONTROLLERS and (chain := _chain_of(path, controller, table)):
                folders[controller] = CgroupFolder(not controller, path, chain)
    return Cgroup(folders)


def at(proc: Path, sys: Path, path: str) -> Cgroup:
    """Return the cgroup `path` (as in /proc/PID/cgroup) in each hierarchy that has it."""
    table = list(cgroup_mounts(proc, sys))
    chains = {controller: _chain_of(path, controller, table) for controller in CONTROLLERS}
    return Cgroup({name: CgroupFolder(not name, path, chain) for name, chain in chains.items() if chain})


class CgroupLimits(NamedTuple):
    """The CPUs and the bytes of memory that a process may use; None if unknown."""

    cpus: float | None
    memory: int | None


def effective(proc: Path, cgroup: Cgroup, pid: int | None = None, *, pinned: bool = True) -> CgroupLimits:
    """
    Return the limits of `pid`, by default of this process: the lowest of its cgroup, its ancestors and the machine.

    With `pinned`, the CPU affinity of the process is a limit, too.
    """
    online = {int(name) for name in re.findall(r"^cpu(\d+) ", text(proc / "stat"), re.MULTILINE)}
    allowed = cpu_list(status_of(proc, pid or "self", "Cpus_allowed_list:"))
    # The list may include possible CPUs that are not online.
    affinity = len(allowed & online) if pinned else None
    cpus = filter(None, (cgroup.cpu_quota(), cgroup.cpuset(), affinity, len(online)))
    kib = count(field(text(proc / "meminfo"), "MemTotal:").removesuffix(" kB"))
    memory = filter(None, (cgroup.memory_limit(), kib and kib * 1024))
    return CgroupLimits(min(cpus, default=None), min(memory, default=None))


class GroupRow(NamedTuple):
    """A value in a file of a cgroup: its place in cgroup v2 and in v1, None if there is none."""

    controller: str
    v2: tuple[str, str, int] | None
    """The file's name, the pattern of the text before the number, and what to multiply the number by."""
    v1: tuple[str, str, int] | None


CPU, MEMORY = "cpu.stat", "memory.stat"
ROWS: Final = {
    "cpu": GroupRow("cpuacct", (CPU, "usage_usec ", 1000), ("cpuacct.usage", "", 1)),
    "throttled": GroupRow("cpu", (CPU, "throttled_usec ", 1000), (CPU, "throttled_time ", 1)),
    "periods": GroupRow("cpu", (CPU, "nr_periods ", 1), (CPU, "nr_periods ", 1)),
    "throttled_periods": GroupRow("cpu", (CPU, "nr_throttled ", 1), (CPU, "nr_throttled ", 1)),
    "memory": GroupRow("memory", ("memory.current", "", 1), ("memory.usage_in_bytes", "", 1)),
    "inactive": GroupRow("memory", (MEMORY, "inactive_file ", 1), (MEMORY, "total_inactive_file ", 1)),
    "peak": GroupRow("memory", ("memory.peak", "", 1), ("memory.max_usage_in_bytes", "", 1)),
    "swap": GroupRow("memory", ("memory.swap.current", "", 1), (MEMORY, "total_swap ", 1)),
    "oom_kills": GroupRow("memory", ("memory.events", "oom_kill ", 1), ("memory.oom_control", "oom_kill ", 1)),
    "io_some": GroupRow("", ("io.pressure", "some .*total=", 1000), None),
    "cpu_some": GroupRow("", ("cpu.pressure", "some .*total=", 1000), None),
    "memory_full": GroupRow("", ("memory.pressure", "full .*total=", 1000), None),
}
"""The values by our word: of a cgroup and its descendants since its creation, in ns and bytes."""


class GroupFiles:
    """Reads values of one cgroup, whose files stay open."""

    def __init__(self, cgroup: Cgroup, *words: str) -> None:
        """Open the files of the values that `words` name in ROWS."""
        self._cgroup = cgroup
        self._files: dict[str, KeptFile] = {}
        self.places: dict[str, tuple[str, re.Pattern[bytes], int]] = {}
        """The place of each value that the kernel has."""
        self.open(*words)

    def open(self, *words: str) -> None:
        """Read further values, too."""
        for word in words:
            row = ROWS[word]
            folder = self._cgroup.folder(row.controller)
            if not folder or not (place := row.v2 if folder.v2 else row.v1):
                continue
            name, before, scale = place
            path = f"{folder.chain[0]}/{name}"  # a Path is slow to hash
            if file := self._files.get(path) or open_kept(Path(path)):
                self._files[path] = file
                self.places[word] = path, re.compile(rb"\n%b(\d{1,19})\b" % before.encode()), scale

    def read(self) -> dict[str, int | None]:
        """Return each value; None if the kernel does not report it. Raise OSError once the cgroup is removed."""
        texts = {}
        for path, file in self._files.items():
            try:
                texts[path] = b"\n" + file.read()
            except OSError as error:
                if error.errno != errno.EOPNOTSUPP:  # the kernel measures no pressure (psi=0)
                    raise
                texts[path] = b""
        found = {word: (pattern.search(texts[path]), scale) for word, (path, pattern, scale) in self.places.items()}
        return {word: int(match[1]) * scale if match else None for word, (match, scale) in found.items()}

    def close(self) -> None:
        """Close the files; safe to call twice."""
        close_all(*self._files.values())


def cpu_list(words: str) -> set[int]:
    """Return the CPUs in a list such as `0-3,8`; an empty set if it is malformed."""
    cpus: set[int] = set()
    for part in words.strip().split(","):
        first, _, last = part.partition("-")
        low, high = count(first), count(last or first)
        if low is None or high is None or high > MAX_CPUS:
            return set()
        cpus.update(range(low, high + 1))
    return cpus


def cgroup_mounts(proc: Path, sys: Path) -> Iterator[tuple[str, Path, list[str]]]:
    """Yield each cgroup mount that this process sees: root, mount point, and options with the controllers."""
    with contextlib.suppress(OSError):
        for mount, root, _, _, options in parsed((proc / "self/mountinfo").read_bytes()):
            if mount.type in {"cgroup", "cgroup2"}:
                point = Path(mount.point)
                if point.is_relative_to("/sys"):
                    point = sys / point.relative_to("/sys")
                yield root, point, [""] if mount.type == "cgroup2" else options.split(",")


def _chain_of(path: str, controller: str, table: Iterable[tuple[str, Path, list[str]]]) -> tuple[Path, ...]:
    """Return the directory of the cgroup `path` and its ancestors, in the first mount that has it; () if none has."""
    for root, point, controllers in table:
        if controller not in controllers:
            continue
        below = Path(path)
        # A path outside the agent's cgroup namespace begins with /.., and so does the root of a mount that contains it.
        above = root.count("..") - below.parts.count("..")
        # The names of the folders between that root and the path are not known.
        if ".." in below.parts and below.name != ".." and above > 0:
            tail = (glob.escape(part) for part in below.parts if part not in ("/", ".."))
            own = next(point.glob("/".join((*("*",) * above, *tail))), point / "..")
            below = own.relative_to(point)
        elif below.is_relative_to(root):
            own = point / (below := below.relative_to(root))
        else:
            continue
        if ".." in below.parts:
            continue
        with contextlib.suppress(OSError):  # the name may be too long
            if own.is_dir():
                return (own, *list(own.parents)[: len(below.parts)])
    return ()


def _quota(words: str) -> float | None:
    """Return quota / period in CPUs, or None if there is no quota: `max` in v2, -1 in v1, or no such file."""
    quota, period = [*map(count, words.split()), None, None][:2]
    return quota / period if quota and period else None
