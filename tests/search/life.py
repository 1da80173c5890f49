"""
One life of the real agent, in a process whose effects are watched: it can be killed, or its disk fail, at any of them.

The program is not changed: this process wraps the system's calls before it runs the command. An effect is a call and a
kind of file, such as `replace state` or `commit spool`. Each that came is noted in the file `reached`, so that a search
can say which never did.
"""

import ctypes
import dataclasses
import errno
import os
import re
import signal
import sqlite3
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

KINDS = (
    (r"\.db(-\w+)?$", "spool"), (r"\.corrupt", "spool"), (r"/recorder(-\d)?/", "ring"), (r"/incidents/", "incident"),
    (r"run(-\d+)?\.chipwatch", "recording"), (r"counters\.\w+\.json", "counters"), (r"/jobs\.json", "ledger"),
    (r"ended-\w+\.jsonl", "records"), (r"/heartbeat", "heartbeat"), (r"\.sock$", "socket"), (r"\.json", "state"),
)  # fmt: skip
POINTS = (
    "commit spool", "replace ledger", "replace counters", "replace ring", "replace incident", "unlink ring", "unlink recording",
    "fsync ring", "fsync recording", "fdatasync ring", "fdatasync recording", "write ring", "write recording", "write records",
    "rename recording", "truncate recording", "unlink socket",
)  # fmt: skip
"""Effects that are one half of two that must be one: a life may be killed before, in or after any call of them."""
FULL = {"full": errno.ENOSPC, "read only": errno.EROFS, "broken": errno.EIO}
"""The words for a disk that takes nothing, and its errors."""


class Kill(NamedTuple):
    """Where a life ends: at the n-th call of a point, before or after it; `in` writes a half first."""

    point: str
    number: int
    when: str


class Effects:
    """Wraps the calls of this process."""

    def __init__(self, folder: Path, kill: Kill | None) -> None:
        self._kill, self._fault, self._counts = kill, folder / "disk", Counter[str]()
        self._reached = os.open(folder / "reached", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._write, self._lock = os.write, threading.Lock()

    def wrap(self) -> None:
        """Replace the calls of os and of sqlite3."""
        for name in ("replace", "rename", "unlink", "truncate"):
            setattr(os, name, partial(self._on_path, name, getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            setattr(os, name, partial(self._on_file, name, getattr(os, name)))
        os.write = self._half
        watched = type("Watched", (Watched,), {"effects": self})
        sqlite3.connect = partial(sqlite3.connect, factory=watched)

    def of(self, call: str, path: str, do: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Do what is to be done, unless this life ends here or the disk refuses."""
        kind = next((kind for pattern, kind in KINDS if re.search(pattern, path)), "")
        if not kind:
            return do()
        point = f"{call} {kind}"
        with self._lock:
            self._counts[point] += 1
            number = self._counts[point]
            if number == 1:
                self._write(self._reached, f"{point}\n".encode())
        ends = self._kill is not None and self._kill[:2] == (point, number)
        if ends and self._kill.when == "in" and half:
            half()
        if ends and self._kill.when != "after":
            os.kill(os.getpid(), signal.SIGKILL)
        if (refusal := self.refusal()) and call not in {"unlink", "fsync"}:
            raise OSError(refusal, os.strerror(refusal), path)
        done = do()
        if ends:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    def refusal(self) -> int:
        """Return the error of a disk that takes nothing now, or 0."""
        with suppress(OSError):
            return FULL.get(self._fault.read_text(), 0)
        return 0

    def _on_path(self, name: str, real: Callable[..., Any], *words: Any, **more: Any) -> Any:
        return self.of(name, os.fspath(words[-1 if name in {"replace", "rename"} else 0]), lambda: real(*words, **more))

    def _on_file(self, name: str, real: Callable[[int], Any], file: int) -> Any:
        return self.of(name, _path(file), lambda: real(file))

    def _half(self, file: int, data: bytes) -> int:
        real = self._write
        return self.of("write", _path(file), lambda: real(file, data), lambda: real(file, data[: len(data) // 2]))


class Watched(sqlite3.Connection):
    """A connection whose commits are effects."""

    effects: Effects

    def execute(self, text: str, *words: Any) -> sqlite3.Cursor:
        """Refuse a transaction while the disk takes nothing."""
        if text.startswith("BEGIN") and self.effects.refusal():
            problem = sqlite3.OperationalError("database or disk is full")
            problem.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise problem
        return super().execute(text, *words)

    def __exit__(self, *problem: object) -> Any:
        """Commit, which is one effect."""
        end = super().__exit__
        return end(*problem) if problem[0] else self.effects.of("commit", "a.db", lambda: end(*problem))


def _path(file: int) -> str:
    with suppress(OSError):
        return os.readlink(f"/proc/self/fd/{file}")  # noqa: PTH115  # a pipe has no path
    return ""


def live(folder: Path, number: int, given: tuple[list[str], dict[str, str], Any], kill: Kill | None) -> None:
    """
    Be the agent: its log goes to log.N, its output to out.N.

    `given`: the command's words, its environment, and the clock's beginning, past and pace.
    """
    from tests.search import preloaded

    words, env, when = given

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    for name, stream in (("out", 1), ("log", 2)):
        os.dup2(os.open(folder / f"{name}.{number}", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr.reconfigure(errors="backslashreplace")
    os.environ.clear()
    os.environ.update(env)
    preloaded.CLOCK.began, preloaded.CLOCK.ago, preloaded.CLOCK.pace = when
    preloaded.CLOCK.ahead = folder / "ahead"
    Effects(folder, kill).wrap()
    _hurry()
    from chipwatch.__main__ import main

    sys.argv[1:] = words
    code: Any = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        main()
    except SystemExit as end:
        code = end.code or 0
    except BaseException:  # noqa: BLE001  # as Python would end
        traceback.print_exc()
    sys.stdout.flush()
    os._exit(code if isinstance(code, int) else 1)


def _hurry() -> None:
    """Let nobody wait long, and give the fake driver's changes to the thread that reads it."""
    from chipwatch.collectors import nvidia
    from chipwatch.engine import delivery_log
    from chipwatch.engine.delivery import Pauses, SinkDelivery
    from chipwatch.history import journal, record_file, ring
    from chipwatch.jobs import ledger
    from chipwatch.service import recorder
    from chipwatch_sinks.cloudwatch import CloudwatchSink
    from chipwatch_sinks.otlp import OtlpSink

    delivery_log.MAX_AFTER = 0.05
    before = SinkDelivery.__init__.__defaults__ or ()
    SinkDelivery.__init__.__defaults__ = (*before[:-1], Pauses(0.01, 0.05, 0.01, 0.05))
    recorder.TOGETHER = recorder.SOON = 0.3
    recorder.AFTER = ledger.ENDED_AFTER = record_file.MINUTE = 10**9
    ring.PARTS, journal.FEWEST = 900, 3
    for sink in (CloudwatchSink, OtlpSink):
        sink.__init__ = _with_small_batches(sink.__init__, int(os.environ["SEARCH_BATCH"]))
    if not (table := os.environ.get("FAKE_NVML")):
        return
    library = ctypes.CDLL(os.fspath(Path(table).with_name("libnvidia-ml.so.1")))
    collect, seen = nvidia.NvidiaCollector.collect, [Path(table).stat().st_mtime_ns]

    def collect_from_new_answers(self: Any, at: int) -> Any:
        if (now := Path(table).stat().st_mtime_ns) != seen[0]:
            seen[0] = now
            library.fakeLoad()
        return collect(self, at)

    nvidia.NvidiaCollector.collect = collect_from_new_answers


def _with_small_batches(init: Callable[..., None], most: int) -> Callable[..., None]:
    def made(self: Any, *words: Any, **more: Any) -> None:
        init(self, *words, **more)
        self.limits = dataclasses.replace(self.limits, max_points=min(self.limits.max_points, most))

    return made
