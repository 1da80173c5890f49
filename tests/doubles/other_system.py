"""Runs chipwatch as if on macOS: sys.platform, and no module or attribute that only Linux has.

Modules of others are imported before and keep what they need: psutil reads Linux. Only new imports see the difference.
"""

import contextlib
import errno
import importlib
import os
import runpy
import sys
import traceback
from pathlib import Path
from types import ModuleType

OTHERS = (
    "asyncio", "ctypes.util", "http.client", "multiprocessing.connection", "psutil", "rich.console", "shutil", "sqlite3", "ssl", "subprocess",
    "tempfile", "urllib.request", "uuid",
)  # fmt: skip
OPTIONAL = ("bcrypt", "botocore.session", "google.cloud.monitoring_v3", "grpc", "yaml")
LINUX = {
    "fcntl": "F_SETPIPE_SZ F_GETPIPE_SZ",
    "os": "O_PATH O_DIRECT O_TMPFILE pidfd_open fdatasync sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate memfd_create",
    "select": "epoll",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo SIGPWR SIGSTKFLT SIGPOLL",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED SO_BINDTODEVICE TCP_USER_TIMEOUT",
    "time": "CLOCK_BOOTTIME CLOCK_TAI",
}


def without(name: str, attributes: str) -> ModuleType:
    """Return a copy of a module without these attributes."""
    real = importlib.import_module(name)
    copy = ModuleType(name)
    copy.__dict__.update({key: value for key, value in vars(real).items() if key not in attributes.split()})
    return copy


def refuse_linux(event: str, arguments: tuple[object, ...]) -> None:
    """Answer for the folders of Linux as if they were not there; psutil reads them under another name."""
    if event in {"open", "os.listdir", "os.scandir"}:
        path = os.fsdecode(arguments[0]) if isinstance(arguments[0], str | bytes) else ""
        if path.startswith(("/proc", "/sys", "/dev/kmsg")):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def stat_of(path: object, *, dir_fd: int | None = None, follow_symlinks: bool = True) -> os.stat_result:
    """Return os.stat of a path that is not of a folder of Linux; raise OSError."""
    refuse_linux("open", (path if isinstance(path, int) else os.fspath(path),))
    return REAL_STAT(path, dir_fd=dir_fd, follow_symlinks=follow_symlinks)


def become(platform: str, proc: Path) -> None:
    """Take away what the platform lacks; psutil goes on with `proc`, a link to /proc."""
    psutil = importlib.import_module("psutil")
    psutil.PROCFS_PATH = str(proc)
    sys.addaudithook(refuse_linux)
    os.stat = stat_of
    copies = {name: without(name, attributes) for name, attributes in LINUX.items()}
    sys.modules.update(copies)
    sys.platform = platform


def import_all() -> None:
    """Print the modules of chipwatch that cannot be imported, each with the reason."""
    roots = [Path(importlib.import_module(name).__path__[0]) for name in ("chipwatch", "chipwatch_sinks")]
    for root in roots:
        for file in sorted(root.rglob("*.py")):
            name = ".".join(file.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__")
            try:
                importlib.import_module(name)
            except Exception as problem:  # noqa: BLE001  # each is an answer
                sys.stdout.write(f"{name}: {problem!r} {traceback.extract_tb(problem.__traceback__)[-1]}\n")


def main() -> None:
    """Become a platform, with a link to /proc; import everything, or run chipwatch with the other words."""
    platform, proc, *words = sys.argv[1:]
    for name in OTHERS:
        importlib.import_module(name)
    if not words:
        for name in OPTIONAL:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    become(platform, Path(proc))
    if words:
        sys.argv = ["chipwatch", *words]
        runpy.run_module("chipwatch", run_name="__main__")
    else:
        import_all()


if __name__ == "__main__":
    REAL_STAT = os.stat
    main()
