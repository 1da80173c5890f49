"""Yields a recording tick by tick, with the increase of each counter, as the screen takes it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from chipwatch.contract.datapoint import Datapoint
from chipwatch.pipeline.window import Window
from chipwatch.recording.columns import Recorded


class ColumnFrames:
    """The ticks of columns; a place is the number of a tick."""

    share = 0.0

    def __init__(self, recorded: Recorded) -> None:
        self.broken = recorded.broken
        self._columns = recorded.columns
        self._times = sorted({at for column in recorded.columns for at in column.times})

    def frames(self, start: int = 0) -> Iterator[tuple[int, int, list[Datapoint]]]:
        """Yield the place, the time (ns) and the points of each tick from the place `start` on."""
        window = Window(0, born=self._times[0], increases=True)
        places = [bisect_left(column.times, self._times[start]) for column in self._columns]
        for number, at in enumerate(self._times[start:], start):
            points = []
            for n, column in enumerate(self._columns):
                place = places[n]
                if place < len(column.times) and column.times[place] == at:
                    places[n] += 1
                    points.append(
                        column.metric.point(at, column.values[place], column.dims, start_time=column.start(place))
                    )
            self.share = (number + 1) / len(self._times)
            yield number, at, window.add(points, at)
