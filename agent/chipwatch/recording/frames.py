"""Yields a recording tick by tick, with the increase of each counter, as the screen takes it."""

from __future__ import annotations

from collections.abc import Iterator

from chipwatch.contract.datapoint import Datapoint
from chipwatch.pipeline.window import Window
from chipwatch.recording.columns import Recorded


class ColumnFrames:
    """The ticks of columns; a place is the number of a tick."""

    share = 0.0

    def __init__(self, recorded: Recorded) -> None:
        self.broken = recorded.broken
        self._recorded, self._times = recorded, recorded.times()

    def frames(self, start: int = 0) -> Iterator[tuple[int, int, list[Datapoint]]]:
        """Yield the place, the time (ns) and the points of each tick from the place `start` on."""
        window = Window(0, born=self._times[0], increases=True)
        for number, (at, present) in enumerate(self._recorded.ticks(self._times[start:]), start):
            points = [
                column.metric.point(at, column.values[place], column.dims, start_time=column.start(place))
                for column, place in present
            ]
            self.share = (number + 1) / len(self._times)
            yield number, at, window.add(points, at)
