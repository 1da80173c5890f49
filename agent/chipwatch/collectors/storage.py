"""Collects the health of storage: NVMe drives, file systems that became read-only, servers of NFS and Lustre."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host.blocking_call import BlockingCall, at_once
from chipwatch.host.counters import Counters
from chipwatch.host.mounts import MountLine, parsed
from chipwatch.host.procfs import text
from chipwatch.host.rows import FileRow, Folder, Folders, each

READ_ONLY: Final = gauge(
    "disk.read_only", "1", "Whether a file system mounted for writing is now read-only: 1, else 0.", dims=("path",)
)
DEVICE: Final = ("device",)
ERRORS: Final = counter("disk.filesystem.errors", "{error}", "Errors that ext4 found on a file system.", dims=DEVICE)
NVME: Final = gauge("disk.nvme.state", "1", "Whether an NVMe controller is live: 1, else 0.", dims=DEVICE)
TEMPERATURE: Final = gauge("disk.nvme.temperature", "Cel", "Temperature of an NVMe drive.", Level.DETAILED, DEVICE)
EXT4: Final = (FileRow(ERRORS, "errors_count"),)
MILLIDEGREES: Final = re.compile(rb"^([1-9]\d*)$")
"""Matches a temperature other than 0, which an absent sensor reads."""
DRIVE: Final = (
    FileRow(NVME, "state", pattern=re.compile(rb"(live)|\S")),
    FileRow(TEMPERATURE, "hwmon*/temp1_input", 1e-3, MILLIDEGREES),
    FileRow(TEMPERATURE, "device/hwmon/hwmon*/temp1_input", 1e-3, MILLIDEGREES),
)
DISCONNECTED: Final = gauge("lustre.disconnected", "{target}", "Targets of Lustre that are not connected.")
CONNECTED: Final = gauge(
    "lustre.connected", "1", "Whether a target of Lustre is connected: 1, else 0.", Level.DETAILED, ("target",)
)
WRITABLE: Final = frozenset(
    {"bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "jfs", "nilfs2", "ntfs3", "reiserfs", "vfat", "xfs", "zfs"}
)
"""Types of file systems on disks. Others, such as squashfs, are read-only by design."""
TARGET: Final = re.compile(r"^\s*target: (\S+)$", re.MULTILINE)
IMPORT: Final = (FileRow(CONNECTED, "import", pattern=re.compile(rb"^\s*state: (?:(FULL|IDLE)$|\S)", re.MULTILINE)),)
"""The file of a Lustre import, 1 if it works. IDLE is disconnected for lack of requests (lustre_import.h)."""
TIMEOUT: Final = 1.0
"""Seconds to wait for mountstats, which may block behind a hanging mount."""

SOURCE: Final = ("source",)
RETRANSMITS: Final = counter("nfs.retransmits", "{request}", "Requests that were sent again.", dims=SOURCE)
TIMEOUTS: Final = counter("nfs.timeouts", "{timeout}", "Requests that got no answer in time.", dims=SOURCE)
UNANSWERED: Final = gauge("nfs.unanswered", "s", "Time for which requests have been without any answer.", dims=SOURCE)
READ: Final = counter("nfs.read", "By", "Read from the server.", Level.DETAILED, SOURCE)
WRITTEN: Final = counter("nfs.written", "By", "Written to the server.", Level.DETAILED, SOURCE)
OPERATION: Final = ("source", "operation")
OPERATIONS: Final = counter("nfs.operations", "{request}", "Requests that were answered.", Level.DETAILED, OPERATION)
TIME: Final = counter(
    "nfs.operation.time", "s", "Time that requests took, from their start to their answer.", Level.DETAILED, OPERATION
)
NFS_METRICS: Final = (RETRANSMITS, TIMEOUTS, UNANSWERED, READ, WRITTEN, OPERATIONS, TIME)
NFS_TYPES: Final = frozenset({"nfs", "nfs4"})
REPLIES: Final = {b"tcp": (6, 7), b"rdma": (6, 7), b"udp": (3, 4)}
"""Transport -> indexes in the fields of `xprt:` of requests sent and answers received (net/sunrpc/xprtsock.c)."""


class MountCounts(NamedTuple):
    """Counts of one mount: requests, bytes; `operations`: kind -> number of requests and their time (s)."""

    point: bytes
    sent: int
    received: int
    retransmits: int
    timeouts: int
    read: int
    written: int
    operations: dict[str, tuple[int, float]]


def mount_counts(data: bytes) -> dict[str, MountCounts]:
    """
    Parse mountstats; return source -> counts of its first mount. Raise ValueError or LookupError.

    The kernel returns this file without asking the server.
    """
    counts = {}
    for part in (b"\n" + data).split(b"\ndevice ")[1:]:
        header, *lines = part.splitlines()
        words = header.split()
        source = words[0].decode("utf-8", "replace")
        if b"fstype" in words and words[words.index(b"fstype") + 1].decode() in NFS_TYPES and source not in counts:
            counts[source] = _mount(words[3], lines)
    return counts


def _mount(point: bytes, lines: list[bytes]) -> MountCounts:
    sent = received = retransmits = timeouts = read = written = 0
    operations = {"read": (0, 0.0), "write": (0, 0.0), "other": (0, 0.0)}
    is_operation = False
    for line in lines:
        key, _, rest = line.strip().partition(b":")
        fields = rest.split()
        if is_operation and len(fields) >= 8:
            done, transmissions, late, *_, elapsed = (int(field) for field in fields[:8])
            retransmits, timeouts = retransmits + max(0, transmissions - done), timeouts + late
            name = key.decode().lower() if key in {b"READ", b"WRITE"} else "other"
            before, spent = operations[name]
            operations[name] = before + done, spent + elapsed / 1000
        elif key == b"xprt" and fields[0] in REPLIES:
            outward, inward = REPLIES[fields[0]]
            sent, received = sent + int(fields[outward]), received + int(fields[inward])
        elif key == b"bytes":
            read, written = int(fields[4]), int(fields[5])
        is_operation = is_operation or key == b"per-op statistics"
    return MountCounts(point, sent, received, retransmits, timeouts, read, written, operations)


class NfsSource:
    """One mounted file system of an NFS server, from reading to reading."""

    def __init__(self, name: str) -> None:
        self._dims = Dimensions(source=name)
        self._counters = Counters()
        self._answered: tuple[int, int, float] | None = None

    def points(self, at: int, now: float, counts: MountCounts) -> Iterator[Datapoint]:
        """Yield the points of counts that were read at `now` (monotonic s)."""
        if self._answered is None or counts.received != self._answered[1]:
            self._answered = counts.sent, counts.received, now
        sent, _, since = self._answered
        yield UNANSWERED.point(at, now - since if counts.sent > sent else 0.0, self._dims)
        point = self._counters.point
        yield point(RETRANSMITS, at, counts.retransmits, self._dims)
        yield point(TIMEOUTS, at, counts.timeouts, self._dims)
        yield point(READ, at, counts.read, self._dims)
        yield point(WRITTEN, at, counts.written, self._dims)
        for name, (done, elapsed) in counts.operations.items():
            dims = self._dims | {"operation": name}
            yield point(OPERATIONS, at, done, dims)
            yield point(TIME, at, elapsed, dims)


class StorageCollector(Collector):
    """Reads the health of local and remote storage, at the longer interval `every`; accesses no file system."""

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options of [collectors.storage]."""

        every: float = 15.0
        """Seconds between two readings, at least."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")

    metrics = (READ_ONLY, ERRORS, NVME, TEMPERATURE, DISCONNECTED, CONNECTED, *NFS_METRICS)

    def __init__(self, config: Config, clock: Callable[[], float] = time.monotonic) -> None:
        self._config, self._clock, self.every = config, clock, config.every
        # Process 1 has the host's mounts; ours may be read-only by systemd's ProtectSystem.
        self._processes = config.proc / "1", config.proc / "self"
        self._mountstats = BlockingCall(self._read_mountstats, "mountstats")
        self._sources: dict[tuple[str, bytes], NfsSource] = {}
        self._drives = Folders(config.sys / "class/nvme", "nvme*", each("device", DRIVE))
        self._systems = Folders(config.sys / "fs/ext4", "*", each("device", EXT4))
        folders = config.proc / "fs/lustre", config.sys / "fs/lustre", config.sys / "kernel/debug/lustre"
        self._targets = [Folders(folder, "*/*", targets) for folder in folders]
        self._silent: dict[Dimensions, str] = {}

    def waits(self) -> bool:
        """Return True if a reading may wait for a driver or a server: of an NVMe drive, NFS or Lustre."""
        return not at_once(
            lambda: not (self._has_nfs(self._lines()) or len(self._drives) or any(map(len, self._targets))), "mounts"
        )

    def open(self, given: Given) -> None:
        if sys.platform != "linux":
            raise Unavailable("the health of storage is known on Linux only")
        lines = self._lines()
        if not (self._disks(lines) or self._has_nfs(lines) or len(self._drives) or any(map(len, self._targets))):
            raise Unavailable(
                f"no disk, NVMe drive, NFS or Lustre in {self._processes[0]}/mountinfo and {self._config.sys}"
            )

    def collect(self, at: int) -> Iterator[Datapoint]:
        lines = self._lines()
        for line in self._disks(lines):
            yield READ_ONLY.point(at, int(is_read_only(line)), Dimensions(path=line.mount.point))
        yield from self._systems.points(at)
        drives = list(self._drives.points(at))
        answered = {point.dims for point in drives if point.metric is NVME}
        silent = {drive.dims for drive in self._drives} - answered
        self._silent = dict.fromkeys(silent, "its state cannot be read")
        yield from drives
        connected = [point for of_root in self._targets for point in of_root.points(at)]
        if connected:
            yield DISCONNECTED.point(at, sum(not point.value for point in connected))
        yield from connected
        if self._has_nfs(lines):
            try:
                counts = self._mountstats.ask(TIMEOUT)
            except OSError as error:
                raise PartlyCollected([f"NFS: {error}"]) from None
            by_mount = {(name, mount.point): mount for name, mount in counts.items()}
            self._sources = {key: self._sources.get(key) or NfsSource(key[0]) for key in by_mount}
            for key, source in self._sources.items():
                yield from source.points(at, self._clock(), by_mount[key])

    def silent(self) -> dict[Dimensions, str]:
        return self._silent

    def describe(self) -> str:
        lines = self._lines()
        kinds = {
            "file system": len(self._disks(lines)),
            "NVMe drive": len(self._drives),
            "NFS mount": sum(line.mount.type in NFS_TYPES for line in lines),
            "target of Lustre": sum(map(len, self._targets)),
        }
        return ", ".join(f"{count} {kind}{'s' * (count != 1)}" for kind, count in kinds.items() if count)

    def close(self) -> None:
        self._mountstats.close()

    def _lines(self) -> list[MountLine]:
        with suppress(OSError):
            return list(parsed(self._read("mountinfo")))
        return []

    def _read(self, name: str) -> bytes:
        """Read a file of process 1, or of this process if that is forbidden; raise OSError."""
        for process in self._processes:
            with suppress(OSError):
                return (process / name).read_bytes()
        raise OSError(f"{self._processes[0] / name} cannot be read")

    def _disks(self, lines: Iterable[MountLine]) -> list[MountLine]:
        """Return the first mount of each file system on a disk; bind mounts would repeat it."""
        disks: dict[str, MountLine] = {}
        for line in lines:
            if line.mount.type in WRITABLE and "rw" in line.options.split(","):
                disks.setdefault(line.device, line)
        return list({line.mount.point: line for line in disks.values()}.values())

    def _has_nfs(self, lines: Iterable[MountLine]) -> bool:
        return any(line.mount.type in NFS_TYPES for line in lines)

    def _read_mountstats(self) -> dict[str, MountCounts]:
        try:
            return mount_counts(self._read("mountstats"))
        except (ValueError, LookupError, ArithmeticError) as problem:
            raise OSError(f"mountstats has an unknown format: {problem!r}") from problem


def targets(folders: Sequence[Path]) -> Iterator[Folder]:
    """Yield a folder for each Lustre import, with the name of its target."""
    for folder in folders:
        if (folder / "import").exists():
            named = TARGET.search(text(folder / "import"))
            name = named[1] if named else folder.name
            yield Folder(folder, Dimensions(target=name.removesuffix("_UUID")), IMPORT)


def is_read_only(line: MountLine) -> bool:
    """
    Return True if a file system that is mounted for writing refuses writes.

    After an error, the file system becomes `ro` while its mount stays `rw`; a person who remounts it changes both.
    Since Linux 6.15, ext4 stays `rw` and adds `emergency_ro`, or `shutdown` if it also refuses reads.
    """
    return bool({"ro", "emergency_ro", "shutdown"} & {*line.super_options.split(",")})
