"""Counts every point by how it ended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


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
