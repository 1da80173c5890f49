"""Runs chipwatch as if on Windows or macOS: sys.platform, and no module or attribute that only Unix or Linux has.

Modules of others are imported before and keep what they need: psutil reads Linux. Only new imports see the difference.
"""

import contextlib
import ctypes
import errno
import importlib
import os
import runpy
import stat
import sys
import traceback
from pathlib import Path
from types import ModuleType

from tests.doubles.windows_console import consoles

OTHERS = (
    "asyncio", "ctypes.util", "http.client", "multiprocessing.connection", "psutil", "rich.console", "shutil", "sqlite3", "ssl", "subprocess",
    "tempfile", "urllib.request", "uuid",
)  # fmt: skip
OPTIONAL = ("bcrypt", "botocore.session", "google.cloud.monitoring_v3", "grpc", "yaml")
LINUX_MODULES = ("spwd",)
UNIX_MODULES = (
    "crypt",
    "fcntl",
    "grp",
    "nis",
    "posix",
    "pty",
    "pwd",
    "readline",
    "resource",
    "spwd",
    "syslog",
    "termios",
    "tty",
)
LINUX = {
    "fcntl": "F_SETPIPE_SZ F_GETPIPE_SZ",
    "os": "O_PATH O_DIRECT O_TMPFILE pidfd_open fdatasync sched_getaffinity sched_setaffinity posix_fadvise posix_fallocate memfd_create",
    "select": "epoll",
    "signal": "pidfd_send_signal sigtimedwait sigwaitinfo SIGPWR SIGSTKFLT SIGPOLL",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK SOCK_CLOEXEC SOCK_NONBLOCK SO_PEERCRED SO_BINDTODEVICE TCP_USER_TIMEOUT",
    "time": "CLOCK_BOOTTIME CLOCK_TAI",
}
UNIX = {
    "os": "O_CLOEXEC O_NOFOLLOW O_NONBLOCK O_DIRECTORY O_NOCTTY O_SYNC O_DSYNC O_ASYNC pread preadv pwrite fork forkpty wait wait3"
    " wait4 waitid WNOHANG getuid geteuid getgid getegid getgroups getpgid getpgrp setsid setpgid getsid killpg tcgetpgrp tcsetpgrp"
    " sysconf sysconf_names confstr statvfs fstatvfs getloadavg uname mkfifo mknod chown fchown lchown fchmod chroot nice"
    " getpriority setpriority openpty ttyname ctermid spawnvp spawnlp posix_spawn set_blocking get_blocking sync lockf sendfile"
    " register_at_fork RTLD_NOW sched_yield",
    "select": "poll PIPE_BUF POLLIN POLLOUT POLLHUP POLLERR",
    "signal": "SIGKILL SIGHUP SIGQUIT SIGCHLD SIGTSTP SIGCONT SIGSTOP SIGWINCH SIGUSR1 SIGUSR2 SIGPIPE SIGALRM SIGVTALRM SIGPROF"
    " alarm setitimer getitimer pthread_sigmask pthread_kill sigwait siginterrupt",
    "socket": "AF_UNIX socketpair_unix CMSG_LEN sethostname SO_REUSEPORT MSG_DONTWAIT",
    "time": "clock_gettime clock_gettime_ns clock_settime clock_getres tzset pthread_getcpuclockid",
}  # fmt: skip


def without(name: str, attributes: str) -> ModuleType:
    """Return a copy of a module without these attributes."""
    real = importlib.import_module(name)
    copy = ModuleType(name)
    copy.__dict__.update({key: value for key, value in vars(real).items() if key not in attributes.split()})
    return copy


def select_sockets(*lists_and_timeout: object) -> object:
    """Wait for sockets; raise OSError for other files, as Windows does."""

    for each in (file for files in lists_and_timeout[:3] for file in files):  # type: ignore[attr-defined]
        if not stat.S_ISSOCK(os.fstat(each if isinstance(each, int) else each.fileno()).st_mode):
            raise OSError(10038, "An operation was attempted on something that is not a socket")
    return REAL_SELECT(*lists_and_timeout)


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
    absent = [LINUX, UNIX] if platform == "win32" else [LINUX]
    copies = {
        name: without(name, " ".join(each.get(name, "") for each in absent))
        for name in {name for each in absent for name in each} - {"fcntl" if platform == "win32" else ""}
    }
    if platform == "win32":
        copies["select"].select = select_sockets  # type: ignore[attr-defined]
        sys.modules.update(dict.fromkeys(UNIX_MODULES))  # type: ignore[arg-type]
        sys.modules["msvcrt"], ctypes.windll = consoles(Path.home() / "console")
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
    import select

    REAL_SELECT, REAL_STAT = select.select, os.stat
    main()
