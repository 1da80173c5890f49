"""Runs one processor on the clock's thread, so that a call that fails harms nothing else."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.owner import Owner
from chipwatch.contract.plugin import Given, Record
from chipwatch.contract.processor import Processor
from chipwatch.engine.validation import PluginRunner, state_of


class Derivation(PluginRunner):
    """
    Runs one processor, and validates its points; used by the clock's thread.

    An exception costs only this processor's points of this tick; it is logged and counted.
    """

    def __init__(self, name: str, processor: Processor, level: Level) -> None:
        """Keep derived points of at most `level`."""
        super().__init__(processor, "processor", name, level)
        self.processor = processor
        # Lambdas, since both are set later.
        given = Given(level=level, append=lambda rows: self.append(rows), note=lambda *words: self.note(*words))  # noqa: PLW0108
        self._given: Given | None = self.needs.of(given)
        self.keep: Callable[[bytes], None] | None = None
        """Function that writes the processor's state to disk."""
        self.append: Callable[[Sequence[Record]], bool] = Given().append
        """Function that adds the processor's records to the state folder; see `Given.append`."""
        self.note: Callable[[str, str, bool], None] = Given().note
        """Function that writes a sentence about a job into recordings; see `Given.note`."""

    def is_wanted(self, *, with_devices: bool) -> bool:
        """Return whether to call the processor now: one that needs devices waits until a collector may find some."""
        is_idle = self.needs_devices and self.ok is None and not with_devices
        self.unavailable = "no collector has found a device" if is_idle else None
        return not is_idle

    def run(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object] = ()) -> list[Datapoint]:
        """Return the points that the processor derives from `tick`, the points so far; none if it fails."""
        return self._attempt(self._derive, tick, at, facts)

    def owners_of(self, device: Dimensions) -> Sequence[Owner]:
        """Return who holds a device, as far as the processor knows it; () if it fails."""
        return self._survive(self.processor.owners_of, "cannot tell who holds a device", device) or ()

    def restore(self, saved: bytes, path: object) -> None:
        """Give the processor the state of an earlier run, which was read from `path`."""
        self._survive(self.processor.restore, f"cannot take its state from {path}, it begins without", saved)

    def _derive(self, tick: Sequence[Datapoint], at: int, facts: Sequence[object], points: list[Datapoint]) -> None:
        if self._given:
            self.processor.open(self._given)
            self._given = None
        try:
            self.validation.take(self.processor.derive(tick, at, facts if self.needs.facts else ()), at, points)
        except PartlyCollected as partly:
            self._wrong.append(text := "; ".join(partly.problems))
            self._logger.tell("partial", text)
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
