"""Runs processors: the datapoints of a tick -> further datapoints."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence

from agent.datapoint import Datapoint, Level
from agent.errors import PartlyCollected, text_of
from agent.logs.throttled import ThrottledLogger
from agent.pipeline.validation import Validation
from agent.processor import Processor

log = logging.getLogger(__name__)


class Derivation:
    """
    Runs one processor on the clock's thread, and checks its points as a collector's are checked.

    An exception costs this processor's points of this tick and nothing else; it is logged once and counted.
    """

    def __init__(self, name: str, processor: Processor, level: Level) -> None:
        """Keep derived points of at most `level`."""
        self.name, self.processor = name, processor
        self._logger = ThrottledLogger(log, f"processor {name}")
        self.validation = Validation(level, self._logger)
        self.ok: bool | None = None
        """Whether the last call succeeded; None before the first."""
        self.trouble: str | None = None
        """What went wrong in the last call, or None."""
        self.yielded = 0
        """Points of the last call."""
        self.seconds = 0.0
        """How long the last call took."""
        self.failed = 0

    def run(self, tick: Sequence[Datapoint], at: int) -> list[Datapoint]:
        """Return what the processor derives from `tick`; nothing where it fails."""
        begun = time.monotonic()
        points: list[Datapoint] = []
        self.trouble = None
        self.validation.problems.clear()
        try:
            self.validation.take(self.processor.derive(tick, at), at, points)
            self.ok = True
        except PartlyCollected as partly:
            self.trouble, self.ok = "; ".join(partly.problems), True
            self._logger.log(logging.WARNING, "partly", self.trouble)
        except BaseException as bug:  # a plugin's SystemExit, too
            points.clear()
            self.ok = False
            self.failed += 1
            self.trouble = f"{type(bug).__name__}: {text_of(bug)}"
            self._logger.log(logging.ERROR, type(bug).__name__, f"failed: {text_of(bug)}", traceback=True)
        self.trouble = "; ".join(filter(None, (self.trouble, *self.validation.problems.values()))) or None
        self.seconds, self.yielded = time.monotonic() - begun, len(points)
        return points


def derive_all(derivations: Iterable[Derivation], points: list[Datapoint], at: int) -> None:
    """Add to `points`, those of one tick, what each processor derives from them and from the processors before it."""
    for derivation in derivations:
        points += derivation.run(tuple(points), at)
