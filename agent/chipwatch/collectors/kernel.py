"""Counts messages of the kernel that report trouble, by kind; docs/node-metrics.md."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import RiseEvidence
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.pace import CALM, ZEROS, Pace
from chipwatch.host.procfs import OpenFile, boot_time, text
from chipwatch.host.prompt import PromptCollector
from chipwatch.host.state_file import read_state, write_state
from chipwatch.host.xid import action_of, is_applications_own

PATTERNS: Final = {
    "xid": r"NVRM: Xid \([^)]*\): (?P<code>[0-9]+)",
    "gpu_lost": r"NVRM: .*fallen off the bus",
    "gpu_init": r"NVRM: .{0,40}RmInitAdapter failed",
    "nvlink": r"NVRM: (?:GPU\S* )?knvlink\S+ .{0,60}(?:postRxDetLinkMask|Rx Detect Link [Mm]ask)",
    "peermem": r"nvidia-peermem \S+ ERROR",
    "sxid": r"nvidia-nvswitch[0-9]+: SXid \([^)]*\): [0-9]+",
    "amd_reset": r"amdgpu (?:\S+ (?:amdgpu: )?)?GPU reset begin",
    "amd_timeout": r"(?:amdgpu \S+ (?:amdgpu: )?|\[drm:amdgpu_job_timedout.{0,40}\*ERROR\* )ring \S+ timeout"
    r"|amdgpu(?: \S+(?: amdgpu:)?|:) MES might be in unrecoverable state",
    "amd_error": r"amdgpu (?:\S+ (?:amdgpu: )?)?(?:\{[0-9]+\})?uncorrectable hardware error\s?\(ERREVENT",
    "amd_aca": r"amdgpu \S+ (?:amdgpu: )?(?:\{[0-9]+\})?\[Hardware [Ee]rror\]:? Accelerator Check Architecture events",
    "gpu_unusable": r"habanalabs.{1,80}Device is NOT usable"
    r"|xe \S+ \[drm\] (?:\*ERROR\* CRITICAL: Xe has declared device \S+ as wedged|device wedged, needs recovery)",
    "neuron": r"(?:\S+ )?NEURON_HW_ERR=",
    "oom_kill": r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process",
    "hung_task": r"INFO: task .{1,40} blocked (?:in I/O wait )?for more than [0-9]+ seconds",
    "soft_lockup": r"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#",
    "hard_lockup": r"(?:NMI )?watchdog: (?:CPU[0-9]+: )?Watchdog detected hard LOCKUP on cpu",
    "rcu_stall": r"(?:rcu: )?INFO: rcu_\S+ (?:self-detected stall on CPU|detected (?:expedited )?stalls on CPUs)",
    "read_only": r"EXT4-fs .{1,60}(?:Remounting filesystem read-only|shut ?down)"
    r"|XFS .{1,160}(?:[Ss]hutting down filesystem|Filesystem has been shut down)|BTRFS.{1,80} forced readonly",
    "nvme": r"nvme nvme[0-9]+: (?:I/O .{1,80} timeout|Disabling device after reset|controller is down)",
    "disk_error": r"Buffer I/O error on dev"
    r"|(?:(?:blk_update_request|print_req_error): )?(?:I/O|critical medium) error, dev"
    r"|XFS \([^)]{1,40}\): (?:log|metadata) I/O error|md/raid.{1,20}: Disk failure"
    r"|EXT4-fs .{1,60}I/O error (?:while writing|to) superblock"
    r"|block \S+ no available path - failing I/O",
    "fs_error": r"EXT4-fs error \(device|(?:JBD2: )?Aborting journal on device"
    r"|XFS \([^)]{1,40}\): (?:Internal error|Metadata (?:corruption|CRC error) detected)"
    r"|BTRFS(?: critical|: error) \(device [^)]{1,60}\):? (?:in |corrupt)",
    "nfs": r"nfs: server \S+ not responding",
    "mlx5_port": r"mlx5_core \S+ .{0,60}Port module event.{1,40}(?:Cable error|High Temperature)",
    "mlx5_power": r"mlx5_core .{1,80}Detected insufficient power on the PCIe slot",
    "mlx5_health": r"mlx5_core .{1,80}(?:device's health compromised|health recovery flow aborted)"
    r"|mlx5_core .{1,80}Fatal error [0-9]+ detected",
    "nic_timeout": r"(?:[\w-]+ \S*[^\s:] [\w.]+: )?NETDEV WATCHDOG: .{1,60}transmit (?:queue [0-9]+ )?timed out"
    r"|(?:efa \S+|infiniband (?:efa|rdmap)\S*) (?:Wait for completion \(polling\) timeout|Admin queue is closed"
    r"|The device didn't send any completion for admin)",
    "aer_corrected": r"pcieport \S+ AER: (?:Multiple )?Correct(?:ed|able) error",
    "aer_uncorrected": r"pcieport \S+ AER: (?:Multiple )?(?:Uncorrect(?:ed|able)|(?:Non-)?Fatal) "
    r"|pcieport \S+ DPC: containment event"
    r"|\S+ [0-9a-f]{4,}:\S+ PCIe Bus Error: severity=Uncorrect",
    "mce": r"mce: \[Hardware Error\]: (?:Machine check events logged|CPU [0-9]+: Machine Check)"
    r"|\{[0-9]+\}\[Hardware Error\]: Hardware error from APEI|\[Hardware Error\]: MC[0-9]+ Error",
    "memory_uncorrected": r"EDAC (?:\S+ )?MC[0-9]+: (?:[0-9]+ )?UE ",
    "nccl_segfault": r"[^\[]{1,15}\[[0-9]+\]: segfault at .* in libnccl",
    "file_limit": r"VFS: file-max limit [0-9]+ reached",
}
"""Kind -> pattern of the beginning of a message; tests/fixtures/SOURCES.kernel.txt has the sources of each."""
APPLICATIONS_XID: Final = "xid_app"
"""Kind of an Xid that a program causes and that needs no action of an administrator."""
XIDS: Final = {"reset_gpu": "xid_reset", "restart_machine": "xid_restart", "check_hardware": "xid_check"}
"""Immediate action in NVIDIA's catalogue -> kind. With another action, and not by an application, it stays `xid`."""
KINDS: Final = (*PATTERNS, *XIDS.values(), APPLICATIONS_XID)
ANY: Final = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in PATTERNS.items()).encode())


def kind_of(message: bytes) -> str | None:
    """Return the kind of a message, None if it is not counted. Its beginning decides: programs may write the rest."""
    if not (match := ANY.match(message)):
        return None
    if not match["code"]:
        return match.lastgroup
    code = match["code"].decode()
    return APPLICATIONS_XID if is_applications_own(code) else XIDS.get(action_of(int(code[:9])), "xid")


MAX_RECORD: Final = 8192
"""Bytes of the longest record; the kernel refuses a smaller buffer (CONSOLE_EXT_LOG_MAX before 6.4)."""
MAX_RECORDS: Final = 50_000
"""Most records of one reading; the next reading takes the rest."""
KERNEL: Final = 8
"""Priorities below this belong to messages of the kernel; programs have written the others."""


class KernelLog(OpenFile):
    """
    An open log whose `read` yields each record once: /dev/kmsg (Documentation/ABI/testing/dev-kmsg of Linux).

    Set `next` to skip records that an earlier run has read.
    """

    def __init__(self, path: Path) -> None:
        """Open the log at its oldest record; raise OSError."""
        super().__init__(path)
        self.next: int | None = None
        """Number of the next record to read; None for any."""
        self.first: int | None = None
        """Number of the oldest record in the log; None before the first was read."""
        self.lost = 0
        """Number of records that were overwritten before they were read."""
        self.is_drained = False
        """True if the last reading reached the end of the log."""

    def read(self) -> Iterator[tuple[int, bytes]]:
        """
        Yield (time, text) of the kernel's messages since the last reading, at most MAX_RECORDS; raise OSError.

        The time is in microseconds since the boot, on a clock that stops during suspend. Further lines of a text name
        the device.
        """
        for _ in range(MAX_RECORDS):
            try:
                record = os.read(self._fd, MAX_RECORD)
            except BlockingIOError:
                record = b""
            except OSError as problem:
                if problem.errno != errno.EPIPE:
                    raise
                continue  # the record was overwritten; the next call returns the oldest one that is left
            if not record:
                self.is_drained = True
                return
            head, _, text = record.partition(b";")
            try:
                priority, number, time = map(int, head.split(b",", 4)[:3])
            except ValueError as problem:
                raise OSError(f"{self.path} is not a log of the kernel") from problem
            self.first = number if self.first is None else self.first
            if self.next is not None and number < self.next:
                continue
            self.lost += number - (number if self.next is None else self.next)
            self.next = number + 1
            if priority < KERNEL:
                yield time, text
        self.is_drained = False


EVENTS: Final = counter("kernel.events", "{event}", "Messages of the kernel that tell of trouble.", dims=("kind",))
LOST: Final = counter(
    "kernel.log.lost", "{message}", "Messages of the kernel that were overwritten before they were read.",
    Level.DETAILED)  # fmt: skip
RESTRICTED: Final = (
    "{path}: {why}: with kernel.dmesg_restrict = 1 a reader needs CAP_SYSLOG (a unit: AmbientCapabilities=CAP_SYSLOG;"
    " Kubernetes: privileged)"
)
STATE: Final = "kernel.json"
"""Name of the file in the state folder."""
MAX_STATE: Final = 1 << 16
"""Most bytes of that file."""
SAVE: Final = 60.0
"""Most seconds between two saves. A new count is saved at once."""
MAX_MESSAGE: Final = 300
"""Most characters of a message that is shown as evidence."""
DIMS: Final = {kind: Dimensions(kind=kind) for kind in KINDS}
Whole = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A value that a datapoint can have."""


class KernelCounts(msgspec.Struct):
    """The counts since one boot, as the state folder keeps them."""

    boot: str
    next: Whole | None = None
    """Number of the next message to read."""
    lost: Whole = 0
    since: Whole = 0
    """Time at which all counts were 0 (ns since the epoch); 0 before the first reading."""
    counts: dict[str, Whole] = {}
    starts: dict[str, Whole] = {}
    """Kind with events -> start time of its counter (ns since the epoch)."""
    evidence: dict[str, tuple[Whole, str]] = {}
    """Kind -> time and text of its last message."""


class KernelCollector(PromptCollector):
    """
    Counts the kernel's messages since the boot, each exactly once, also across a restart of the agent.

    The state folder keeps the counts, the number of the next message, and the identity of the boot.
    """

    metrics = (EVENTS, LOST)
    needs = Needs(state=True, events={EVENTS.name})
    every = CALM
    knows = (RiseEvidence,)

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the log is."""

        path: Path = Path("/dev/kmsg")
        """The kernel's log, record by record."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; set by --proc."""

    def __init__(self, config: Config) -> None:
        self._config, self._given = config, Given()
        self._log: KernelLog | None = None
        self._kept = KernelCounts("")
        self._read_at: int | None = None
        """Time of the last complete reading (ns since the epoch)."""

    def open(self, given: Given) -> None:
        self._given, self._read_at = given, None
        self._zeros_pace, self._save_pace = Pace(ZEROS), Pace(SAVE)
        if sys.platform != "linux":
            raise Unavailable("the kernel's log is read on Linux only")
        path = self._config.path
        try:
            log = KernelLog(path)
        except OSError as problem:
            denied = problem.errno in (errno.EPERM, errno.EACCES)
            form = RESTRICTED if denied else "{path}: {why}; in a container mount the host's /dev/kmsg there"
            raise Unavailable(form.format(path=path, why=problem.strerror)) from problem
        boot = text(self._config.proc / "sys/kernel/random/boot_id")
        self._log, self._kept = log, KernelCounts(boot, evidence=self._kept.evidence)
        with suppress(OSError, msgspec.MsgspecError, RecursionError):
            self._load(log)

    def collect(self, at: int) -> Iterator[Datapoint]:
        """
        Yield a counter for each kind with events; with `zeros` also for other kinds, less often.

        Without `zeros`, the start time of a kind's first point is the reading before, so that the first event counts.
        """
        assert self._log is not None
        log, kept, lost = self._log, self._kept, self._log.lost
        born, changed = at - time.monotonic_ns(), False
        for microseconds, message in log.read():
            if kind := kind_of(message):
                kept.counts[kind] = kept.counts.get(kind, 0) + 1
                changed = True
                shown = message.partition(b"\n")[0][:MAX_MESSAGE].decode(errors="replace")
                kept.evidence[kind] = min(at, born + 1000 * microseconds), shown
        kept.next, kept.lost = log.next, kept.lost + log.lost - lost
        if not log.is_drained:
            return
        if not kept.since:
            # Count from the boot if its first message is still in the log, otherwise from now.
            boot = boot_time(self._config.proc) if log.first == 0 else None
            kept.since = min(at, boot or at)
        start = kept.since if self._given.zeros or self._read_at is None else min(self._read_at, at - 1)
        for kind in kept.counts:
            kept.starts.setdefault(kind, start)
        for kind in KINDS if self._given.zeros and self._zeros_pace.is_due(at) else kept.counts:
            yield EVENTS.point(at, kept.counts.get(kind, 0), DIMS[kind], start_time=kept.starts.get(kind, kept.since))
        self._read_at = at
        yield LOST.point(at, kept.lost, start_time=kept.since)
        if self._save_pace.is_due(at) or changed or log.lost > lost:
            self._save()

    def facts(self) -> Iterator[RiseEvidence]:
        return (RiseEvidence(DIMS[kind], at, text) for kind, (at, text) in self._kept.evidence.items())

    def describe(self) -> str:
        return f"{self._kept.next or 0} messages since the boot, {self._kept.lost} lost" if self._log else ""

    def close(self) -> None:
        if self._log:
            self._save()
            self._log.close()
            self._log = None

    def _load(self, log: KernelLog) -> None:
        """Restore the counts of an earlier run since this boot; raise OSError, MsgspecError or RecursionError."""
        new = self._kept
        if self._given.state is None or not new.boot:
            return
        kept = msgspec.json.decode(read_state(self._given.state / STATE, MAX_STATE), type=KernelCounts)
        if kept.boot == new.boot:
            known = DIMS.keys() & {kind for kind, count in kept.counts.items() if count}
            for table in (kept.counts, kept.starts, kept.evidence):
                for kind in table.keys() - known:
                    del table[kind]
            kept.evidence |= new.evidence
            self._kept, log.next = kept, kept.next

    def _save(self) -> None:
        """Save the counts, if the state folder exists and belongs to this user."""
        if self._given.state is not None and self._kept.next is not None and self._kept.since:
            with suppress(OSError):
                write_state(self._given.state / STATE, msgspec.json.encode(self._kept))
