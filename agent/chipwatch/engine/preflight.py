"""Finds before the start which dimensions and metrics a sink will never take, by the sink's own rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fnmatch import filter as fitting
from typing import Final, NamedTuple

from chipwatch.base.text import nearest
from chipwatch.config import plugins
from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, gauge
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.sink import Sink

SAMPLE: Final = gauge("sample", "1", "Stands for any metric.")
MAX_NAMES: Final = 3
"""Most metrics that a message names."""


class Fault(NamedTuple):
    """A part of the configuration that a sink will never take."""

    text: str
    whole: bool = True
    """True if every point is rejected, False if only points of some metrics are."""


def dimension_faults(name: str, sink: Sink, dims: Mapping[str, str], where: str = "dims") -> Iterator[Fault]:
    """Yield a fault for each dimension that the sink never takes; if none, one fault if it never takes all together."""
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
    name: str, sink: Sink, config: Config, metrics: Iterable[Metric], rename: Callable[[Datapoint], Datapoint] | None
) -> Iterator[Fault]:
    """
    Yield a fault for each of the configured dimensions, or for the `metrics`, that the sink will never take.

    Every point has the dimensions of --dim and of --common-dims; values of the latter are not known yet. `rename` is
    applied to each point before the sink is asked.
    """
    dims_faults = [*dimension_faults(name, sink, config.dims)]
    yield from dims_faults
    if dims_faults:
        return
    under = {**dict.fromkeys(config.common_dims, "x"), **config.dims}
    refused, metrics = dict[str, str](), [*metrics]
    for metric in metrics:
        point = metric.point(0, 0.0, Dimensions(under | dict.fromkeys(metric.dims, "0")))
        point = rename(point) if rename else point
        if why := _refuses(name, sink, point.metric, point.dims):
            refused.setdefault(point.metric.name, why)
    if refused:
        names, why = ", ".join([*refused][:MAX_NAMES]), next(iter(refused.values()))
        more = f" and {len(refused) - MAX_NAMES} more" if len(refused) > MAX_NAMES else ""
        yield Fault(f"{name} rejects every point of {names}{more}: {why}", whole=len(refused) == len(metrics))


def glob_fault(globs: Sequence[str], level: Level | None, metrics: Sequence[Metric]) -> str | None:
    """
    Return the fault of `include` or `exclude`: a glob that fits no metric of any plugin; or None.

    With the level of a sink, as `include` has it, it is one, too, that all globs together choose no metric.
    """
    unused = [glob for glob in globs if not fitting((metric.name for metric in metrics), glob)]
    installed = {*_installed_names()} if unused else set()
    if wrong := next((glob for glob in unused if not fitting(installed, glob)), None):
        return f"no metric fits {wrong!r}{nearest(wrong, installed, '; `chipwatch list` prints all')}"
    if level is None or len(unused) == len(globs):
        return f"no metric of the collectors that run fits {', '.join(globs)}" if globs and level is not None else None
    least = min(metric.level for glob in globs for metric in metrics if fitting([metric.name], glob))
    word = least.name.lower()
    return f"all metrics that fit are of level {word} or above; set level to {word}" if least > level else None


def _installed_names() -> Iterator[str]:
    for group in (plugins.COLLECTORS, plugins.PROCESSORS):
        for name in plugins.installed(group):
            with suppress(ImportError, ConfigError):
                yield from (metric.name for metric in plugins.load(group, name).metrics)
