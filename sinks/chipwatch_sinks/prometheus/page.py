"""The page of the last tick, in text 0.0.4 and OpenMetrics 1.0."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat
from math import ceil
from typing import Final

from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions, Kind, Metric
from chipwatch.contract.sink import Rejected
from chipwatch_sinks.prometheus.names import Family, family_of, flat_name, labels

KNOWN: Final = 10_000
"""Series whose texts are kept while they are not on the page."""
SLOWEST: Final = 15.0
"""Seconds between two readings of collectors that do not read at each tick, as a rule."""
RHYTHM: Final = 4
"""Last gaps between arrivals of a series; they show its period."""
GZIP_8K: Final = 16 + 13
"""zlib's `wbits` for gzip with a window of 8 KiB: its tables are an eighth, and a page is as small as with 32 KiB."""
SMALL: Final = 8192
"""Bytes below which a page is not compressed: it fits into six packets, and gzip takes a fifth of a scrape's CPU."""
MACHINE: Final = "target_info"
MACHINE_NAMES: Final = (MACHINE, "target")
"""Name of the samples, and of the family in OpenMetrics."""
CLASH, LABELS = "name clash", "two labels become one"
OF_JOBS: Final = ("partition", "namespace", "container", "user")
"""Keys of points of jobs beside those that their metrics declare; `chipwatch.contract.owner` has them."""
COUNTER: Final = Kind.COUNTER


class Format(StrEnum):
    """Format of a page."""

    TEXT = "text"
    OPENMETRICS = "openmetrics"
    FLAT = "flat"
    """Text without labels: their values are in the names."""


@dataclass(slots=True, eq=False)
class _Series:
    """A series with its texts, its last value, and the ticks at which it came."""

    metric: Metric
    dims: Dimensions
    family: Family
    labels: str
    text: str
    """Text before the value."""
    own: tuple[str, ...]
    """The values of the metric's own dimensions, in their order."""
    fault: str
    """Why it is rejected; empty: it is not."""
    point: Datapoint
    """The last one."""
    seen: int = 0
    gaps: tuple[int, ...] = ()
    """Ticks between its last arrivals."""
    stays: int = 1
    """Ticks for which it stays on the page after an arrival."""


class Page:
    """
    Keeps the points of the last tick, and writes them once for each requested format.

    A series leaves with the first tick that lacks it; one that comes every n ticks stays for n ticks. A series whose
    rhythm is not known yet stays as long as the slowest collectors pause. Used by threads.
    """

    def __init__(self, *, interval: float = 5.0, machine_labels: bool = False, timestamps: bool = False) -> None:
        """
        Take the seconds between two ticks.

        With `machine_labels` every series has the machine's dimensions; `timestamps` adds the times of samples.
        """
        self._machine_labels, self._timestamps = machine_labels, timestamps
        self._pause = ceil(SLOWEST / interval)
        self._lock = threading.Lock()
        self._known: dict[tuple[str, Dimensions], _Series] = {}
        self._owners: dict[str, tuple[str, Kind, str]] = {}
        self._machine: dict[str, str] = {}
        self._shown: list[_Series] = []
        self._families: list[tuple[Family, list[_Series]]] = []
        self._order: list[_Series] = []  # of the points of the last tick, as a rule also of the next one
        self._tick = 1  # tick 0: the series has not come yet
        self._written: dict[tuple[Format, bool], bytes] = {}
        self._texts: dict[tuple[Format, str], str] = {}
        """Form and family of the page -> the lines with its help, type and unit."""

    @property
    def series(self) -> int:
        """Number of series on the page, without target_info."""
        return len(self._shown)

    def fault(self, metric: Metric, dims: Dimensions) -> str:
        """Return why a series can never be shown, or an empty text; the first metric to ask for a name has it."""
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
        """Make the points of a tick the page; return those that can never be shown."""
        with self._lock:
            self._tick = now = self._tick + 1
            self._written.clear()
            rejected, last, joined, strayed, fresh = list[Rejected](), now - 1, False, False, 0
            for point, expected in zip(tick, chain(self._order, repeat(None)), strict=False):
                if (
                    expected is not None
                    and expected.dims is point[2]
                    and expected.metric is point[0]
                    and expected.seen == last
                    and expected.stays == 1
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
                joined |= not seen or now - seen >= series.stays
                self._note(series, now)
                series.point, series.seen = point, now
            if tick:
                self._machine = _machine(tick[-1])
            if strayed or len(tick) != len(self._order):
                self._order = [self._known[point.metric.name, point.dims] for point in tick]
            if joined or (fresh < len(self._shown) and [of for of in self._shown if now - of.seen >= of.stays]):
                self._lay_out()
            return rejected

    def _find(self, point: Datapoint) -> _Series:
        """Return the series of a point; if two metrics clash in name and labels, the first one keeps them."""
        metric, dims = point.metric, point.dims
        cached = self._known.get((metric.name, dims))
        if cached is not None and (cached.metric is metric or cached.metric == metric):
            return cached
        learned = self._learn(point)
        if cached is None or not learned.fault:
            self._known[metric.name, dims] = learned
        return learned

    def _note(self, series: _Series, now: int) -> None:
        """Note an arrival: the longest of the last gaps counts, except a gap in which the series did not exist."""
        if series.seen and now > series.seen:
            series.gaps = (*series.gaps[1 - RHYTHM :], now - series.seen)
        *_, second, longest = (1, 1, *sorted(series.gaps))
        is_new = len(series.gaps) < RHYTHM and len(self._known) <= KNOWN
        series.stays = max(min(longest, 2 * second), self._pause if is_new else 1)

    def _learn(self, point: Datapoint) -> _Series:
        metric, dims = point.metric, point.dims
        wanted = [pair for pair in dims.items_sorted if self._machine_labels or pair[0] in _own(metric)]
        texts = labels(pair for pair in wanted if not pair[0].startswith(HIDDEN)) or {}
        text = ",".join([f'{key}="{value}"' for key, value in texts.items()])
        text, family = text and f"{{{text}}}", family_of(metric)
        own = tuple(dims[key] for key in metric.dims if key in dims)
        return _Series(metric, dims, family, text, f"{family.name}{text} ", own, self.fault(metric, dims), point)

    def _lay_out(self) -> None:
        """Choose the series of the page and group them by family; forget other series once there are too many."""
        now = self._tick
        shown = [series for series in self._known.values() if not series.fault and now - series.seen < series.stays]
        if len(self._known) > KNOWN + len(shown):
            self._known = {key: series for key, series in self._known.items() if now - series.seen < series.stays}
            names = [(name, series.metric.name, series.family) for series in shown for name in series.family.reserved]
            self._owners = {name: (metric, family.kind, family.unit) for name, metric, family in names}
        # A machine that got another dimension has its series twice for a moment.
        by_time = sorted(shown, key=lambda series: series.point.at)
        newest = {(series.family.name, series.labels): series for series in by_time}
        self._shown = [series for series in shown if newest[series.family.name, series.labels] is series]
        families: dict[str, tuple[Family, list[_Series]]] = {}
        for series in self._shown:
            families.setdefault(series.family.name, (series.family, []))[1].append(series)
        self._families = [*families.values()]
        self._texts.clear()

    def body(self, form: Format, *, zipped: bool) -> bytes:
        """Return the page, with `zipped` as gzip unless it is SMALL; it is written once a tick."""
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
                parts += self._samples(family, series, form)
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
                lines.append(f"{family.base}_created{entry.labels} {since // 1_000_000 / 1e3!r}{time}\n")
        return lines

    def _flat(self) -> Iterator[str]:
        """Yield each series under a name that holds its labels; the first series with a name keeps it."""
        used = set()
        for family, series in self._families:
            for entry in series:
                name = flat_name(family.name, entry.own)
                if name not in used:
                    used.add(name)
                    kind = "counter" if family.kind is COUNTER else "gauge"
                    yield f"# TYPE {name} {kind}\n{name} {entry.point.value * family.times / family.over!r}\n"


def _own(metric: Metric) -> Collection[str]:
    """Return the keys of a metric's own dimensions; points of jobs have more than the metric declares."""
    return {*metric.dims, *OF_JOBS} if "job" in metric.dims else metric.dims


def _machine(point: Datapoint) -> dict[str, str]:
    """Return the labels of the machine: the dimensions of a point that are not its metric's own."""
    own = _own(point.metric)
    return labels((key, value) for key, value in point.dims.items() if key not in own and key[:1] != HIDDEN) or {}


def _machine_lines(machine: dict[str, str], form: Format) -> Iterator[str]:
    if machine:
        family, kind = ("target", "info") if form is Format.OPENMETRICS else (MACHINE, "gauge")
        pairs = ",".join([f'{key}="{value}"' for key, value in machine.items()])
        yield f"# HELP {family} The machine that these series are of.\n# TYPE {family} {kind}\n{MACHINE}{{{pairs}}} 1\n"


def _about(family: Family, form: Format) -> str:
    """Return the lines with the help, type and unit of a family."""
    text = family.help.replace("\\", r"\\").replace("\n", r"\n")
    if form is Format.TEXT:
        return f"# HELP {family.name} {text}\n# TYPE {family.name} {family.kind}\n"
    # OpenMetrics does not accept a counter without _total, which another tool may have named so.
    kind = "unknown" if family.kind is COUNTER and family.name == family.base else family.kind
    unit = f"# UNIT {family.base} {family.unit}\n" if family.unit else ""
    text = text.replace('"', r"\"")
    return f"# HELP {family.base} {text}\n# TYPE {family.base} {kind}\n{unit}"
