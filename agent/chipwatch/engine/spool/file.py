"""Chunks, ledger and file of a spool: what the file does not take is kept for later, and a corrupt one is set aside."""

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
from chipwatch.contract.errors import file_of, os_text
from chipwatch.engine.notices import Notices

if TYPE_CHECKING:
    from chipwatch.engine.spool.sqlite import Content, Store

log = logging.getLogger(__name__)
T = TypeVar("T")

NEWEST: Final = "newest"
"""Memo of when the newest point of all was measured (ns since the epoch, 8 bytes)."""
STATE: Final = "sink"
"""Memo of what the sink must know after a restart; the destination follows if it is known."""
IN_MEMORY: Final = "points wait in memory, and are lost if this process ends"


@dataclass(slots=True)
class Ledger:
    """
    Counts of points; collected = sent + rejected + dropped + spooled.

    The counts of a spool on disk begin when its file is made, and go on after restarts and kills.
    """

    collected: int = 0
    sent: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    spooled: int = 0
    elsewhere: int = 0
    """Points of `spooled` for other destinations: they stay in the file until one of these is set again."""

    @property
    def due(self) -> int:
        """Return how many points wait for this destination."""
        return self.spooled - self.elsewhere

    def balance(self) -> int:
        """Return the number of points that are not accounted for: 0 unless there is a bug."""
        return self.collected - self.sent - self.rejected.total() - self.dropped.total() - self.spooled

    def add(self, change: Mapping[str, int]) -> None:
        """Add points by entry: `collected`, `sent`, `rejected:reason`, `dropped:reason`."""
        for entry, points in change.items():
            kind, _, reason = entry.partition(":")
            if kind == "collected":
                self.collected += points
            elif kind == "sent":
                self.sent += points
            else:
                (self.rejected if kind == "rejected" else self.dropped)[reason] += points

    def ended(self) -> dict[str, int]:
        """Return the points that have ended, by entry."""
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
        """Return the equation with its numbers."""

        def listed(counts: Counter[str]) -> str:
            reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()) if n)
            return f"{counts.total()}{f' ({reasons})' if reasons else ''}"

        return (
            f"collected {self.collected} = sent {self.sent} + rejected {listed(self.rejected)}"
            f" + dropped {listed(self.dropped)} + spooled {self.spooled}"
        )


@dataclass(slots=True, eq=False)
class Chunk:
    """One window's points; the first `done` of them have ended; `points` is None if only the disk has them."""

    key: int
    count: int
    size: int
    """Bytes on disk, or about as many in memory."""
    newest: int
    """When its newest point was measured (ns since the epoch)."""
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
    """Ends of points that the file did not take yet, merged into one change."""

    gone: list[int] = field(default_factory=list)
    """Keys of chunks whose points have all ended."""
    front: tuple[int, int] | None = None
    """The key of the first chunk, and how many of its points ended."""
    entries: Counter[str] = field(default_factory=Counter)
    """Points to add to the ledger."""
    memos: dict[str, bytes] = field(default_factory=dict)

    def write(self, store: Store) -> bool:
        """Write all of them in one transaction; return True."""
        store.acknowledge(self.gone, self.front, self.entries, **self.memos)
        return True


def place_of(destination: Mapping[str, str]) -> dict[str, str]:
    """Return a destination with its addresses cut to host and path: user, password and query may be secrets."""
    return {
        word: re.split(r"[?#]", re.sub("//[^/?#]*@", "//", value))[0] if "://" in f"{value}" else value
        for word, value in destination.items()
    }


def label_of(destination: Mapping[str, str]) -> bytes:
    """Return a destination as the spool's file stores it."""
    return json.dumps(place_of(destination), sort_keys=True).encode()


def shown(label: bytes) -> str:
    """Return a destination for people, without its empty values."""
    return ", ".join(f"{word}={value}" for word, value in json.loads(label).items() if value) or "not known"


def fits(label: bytes, destination: Mapping[str, str]) -> bool:
    """Return whether every value in the label equals the value in `destination`."""
    place = place_of(destination)
    return all(place.get(word) == value for word, value in json.loads(label).items())


class Destination:
    """Where the points of one sink go, as far as that is known, and how the file names it."""

    def __init__(self, part: Mapping[str, str] | None) -> None:
        """Take as much as the sink knows before it is opened."""
        self._value, self.label, self.is_bound = part or {}, label_of(part or {}), False
        """`is_bound`: all of it is known."""
        self.state = f"{STATE} {self.label.decode()}" if part else STATE
        """The name under which the sink's state is kept."""

    def bind(self, whole: Mapping[str, str]) -> None:
        """Take all of it."""
        self._value, self.label, self.is_bound = whole, label_of(whole), True

    def is_of(self, label: bytes) -> bool:
        """Return whether points with this label go there."""
        return fits(label, self._value)

    def tell_of(self, label: bytes, points: int, logger: ThrottledLogger, *, are_kept: bool) -> None:
        """Log what happens to points for the destination `label`, which is another one."""
        what = "dropped (--drop-other-destinations)"
        if are_kept:
            what = "kept apart until it is set again; --drop-other-destinations drops them"
        verb = "is" if points == 1 else "are"
        text = f"{count(points)} for another destination ({shown(label)}; now: {shown(self.label)}) {verb} {what}"
        logger.log(logging.WARNING if are_kept else logging.ERROR, f"apart {shown(label)}", text)


class SpoolFile:
    """
    The file of a spool, if there should be one. Used under `lock`, which the methods for the sink's state take.

    It may fail, fill up, become corrupt or be locked by another agent. No failure is raised; it is counted and logged.
    """

    def __init__(self, name: str, path: Path | None, state: str, on_lost: Callable[[], None]) -> None:
        """`state` is the name of the sink's state; `on_lost` is called when a corrupt file was set aside."""
        self.path = path
        """None: the points are in memory only."""
        self.store: Store | None = None
        self.pending: PendingEnds | None = None
        self.lock = threading.Lock()
        self.logger = Notices(log, "sink", f"spool {name}")
        self.faults = self.logger.counts
        """Failures of the file by kind."""
        self._state, self._on_lost = state, on_lost

    @property
    def is_open(self) -> bool:
        """True while it takes points."""
        return self.store is not None

    def open(self) -> Content | None:
        """Open or make it; return its content, or None if that is not possible now."""
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
        """Return what `action` returns, None if there is no file or it fails; a corrupt one is set aside."""
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
        """Note for `flush`: add to the ledger, delete the chunk `gone`, store how many points of a chunk ended."""
        if self.store is None:
            return
        pending = self.pending = self.pending or PendingEnds()
        pending.entries.update(change)
        pending.front = front or pending.front
        if gone is not None:
            pending.gone.append(gone)

    def note_state(self, state: bytes | None) -> None:
        """Note the state of the sink for `flush`, if it has changed."""
        if state is not None and self.store is not None:
            self.pending = self.pending or PendingEnds()
            self.pending.memos[self._state] = state

    def flush(self) -> bool:
        """Write the changes that the file did not take; return whether none is left and the file is open."""
        if self.pending is not None and self.do(self.pending.write):
            self.pending = None
        return self.pending is None and self.store is not None

    def close(self) -> None:
        """Close it for good."""
        if self.store is not None:
            self.store.close()
        self.store = self.path = None

    # -- what is kept over a restart -----------------------------------------------------------------------------------

    def recall(self) -> bytes:
        """Return the state of the sink that was kept last, also before a restart, or b"" if there is none."""
        return self._noted(self._state) or self._noted(STATE)

    def remember(self, state: bytes) -> None:
        """Keep what the sink must know after a restart; it is lost if there is no file."""
        with self.lock:
            self.note_state(state)
            self.flush()

    def newest(self) -> int | None:
        """Return when the newest point that the file ever took was measured (ns since the epoch), or None."""
        memo = self._noted(NEWEST)
        return int.from_bytes(memo, "big", signed=True) if len(memo) == 8 else None

    def _noted(self, name: str) -> bytes:
        with self.lock:
            return self.do(lambda store: store.noted(name)) or b""

    # -- trouble -------------------------------------------------------------------------------------------------------

    def _fail(self, problem: Exception) -> None:
        self.logger.tell("disk", f"{file_of(problem) or self.path}: {os_text(problem)}; {IN_MEMORY}")

    def _replace(self, problem: Exception) -> None:
        """Close a corrupt file and set it aside; the next `open` makes a new one."""
        store, self.store, self.pending = self.store, None, None
        assert store is not None
        try:
            self.logger.tell("corrupt", store.retire(problem))
        except OSError as error:
            self.logger.tell("disk", f"{self.path}: {problem}, and cannot be renamed: {error}; {IN_MEMORY}")
            self.path = None
        self._on_lost()
