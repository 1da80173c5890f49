"""Writes points as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric, Summary
from chipwatch.contract.sink import Rejected

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
ONE_SAMPLE: Final = (
    ', "summary": {"count": 1, "sum": ?, "minimum": ?, "maximum": ?, "values": [?], "counts": [1], "last": ?}'
)
SERIES: Final = 25_000
"""Most series of which the constant parts of a line are cached; one takes about 0.5 kB."""


@lru_cache(maxsize=256)
def utc(at: int) -> str:
    """Return `at` (ns since the epoch) as 2026-11-20T10:00:05.250Z."""
    ms = at // 1_000_000
    moment = EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


_known: Final[dict[tuple[str, Dimensions], tuple[Metric, str, str]]] = {}
"""Series -> its metric, and its line's parts before and after the value."""


def lines(batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
    """Return a line for each point; points whose time no calendar has go to `rejected`."""
    done, known = [], _known.get
    for point in batch:
        metric, value, dims, at, start_time, start, summary, increase = point
        if (series := known((metric.name, dims))) is None or series[0] is not metric:
            series = _learn(metric, dims)
        try:
            line = f'{{"time": "{utc(at)}"{series[1]}{value!r}{series[2]}'
            if increase is not None:
                line += f', "increase": {increase!r}'
            if start_time is not None:
                line += f', "start_time": "{utc(start_time)}"'
            if start is not None and (increase is not None or summary is not None):
                line += f', "window_start": "{utc(start)}"'
            if summary is not None:
                line += _encode_summary(summary)
        except OverflowError:
            rejected.append(Rejected(point, "time out of range"))
        else:
            done.append(line + "}\n")
    return "".join(done)


def _encode_summary(summary: Summary) -> str:
    """Return a summary as a field of JSON; Python already writes numbers, and lists of them, as JSON does."""
    count, total, least, most, values, counts, last = summary
    if counts == (1,) and total is least is most is last is values[0]:
        return ONE_SAMPLE.replace("?", repr(total))
    return (
        f', "summary": {{"count": {count}, "sum": {total!r}, "minimum": {least!r}, "maximum": {most!r},'
        f' "values": {[*values]!r}, "counts": {[*counts]!r}, "last": {"null" if last is None else repr(last)}}}'
    )


def _learn(metric: Metric, dims: Dimensions) -> tuple[Metric, str, str]:
    """Encode and remember the constant parts of a series' lines."""
    if len(_known) >= SERIES:
        _known.clear()
    about = json.dumps({"name": metric.name, "kind": metric.kind, "unit": metric.unit})
    series = metric, f', {about[1:-1]}, "value": ', f', "dims": {json.dumps(dict(dims.items_sorted))}'
    _known[metric.name, dims] = series
    return series
