"""The law of conservation: every point ends somewhere, and is counted there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Ledger:
    """
    The law, in points: collected = sent + rejected + dropped + spooled.

    For a spool on disk it holds from the making of the spool on, over restarts and kills.
    """

    collected: int = 0
    sent: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)
    spooled: int = 0

    def balance(self) -> int:
        """Return what the law leaves over: 0, or there is a bug."""
        return self.collected - self.sent - self.rejected.total() - self.dropped.total() - self.spooled

    def book(self, change: Mapping[str, int]) -> None:
        """Add entries of the form `collected`, `sent`, `rejected:reason`, `dropped:reason`."""
        for entry, points in change.items():
            kind, _, reason = entry.partition(":")
            if kind == "collected":
                self.collected += points
            elif kind == "sent":
                self.sent += points
            else:
                (self.rejected if kind == "rejected" else self.dropped)[reason] += points

    def ended(self) -> dict[str, int]:
        """Return the entries that make up all that has ended."""
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
        """Return the law with its numbers."""

        def listed(counts: Counter[str]) -> str:
            reasons = ", ".join(f"{reason} {n}" for reason, n in sorted(counts.items()) if n)
            return f"{counts.total()}{f' ({reasons})' if reasons else ''}"

        return (
            f"collected {self.collected} = sent {self.sent} + rejected {listed(self.rejected)}"
            f" + dropped {listed(self.dropped)} + spooled {self.spooled}"
        )
