"""Writes the page of the last tick, as Prometheus' text 0.0.4 or OpenMetrics 1.0."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import chain, repeat
from math import ceil
from typing import Final

from chipwatch.contract.datapoint import COUNTER, HIDDEN, Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.sink import Rejected
from chipwatch_sinks.prometheus.names import Family, family_of, flat_name, labels

KNOWN: Final = 25_000
"""Most series whose texts are kept although they are not on the page."""
SLOWEST: Final = 15.0
"""Usual seconds between two readings of collectors that do not read at each tick."""
RHYTHM: Final = 4
"""Number of gaps between a series' last samples that are kept to find its period."""
GZIP_8K: Final = 16 + 13
"""zlib's `wbits` for gzip with a window of 8 KiB: a page is as small as with 32 KiB, for an eighth of the memory."""
SMALL: Final = 8192
"""Bytes below which a page is not compressed: six packets hold it, and gzip takes a fifth of a scrape's CPU time."""
MOST_ORDERS: Final = 8
"""Numbers of points in a tick whose order is remembered."""
MACHINE: Final = "target_info"
MACHINE_NAMES: Final = (MACHINE, "target")
"""Names of the metric with the machine's labels: of its samples, and of its family in OpenMetrics."""
CLASH, LABELS = "name clash", "two labels become one"
OF_JOBS: Final = ("partition", "namespace", "container", "user")
"""Keys that points of jobs have beside those that their metrics declare: see `chipwatch.contract.owner`."""


class Format(StrEnum):
    """Formats of the page."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"
    FLAT = "flat"
    """Text 0.0.4 without labels, whose values are put into the names."""


@dataclass(slots=True, eq=False)
class _Series:
    """A series: its texts on the page, its last point, and the ticks at which it had samples."""

    metric: Metric
    dims: Dimensions
    family: Family
    text: str
    """Sample line up to the value: name and labels."""
    place: str
    """The same without the labels that say who holds the device."""
    fault: str
    """Why the series cannot be shown; empty if it can."""
    point: Datapoint
    """The series' last point."""
    seen: int = 0
    gaps: tuple[int, ...] = ()
    """The last RHYTHM gaps between its samples, in ticks."""
    stays: int = 1
    """Ticks that the series stays on the page after a sample."""

    @property
    def end(self) -> int:
        """The tick in which it may leave the page: a holder's series, as soon as another one holds."""
        return self.seen + (1 if self.metric.owner else self.stays)


class Page:
    """
    Keeps the points of the last tick, and writes them as text once for each format that is requested.

    A series with a sample in each tick leaves the page at the first tick without one. If it has a sample every n ticks,
    it stays n ticks, and one more, since a reading may be late. While its period is not known, it stays as long as the
    slowest collectors pause. Several threads may use the page.
    """

    def __init__(self, *, interval: float = 5.0, machine_labels: bool = False, timestamps: bool = False) -> None:
        """
        `interval`: seconds between two ticks.

        With `machine_labels`, every series has the machine's dimensions; `timestamps` adds the samples' times.
        """
        self._machine_labels, self._timestamps = machine_labels, timestamps
        self._pause = ceil(SLOWEST / interval)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, Dimensions], _Series] = {}
        self._owners: dict[str, tuple[str, Kind, str]] = {}
        self._machine: dict[str, str] = {}
        self._shown: list[_Series] = []
        self._families: list[tuple[Family, list[_Series]]] = []
        self._orders: dict[int, list[_Series]] = {}
        """Number of points -> the series of the last tick with so many, in their order: likely the next such tick's."""
        self._many = self._ends = 0
        """Points of the last tick, and the first tick in which a series that had no sample then may leave the page."""
        self._tick = 1  # in a series, tick 0 means that it had no sample yet
        self._written: dict[tuple[Format, bool], bytes] = {}
        self._texts: dict[tuple[Format, str], str] = {}
        """Format and family -> the lines with the family's help, type and unit."""

    @property
    def series(self) -> int:
        """Number of series on the page, not counting target_info."""
        return len(self._shown)

    def fault(self, metric: Metric, dims: Dimensions) -> str:
        """Return why a series can never be shown, or ""; a name belongs to the first metric that asks for it."""
        family = family_of(metric)
        mine = (metric.name, family.kind, family.unit)
        for name in family.reserved:
            owner = self._owners.get(name, mine)
            if owner != mine or name in MACHINE_NAMES:
                return f"{CLASH}: {owner[0] if owner != mine else 'the machine'} is {name}, too"
        if labels(dims.items()) is None:
            return LABELS
        self._owners.update(dict.fromkeys(family.reserved, mine))
        return ""

    def take(self, tick: Sequence[Datapoint]) -> list[Rejected]:
        """Replace the page by the points of a tick; return the ones that can never be shown."""
        with self._lock:
            self._tick = now = self._tick + 1
            self._written.clear()
            rejected, joined, strayed, fresh = list[Rejected](), False, False, 0
            order = self._orders.get(len(tick), [])
            for point, expected in zip(tick, chain(order, repeat(None)), strict=False):
                if (
                    expected is not None
                    and expected.dims is point[2]
                    and expected.metric is point[0]
                    and ((gap := now - expected.seen) == expected.stays == 1 or expected.gaps.count(gap) == RHYTHM)
                ):
                    expected.point, expected.seen = point, now
                    fresh += 1
                    continue
                strayed = True
                series = self._find(point)
                if series.fault:
                    rejected.append(Rejected(point, series.fault))
                    continue
                seen = series.seen
                if seen == now and point.at < series.point.at:
                    continue
                fresh += seen != now
                joined |= not seen or now - seen > series.stays
                self._note(series, now)
                series.point, series.seen = point, now
            if tick:
                self._machine = _machine(tick[-1])
            if strayed:
                if len(self._orders) >= MOST_ORDERS:
                    self._orders.clear()
                self._orders[len(tick)] = [self._known[point.metric.name, point.dims] for point in tick]
            if strayed or len(tick) != self._many:  # else the series without a sample are the last tick's
                self._many, self._ends = len(tick), now
            if joined or (fresh < len(self._shown) and self._one_ends(now)):
                self._lay_out()
            return rejected

    def _one_ends(self, now: int) -> bool:
        """Return whether a series without a sample in the tick `now` may leave the page."""
        if self._ends <= now:
            self._ends = min([of.end for of in self._shown if of.seen != now], default=now + 1)
        return self._ends <= now

    def _find(self, point: Datapoint) -> _Series:
        """Return a point's series; if two metrics get the same name and labels, the first one keeps them."""
        metric, dims = point.metric, point.dims
        cached = self._known.get((metric.name, dims))
        if cached is not None and (cached.metric is metric or cached.metric == metric):
            return cached
        learned = self._learn(point)
        if cached is None or not learned.fault:
            self._known[metric.name, dims] = learned
        return learned

    def _note(self, series: _Series, now: int) -> None:
        """Note a sample, and set how long its series stays."""
        if series.seen and now > series.seen:
            series.gaps, series.stays = _rhythm(*series.gaps[1 - RHYTHM :], now - series.seen)
        if len(series.gaps) < RHYTHM and len(self._known) <= KNOWN:
            series.stays = max(series.stays, self._pause)

    def _learn(self, point: Datapoint) -> _Series:
        metric, dims = point.metric, point.dims
        own, family = _own(metric), family_of(metric)
        wanted = [pair for pair in dims.items_sorted if self._machine_labels or pair[0] in own]
        texts = labels(pair for pair in wanted if pair[0][:1] != HIDDEN) or {}
        text = place = _head(family.name, texts)
        if metric.owner:
            place = _head(family.name, {key: value for key, value in texts.items() if key not in metric.owner})
        return _Series(metric, dims, family, text, place, self.fault(metric, dims), point)

    def _lay_out(self) -> None:
        """Choose the page's series and group them by family; beyond KNOWN, forget series that are not shown."""
        now = self._tick
        live = [of for of in self._known.values() if not of.fault and of.seen > max(0, now - of.stays)]
        by_time = sorted(live, key=lambda series: (series.seen, series.point.at))
        latest = {series.place: (series.seen, series.point.at) for series in by_time}
        for series in live:
            if latest[series.place] != (series.seen, series.point.at):
                series.seen = 0  # another one has the device
        shown = [series for series in live if series.seen]
        if len(self._known) > KNOWN + len(shown):
            self._known = {key: series for key, series in self._known.items() if now - series.seen < series.stays}
            names = [(name, series.metric.name, series.family) for series in shown for name in series.family.reserved]
            self._owners = {name: (metric, family.kind, family.unit) for name, metric, family in names}
        # When a machine gets another dimension, each of its series is there twice for a moment.
        newest = {series.text: series for series in by_time}
        self._shown = [series for series in shown if newest[series.text] is series]
        families: dict[str, tuple[Family, list[_Series]]] = {}
        for series in self._shown:
            families.setdefault(series.family.name, (series.family, []))[1].append(series)
        self._families = [*families.values()]
        self._texts.clear()

    def body(self, form: Format, *, zipped: bool) -> bytes:
        """Return the page, compressed if `zipped` unless it is SMALL; it is written once a tick at most."""
        with self._lock:
            if (body := self._written.get((form, zipped))) is None:
                body = self._written.get((form, False)) or self._write(form)
                if zipped and len(body) >= SMALL:
                    packer = zlib.compressobj(level=1, wbits=GZIP_8K, memLevel=6)
                    body = packer.compress(body) + packer.flush()
                self._written[form, zipped] = body
            return body

    def _write(self, form: Format) -> bytes:
        parts: list[str] = []
        if form is Format.FLAT:
            parts += self._flat()
        else:
            parts += _machine_lines(self._machine, form)
            for family, series in self._families:
                if (text := self._texts.get((form, family.name))) is None:
                    text = self._texts[form, family.name] = _about(family, form)
                parts.append(text)
                parts.append("".join(self._samples(family, series, form)))
            if form is Format.OPENMETRICS:
                parts.append("# EOF\n")
        return "".join(parts).encode(errors="replace")

    def _samples(self, family: Family, series: Sequence[_Series], form: Format) -> list[str]:
        times, over = family.times, family.over
        is_open = form is Format.OPENMETRICS
        with_start = is_open and family.kind is COUNTER and family.name != family.base
        if not (self._timestamps or with_start):
            if times == over:
                return [f"{entry.text}{+entry.point[1]!r}\n" for entry in series]
            return [f"{entry.text}{entry.point[1] * times / over!r}\n" for entry in series]
        lines = []
        for entry in series:
            ms, since = entry.point.at // 1_000_000, entry.point.start_time
            time = f" {ms / 1e3 if is_open else ms!r}" if self._timestamps else ""
            lines.append(f"{entry.text}{entry.point.value * times / over!r}{time}\n")
            if with_start and since is not None:
                created = f"{family.base}_created{entry.text.removeprefix(family.name)}"
                lines.append(f"{created}{since // 1_000_000 / 1e3!r}{time}\n")
        return lines

    def _flat(self) -> Iterator[str]:
        """Yield each series under a name that contains its labels' values; the first one with a name keeps it."""
        used = set()
        for family, series in self._families:
            for entry in series:
                own = (entry.dims[key] for key in entry.metric.dims if key in entry.dims)
                name = flat_name(family.name, own)
                if name not in used:
                    used.add(name)
                    kind = "counter" if family.kind is COUNTER else "gauge"
                    yield f"# TYPE {name} {kind}\n{name} {entry.point.value * family.times / family.over!r}\n"


@lru_cache(1000)
def _rhythm(*gaps: int) -> tuple[tuple[int, ...], int]:
    """Return these gaps, as one tuple for all series, and how long a series with them stays on the page."""
    *_, second, longest = (1, 1, *sorted(gaps))
    return gaps, min(longest + (longest > 1), 2 * second)


def _head(name: str, texts: Mapping[str, str]) -> str:
    """Return a sample's line up to the value: name and labels."""
    text = ",".join([f'{key}="{value}"' for key, value in texts.items()])
    return f"{name}{text and f'{{{text}}}'} "


def _own(metric: Metric) -> Collection[str]:
    """Return the keys of a metric's own dimensions, also OF_JOBS if its points are of jobs."""
    return {*metric.dims, *OF_JOBS} if "job" in metric.dims else metric.dims


def _machine(point: Datapoint) -> dict[str, str]:
    """Return the machine's labels: a point's dimensions that are not its metric's own."""
    own = _own(point.metric)
    return labels((key, value) for key, value in point.dims.items() if key not in own and key[:1] != HIDDEN) or {}


def _machine_lines(machine: dict[str, str], form: Format) -> Iterator[str]:
    if machine:
        family, kind = ("target", "info") if form is Format.OPENMETRICS else (MACHINE, "gauge")
        about = f"# HELP {family} The machine that these series are of.\n# TYPE {family} {kind}\n"
        yield f"{about}{_head(MACHINE, machine)}1\n"


def _about(family: Family, form: Format) -> str:
    """Return the lines with a family's help, type and unit."""
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if form is Format.TEXT:
        return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"
    # OpenMetrics rejects a counter whose name lacks _total, as another tool's may.
    kind = "unknown" if family.kind is COUNTER and family.name == family.base else family.kind
    unit = f"# UNIT {family.base} {family.unit}\n" if family.unit else ""
    text = text.replace('"', r"\"")
    return f"# HELP {family.base} {text}\n# TYPE {family.base} {kind}\n{unit}"
