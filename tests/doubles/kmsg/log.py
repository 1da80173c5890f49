"""A log of the kernel: records in the form of /dev/kmsg, fed one by one through a pipe or by a compiled stand-in."""

import fcntl
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
FIXTURE = HERE.parents[1] / "fixtures/kernel/messages.tsv"
END = b"\x1e"
SUBSYSTEM = "\n SUBSYSTEM=pci\n DEVICE=+pci:0000:05:00.0"
PIPE_BYTES = 1 << 20


class CannotBuild(Exception):
    """There is no C compiler, or not the kind of system that this is for."""


def messages() -> list[tuple[str, str]]:
    """Return pairs of a kind, or -, and a message, from public captures."""
    return [tuple(line.split("\t")) for line in FIXTURE.read_text().splitlines()]


def record(number: int, message: str, age: float = 0.0, priority: int = 3) -> bytes:
    """Return a record that was logged `age` seconds ago, with lines on its device as drivers add them."""
    microseconds = int((time.monotonic() - age) * 1e6)
    return f"{priority},{number},{microseconds},-;{message}{SUBSYSTEM}".encode()


class Pipe:
    """A pipe whose reads return what one write wrote (O_DIRECT, pipe(2)), as reads of /dev/kmsg return one record."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
        fcntl.fcntl(self._writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        self.path = Path(f"/proc/self/fd/{self._reader}")

    def write(self, *records: bytes) -> None:
        """Feed records."""
        for one in records:
            os.write(self._writer, one)

    def close(self) -> None:
        """Close both ends."""
        os.close(self._reader)
        os.close(self._writer)


def build(folder: Path) -> Path:
    """Compile the stand-in into `folder`; return its path, for LD_PRELOAD."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or not compiler:
        raise CannotBuild("the stand-in needs Linux and a C compiler (cc)")
    library = folder / "kmsg.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, "-o", library, HERE / "kmsg.c", "-ldl"], check=True)
    return library


class Ring:
    """The kernel's log of a child that runs with `env`; None is a record that was overwritten."""

    def __init__(self, library: Path, folder: Path) -> None:
        self.path = folder / "kmsg"
        self.env = {"LD_PRELOAD": str(library), "FAKE_KMSG": str(self.path), "PYTHONUNBUFFERED": "1"}
        self.write()

    def write(self, *records: bytes | None) -> None:
        """Replace what is still there."""
        self.path.write_bytes(b"")
        self.append(*records)

    def append(self, *records: bytes | None) -> None:
        """Add records."""
        with self.path.open("ab") as file:
            file.write(b"".join((b"!32" if one is None else one) + END for one in records))
