"""Recordings as the page needs them: curves, and the time, energy and cost of their accelerators."""

from __future__ import annotations

import math
import tomllib
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from heapq import merge
from itertools import chain, groupby, pairwise, repeat
from operator import itemgetter, truediv
from pathlib import Path
from statistics import fmean
from typing import Any, Final, NamedTuple

from chipwatch.base.redaction import one_line
from chipwatch.contract.datapoint import Dimensions, Kind, Metric
from chipwatch.contract.errors import ConfigError
from chipwatch.history.columns import Recorded, RecordedSeries
from chipwatch.jobs.device_key import DeviceKey, device_label, device_of, device_order
from chipwatch.show.report.accelerators import BUSY, STATE, THROTTLED, DeviceUsage, role_of, whole_of
from chipwatch.show.report.devices import FAMILIES, FIGURES

FROM_ZERO: Final = ("{error}", "{event}", "{kill}")
"""Units of counters that a collector yields only from the first event on."""


class CurveStatistics(NamedTuple):
    """Statistics of a curve: of a gauge's readings, or of a counter's rates with its increase as `total`."""

    readings: int
    mean: float
    p95: float
    minimum: float
    maximum: float
    total: float


class Curve:
    """A series of a recording: the readings of a gauge, or the rates (per second) of a counter."""

    def __init__(self, series: RecordedSeries, recorded: Recorded) -> None:
        self.metric: Metric = series.metric
        self.dims: Dimensions = series.dims
        self.times, self.values = series.times, series.values.tolist()
        self.increases, self.seconds = list[float](), list[float]()
        """Increase of a counter in each interval, and the interval's length (s)."""
        self.read = self.times, self.values
        """Times of all readings, and their values; of a counter the times and the increases until then."""
        if self.metric.kind is Kind.COUNTER:
            self._take_rates(dict(series.starts), recorded)

    def _take_rates(self, starts: dict[int, int], recorded: Recorded) -> None:
        """
        Replace readings by rates, with the increases that `Window` gives.

        A counter starts at zero after a start since the reading before, and after a decrease. The first event of a kind
        counts, though its counter was not there before. A first interval of under half a tick has no rate: what was
        counted in it is a part of the next one. CPU time of an agent that is longer than its life is from
        before its start, as agents recorded it once.
        """
        times, values, step = self.times, self.values, round(1e9 * (recorded.interval or 1))
        rises, zero = list[float](), starts.pop(0, 0)
        for place, (before, now) in enumerate(pairwise(values), 1):
            is_new = now < before or starts.get(place, 0) >= times[place - 1]
            rises.append(now if is_new else 0.0 if place in starts else now - before)
        if zero < recorded.started < times[0] and self.metric.unit in FROM_ZERO:
            zero = times[0] - step
        is_older = self.metric.name == "agent.cpu" and 1e9 * values[0] > times[0] - zero
        if recorded.started - step <= zero < times[0] and not is_older:
            times, rises = array("q", (zero, *times)), [values[0], *rises]
        self.read = times[1:], rises
        if len(rises) > 1 and 2 * (times[1] - times[0]) < step:
            times, rises = times[:1] + times[2:], [rises[0] + rises[1], *rises[2:]]
        self.seconds = [(late - early) / 1e9 for early, late in pairwise(times)]
        self.times, self.increases, self.values = times[1:], rises, [*map(truediv, rises, self.seconds)]

    def mean(self, first: int = 0, end: int | None = None) -> float:
        """Return the mean of the readings from `first` to before `end`; of a counter its increase over their time."""
        part = (self.increases or self.values)[first:end]
        return math.fsum(part) / math.fsum(self.seconds[first:end] or [len(part)])

    @cached_property
    def stats(self) -> CurveStatistics | None:
        """Statistics at full precision, with a linearly interpolated percentile; None without a reading."""
        if not (ordered := sorted(self.values)):
            return None
        rank = 0.95 * (len(ordered) - 1)
        low, high = ordered[math.floor(rank)], ordered[math.ceil(rank)]
        return CurveStatistics(
            len(ordered), self.mean(), low + (high - low) * (rank % 1), ordered[0], ordered[-1],
            math.fsum(self.increases or ordered),
        )  # fmt: skip


CHOICES: Final[Mapping[str, Any]] = tomllib.loads(Path(__file__).with_name("page.toml").read_text(encoding="utf-8"))
WAITING: Final = "waiting"
LARGEST: Final = 1e100
"""Largest number of a series that is read: sums of larger ones would not be finite."""
LONGEST: Final = 60
"""Most characters of a name."""


def figure(curves: Mapping[str, Sequence[Curve]], name: str, statistic: str) -> float | None:
    """Return the mean, total or maximum of a figure or metric over its series; None if it was not recorded."""
    for metric in FIGURES.get(name, (name,)):
        if read := [getattr(curve.stats, statistic) for curve in curves.get(metric, ()) if curve.stats]:
            return fmean(read) if statistic == "mean" else math.fsum(read) if statistic == "total" else max(read)
    return None


def totals(curves: Iterable[Curve], key: str) -> defaultdict[str, float]:
    """Return the increases of counters by a dimension."""
    sums: defaultdict[str, float] = defaultdict(float)
    for curve in curves:
        if curve.stats:
            sums[curve.dims.get(key, "")] += curve.stats.total
    return sums


class Loss(NamedTuple):
    """Accelerator seconds lost by one cause, and the device that lost most; "" if all lost alike."""

    seconds: float
    cause: str
    worst: str


class RecordedDevice(NamedTuple):
    """An accelerator of a recording: its key and model, its curves by metric, and the sums over its readings."""

    key: DeviceKey
    model: str
    curves: Mapping[str, Sequence[Curve]]
    usage: DeviceUsage


def _device(key: DeviceKey, curves: Sequence[Curve], since: int | None) -> RecordedDevice:
    """Return an accelerator from its curves; `since`: see DeviceUsage."""
    usage = DeviceUsage(one_line(f"{FAMILIES[key[0][0]]} {device_label(key)}", LONGEST), since)
    by_metric, readings = defaultdict[str, list[Curve]](list), dict[bytes, list[Any]]()
    for curve in curves:
        by_metric[curve.metric.name].append(curve)
        if role := role_of(curve.metric.name, curve.dims):
            times, amounts = curve.read
            if role[0] in (THROTTLED, STATE):  # a sum over time, so one reading is as good as many
                times, amounts = times[-1:], [math.fsum(amounts)]
            columns = readings.setdefault(bytes(times), [times, repeat(len(readings))])
            columns.append(zip(*map(repeat, role), amounts, strict=False))
    for at, moment in groupby(merge(*(zip(*columns, strict=False) for columns in readings.values())), itemgetter(0)):
        usage.take(at, chain.from_iterable(reading[2:] for reading in moment))
    models = (one_line(curve.dims.get("model", ""), LONGEST) for curve in curves)
    return RecordedDevice(key, next(filter(None, models), ""), by_metric, usage)


class ReportedRun:
    """A recording with a unique name, its curves by metric, and its devices."""

    def __init__(self, recorded: Recorded, name: str) -> None:
        self.recorded, self.name = recorded, name
        self.seconds = (recorded.ended - recorded.started) / 1e9 or recorded.interval or 1.0
        self.metrics: defaultdict[str, list[Curve]] = defaultdict(list)
        parts: defaultdict[DeviceKey, list[Curve]] = defaultdict(list)
        for series in recorded.columns:
            if -LARGEST < min(series.values) <= max(series.values) < LARGEST:
                curve = Curve(series, recorded)
                self.metrics[curve.metric.name].append(curve)
                if key := whole_of(device_of(curve.dims)):
                    parts[key].append(curve)
        since = None if recorded.started < recorded.ended else recorded.started - round(1e9 * self.seconds)
        every = (_device(key, curves, since) for key, curves in parts.items())
        devices = {device.key: device for device in every if device.usage.time.total}
        shown = devices.keys() - {key[:1] for key in devices if key[1:]}
        self.devices = [devices[key] for key in sorted(shown, key=device_order)]


class ReportTerms(NamedTuple):
    """Price per hour of an accelerator, CO2 per kWh, and the source of the latter."""

    dollars_per_hour: float | None = None
    grams_per_kwh: float | None = None
    grid: str = ""


def terms_of(price: float | None, grid: str | None) -> ReportTerms:
    """Return the terms for a price per hour, and for grams of CO2 or a place; raise ConfigError."""
    return ReportTerms(price, *(emissions(grid) if grid is not None else ()))


def emissions(word: str) -> tuple[float, str]:
    """Return grams of CO2 per kWh and their source, for a number, a country or a region; raise ConfigError."""
    if word.replace(".", "", 1).isdecimal():
        return float(word), "as given"
    table = tomllib.loads(Path(__file__).with_name("grid.toml").read_text(encoding="utf-8"))
    country = next((name for name, regions in table["aws"].items() if word.lower() in regions), word.upper())
    for group, place in (("google", word.lower()), ("country", country)):
        if place in table[group]:
            return float(table[group][place]), f"{place}, {table['sources'][group]}"
    raise ConfigError(f"--grid {word}: expected grams of CO2 a kWh, or a place such as DE, us-east-1 or europe-west4")


class ReportedUsage:
    """Sums over all devices of several recordings."""

    def __init__(self, runs: Sequence[ReportedRun], terms: ReportTerms) -> None:
        self.runs, self.terms = runs, terms
        self.devices = [(run, device) for run in runs for device in run.devices]
        used = [device.usage for _, device in self.devices]
        self.seconds, self.busy = (math.fsum(getattr(usage.time, name) for usage in used) for name in ("total", "used"))
        """Seconds of the devices of which the use is known, and of these the ones with a kernel."""
        self.whole = math.fsum(run.seconds for run, _ in self.devices)
        """Seconds of the devices, also time of which the use is not known."""
        joules = [usage.joules for usage in used if usage.joules is not None]
        self.joules = math.fsum(joules) if joules else None
        grams = terms.grams_per_kwh
        self.grams = None if self.joules is None or grams is None else self.joules / 3.6e6 * grams
        charged = [cost for run in runs if (cost := figure(run.metrics, "job.cost", "total")) is not None]
        self.dollars = math.fsum(charged) if charged else None
        """Cost at the price of `terms`; without a price, the amount charged to jobs."""
        if terms.dollars_per_hour is not None:
            whole = {(run, device.key[:1]): run.seconds for run, device in self.devices}  # partitions count once
            self.dollars = terms.dollars_per_hour * math.fsum(whole.values()) / 3600 if whole else None
        kinds = {FAMILIES[device.key[0][0]] for _, device in self.devices}
        self.noun = kinds.pop() if len(kinds) == 1 else "accelerator"

    def losses(self) -> list[Loss]:
        """Return the losses of accelerator time, the largest first."""
        by_cause: defaultdict[str, list[tuple[float, str]]] = defaultdict(list)
        for run, device in self.devices:
            name, waiting = device.usage.name, device.usage.sums[BUSY].get(WAITING)
            for cause, seconds in (*device.usage.idle.items(), *([(WAITING, waiting)] if waiting else ())):
                by_cause[cause].append((seconds, f"{name} of {run.name}" if self.runs[1:] else name))
        losses = []
        for cause, parts in by_cause.items():
            total, (most, worst) = math.fsum(seconds for seconds, _ in parts), max(parts)
            losses.append(Loss(total, cause, worst if most > 1.5 * total / len(self.devices) else ""))
        return sorted(losses, reverse=True)
