"""Checks before the start what a sink will never take of a configuration, by the sink's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from agent.config import plugins
from agent.datapoint import Datapoint, Dimensions, Metric, gauge
from agent.sink import Sink

SAMPLE: Final = gauge("sample", "1", "Stands for any metric.")
MAX_NAMES: Final = 3
"""Metrics that a message names."""


class Fault(NamedTuple):
    """What a sink will never take."""

    text: str
    whole: bool = True
    """Whether every point is rejected, or only those of some metrics."""


def dimension_faults(name: str, sink: Sink, dims: Mapping[str, str], where: str = "dims") -> Iterator[Fault]:
    """Yield a fault for each dimension that the sink `name` never takes, else one if it never takes all together."""
    alone = False
    for key, value in dims.items():
        if why := _refuses(name, sink, SAMPLE, Dimensions({key: value})):
            alone = True
            place = f"{where}.{key if key.isprintable() else repr(key)} = {value[:60]!r}"
            yield Fault(f"{place}: {name} rejects every point that has it: {why}; change it, or leave it out")
    if not alone and (why := _refuses(name, sink, SAMPLE, Dimensions(dims))):
        yield Fault(f"{where}: {name} rejects every point that has these {len(dims)}: {why}; leave some out")


def _refuses(name: str, sink: Sink, metric: Metric, dims: Dimensions) -> str | None:
    with plugins.blamed(plugins.SINKS, name, "refuses fails"):
        return sink.refuses(metric, dims)


def faults(
    name: str,
    sink: Sink,
    dims: Mapping[str, str],
    words: Iterable[str],
    metrics: Iterable[Metric],
    *,
    rename: Callable[[Datapoint], Datapoint] | None,
) -> Iterator[Fault]:
    """
    Yield what the sink `name` will never take: points of `metrics`, before `rename`, with these dimensions.

    Every point carries `dims`, and a dimension for each of `words` whose value is not known yet.
    """
    found = [*dimension_faults(name, sink, dims)]
    yield from found
    if found:
        return
    under = {**dict.fromkeys(words, "x"), **dims}
    refused: dict[str, str] = {}
    asked = 0
    for metric in metrics:
        point = metric.point(0, 0.0, Dimensions(under | dict.fromkeys(metric.dims, "0")))
        point = rename(point) if rename else point
        asked += 1
        if why := _refuses(name, sink, point.metric, point.dims):
            refused.setdefault(point.metric.name, why)
    if refused:
        names, why = ", ".join([*refused][:MAX_NAMES]), next(iter(refused.values()))
        more = f" and {len(refused) - MAX_NAMES} more" if len(refused) > MAX_NAMES else ""
        yield Fault(f"{name} rejects every point of {names}{more}: {why}", whole=len(refused) == asked)
