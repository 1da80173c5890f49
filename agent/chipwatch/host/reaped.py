"""Totals that include reaped children's totals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

MAX_READINGS: Final = 3
"""Readings for which an amount is expected in a parent's total; usually it is there after one."""


class ReapedTotal:
    """
    Sum over a process tree of totals to which the kernel adds each reaped child's total.

    It is the sum of the members' gains minus what was already counted for children since reaped, because their
    parents' totals include that now. A parent that was read just before it reaped shows the amount one reading later,
    so the amount stays pending; only for MAX_READINGS, because a parent that ignores SIGCHLD never includes it.
    """

    def __init__(self) -> None:
        self.total = 0
        self._gains: dict[int, int] = {}
        self._pending: list[tuple[int, int, bool, int]] = []

    def gain(self, pid: int, amount: int) -> None:
        """Add the increase of a living member's total; a decrease counts as 0."""
        self._gains[pid] = max(0, amount)

    def update(self, ended: Iterable[tuple[int, int]], parents: Mapping[int, int], reapers: AbstractSet[int]) -> None:
        """
        Add the gains, minus what was counted for the `ended` members: pairs of parent and amount.

        `parents` has the parent of each member, also of ended ones; `reapers` are the members that can still reap.
        If the parent is a reaper, its total includes the amount. Else it is unknown which ancestor's does; then the
        amount is subtracted last, from the nearest ancestors first.
        """
        gains = self._gains
        pending = self._pending + [(parent, amount, True, MAX_READINGS) for parent, amount in ended]
        pending = [(parent, amount, sure and parent in reapers, left) for parent, amount, sure, left in pending]
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
    """Iterate over the living ones among `pid` and its ancestors."""
    for _ in parents:  # ends even if the parents form a circle
        if pid in gains:
            yield pid
        if pid not in parents:
            return
        pid = parents[pid]
