"""What stands in the place of a spool's file where points wait in memory alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chipwatch.spool.chunk import Chunk
    from chipwatch.spool.lock_file import Counts
    from chipwatch.spool.sqlite import Store

    Found = tuple[list[Chunk], dict[str, int], Counts]
    """The chunks of a file, the entries of its ledger, and the counts that the last run left beside it."""


class NoFile:
    """The part of SpoolFile that the spool calls without a file; it does without SQLite, which takes 1 MB."""

    def __init__(self) -> None:
        self.faults: Counter[str] = Counter()
        """Faults by kind."""

    @property
    def wanted(self) -> bool:
        """Whether there should be a file."""
        return False

    @property
    def is_open(self) -> bool:
        """Whether the file is open."""
        return False

    def open(self) -> Found | None:
        """Open the file; return its content, or None if that fails."""
        return None

    def do(self, action: Callable[[Store], object]) -> bool:
        """Call `action`; return whether it succeeded."""
        del action
        return False

    def get(self, read: Callable[[Store], bytes]) -> bytes | None:
        """Return what `read` returns, or None if the file fails."""
        del read
        return None

    def flush(self) -> bool:
        """Write the changes that the file did not take; return whether none is left and the file is open."""
        return False

    def restore(self) -> None:
        """Write the file again if it was deleted or replaced."""

    def acknowledge(
        self, change: Mapping[str, int], *, gone: int | None = None, front: tuple[int, int] | None = None
    ) -> None:
        """Add to the ledger, delete the chunk with the key `gone`, store how many points of a chunk have ended."""

    def resolved(self) -> None:
        """Log that a failure is over."""

    def fault(self, kind: str, text: str) -> None:
        """Count a fault of a kind, and log it once."""

    def close(self) -> None:
        """Close the file for good; safe to call twice."""
