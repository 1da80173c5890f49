"""
Parses a page of metrics, as Prometheus scrapes it: text 0.0.4 or OpenMetrics 1.0.

https://github.com/prometheus/docs/blob/main/docs/instrumenting/exposition_formats.md and
https://github.com/prometheus/OpenMetrics/blob/main/specification/OpenMetrics.md. Deviations are accepted if
their meaning is clear.
"""

from __future__ import annotations

import re
import sys
from codecs import BOM_UTF8
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from operator import length_hint
from typing import Final, NamedTuple

import msgspec

from chipwatch.contract.datapoint import HIDDEN, Datapoint, Dimensions, Kind, Metric, new, start_after

QUOTED: Final = r'"((?:[^"\\]|\\.)*+)"'
SERIES_TEXT: Final = re.compile(r'\s*+(([^\s{}"#]*+)(?:[ \t]*+\{((?:[^"}]|"(?:[^"\\]|\\.)*+")*+)\})?+)')
"""Name and labels: first both, then each."""
SAMPLE: Final = re.compile(SERIES_TEXT.pattern + r'\s*+([^\s#{}"]++)(?:\s++([^\s#]++))?+\s*+(?:#.*)?')
"""Name and labels, value, time and an exemplar; blanks are those that `float` ignores."""
LABEL: Final = re.compile(rf"\s*+(?:([a-zA-Z_][a-zA-Z0-9_]*+)|{QUOTED})\s*+(?:=\s*+{QUOTED})?\s*+(?:,|$)\s*+")
META: Final = re.compile(rf'#[ \t]++(HELP|TYPE|UNIT)[ \t]++(?:([^\s"]++)|{QUOTED})(?:[ \t]++(.*))?')
NAME: Final = re.compile("[a-zA-Z_:][a-zA-Z0-9_:]*")
ESCAPE: Final = re.compile(r'\\([\\"n])')


def labels_of(name: str, braces: str) -> tuple[str, dict[str, str]]:
    """Return the name and the labels of a series, from its name and the text in its braces; raise ValueError."""
    labels: dict[str, str] = {}
    braces = braces.strip().removeprefix(",")
    allowed = bool(NAME.fullmatch(name))
    end = 0
    while end < len(braces):
        if not (match := LABEL.match(braces, end)):
            raise ValueError(braces)
        plain, quoted, value = match.groups()
        key = plain or unescaped(quoted or "")
        if value is None and quoted and not name:
            name, allowed = key, True  # a name in UTF-8 is inside the braces
        elif value is None or not key or key in labels:
            raise ValueError(braces)
        else:
            labels[key] = unescaped(value)
        end = match.end()
    if not allowed:
        raise ValueError(name)
    return name, labels


def number_of(text: str) -> float:
    """Return a number; raise ValueError, also for underscores, which `float` allows."""
    if "_" in text:
        raise ValueError(text)
    return float(text)


def numbers_of(text: str) -> list[float]:
    """Return numbers with commas between them; raise ValueError. Numbers of JSON take a quarter of the time."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(f"[{text}]", type=list[float])
    return [number_of(word) for word in text.split(",")]


def unescaped(text: str) -> str:
    """Return a text with its escapes replaced."""
    return ESCAPE.sub(lambda found: "\n" if found[1] == "n" else found[1], text) if "\\" in text else text


def sentence_of(text: str) -> str:
    """Return the text of a HELP comment as a sentence."""
    text = " ".join(unescaped(text).split()).rstrip(" .")
    return f"{text[0].upper()}{text[1:]}." if text else "Scraped."


STALE: Final = 300 * 10**9
"""Nanoseconds after which a sample with a timestamp is stale: Prometheus' lookback delta."""
LINES_PER_SERIES: Final = 20
"""Most lines of a page, as a multiple of max_series: limits memory if filters select few series of a large page."""

UNITS: Final[Mapping[str, str]] = {"seconds": "s", "bytes": "By", "joules": "J", "celsius": "Cel", "watts": "W"}
"""UCUM units for units of OpenMetrics. `percent` is not among them, since its values may exceed 100."""

CREATED: Final = "created"
"""Kind of a sample whose value is the start time of a counter."""
_COUNTS: Final = {"_sum": Kind.COUNTER, "_count": Kind.COUNTER, "_created": CREATED}
SUFFIXES: Final[Mapping[str, Mapping[str, Kind | str | None]]] = {
    "counter": {"_total": Kind.COUNTER, "_created": CREATED},
    "histogram": {**_COUNTS, "_bucket": None},
    "summary": _COUNTS,
    "gaugehistogram": {
        "_gsum": Kind.GAUGE, "_gcount": Kind.GAUGE, "_sum": Kind.GAUGE, "_count": Kind.GAUGE, "_bucket": None},
    "info": {"_info": Kind.GAUGE},
}  # fmt: skip
"""Kind of a sample, by the type of its family and the suffix of its name; None: the sample is left out."""


class ScrapeResponse(NamedTuple):
    """A page of metrics."""

    body: bytes
    openmetrics: bool
    """True for OpenMetrics (times in seconds, ends with # EOF), False for text 0.0.4 (times in milliseconds)."""
    whole: bool
    """True if the body is complete for sure; else its last line may be cut."""


@dataclass(slots=True, eq=False)
class _Series:
    """A series of the page, or the start time (s) of all counters of a family with the same labels; its last value."""

    metric: Metric
    dims: Dimensions
    created: _Series | None = None
    """The page's start time; None for a gauge."""
    seen: int = -1
    last: float = -1.0
    value: float = 0.0
    start_time: int = 0
    started: float = 0.0
    """The page's start time at the last reading; 0 if it had none."""
    read_at: int = 0


NO_POINT: Final = Metric("none", Kind.GAUGE, "1", "A sample that makes no point.")
LEFT_OUT: Final = _Series(NO_POINT, Dimensions())
"""Stands for each series that is not selected, and for samples that are too old."""


class ExpositionReader:
    """Reads the pages of one source; the text of each series is parsed once."""

    def __init__(
        self,
        max_series: int,
        dims: Callable[[dict[str, str]], Mapping[str, str]],
        takes: Callable[[str, Mapping[str, str]], bool] = lambda _name, _labels: True,
    ) -> None:
        """Take at most `max_series`; `dims` makes dimensions of labels, `takes` selects series by name and labels."""
        self._most, self._dims, self._takes = max_series, dims, takes
        self._comments: Sequence[str] = ()
        self._meta: dict[str, dict[str, str]] = {}
        self._texts: dict[str, _Series] = {}
        """The series for each text of name and labels."""
        self._same: dict[str, _Series] = {}
        """The same for the last page, in its order, each series once; empty if a line had more than text and value."""
        self._series: dict[tuple[Metric | str, Dimensions], _Series] = {}
        """The series by metric, and the start times of counters by the name of the family."""
        self._metrics: dict[Metric, Metric] = {}
        self._bad = ""
        """The first malformed line of the pages, so that the message stays the same while they have malformed lines."""
        self._left_out = 0
        """Series that the first page above the limit had beyond it; 0 once a page is within it."""
        self._page = 0

    def read(self, answer: ScrapeResponse, at: int, room: int = sys.maxsize) -> tuple[list[Datapoint], list[str]]:
        """Return the points of a page, stamped `at`, at most `room`, and a message for each kind of problem in it."""
        problems: list[str] = []
        lines, cut = self._lines(answer, problems)
        comments = [line for line in lines if line < "$" and line[:1] == "#"]  # one comparison for most lines
        if comments != self._comments:
            self._describe(comments)
        if answer.openmetrics and not (comments and comments[-1].rstrip() == "# EOF"):
            problems.append("the page lacks the # EOF of OpenMetrics; it may be incomplete")
        samples = [line for line in lines if line and line[0] != "#"]
        most = min(self._most, room)
        # Read all samples before the points are made, since a start time may come after its counter.
        selected = [] if problems else self._again(samples, most)
        if not selected:
            selected, left = self._found(samples, 10**9 if answer.openmetrics else 10**6, at, most, problems)
            self._left_out = left and (self._left_out or left + cut)
            if left:
                todo = "raise max_series" if self._most <= room else "a reading takes no more"
                problems.append(f"{len(selected):,} series are taken, up to {self._left_out:,} are left out; {todo}")
            self._forget(2 * len(samples) + 1000)
        points: list[Datapoint] = []
        for series in selected:
            value, start_time, created = series.value, None, series.created
            if created is not None:
                if value < 0:
                    continue
                if value < series.last or series.last < 0 or 0 != created.value != series.started:
                    # At a first reading or a reset, take the page's new start time. If it has none, take this moment
                    # (first reading), or a moment after the last reading (reset).
                    given = at if series.last < 0 else start_after(series.read_at, series.start_time, at)
                    if created.value != series.started and 0 < created.value < 1e10:
                        given = int(created.value * 1e9)
                    series.start_time, series.started = min(given, at), created.value
                series.last, series.read_at, start_time = value, at, series.start_time
            points.append(new(Datapoint, (series.metric, value, series.dims, at, start_time, None, None, None)))
        return points, problems

    def _again(self, lines: Sequence[str], most: int) -> list[_Series]:
        """Return what `_found` does if the page differs from the last one in its numbers only, else nothing."""
        if len(lines) == len(self._same):
            numbers, selected = ",".join(map(str.removeprefix, lines, self._same)), list[_Series]()
            with suppress(ValueError):  # the page has another series, or a malformed line
                # A line that begins with a space does not begin with a text.
                if f",{numbers}".count(", ") == len(lines) and min(lines) > "!":
                    for series, value in zip(self._same.values(), numbers_of(numbers), strict=True):
                        if isfinite(value):
                            series.value = value
                            if series.metric is not NO_POINT:
                                selected.append(series)
                    return selected if len(selected) <= most else []
        return []

    def _lines(self, answer: ScrapeResponse, problems: list[str]) -> tuple[list[str], int]:
        """Return the lines of a page, and the number of lines that are left out."""
        most, cut = LINES_PER_SERIES * self._most, 0
        lines = answer.body.removeprefix(BOM_UTF8).decode(errors="replace").split("\n", most)
        if len(lines) > most:
            problems.append(f"the page has more than {most} lines (20 x max_series); the rest is left out")
            cut = lines.pop().rstrip().count("\n") + 1
        elif not answer.whole or answer.openmetrics:
            lines[-1] = lines[-1] if lines[-1].rstrip() == "# EOF" else ""  # the last line may be cut
        return lines, cut

    def _found(
        self, lines: Sequence[str], scale: int, at: int, most: int, problems: list[str]
    ) -> tuple[list[_Series], int]:
        """Return the selected series of a page, each once, with new and finite values, and the number of lines left."""
        self._page += 1
        page, texts, bad, is_twice, left = self._page, self._texts, "", False, 0
        selected, by_text, rest = list[_Series](), dict[str, _Series](), iter(lines)
        for line in rest:
            head, _, last = line.rpartition(" ")
            try:
                series, number = (texts[head], last) if head in texts else self._stamped(line, head, last, scale, at)
                value = float(number) if "_" not in number else number_of(number)  # a call less for most lines
            except ValueError:
                try:  # what is known by its spaces may have a blank or an exemplar in the place of a number
                    series, number = self._stamped(line, "", "", scale, at)
                    value = number_of(number)
                except ValueError:
                    bad = bad or (line.strip() and line)
                    continue
            if series.seen == page and series.metric is not NO_POINT:
                is_twice = True
                continue
            by_text[head], series.seen = series, page
            if isfinite(value):
                series.value = value
                if series.metric is not NO_POINT:
                    if len(selected) == most:
                        left = 1 + length_hint(rest)
                        break
                    selected.append(series)
        # What stands before the last space of a sample with a time is not its text.
        self._same = by_text if by_text.items() <= texts.items() else {}
        self._texts = self._same or texts
        self._bad = bad and (self._bad or bad)
        if bad:
            problems.append(f"malformed lines are left out; the first was {self._bad[:80]!r}")
        if is_twice:
            problems.append("the page has a series twice; the first is used")
        return selected, left

    def _stamped(self, line: str, head: str, time: str, scale: int, at: int) -> tuple[_Series, str]:
        """Return the series of a new line, or of one with a time, and its value as text; raise ValueError."""
        text, _, number = head.rpartition(" ")
        if text not in self._texts:
            if not (sample := SAMPLE.fullmatch(line)):
                raise ValueError(line)
            text, name, braces, number, time = sample.groups("")
            if text not in self._texts:
                self._parse_text(text, name, braces)
        is_stale = time != "" and at - number_of(time) * scale > STALE
        return LEFT_OUT if is_stale else self._texts[text], number

    def _parse_text(self, text: str, name: str, braces: str) -> None:
        """Parse the name and labels of a series, and remember the series; raise ValueError."""
        name, labels = labels_of(name, braces)
        kind, family = self._kind(name)
        meta = self._meta.get(family, {})
        # An empty label is an absent one; keys that begin with HIDDEN are reserved for the agent.
        own = {f"_{key}" if key[0] == HIDDEN else key: value for key, value in labels.items() if value}
        dims = Dimensions(self._dims(own))
        if kind is CREATED:
            self._texts[text] = self._series.setdefault((family, dims), _Series(NO_POINT, dims))
            return
        if kind is None or not self._takes(name, labels):
            self._texts[text] = LEFT_OUT
            return
        assert isinstance(kind, Kind)
        unit = "1" if name != family and name.endswith("count") else UNITS.get(meta.get("UNIT", ""), "1")
        metric = Metric(name, kind, unit, sentence_of(meta.get("HELP", "")), dims=tuple(dims))
        metric = self._metrics.setdefault(metric, metric)
        series = self._texts[text] = self._series.setdefault((metric, dims), _Series(metric, dims))
        if kind is Kind.COUNTER:
            series.created = self._series.setdefault((family.removesuffix("_total"), dims), _Series(NO_POINT, dims))

    def _kind(self, name: str) -> tuple[Kind | str | None, str]:
        """Return the kind of a sample, and the name of its family."""
        base, _, suffix = name.rpartition("_")
        suffix = f"_{suffix}"
        for family in (base, f"{base}_total") if suffix == "_created" else (base,):
            kinds = SUFFIXES.get(self._meta.get(family, {}).get("TYPE", ""), {})
            if suffix in kinds and (kinds[suffix] is CREATED or "TYPE" not in self._meta.get(name, {})):
                return kinds[suffix], base
        return (Kind.COUNTER if self._meta.get(name, {}).get("TYPE") == "counter" else Kind.GAUGE), name

    def _describe(self, comments: Sequence[str]) -> None:
        """Read the comments about families; if they say something new, all series must be parsed again."""
        self._comments = comments
        meta: dict[str, dict[str, str]] = {}
        for match in filter(None, map(META.match, comments)):
            word, plain, quoted, text = match.groups()
            meta.setdefault(plain or unescaped(quoted), {}).setdefault(word, (text or "").strip())
        if meta != self._meta:
            self._meta = meta
            self._texts.clear()

    def _forget(self, most: int) -> None:
        """If more than `most` series are remembered, forget all that are not in the last page."""
        if len(self._texts) > most or len(self._series) > most:
            self._texts.clear()
            self._series = {key: series for key, series in self._series.items() if series.seen == self._page}
            self._metrics = {series.metric: series.metric for series in self._series.values()}
