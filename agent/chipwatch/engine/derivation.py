"""Runs one processor on a separate thread, so that a call that fails or hangs harms nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeVar, cast

from chipwatch.contract.datapoint import Datapoint, Level
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.plugin import Given, Record
from chipwatch.contract.processor import Processor
from chipwatch.engine.validation import PluginRunner, state_of
from chipwatch.host.blocking_call import BlockingCall

T = TypeVar("T")

PATIENCE: Final = 2.0
"""Seconds that the clock waits for a processor."""


class Derivation(PluginRunner):
    """
    Runs one processor on a separate thread, and validates its points.

    An exception costs only this processor's points of this tick; it is logged and counted. So does a call that takes
    too long; the processor is then skipped until the call returns.
    """

    def __init__(self, name: str, processor: Processor, level: Level) -> None:
        """Keep derived points of at most `level`."""
        super().__init__(processor, "processor", name, level)
        self.processor = processor
        # Lambdas, since both are set later.
        given = Given(level=level, append=lambda rows: self.append(rows), note=lambda *words: self.note(*words))  # noqa: PLW0108
        self._given: Given | None = self.needs.of(given)
        self.keep: Callable[[bytes], None] | None = None
        """Function that writes the processor's state to disk. This and the next two are called on its thread."""
        self.append: Callable[[Sequence[Record]], bool] = Given().append
        """Function that adds the processor's records to the state folder; see `Given.append`."""
        self.note: Callable[[str, str, bool], None] = Given().note
        """Function that writes a sentence about a job into recordings; see `Given.note`."""
        self._thread: BlockingCall[object] = BlockingCall(lambda call: call(), f"derive-{name}")

    def is_wanted(self, *, with_devices: bool) -> bool:
        """Return whether to call the processor now: one that needs devices waits until a collector may find some."""
        is_idle = self.needs_devices and self.ok is None and not with_devices
        self.unavailable = "no collector has found a device" if is_idle else None
        return not is_idle

    def run(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object] = ()) -> list[Datapoint]:
        """Return the points that the processor derives from `tick`, the points so far; none if it fails."""
        return self._ask(lambda: self._attempt(self._derive, tick, at, facts)) or []

    def restore(self, saved: bytes, path: object) -> None:
        """Give the processor the state of an earlier run, which was read from `path`."""
        failure = f"cannot take its state from {path}, it begins without"
        self._ask(lambda: self._survive(self.processor.restore, failure, saved))
        self._thread.close()  # it may never be called again

    def close(self) -> None:
        """Let the thread end."""
        self._thread.close()

    def _ask(self, call: Callable[[], T]) -> T | None:
        """Return what `call` returns on the processor's thread; None if it takes too long, which is logged."""
        try:
            result = self._thread.ask(PATIENCE, call)
        except (TimeoutError, RuntimeError) as problem:
            self.ok = False
            self.trouble = "its last call has not returned; passed over until it does"
            if isinstance(problem, RuntimeError):  # the thread cannot be started
                self.trouble = f"{problem}; tried again in the next tick"
            self._logger.tell("skipped", self.trouble)
            return None
        self._logger.over("skipped")
        return cast("T", result)

    def _derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object], points: list[Datapoint]) -> None:
        if self._given:
            self.processor.open(self._given)
            self._given = None
        try:
            self.validation.take(self.processor.derive(tick, at, facts if self.needs.facts else ()), at, points)
        except PartlyCollected as partly:
            self.trouble = "; ".join(partly.problems)
            self._logger.tell("partial", self.trouble)
        except BaseException:
            points.clear()
            raise
        self.ok = True
        if self.keep:
            self._survive(self._save, "cannot save its state", self.keep)

    def _save(self, keep: Callable[[bytes], None]) -> None:
        """Keep the state before the points are sent, so that after a kill no counter is below a value that was sent."""
        if (saved := state_of(self.processor)) is not None:
            keep(saved)
