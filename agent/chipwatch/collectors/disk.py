"""Collects the space of file systems, and the I/O of physical disks."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.plugin import Given, Needs
from chipwatch.host.blocking_call import BlockingCall, at_once
from chipwatch.host.counters import Counters
from chipwatch.host.last_values import LastValues
from chipwatch.host.mounts import MountTable, may_hang
from chipwatch.host.procfs import SystemSource, close_all

SECTOR: Final = 512
"""Bytes of a sector in /proc/diskstats, the same for every disk: Documentation/block/stat.rst of Linux."""
TIMEOUT: Final = 0.2
"""Seconds to wait for a file system that may hang."""

# fmt: off
UTILIZATION: Final = gauge(
    "disk.utilization", "%", "Share in use of what users can have of a file system, as df shows it.", dims=("path",))
USED: Final = gauge("disk.used", "By", "Space in use on a file system.", dims=("path",))
AVAILABLE: Final = gauge("disk.available", "By", "Space that users can still have on a file system.", dims=("path",))
INODES: Final = gauge(
    "disk.inodes.utilization", "%", "Share of the inodes of a file system in use.", Level.DETAILED, ("path",))
READ: Final = counter("disk.read", "By", "Read from all whole physical disks.")
WRITTEN: Final = counter("disk.written", "By", "Written to all whole physical disks.")
DEVICE_READ: Final = counter("disk.device.read", "By", "Read from one disk.", Level.ALL, ("device",))
DEVICE_WRITTEN: Final = counter("disk.device.written", "By", "Written to one disk.", Level.ALL, ("device",))
# fmt: on
_KEYS: Final = ("device", "direction")
OPERATIONS: Final = counter(
    "disk.device.operations", "{operation}", "Reads or writes that a disk completed.", Level.ALL, _KEYS)  # fmt: skip
BUSY: Final = counter(
    "disk.device.busy", "s", "Time in which a disk had at least one request to serve.", Level.ALL, ("device",)
)

# Names of whole disks, used if /sys is not visible: SCSI and ATA, virtio, Xen, NVMe (a namespace or a path to one),
# MMC, DASD, persistent memory.
_DISK: Final = re.compile(r"((s|h|v|xv)d[a-z]+|nvme\d+(c\d+)?n\d+|mmcblk\d+|dasd[a-z]+|pmem\d+)")
_NOT_FIXED: Final = re.compile(r"(sr|fd)\d+")
_NVME_PATH: Final = re.compile(r"(nvme\d+)c\d+(n\d+)")

Statvfs = Callable[[str], os.statvfs_result]


class _Space(NamedTuple):
    """Space of a file system: bytes and inodes; 0 inodes if it has no fixed number of them (btrfs)."""

    used: int
    available: int
    inodes: int = 0
    inodes_free: int = 0


class _Activity(NamedTuple):
    """Counters of one disk: bytes, operations, busy seconds; None if the platform does not count these."""

    read: int
    written: int
    reads: int
    writes: int
    busy: float | None


_Disk = tuple[Counters, Dimensions, Dimensions, Dimensions]
"""A disk: its counters, and its dimensions without direction, for reads, for writes."""


def whole_disks(names: Iterable[str], block: Path) -> set[str]:
    """
    Return the whole physical disks among `names`, so that no byte is counted twice.

    /sys/block lists no partitions, and only hardware has a `device` there: loop, ram, zram, dm and md do not. Of a
    multipath NVMe namespace (nvme0n1) the paths (nvme0c0n1 …) are returned: the namespace has no counters before Linux
    6.3, and repeats its paths' counters since then.
    """
    if block.is_dir():
        disks = {name for name in names if os.path.lexists(_folder(block, name) / "device")}
    else:
        disks = {name for name in names if _DISK.fullmatch(name)}
    heads = {_NVME_PATH.sub(r"\1\2", name) for name in disks if _NVME_PATH.fullmatch(name)}
    return {name for name in disks - heads if not _NOT_FIXED.fullmatch(name)}


def _folder(block: Path, name: str) -> Path:
    return block / name.replace("/", "!")


def _activity(block: Path, seen: dict[bytes, str | None], data: bytes) -> dict[str, _Activity]:
    """Parse /proc/diskstats (Documentation/admin-guide/iostats.rst); `seen` caches names: None for a part of a disk."""
    lines = [line.split(None, 3) for line in data.splitlines()]
    if any(raw not in seen for _, _, raw, _ in lines):
        names = {raw: os.fsdecode(raw) for _, _, raw, _ in lines}
        disks = whole_disks(names.values(), block)
        seen.clear()
        seen |= {raw: name if name in disks else None for raw, name in names.items()}
    activity = {}
    for _, _, raw, rest in lines:
        if (name := seen[raw]) is not None:
            f = rest.split(None, 10)
            read, written = int(f[2]) * SECTOR, int(f[6]) * SECTOR
            activity[name] = _Activity(read, written, int(f[0]), int(f[4]), int(f[9]) / 1000)
    return activity


def _psutil_activity(psutil: Any) -> dict[str, _Activity]:
    """Return the activity of disks; macOS lists only whole disks."""
    activity = {}
    for name, c in psutil.disk_io_counters(perdisk=True, nowrap=False).items():
        busy = c.busy_time / 1000 if hasattr(c, "busy_time") else None
        activity[name] = _Activity(c.read_bytes, c.write_bytes, c.read_count, c.write_count, busy)
    return activity


def _space(statvfs: Statvfs, target: str) -> _Space:
    status = statvfs(target)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return _Space(used, status.f_bavail * status.f_frsize, status.f_files, status.f_ffree)


def _psutil_space(target: str) -> _Space:
    import psutil

    usage = psutil.disk_usage(target)
    return _Space(usage.used, usage.free)


class _Path:
    """A path whose file system is read by `call`, or if that may hang, by `blocking_call` with a timeout."""

    def __init__(self, name: str, root: Path, space: Callable[[str], _Space]) -> None:
        self.name, self.target, self.dims = name, str(root / name.lstrip("/")), Dimensions(path=name)
        self.call = partial(space, self.target)
        self.blocking_call = BlockingCall(self.call, f"statvfs {name}")


def _space_points(at: int, space: _Space, dims: Dimensions, level: Level) -> Iterable[Datapoint]:
    whole = space.used + space.available
    if space.used >= 0 and whole > 0:  # some file systems, such as proc, have no blocks
        yield UTILIZATION.point(at, 100 * space.used / whole, dims)
        yield USED.point(at, space.used, dims)
        yield AVAILABLE.point(at, space.available, dims)
    if space.inodes_free <= space.inodes > 0 and level >= Level.DETAILED:
        yield INODES.point(at, 100 * (space.inodes - space.inodes_free) / space.inodes, dims)


def _disk_points(at: int, counted: _Activity, disk: _Disk) -> Iterable[Datapoint]:
    counters, both, reads, writes = disk
    yield counters.point(DEVICE_READ, at, counted.read, both)
    yield counters.point(DEVICE_WRITTEN, at, counted.written, both)
    yield counters.point(OPERATIONS, at, counted.reads, reads)
    yield counters.point(OPERATIONS, at, counted.writes, writes)
    if counted.busy is not None:
        yield counters.point(BUSY, at, counted.busy, both)


class DiskCollector(Collector):
    """
    Reads the space of the file systems at the configured paths, and the counters of physical disks.

    A file system that hangs loses only its points, and delays one reading by TIMEOUT.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Paths to read, and where the host's file systems are mounted."""

        paths: tuple[str, ...] = ("/",)
        """Paths on the file systems to read, as the host names them."""
        proc: Path = Path("/proc")
        sys: Path = Path("/sys")
        root: Path = Path("/")

    metrics = (
        UTILIZATION, USED, AVAILABLE, INODES, READ, WRITTEN, DEVICE_READ, DEVICE_WRITTEN, OPERATIONS, BUSY
    )  # fmt: skip
    needs = Needs(level=True, state=True)

    def __init__(self, config: Config, statvfs: Statvfs = os.statvfs) -> None:
        """`statvfs`: os.statvfs or a fake."""
        self._config = config
        space = partial(_space, statvfs) if sys.platform == "linux" else _psutil_space
        self._paths = [_Path(path, config.root, space) for path in config.paths]
        self._mounts = MountTable(config.proc)
        self._io: SystemSource[dict[str, _Activity]] | None = None
        self._kept: LastValues | None = None
        self._counters = Counters()
        self._disks: dict[str, _Disk] = {}

    def waits(self) -> bool:
        """Return True if a path is on a file system that may hang."""
        return not at_once(
            lambda: not any(may_hang(path.target, self._mounts.mount_of(path.target)) for path in self._paths), "mounts"
        )

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        problem = ""
        try:
            parse = partial(_activity, self._config.sys / "block", {})
            self._io = SystemSource(self._config.proc / "diskstats", parse, _psutil_activity)
        except OSError as error:
            problem = str(error)
        disks = self._activity()
        self._kept = LastValues(given.state, "disk", self._config.proc)
        self._counters, self._disks = Counters(), {}
        if not disks and not any(isinstance(self._space_of(path), _Space) for path in self._paths):
            raise Unavailable(f"no disk ({problem or 'none physical'}), nor a file system at {self._config.paths}")

    def collect(self, at: int) -> Iterable[Datapoint]:
        problems = []
        for path in self._paths:
            space = self._space_of(path)
            if isinstance(space, _Space):
                yield from _space_points(at, space, path.dims, self._level)
            else:
                problems.append(space)
        disks = self._activity()
        if disks:
            yield self._counters.total(READ, at, {name: disk.read for name, disk in disks.items()})
            yield self._counters.total(WRITTEN, at, {name: disk.written for name, disk in disks.items()})
        if self._level >= Level.ALL:
            self._disks = {name: self._disks.get(name) or self._disk(name) for name in disks}
            for name, disk in self._disks.items():
                yield from _disk_points(at, disks[name], disk)
        if self._kept:
            self._kept.save(at)
        if problems:
            raise PartlyCollected(problems)

    def describe(self) -> str:
        paths, disks = len(self._paths), list(self._activity())
        named = f" ({', '.join(disks[:8])}{' …' * (len(disks) > 8)})" if disks else ""
        return f"{paths} path{'s' * (paths != 1)}, {len(disks)} disk{'s' * (len(disks) != 1)}{named}"

    def close(self) -> None:
        for path in self._paths:
            path.blocking_call.close()
        close_all(self._io, self._kept)
        self._io = self._kept = None

    def _disk(self, name: str) -> _Disk:
        both = Dimensions(device=name)
        counters = Counters(kept=self._kept, device=_folder(self._config.sys / "block", name))
        return counters, both, both | {"direction": "read"}, both | {"direction": "write"}

    def _activity(self) -> dict[str, _Activity]:
        return self._io.read() if self._io else {}

    def _space_of(self, path: _Path) -> _Space | str:
        """Return the space at `path`, or a sentence on why it is unknown."""
        mount = self._mounts.mount_of(path.target)
        try:
            if not may_hang(path.target, mount):
                return path.call()
            return path.blocking_call.ask(TIMEOUT)
        except TimeoutError:
            return f"statvfs of {path.name} does not return" + (f" ({mount.type} {mount.source})" if mount else "")
        except OSError as error:
            return f"statvfs of {path.name}: {error.strerror}"
