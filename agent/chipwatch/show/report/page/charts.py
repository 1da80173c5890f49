"""The charts of the page as data for its script: one chart for each metric, curves in buckets of one time axis."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise
from operator import sub
from statistics import median
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.contract.datapoint import Dimensions, Kind
from chipwatch.show.report.page.usage import CHOICES, LONGEST, Curve, ReportedRun

STEPS: Final = 2000
"""Steps into which a chart's range is divided to round its values; a chart is 200 pixels high."""
EVEN, SMALLEST = 1e-9, 1e-100
"""Smallest range of a chart, as a share of its largest value, for which values differ; smallest size of a value."""
DRAWN: Final = 3000
"""Most series that the page draws; others have only statistics."""
LISTED: Final = 20_000
"""Most series with statistics on the page."""
DIMENSIONS: Final = 32
"""Most dimensions of a series on the page."""
POINTS: Final = 400_000
"""Most buckets of all series together; an hour of eight GPUs gives a page of 1 MB."""
MOST_BUCKETS, LEAST_BUCKETS = 1000, 100
GAP: Final = 3
"""Factor: no line joins two readings that are this many usual intervals apart."""


class TimeBuckets:
    """A time axis: `count` buckets of `step` ns, from `start` (ns since the epoch)."""

    def __init__(self, start: int, step: int, count: int) -> None:
        self.start, self.step, self.count = start, step, count
        self._cuts: dict[tuple[bytes, bool], list[tuple[int, int, int]]] = {}

    def _filled(self, times: array[int], *, is_rate: bool) -> list[tuple[int, int, int]]:
        """
        Return (bucket, first reading, end of readings) for each bucket that is not empty.

        Empty buckets between two readings get the earlier one, or for a rate the later one. Long pauses stay empty.
        """
        key = (times.tobytes(), is_rate)
        if (cuts := self._cuts.get(key)) is None:
            edges = [bisect_left(times, self.start + n * self.step) for n in range(self.count)] + [len(times)]
            steps = [after - before for before, after in pairwise(times)]
            pause = GAP * median(steps or [0])
            cuts = self._cuts[key] = []
            for n, (i, j) in enumerate(pairwise(edges)):
                if i < j:
                    cuts.append((n, i, j))
                elif 0 < i < len(times) and steps[i - 1] <= pause:
                    cuts.append((n, i, i + 1) if is_rate else (n, i - 1, i))
        return cuts

    def encoded(self, curve: Curve, unit: float) -> dict[str, list[int]]:
        """
        Return a curve as the page's script decodes it: integers, which are multiples of `unit`.

        `mean`: the first mean, then differences to the mean before. `runs`: pairs of a bucket and the number of filled
        buckets from there on. `low`, `high`: distances of the minimum and maximum from the mean; left out if all are 0.
        """
        cuts, runs = self._filled(curve.times, is_rate=bool(curve.increases)), list[int]()
        for number, _, _ in cuts:
            if not runs or number != runs[-2] + runs[-1]:
                runs += (number, 0)
            runs[-1] += 1
        if (least := min(curve.values)) == max(curve.values):  # as limits and totals are
            return {"runs": runs, "mean": [round(least / unit) * bool(cuts)] + [0] * (len(cuts) - 1)}
        parts = [curve.values[i:j] for _, i, j in cuts]
        means = [round(curve.mean(i, j) / unit) for _, i, j in cuts]
        low = [mean - round(min(part) / unit) for mean, part in zip(means, parts, strict=True)]
        high = [round(max(part) / unit) - mean for mean, part in zip(means, parts, strict=True)]
        bands = {name: values for name, values in (("low", low), ("high", high)) if any(values)}
        return {"runs": runs, "mean": [*means[:1], *map(sub, means[1:], means)], **bands}


def axis(runs: Sequence[ReportedRun]) -> tuple[list[TimeBuckets], bool]:
    """Return the time axis of each run, and True if all share one; otherwise each axis begins at 0."""
    starts, ends = [run.recorded.started for run in runs], [run.recorded.ended for run in runs]
    longest = max(end - start for start, end in zip(starts, ends, strict=True))
    is_clock = min(ends) - max(starts) >= longest // 2
    span = (max(ends) - min(starts) if is_clock else longest) + 1
    series = sum(len(curves) for run in runs for curves in run.metrics.values())
    most = max(LEAST_BUCKETS, min(MOST_BUCKETS, POINTS // max(1, min(series, DRAWN))))
    step = max(round(1e9 * min(run.recorded.interval or 1.0 for run in runs)), -(-span // most))
    return [TimeBuckets(min(starts) if is_clock else start, step, -(-span // step)) for start in starts], is_clock


def charts(runs: Sequence[ReportedRun], buckets: Sequence[TimeBuckets]) -> Iterator[dict[str, Any]]:
    """Yield a chart for each metric as the page's script reads it; the metrics of the overview come first."""
    overview = {name: n for n, name in enumerate(CHOICES["overview"])}
    drawn = listed = 0
    for name in sorted({name for run in runs for name in run.metrics}, key=lambda name: (overview.get(name, 99), name)):
        read = [(n, curve, curve.stats) for n, run in enumerate(runs) for curve in run.metrics[name] if curve.stats]
        read = read[: LISTED - listed]
        if not read:
            continue
        low, high = min(stats.minimum for _, _, stats in read), max(stats.maximum for _, _, stats in read)
        is_drawn = (low < high or name in overview) and drawn + len(read) <= DRAWN
        drawn, listed = drawn + len(read) * is_drawn, listed + len(read)
        metric = read[0][1].metric
        size = max(abs(low), abs(high), SMALLEST)
        unit = 10.0 ** math.floor(math.log10((high - low if high - low > EVEN * size else size) / STEPS))
        series = [
            {"run": n, "dims": _shown(curve.dims), "stats": stats,
             **(buckets[n].encoded(curve, unit) if is_drawn else {})}
            for n, curve, stats in read
        ]  # fmt: skip
        yield {
            "metric": one_line(name), "unit": one_line(metric.unit, LONGEST) + "/s" * (metric.kind is Kind.COUNTER),
            "main": name in overview, "quantum": unit, "series": series,
        }  # fmt: skip


def _shown(dims: Dimensions) -> dict[str, str]:
    return {one_line(key, LONGEST): one_line(value, LONGEST) for key, value in dims.items_sorted[:DIMENSIONS]}
