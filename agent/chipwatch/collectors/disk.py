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
from chipwatch.host.device_table import Counts, DeviceColumn, DeviceTable
from chipwatch.host.last_values import LastValues
from chipwatch.host.mounts import MountTable, may_hang
from chipwatch.host.pace import CALM, Pace
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


def _bytes(sectors: bytes) -> int:
    return int(sectors) * SECTOR


COLUMNS: Final = (
    DeviceColumn(READ, 5, _bytes),
    DeviceColumn(WRITTEN, 9, _bytes),
    DeviceColumn(DEVICE_READ, 5, _bytes),
    DeviceColumn(DEVICE_WRITTEN, 9, _bytes),
    DeviceColumn(OPERATIONS, 3, dims=Dimensions(direction="read")),
    DeviceColumn(OPERATIONS, 7, dims=Dimensions(direction="write")),
    DeviceColumn(BUSY, 12, lambda word: int(word) / 1000),
)
"""Columns of /proc/diskstats: Documentation/admin-guide/iostats.rst of Linux."""

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


def _activity(table: DeviceTable, data: bytes) -> Counts:
    return table.parse([(line.split(None, 3)[2], line) for line in data.splitlines()])


def _psutil_activity(table: DeviceTable, psutil: Any) -> Counts:
    rows = {}
    for name, c in psutil.disk_io_counters(perdisk=True, nowrap=False).items():
        busy = c.busy_time / 1000 if hasattr(c, "busy_time") else None
        rows[name] = {3: c.read_count, 5: c.read_bytes, 7: c.write_count, 9: c.write_bytes, 12: busy}
    return table.pick(rows)


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
        self._pace, self._problems = Pace(CALM), list[str]()
        self._io: SystemSource[Counts] | None = None
        self._kept: LastValues | None = None

    def waits(self) -> bool:
        """Return True if a path is on a file system that may hang."""
        return not at_once(
            lambda: not any(may_hang(path.target, self._mounts.mount_of(path.target)) for path in self._paths), "mounts"
        )

    def open(self, given: Given) -> None:
        self._level = given.level
        self.close()
        self._kept, problem = LastValues(given.state, "disk", self._config.proc), ""
        block = self._config.sys / "block"
        # Other systems list only whole disks.
        choose = partial(whole_disks, block=block) if sys.platform == "linux" else list
        table = self._table = DeviceTable(COLUMNS, given.level, choose, self._kept, partial(_folder, block))
        try:
            how = partial(_activity, table), partial(_psutil_activity, table)
            self._io = SystemSource(self._config.proc / "diskstats", *how)
        except OSError as error:
            problem = str(error)
        if not self._activity() and not any(isinstance(self._space_of(path), _Space) for path in self._paths):
            raise Unavailable(f"no disk ({problem or 'none physical'}), nor a file system at {self._config.paths}")

    def collect(self, at: int) -> Iterable[Datapoint]:
        if self._pace.is_due(at):
            self._problems = []
            for path in self._paths:
                space = self._space_of(path)
                if isinstance(space, _Space):
                    yield from _space_points(at, space, path.dims, self._level)
                else:
                    self._problems.append(space)
        yield from self._table.points(at, self._activity())
        if self._kept:
            self._kept.save(at)
        if self._problems:
            raise PartlyCollected(self._problems)

    def describe(self) -> str:
        paths, disks = len(self._paths), list(self._activity())
        named = f" ({', '.join(disks[:8])}{' …' * (len(disks) > 8)})" if disks else ""
        return f"{paths} path{'s' * (paths != 1)}, {len(disks)} disk{'s' * (len(disks) != 1)}{named}"

    def close(self) -> None:
        close_all(self._io, self._kept, *(path.blocking_call for path in self._paths))
        self._io = self._kept = None

    def _activity(self) -> Counts:
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
