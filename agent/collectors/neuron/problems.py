"""What is wrong with the input: each kind of problem once a tick."""

from __future__ import annotations

from typing import Final

MAX_KINDS: Final = 32
"""Kinds of problems kept from one tick."""


class Problems:
    """Collects problems. A message has no numbers, so that repeats are equal and are reported once."""

    def __init__(self) -> None:
        """Begin with none."""
        self._messages: dict[str, None] = {}
        self._reported: set[str] = set()

    def add(self, message: str) -> None:
        """Note a problem."""
        if len(self._messages) < MAX_KINDS:
            self._messages[message] = None

    def once(self, message: str) -> None:
        """Note a problem that is reported only the first time."""
        if message not in self._reported and len(self._reported) < MAX_KINDS:
            self._reported.add(message)
            self.add(message)

    def take(self) -> list[str]:
        """Return what was noted since the last call."""
        messages, self._messages = list(self._messages), {}
        return messages
