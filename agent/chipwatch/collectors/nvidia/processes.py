"""Reads the processes on GPUs, by the driver's lists and samples, and the usage by the watched process tree."""

from __future__ import annotations

from collections.abc import Mapping
from ctypes import c_ulonglong
from pathlib import Path
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from chipwatch.collectors.nvidia.query import UNSUPPORTED, NvmlQuery, Rows
from chipwatch.contract.facts import DeviceProcess
from chipwatch.host import nvml
from chipwatch.host.open_devices import open_files
from chipwatch.host.owners import FIRST_NAMESPACE
from chipwatch.host.process_tree import Where, tree_of
from chipwatch.host.procfs import link, read, status_of

if TYPE_CHECKING:
    from chipwatch.collectors.nvidia.device import Part

COMPUTE: Final = "processes.compute"
LISTS: Final = {
    COMPUTE: "nvmlDeviceGetComputeRunningProcesses_v3",
    "processes.graphics": "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "processes.mps": "nvmlDeviceGetMPSComputeRunningProcesses_v3",
}
PROCESS: Final = Struct("I4xQ8x")
"""nvmlProcessInfo_t: PID, bytes in use; two numbers of instances are skipped."""
SAMPLE: Final = Struct("I4xQI12x")
"""nvmlProcessUtilizationSample_t: PID, time, share of multiprocessors; shares of three other engines are skipped."""
NOT_AVAILABLE: Final = 2**64 - 1
"""NVML_VALUE_NOT_AVAILABLE (-1) in the bytes of a process."""
MOST_PID: Final = 1 << 22
"""Largest PID: PID_MAX_LIMIT of Linux. Jetsons also list larger numbers, which are ignored."""
TREE, ALL = "tree", "all"
"""The two readers of the driver's samples; each gets the samples since its last reading."""
FOREIGN: Final = "NVML lists only processes of its caller's PID namespace: share the machine's (hostPID, --pid=host)"
NOWHERE, BY_PID, BY_FILE = "on no GPU", "found by pid", "found by open device files, each GPU as a whole"


class ProcessLists:
    """The driver's lists of processes on a GPU or instance, and its samples of their utilization."""

    def __init__(self, query: NvmlQuery) -> None:
        self._query, self._rows, self._samples = query, Rows(PROCESS), Rows(SAMPLE)
        self.empty: dict[str, int | None] = {}
        """List -> the bytes in use when it was empty; None if it was not."""
        self._last = b"", 0
        """The rows that the driver listed last, and the memory of the device (bytes)."""
        self._running: dict[int, int | None] = {}
        self._servers: dict[int, bool] = {}
        """PID on the device -> True for a server of MPS."""
        self.sampled_until: dict[str, int] = {}
        """Reader -> time of the last sample that it got."""
        self.is_foreign = False
        """True if nothing was listed in a PID namespace of the agent's own, which has no other process."""

    def running(self, handle: Any, most: int, used: int | None) -> dict[int, int | None]:
        """
        Return PID -> bytes in use, None if unknown; larger numbers than `most` are ignored. Raise Lost.

        `used`: bytes of the device in use, None if unknown. While they stay the same, no process begins: a list that
        was empty is not asked again until `empty` is cleared. The compute list is always asked.
        """
        query, read, listed = self._query, self._rows.read, b""
        for name, function in LISTS.items():
            if used is not None and name != COMPUTE and self.empty.get(name) == used:
                query.answered.add(name)
                continue
            rows = query.ask(name, read, nvml.functions[function], handle)
            self.empty[name] = used if rows == b"" else None
            listed += rows or b""
        if (listed, most) != self._last:
            self._last, self._running = (listed, most), {}
            running = self._running
            for pid, memory in PROCESS.iter_unpack(listed):
                if not 0 < pid <= MOST_PID:
                    continue
                if memory <= most:
                    running[pid] = max(memory, running.get(pid) or 0)  # a process may be in two lists
                elif memory == NOT_AVAILABLE:
                    running.setdefault(pid)
        return self._running

    def servers(self, running: dict[int, int | None], proc: Path) -> Mapping[int, bool]:
        """Return PID -> True for a server of MPS; its clients, which are also listed, use the GPU."""
        known = self._servers
        if known.keys() != running.keys():  # comm has the first 15 characters of the name
            self._servers = {
                pid: known[pid] if pid in known else read(f"{proc}/{pid}/comm").startswith(b"nvidia-cuda-mps")
                for pid in running
            }
        return self._servers

    def unlisted(self) -> str:
        """Return why the driver did not list all processes; "" if it did. It may lack lists other than compute."""
        refused = self._query.refused
        for name in filter(refused.__contains__, LISTS):
            code = 0 if name in self._query.answered else refused[name]
            if code and (name == COMPUTE or code not in UNSUPPORTED):
                return f"NVML does not list its processes: {nvml.NVMLError(code)} (NVML {code})"
        return FOREIGN if self.is_foreign else ""

    def new_samples(self, handle: Any, reader: str) -> list[tuple[int, int, int]] | None:
        """
        Return (PID, time, share in %) of the samples since a reader's last call.

        None if the driver has no samples, or at the first call, when their time span is unknown.
        """
        until = self.sampled_until.get(reader)
        function, since = nvml.functions["nvmlDeviceGetProcessUtilization"], c_ulonglong(until or 0)

        def fill(count: Any, array: Any) -> int:
            return function(handle, array, count, since)  # type: ignore[no-any-return]  # a C int

        if (rows := self._query.ask("processes.utilization", self._samples.read, fill)) is None:
            return None
        samples = [*SAMPLE.iter_unpack(rows)]  # none if no process ran since the last sample
        self.sampled_until[reader] = max([at for _, at, _ in samples], default=until or 0)
        return None if until is None else samples


class Tree:
    """
    Finds the watched process tree on GPUs by the PIDs that the driver reports, and reads its usage.

    Older drivers report PIDs of the machine, newer ones PIDs of the caller's namespace. In a container they may report
    no PID or no memory; then a GPU counts as used only by the tree if a member has its device file open.
    """

    def __init__(self, config: Where, pid: int) -> None:
        """`pid`: first process of the tree; raise ProcessLookupError if it does not exist."""
        self._proc = config.proc
        self._tree = tree_of(config, pid)
        self._depth = len(self._numbers("self")) - 1
        self._contained = is_contained(config.proc)
        self._members: frozenset[int] = frozenset()
        self._pids: frozenset[int] = frozenset()
        """All PIDs that the driver may report for members of the tree."""
        self._open: set[str] | None = None
        """Device files of GPUs that members have open; None if not read yet in this tick."""
        self.method = NOWHERE
        """The method by which the tree was found on a GPU, in words."""

    def refresh(self) -> None:
        """Read the members of the tree."""
        self.method, self._open = NOWHERE, None
        members = self._members = self._tree.pids() if self._tree.read(rescan=False) else frozenset()
        # If /proc belongs to another PID namespace, a member has one PID there and another one here.
        depth = self._depth
        numbers = [self._numbers(pid) for pid in members] if depth > 0 else []
        self._pids = members | {pids[depth] for pids in numbers if len(pids) > depth}

    def read(self, part: Part, minor: int | None) -> None:
        """Add the tree's usage of a part of GPU `minor` to its points, if any. Read the part before. Raise Lost."""
        add, now = part.points.add, part.now
        running = part.running() if self._pids else {}
        mine = [memory for pid, memory in running.items() if pid in self._pids]
        if not mine and not self._has_open(minor):
            part.lists.sampled_until.pop(TREE, None)
            return
        if mine and (all(mine) or not self._contained):
            self.method, known = BY_PID, [memory for memory in mine if memory is not None]
            used = sum(known) if len(known) == len(mine) else None
        else:
            self.method, used = BY_FILE, now.used
        if used is not None and now.total and used <= now.total:
            add(("gpu.process.memory.used",), used)
            add(("gpu.process.memory.utilization",), 100 * used / now.total)
        add(("gpu.process.utilization",), self._busy(part, alone=len(mine) == len(running)))

    def _busy(self, part: Part, *, alone: bool) -> float | None:
        """Return the tree's utilization (%) since the last reading; None if unknown."""
        if (samples := part.lists.new_samples(part.handle, TREE)) is None:
            return None
        shares = {pid: share for pid, _, share in samples}
        mine = [share for pid, share in shares.items() if pid in self._pids and share <= 100]
        if shares and not mine and self._contained:  # samples may have PIDs of the machine, unlike lists
            return part.now.busy if alone else None
        return min(100, sum(mine))

    def _has_open(self, minor: int | None) -> bool:
        """Return True if a member has the GPU's device file open; only in a container, because PIDs are better."""
        if self._open is None:
            members = self._members if self._contained else ()
            self._open = {file for pid in members for _, file in open_files(self._proc, pid)}
        return f"/dev/nvidia{minor}" in self._open

    def _numbers(self, pid: int | str) -> list[int]:
        """Return the PIDs of a process in all its PID namespaces, from the namespace of /proc inwards."""
        return [int(word) for word in status_of(self._proc, pid, "NSpid:").split()]


def is_contained(proc: Path) -> bool:
    """Return True if this process is not in the machine's initial PID namespace."""
    return link(f"{proc}/self/ns/pid") not in ("", FIRST_NAMESPACE)


def processes(part: Part, proc: Path) -> list[DeviceProcess]:
    """
    Return the processes on a GPU or instance, with their utilization since the last call; raise Lost.

    Only processes that ran have samples; in a container, samples and lists may have different PIDs.
    """
    running, samples = part.running(), part.lists.new_samples(part.handle, ALL)
    part.lists.is_foreign = not running and is_contained(proc)
    shares = {pid: float(share) for pid, _, share in samples or () if share <= 100}
    is_known = samples is not None and (not shares or not running.keys().isdisjoint(shares))
    share_of, is_server = (shares if is_known else dict.fromkeys(running)).get, part.lists.servers(running, proc)
    clients = [one for one in running.items() if not is_server[one[0]]]
    return [DeviceProcess(part.dims, pid, used, share_of(pid, 0.0)) for pid, used in clients]
