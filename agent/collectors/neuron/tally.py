"""Counters that continue over records, runtimes and restarts of the monitor."""

from __future__ import annotations

from typing import Final

from agent.collectors.neuron.schema import MOST_NAMES

MOST_TAGS: Final = 256
LARGEST: Final = 2**63 - 1


class Tally:
    """Counts by kind and name since `start_time` (ns since the epoch)."""

    __slots__ = ("counts", "start_time")

    def __init__(self, start_time: int) -> None:
        """Begin with nothing."""
        self.start_time = start_time
        self.counts: dict[tuple[str, str], int] = {}
        """By kind and name."""

    def add(self, name: tuple[str, str], count: int) -> None:
        """Add to a count; ignore new names beyond 64, since each would be a series."""
        if name in self.counts or len(self.counts) < MOST_NAMES:
            self.counts[name] = min(self.counts.get(name, 0) + count, LARGEST)


class Tallies:
    """
    Tallies by the tag of a runtime, each from the moment when its tag was first seen.

    At most 256 are kept: the least recently used one is dropped, and begins anew if its tag returns.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._tallies: dict[str, Tally] = {}

    def of(self, tag: str, start_time: int) -> Tally:
        """Return the tally of `tag`; a new one is zero at `start_time`."""
        tally = self._tallies.pop(tag, None) or Tally(start_time)
        if len(self._tallies) >= MOST_TAGS:
            del self._tallies[next(iter(self._tallies))]
        self._tallies[tag] = tally
        return tally


class Reported:
    """
    A counter of the source; one drop is ignored.

    The driver reports 0 where it could not read its firmware (aws-neuronx-dkms, neuron_sysfs_metrics.c), and the next
    reading would look like a burst of errors. A second low reading confirms a restart and moves `start_time`.
    """

    __slots__ = ("_fell", "start_time", "value")

    def __init__(self, start_time: int) -> None:
        """Count as of `start_time` (ns since the epoch)."""
        self.start_time = start_time
        self.value = 0
        self._fell = False

    def read(self, value: int, at: int) -> None:
        """Take a reading at `at` (ns since the epoch)."""
        if value >= self.value:
            self.value, self._fell = value, False
        elif self._fell:
            self.value, self.start_time, self._fell = value, at, False
        else:
            self._fell = True

    def add(self, value: int) -> None:
        """Add a reading that counts since the last one."""
        self.value = min(self.value + value, LARGEST)
