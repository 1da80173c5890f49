"""The parts of a spool: its ledger, its chunks, its destination, and its file, which may fail at any time."""

from __future__ import annotations

import json
import logging
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from chipwatch.base.text import count
from chipwatch.base.throttled import ThrottledLogger
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import os_text
from chipwatch.engine.notices import Notices

if TYPE_CHECKING:
    from chipwatch.engine.spool.sqlite import Content, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

NEWEST: Final = "newest"
"""Name of the memo with the time of the newest point that the file ever took (ns since the epoch, 8 bytes)."""
STATE: Final = "sink"
"""Name of the memo with the sink's state, or the start of the name: the destination follows if it is known."""
KINDS: Final = {"collected", "sent", "rejected", "dropped"}
"""First words of the keys of a ledger."""
IN_MEMORY: Final = "points wait in memory, and are lost if this process ends"


@dataclass(slots=True)
class Ledger:
    """
    The counts of a spool's points; collected = sent + rejected + dropped + spooled.

    The counts of a spool on disk begin when its file is made, and go on after restarts and kills.
    """

    collected: int = 0
    sent: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    spooled: int = 0
    elsewhere: int = 0
    """The part of `spooled` for other destinations. These points stay in the file until theirs is set again."""

    @property
    def due(self) -> int:
        """Return how many points wait for the destination that is set."""
        return self.spooled - self.elsewhere

    def balance(self) -> int:
        """Return how many points are missing in the equation: 0 unless there is a bug."""
        return self.collected - self.sent - self.rejected.total() - self.dropped.total() - self.spooled

    def add(self, change: Mapping[str, int]) -> None:
        """Add numbers of points; the keys are `collected`, `sent`, `rejected:REASON` and `dropped:REASON`."""
        for entry, points in change.items():
            kind, _, reason = entry.partition(":")
            if kind == "collected":
                self.collected += points
            elif kind == "sent":
                self.sent += points
            else:
                (self.rejected if kind == "rejected" else self.dropped)[reason] += points

    def ended(self) -> dict[str, int]:
        """Return how many points have ended, with keys as in `add`."""
        entries = {"collected": self.collected - self.spooled, "sent": self.sent}
        entries |= {f"rejected:{reason}": n for reason, n in list(self.rejected.items())}
        entries |= {f"dropped:{reason}": n for reason, n in list(self.dropped.items())}
        return {entry: n for entry, n in entries.items() if n}

    def totals(self) -> dict[str, int]:
        """Return the five counts, without reasons."""
        return {
            "collected": self.collected,
            "sent": self.sent,
            "rejected": self.rejected.total(),
            "dropped": self.dropped.total(),
            "kept": self.spooled,
        }

    def __str__(self) -> str:
        """Return the equation of the ledger with its numbers."""

        def listed(counts: Counter[str]) -> str:
            reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()) if n)
            return f"{counts.total()}{f' ({reasons})' if reasons else ''}"

        return (
            f"collected {self.collected} = sent {self.sent} + rejected {listed(self.rejected)}"
            f" + dropped {listed(self.dropped)} + spooled {self.spooled}"
        )


@dataclass(slots=True, eq=False)
class Chunk:
    """The points of one window in the queue. The first `done` of them have ended."""

    key: int
    count: int
    size: int
    """Bytes that it takes on disk; if it is in memory only, an estimate."""
    newest: int
    """Time of its newest point (ns since the epoch)."""
    destination: bytes
    done: int = 0
    failed_reads: int = 0
    stored: bool = False
    points: list[Datapoint] | None = None
    common: Dimensions | None = None

    @property
    def left(self) -> int:
        """Number of points that have not ended."""
        return self.count - self.done


@dataclass(slots=True)
class PendingEnds:
    """The changes that the file has not taken yet, merged into one transaction."""

    gone: list[int] = field(default_factory=list)
    """Keys of chunks to delete, since all of their points have ended."""
    front: tuple[int, int] | None = None
    """The key of the oldest chunk, and how many of its points have ended."""
    entries: Counter[str] = field(default_factory=Counter)
    """Numbers of points to add to the ledger."""
    memos: dict[str, bytes] = field(default_factory=dict)

    def write(self, store: Store) -> bool:
        """Write all of them in one transaction; return True."""
        store.acknowledge(self.gone, self.front, self.entries, **self.memos)
        return True


def without_credentials(destination: Mapping[str, str]) -> dict[str, str]:
    """Return a destination with each address cut to host and path, since user, password and query may be secrets."""
    return {
        word: re.split(r"[?#]", re.sub("//[^/?#]*@", "//", value))[0] if "://" in f"{value}" else value
        for word, value in destination.items()
    }


def destination_label(destination: Mapping[str, str]) -> bytes:
    """Return a destination as the spool's file stores it."""
    return json.dumps(without_credentials(destination), sort_keys=True).encode()


def shown(label: bytes) -> str:
    """Return a destination for people, without its empty values."""
    return ", ".join(f"{word}={value}" for word, value in json.loads(label).items() if value) or "not known"


class Destination:
    """The destination of one sink's points, as far as it is known, and its label in the file."""

    def __init__(self, part: Mapping[str, str] | None) -> None:
        """Take the part of the destination that the sink knows before it is opened."""
        self._value, self.label, self.is_bound = part or {}, destination_label(part or {}), False
        """`is_bound`: the whole destination is known."""
        self.state = f"{STATE} {self.label.decode()}" if part else STATE
        """Name of the memo with the sink's state."""

    def bind(self, whole: Mapping[str, str]) -> None:
        """Take the whole destination."""
        self._value, self.label, self.is_bound = whole, destination_label(whole), True

    def is_of(self, label: bytes) -> bool:
        """Return whether this destination has every value of the label; it may have more."""
        bare = without_credentials(self._value)
        return all(bare.get(word) == value for word, value in json.loads(label).items())

    def tell_of(self, label: bytes, points: int, logger: ThrottledLogger, *, are_kept: bool) -> None:
        """Log that a number of points is for another destination, `label`, and what happens to them."""
        what = "dropped (--drop-other-destinations)"
        if are_kept:
            what = "kept apart until it is set again; --drop-other-destinations drops them"
        verb = "is" if points == 1 else "are"
        text = f"{count(points)} for another destination ({shown(label)}; now: {shown(self.label)}) {verb} {what}"
        logger.log(logging.WARNING if are_kept else logging.ERROR, f"apart {shown(label)}", text)


class SpoolFile:
    """
    The file of a spool on disk; it has none if `path` is None.

    A disk may fail or fill up, and a file may become corrupt or be locked by another agent. No method raises such a
    failure; it is counted and logged. The caller holds `lock`, except for the methods about state over a restart.
    """

    def __init__(self, name: str, path: Path | None, state: str, on_lost: Callable[[], None]) -> None:
        """Keep the sink's state under the name `state`; call `on_lost` after a corrupt file was set aside."""
        self.path = path
        """Path of the file; None: the points are in memory only."""
        self.store: Store | None = None
        """The open file, which takes points; None while it is not open."""
        self.pending: PendingEnds | None = None
        self.lock = threading.Lock()
        self.logger = Notices(log, "sink", f"spool {name}")
        self.faults = self.logger.counts
        """Number of failures of the file, by kind."""
        self._state, self._on_lost = state, on_lost

    def open(self) -> Content | None:
        """Open the file, or make it; return its content, or None if there is nothing to open or it fails."""
        if self.path is None or self.store is not None:
            return None
        from chipwatch.engine.spool.sqlite import Busy, Store

        try:
            content = Store.load(self.path)
        except Busy as problem:
            self.logger.tell("busy", f"{problem}; {IN_MEMORY}")
        except (OSError, *Store.failures) as problem:
            self._fail(problem)
        else:
            self.store = content.store
            if content.repair:
                self.logger.tell("corrupt", content.repair)
            return content
        return None

    def do(self, action: Callable[[Store], T]) -> T | None:
        """Return what `action` returns, or None if no file is open or it fails; set a corrupt file aside."""
        if (store := self.store) is None:
            return None
        try:
            return action(store)
        except store.failures as problem:
            if store.is_corruption(problem):
                self._replace(problem)
            else:
                self._fail(problem)
            return None

    def note(self, change: Mapping[str, int], *, gone: int | None = None, front: tuple[int, int] | None = None) -> None:
        """
        Note a change for `flush`.

        `change` is added to the ledger, and the chunk with the key `gone` is deleted. `front` has the key of the oldest
        chunk, and how many of its points have ended.
        """
        if self.store is None:
            return
        pending = self.pending = self.pending or PendingEnds()
        pending.entries.update(change)
        pending.front = front or pending.front
        if gone is not None:
            pending.gone.append(gone)

    def note_state(self, state: bytes | None) -> None:
        """Note the sink's state for `flush`; None: it has not changed."""
        if state is not None and self.store is not None:
            self.pending = self.pending or PendingEnds()
            self.pending.memos[self._state] = state

    def flush(self) -> bool:
        """Write the changes that were noted; return whether none is left and the file is open."""
        if self.pending is not None and self.do(self.pending.write):
            self.pending = None
        return self.pending is None and self.store is not None

    def close(self) -> None:
        """Close the file for good."""
        if self.store is not None:
            self.store.close()
        self.store = self.path = None

    # -- state over a restart -----------------------------------------------------------------------------------------

    def recall(self) -> bytes:
        """Return the sink's state that was kept last, also by an earlier run; b"" if there is none."""
        return self._noted(self._state) or self._noted(STATE)

    def remember(self, state: bytes | None) -> None:
        """Keep the sink's state for the next run (None: it has not changed); it is lost if there is no file."""
        with self.lock:
            self.note_state(state)
            self.flush()

    def newest(self) -> int | None:
        """Return the time of the newest point that the file ever took (ns since the epoch), or None."""
        memo = self._noted(NEWEST)
        return int.from_bytes(memo, "big", signed=True) if len(memo) == 8 else None

    def _noted(self, name: str) -> bytes:
        with self.lock:
            return self.do(lambda store: store.memos().get(name)) or b""

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _fail(self, problem: Exception) -> None:
        self.logger.tell("disk", f"{getattr(problem, 'filename', None) or self.path}: {os_text(problem)}; {IN_MEMORY}")

    def _replace(self, problem: Exception) -> None:
        """Close a corrupt file and rename it; the next `open` makes a new one."""
        store, self.store, self.pending = self.store, None, None
        assert store is not None
        try:
            self.logger.tell("corrupt", store.retire(problem))
        except OSError as error:
            self.logger.tell("disk", f"{self.path}: {problem}, and cannot be renamed: {error}; {IN_MEMORY}")
            self.path = None
        self._on_lost()
