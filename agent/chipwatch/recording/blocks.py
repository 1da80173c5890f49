"""Encodes columns as a block, in which noise costs what it must and a constant almost nothing."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from chipwatch.contract.datapoint import Kind
from chipwatch.recording.columns import ABSENT, FIRST_PICK, LARGEST_SCALE, LONGEST, Line, RecordedSeries, Series

SCALES: Final = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
"""Decimal places that are tried."""
EXACT: Final = 2**53
LARGE: Final = 1000.0
"""Value from which a thousandth is finer than six significant digits."""
FEW: Final = 4
MOST_WORDS: Final = 64
"""Samples for each different number, and the different numbers, from which and up to which numbers are picked."""
MOST_ALONE: Final = 8
"""Series with the same times from which these are written apart; a time costs as much as a sample."""
MOST_PIECES: Final = LONGEST >> 15
"""Series of one line, which may have 600 samples of 20 characters each."""
assert SCALES[-1] <= LARGEST_SCALE


def block(columns: Iterable[RecordedSeries]) -> bytes:
    """Return the lines of a block; series that are read less often, at the same times, have a separate line."""
    columns, groups = [*columns], defaultdict[bytes, list[RecordedSeries]](list)
    for column in columns:
        groups[column.times.tobytes()].append(column)
    rest = [column for group in groups.values() if len(group) < MOST_ALONE for column in group]
    lines = [*(group for group in groups.values() if len(group) >= MOST_ALONE), *([rest] if rest else [])]
    parts = (group[n : n + MOST_PIECES] for group in lines for n in range(0, len(group), MOST_PIECES))
    return msgspec.json.Encoder().encode_lines([_line(part) for part in parts])


def _line(columns: Sequence[RecordedSeries]) -> Line:
    pieces, times = [], sorted({at for column in columns for at in column.times})
    for column in columns:
        metric, dims = column.metric, dict(column.dims.items_sorted)
        starts: Sequence[tuple[int, int | None]] = column.starts or [(0, None)]
        ends = [*(place for place, _ in starts[1:]), len(column.times)]
        for (begin, start), end in zip(starts, ends, strict=True):
            values = column.values[begin:end]
            if metric.kind is Kind.GAUGE:
                values = array("d", map(rounded, values))
            samples = _aligned(column.times[begin:end], values, times)
            pieces.append(Series(metric.name, metric.kind, metric.unit, dims, start, **form(samples)))
    return Line(times=[*times[:1], *(after - before for before, after in pairwise(times))], series=pieces)


def form(samples: Sequence[float | None]) -> dict[str, Any]:
    """Return the samples in the first form that fits and is exact: picks of few numbers, differences, or numbers."""
    present = array("d", (value for value in samples if value is not None))
    words = {value: value for value in present}
    if len(words) <= min(len(present) // FEW, MOST_WORDS) and _is_same(map(words.get, present), present):
        letters = {word: chr(FIRST_PICK + n) for n, word in enumerate(words)} | {None: ABSENT}
        return {"values": [*words], "picks": "".join([letters[value] for value in samples])}
    for scale in SCALES:
        if (deltas := _deltas(present, 10**scale)) is not None:
            return {"deltas": _with_absent(samples, deltas), "scale": scale}
    return {"values": [*samples]}


def rounded(value: float) -> float:
    """Return a gauge to six significant digits, or to a thousandth where that is finer; a whole number as it is."""
    if value.is_integer():
        return value
    return round(value, 3) if abs(value) >= LARGE else float(f"{value:.6g}")


def _aligned(at: array[int], values: array[float], times: Sequence[int]) -> Sequence[float | None]:
    if len(at) == len(times):
        return values
    samples: list[float | None] = [None] * len(times)
    place = bisect_left(times, at[0]) if at else 0
    for moment, value in zip(at, values, strict=True):
        place = bisect_left(times, moment, place)
        samples[place] = value
    return samples


def _deltas(values: array[float], factor: int) -> list[int] | None:
    """Return differences of whole numbers whose sums divided by `factor` are the very same floats; None if none are."""
    whole = []
    for value in values:
        product = value * factor
        if not -EXACT < product < EXACT or (number := round(product)) / factor != value:
            return None
        whole.append(number)
    if not _is_same((number / factor for number in whole), values):
        return None
    return [*whole[:1], *(after - before for before, after in pairwise(whole))]


def _is_same(values: Iterable[Any], others: array[float]) -> bool:
    """Return whether all bits are the same: a zero may have a sign."""
    return array("d", values).tobytes() == others.tobytes()


def _with_absent(samples: Sequence[float | None], present: Iterable[int]) -> list[int | None]:
    rest = iter(present)
    return [None if value is None else next(rest) for value in samples]
