"""Trouble that the kernel logs, counted by kind; details are in docs/node-health.md."""

from __future__ import annotations

import errno
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from chipwatch.collectors.kernel.log import KernelLog
from chipwatch.collectors.kernel.patterns import KINDS, kind_of
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, counter
from chipwatch.contract.errors import Unavailable
from chipwatch.host.pace import Pace
from chipwatch.host.procfs import boot_time, text
from chipwatch.host.state_file import read_state, write_state

EVENTS: Final = counter("kernel.events", "{event}", "Messages of the kernel that tell of trouble.", dims=("kind",))
LOST: Final = counter(
    "kernel.log.lost", "{message}", "Messages of the kernel that were overwritten before they were read.",
    Level.DETAILED)  # fmt: skip
RESTRICTED: Final = (
    "{path}: {why}: with kernel.dmesg_restrict = 1 a reader needs CAP_SYSLOG (a unit: AmbientCapabilities=CAP_SYSLOG;"
    " Kubernetes: privileged)"
)
STATE: Final = "kernel.json"
"""File in the state folder."""
MAX_STATE: Final = 1 << 16
"""Bytes of that file."""
ZEROS: Final = 15.0
"""Seconds between two readings that have kinds without events, too."""
SAVE: Final = 60.0
"""Most seconds until a reading without a new count is saved; a new count is saved at once."""
MAX_MESSAGE: Final = 300
"""Characters of a message that is shown as evidence."""


class KernelCollector(Collector):
    """
    Counts the kernel's messages since the boot, each once, also over a restart of the agent.

    The state folder keeps the counts and the number of the next message, with the boot that both belong to.
    """

    metrics = (EVENTS, LOST)
    never_waits = True
    state: Path | None = None
    events = frozenset({EVENTS.name})
    zeros: bool = True

    @dataclass(frozen=True, slots=True)
    class Config:
        """Where the log is."""

        path: Path = Path("/dev/kmsg")
        """The kernel's log, record by record."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; set by --proc."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._log: KernelLog | None = None
        self._boot = ""
        self._counts: Counter[str] = Counter()
        self._lost, self._since = 0, 0
        self._starts: dict[str, int] = {}
        """When the count of a kind was 0, for those with events."""
        self._zeros_pace = Pace(ZEROS)
        self._read_at: int | None = None
        """Time of the last whole reading."""
        self._evidence: dict[Dimensions, tuple[int, str]] = {}
        self._saved = 0.0
        self._dims = {kind: Dimensions(kind=kind) for kind in KINDS}

    def open(self) -> None:
        if sys.platform != "linux":
            raise Unavailable("the kernel's log is read on Linux only")
        path = self._config.path
        try:
            log = KernelLog(path)
        except OSError as problem:
            denied = problem.errno in (errno.EPERM, errno.EACCES)
            form = RESTRICTED if denied else "{path}: {why}; in a container mount the host's /dev/kmsg there"
            raise Unavailable(form.format(path=path, why=problem.strerror)) from problem
        self._boot = text(self._config.proc / "sys/kernel/random/boot_id")
        self._log, self._counts, self._lost, self._since = log, Counter(), 0, 0
        self._starts, self._read_at, self._zeros_pace = {}, None, Pace(ZEROS)
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
            self._load(log)

    def collect(self, at: int) -> Iterator[Datapoint]:
        """
        Yield a counter for each kind that had events, with `zeros` now and then for each kind.

        Without `zeros`, one whose first event comes now starts at the last reading: so its increase is known.
        """
        assert self._log is not None
        log, lost = self._log, self._log.lost
        born, changed = at - time.monotonic_ns(), False
        for microseconds, message in log.read():
            if kind := kind_of(message):
                self._counts[kind] += 1
                changed = True
                shown = message.partition(b"\n")[0][:MAX_MESSAGE].decode(errors="replace")
                self._evidence[self._dims[kind]] = min(at, born + 1000 * microseconds), shown
        if not log.is_drained:
            return
        if not self._since:
            # The boot if its first message is still there, else now.
            boot = boot_time(self._config.proc) if log.first == 0 else None
            self._since = min(at, boot or at)
        start = self._since if self.zeros or self._read_at is None else min(self._read_at, at - 1)
        for kind in self._counts:
            self._starts.setdefault(kind, start)
        for kind in KINDS if self.zeros and self._zeros_pace.is_due() else self._counts:
            start = self._starts.get(kind, self._since)
            yield EVENTS.point(at, self._counts[kind], self._dims[kind], start_time=start)
        self._read_at = at
        yield LOST.point(at, self._lost + log.lost, start_time=self._since)
        if changed or log.lost > lost or time.monotonic() - self._saved >= SAVE:
            self._save(log)

    def evidence(self) -> Mapping[Dimensions, tuple[int, str]]:
        return self._evidence.copy()

    def describe(self) -> str:
        return f"{self._log.next or 0} messages since the boot, {self._lost + self._log.lost} lost" if self._log else ""

    def close(self) -> None:
        if self._log:
            self._save(self._log)
            self._log.close()
            self._log = None

    def _load(self, log: KernelLog) -> None:
        """Restore the counts of an earlier process of this boot; raise OSError, and errors of a malformed file."""
        if self.state is None or not self._boot:
            return
        kept = json.loads(read_state(self.state / STATE, MAX_STATE))
        if kept["boot"] == self._boot:
            counts = Counter({kind: _whole(kept["counts"].get(kind, 0)) for kind in KINDS})
            next_, lost, since = map(_whole, (kept["next"], kept["lost"], kept["since"]))
            shown = {self._dims[kind]: (_whole(when), str(text)) for kind, (when, text) in kept["evidence"].items()}
            starts = kept.get("starts", {})
            self._starts = {kind: _whole(starts.get(kind, since)) for kind, count in counts.items() if count}
            self._counts, log.next, self._lost, self._since = +counts, next_, lost, since
            self._evidence = shown | self._evidence

    def _save(self, log: KernelLog) -> None:
        """Keep the counts in the state folder, if it exists and belongs to this user."""
        self._saved = time.monotonic()
        folder = self.state
        if folder is None or log.next is None or not self._since:
            return
        shown = {dims["kind"]: last for dims, last in self._evidence.items()}
        kept = {"boot": self._boot, "next": log.next, "lost": self._lost + log.lost, "since": self._since}
        kept |= {"counts": self._counts, "starts": self._starts, "evidence": shown}
        with suppress(OSError):
            write_state(folder / STATE, json.dumps(kept).encode())


def _whole(number: float) -> int:
    """Return a number that a datapoint can have; raise ValueError, TypeError or OverflowError."""
    if not 0 <= (whole := int(number)) < 1 << 63:
        raise ValueError("out of range")
    return whole
