"""Totals that processes inherit from their children when these are reaped."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

PATIENCE: Final = 3
"""Readings that a debt waits: one is enough, unless more processes end within a reading while it lasts."""


class Inherited:
    """
    A total that a parent inherits from each child that it reaps, summed over a tree that changes.

    What the members' totals gained counts, less what had been counted before for members that were reaped since:
    their heir's total holds that now. An heir read a moment before it reaped shows it one reading later, so a debt
    waits; but not for long, because a parent that ignores SIGCHLD never inherits.
    """

    def __init__(self) -> None:
        """Begin with nothing gained and nothing owed."""
        self.total = 0
        self._gains: dict[int, int] = {}
        self._debts: list[tuple[int, int, bool, int]] = []

    def gain(self, pid: int, amount: int) -> None:
        """Take by how much the total of a living member rose; a fall is no gain."""
        self._gains[pid] = max(0, amount)

    def acknowledge(
        self, owed: Iterable[tuple[int, int]], parents: Mapping[int, int], reapers: AbstractSet[int]
    ) -> None:
        """
        Add what was gained, less the `owed` pairs of parent and amount.

        `parents` holds the parent of each member, also of those just gone; `reapers` are those that still can reap.
        The heir is the parent, if it is among these; or else it or an ancestor, nobody knows which: such debts come
        last, and take from the nearest first.
        """
        gains = self._gains
        debts = self._debts + [(parent, amount, True, PATIENCE) for parent, amount in owed]
        debts = [(heir, amount, sure and heir in reapers, readings) for heir, amount, sure, readings in debts]
        self._gains, self._debts = {}, []
        for heir, amount, sure, readings in sorted(debts, key=lambda debt: not debt[2]):
            left, line = amount, list(_living(heir, gains, parents))
            for payer in line[:1] if sure else line:
                paid = min(left, gains[payer])
                gains[payer] -= paid
                left -= paid
            if left and line and readings:
                self._debts.append((line[0], left, sure, readings - 1))
        self.total += sum(gains.values())


def _living(pid: int, gains: Mapping[int, int], parents: Mapping[int, int]) -> Iterator[int]:
    """Iterate over `pid` and its ancestors, those that live."""
    for _ in parents:  # bounds the way up, whatever the files claim
        if pid in gains:
            yield pid
        if pid not in parents:
            return
        pid = parents[pid]
