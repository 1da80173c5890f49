"""Counters that began before we came."""

from __future__ import annotations


class Life:
    """
    A counter of the driver: it began at a time unknown, and begins anew with the driver or the device.

    A value that fell is held back once: a device that is about to fail may say 0 for a moment, and its return from
    there would pass for a leap.
    """

    __slots__ = ("_fell", "_last", "since")

    def __init__(self) -> None:
        """Begin with no reading."""
        self._last: float | None = None
        self._fell = False
        self.since: int | None = None
        """When this life was first read (ns since the epoch)."""

    def take(self, value: float, at: int) -> bool:
        """Take a reading; tell whether to trust it."""
        falls = self._last is not None and value < self._last
        if falls and not self._fell:
            self._fell = True
            return False
        if falls or self._last is None:
            self.since = at
        self._last, self._fell = value, False
        return True
