"""Chooses the steps of a run, so that no step gets two values, even after a restart or a lost answer."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from chipwatch_sinks.mlflow.api import Run
from chipwatch_sinks.mlflow.keys import PREFIX


class RunSteps:
    """Holds a step for each time being sent; steps continue after the last one of the run's system metrics."""

    def __init__(self, prefix: str) -> None:
        """Take the beginning of our keys, which no other node has."""
        self._prefix = prefix
        self._kept: dict[str, Any] = {}  # what `saved` returned before this process started
        self._next: int | None = None  # the next step; None while it is not known
        self.steps: dict[int, int] = {}
        """Time (ms since the epoch) -> step, for the points that are being sent."""
        self.stored: dict[str, int] = {}
        """Key -> newest step that the server had when it was last asked."""

    def restore(self, saved: bytes) -> None:
        """Take back what `saved` returned: the steps of points that may have been sent, and the next step."""
        self._kept = json.loads(saved)

    def saved(self, run: str) -> bytes | None:
        """Return the steps of points that are being sent, and the next step; None while that is not known."""
        if self._next is None:
            return None
        return json.dumps({"run": run, "keys": self._prefix, "next": self._next, "steps": self.steps}).encode()

    def look(self, run: Run, name: str) -> bool:
        """Note the newest steps of `run`; return True if somebody else has written our keys."""
        metrics, start = run.data.metrics, len(self._prefix)
        own = [each for each in metrics if each.key.startswith(self._prefix) and "/" not in each.key[start:]]
        self.stored = {each.key: each.step for each in own}
        newest = max(self.stored.values(), default=-1)
        if self._next is None and (self._kept.get("run"), self._kept.get("keys")) == (name, self._prefix):
            self._next = self._kept["next"]
            self.steps = {int(at): step for at, step in self._kept["steps"].items()}
        elif self._next is None:
            self._next = max((each.step for each in metrics if each.key.startswith(PREFIX)), default=-1) + 1
        if newest < self._next:
            return False
        self._next, self.steps = newest + 1, {}
        return True

    def choose(self, times: Iterable[int]) -> bool:
        """Choose a step for each of these times (ms since the epoch); return True if a new one was chosen."""
        assert self._next is not None
        known = {at: self.steps[at] for at in times if at in self.steps}
        new = sorted({*times} - known.keys())
        self.steps = known | {at: self._next + n for n, at in enumerate(new)}
        self._next += len(new)
        return bool(new)
