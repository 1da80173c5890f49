"""Sums a number over a process tree, of which parents take over the numbers of their children."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

MAX_READINGS: Final = 3
"""Number of readings to wait until a parent's total includes a child that has ended; usually one is enough."""


class ReapedTotal:
    """
    The sum of a number over a process tree, where the kernel adds a child's number to its parent's when it is reaped.

    A plain sum would count a reaped child twice. So it adds the members' gains, and subtracts what was counted for
    children that were reaped since. A parent may show a child's amount one reading late, so the amount stays pending.
    After MAX_READINGS it is forgotten, since a parent that ignores SIGCHLD never shows it.
    """

    def __init__(self) -> None:
        self.total = 0
        self._gains: dict[int, int] = {}
        self._pending: list[tuple[int, int, bool, int]] = []

    def gain(self, pid: int, amount: int) -> None:
        """Note the increase of a living member's number since the last reading; a decrease counts as 0."""
        if amount > 0:
            self._gains[pid] = amount

    def update(self, ended: Iterable[tuple[int, int]], parents: Mapping[int, int], living: Mapping[int, bool]) -> None:
        """
        Add the gains to the total, minus the amounts that were counted for `ended` members: pairs of parent and amount.

        `parents` has the parent of each member, also of ended ones; `living` says of the others whether they can still
        reap. If the parent can, its number includes the amount. Otherwise some ancestor's does, and it is not known
        which; such amounts are subtracted last, from the nearest ancestors first.
        """
        gains = {**dict.fromkeys(living, 0), **self._gains}
        pending = self._pending + [(parent, amount, True, MAX_READINGS) for parent, amount in ended]
        pending = [(parent, amount, sure and living.get(parent, False), left) for parent, amount, sure, left in pending]
        self._gains, self._pending = {}, []
        for parent, amount, sure, readings_left in sorted(pending, key=lambda entry: not entry[2]):
            rest, ancestors = amount, list(_living(parent, gains, parents))
            for ancestor in ancestors[:1] if sure else ancestors:
                included = min(rest, gains[ancestor])
                gains[ancestor] -= included
                rest -= included
            if rest and ancestors and readings_left:
                self._pending.append((ancestors[0], rest, sure, readings_left - 1))
        self.total += sum(gains.values())


def _living(pid: int, gains: Mapping[int, int], parents: Mapping[int, int]) -> Iterator[int]:
    """Yield the members that live among `pid` and its ancestors, the nearest first."""
    for _ in parents:  # ends even if the parents form a circle
        if pid in gains:
            yield pid
        if pid not in parents:
            return
        pid = parents[pid]
