"""Standard output: lines of JSON, a table for people, or CloudWatch's embedded metric format (EMF)."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from itertools import chain, groupby, repeat
from math import isfinite
from typing import Any, BinaryIO, ClassVar, Final, Literal, NoReturn, TextIO

from agent.datapoint import Datapoint, Dimensions, Kind, Metric
from agent.errors import Gone, Refused, Retryable
from agent.sink import Limits, Rejected, Sink

compact: Final = json.JSONEncoder(separators=(",", ":")).encode
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SERIES: Final = 20_000
"""Series whose constant part of a line is remembered: about 0.5 kB each."""
SI: Final = ("", "k", "M", "G", "T", "P", "E")
READABLE: Final[dict[str, tuple[float, str, Sequence[str]]]] = {
    "By": (1, "B", ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")),
    "By/s": (1, "B/s", SI),
    "Cel": (1, "°C", ("",)),
    "J": (1, "J", SI),
    "J/s": (1, "W", SI),
    "MHz": (1e6, "Hz", SI),
    "W": (1, "W", SI),
    "s": (1e9, "s", ("n", "µ", "m", "")),
    "s/s": (100, "%", ("",)),
    "{flop}/s": (1, "flop/s", SI),
}
"""UCUM word, or that of a counter's rate -> factor, word and prefixes for people."""
EMF_UNITS: Final = {"%": "Percent", "By": "Bytes", "s": "Seconds", "{flop}/s": "Count/Second"} | dict.fromkeys(
    ("1", "W", "J", "Cel", "MHz", "GT/s"), "None"
)
"""UCUM word -> CloudWatch's unit, which knows no power, energy, heat or frequency; any `{thing}` is a Count."""
EMF_DIMENSIONS: Final = 30
EMF_NUMBERS: Final = 100
"""Most metrics an event and most numbers an array, as AWS's Embedded Metric Format Specification has it."""
EMF_BYTES: Final = 250_000
"""Most bytes an event: CloudWatch Logs takes 1 MB, but what carries the log may still cut at 256 kB."""
EMF_LARGEST: Final = 2.0**360
"""Largest magnitude of a number, as CloudWatch's API Reference has it for MetricDatum."""


class StdoutSink(Sink):
    """
    Writes each batch to standard output in one call, and keeps nothing back.

    `json`: one object a point and line, pure ASCII: time, name, kind, unit, value, dims; on a counter increase and
    since; start where the point speaks of a stretch of time; on a gauge's window summary. What is not known is left
    out. Times are UTC, cut to milliseconds, with a fraction only where it is not zero.
    `table`: one table a tick, redrawn in place on a terminal; a counter is its rate, or its total where that is all.
    `emf`: one line for each moment and set of dimensions; a counter is its increase.
    """

    limits: ClassVar[Limits] = Limits(max_points=10_000, durable=False, window=0, flush=0)

    @dataclass(frozen=True, slots=True)
    class Config:
        """What may be set."""

        format: Literal["auto", "json", "table", "emf"] = "auto"
        """`auto` is `table` on a terminal, else `json`."""
        namespace: str = "Chipwatch"
        """CloudWatch's namespace (emf)."""
        high_resolution: bool = False
        """CloudWatch keeps seconds, not minutes (emf)."""

    def __init__(self, config: Config, stream: TextIO | BinaryIO | None = None) -> None:
        """Take the stream to write to; None: standard output as it is when `open` is called."""
        self._config = config
        self._stream: Any = stream
        self._format: str = config.format
        self._terminal = False
        self._table: _Table | None = None
        self._owed = b""

    def open(self) -> None:
        """Find the stream; raise Refused where there is none, or where the namespace is not allowed."""
        stream = sys.stdout if self._stream is None else self._stream
        if stream is None or stream.closed:
            raise Refused("standard output is closed")
        self._terminal = stream.isatty()
        if self._format == "auto":
            self._format = "table" if self._terminal else "json"
        self._render: Callable[[Sequence[Datapoint], list[Rejected]], str] = _json
        if self._format == "emf":
            if not _is_allowed(self._config.namespace, 255) or self._config.namespace[0] == ":":
                raise Refused(f"CloudWatch allows no namespace {self._config.namespace!r}")
            resolution = 1 if self._config.high_resolution else 60
            self._render = partial(_emf, self._config.namespace, resolution)
        elif self._format == "table":
            self._table = _Table(stream, in_place=self._terminal and os.environ.get("TERM") != "dumb")
            self._render = self._table.draw
        stream.flush()
        self._write = _writer(stream)

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Write the batch; raise Gone where the reader has gone, Retryable on any other trouble."""
        rejected = [Rejected(point, "not finite") for point in batch if not _is_finite(point)]
        if rejected:
            batch = [point for point in batch if _is_finite(point)]
        if batch and (text := self._render(batch, rejected)):
            self._send(text)
        return rejected

    def describe(self) -> str:
        """Say where the points go, and how."""
        return f"standard output, {self._format}"

    def close(self) -> None:
        """Show the last table whole if the terminal was too low for it; the stream stays open, it is not ours."""
        table, self._table = self._table, None
        if table and (text := table.rest()):
            with suppress(Gone, Retryable):
                self._send(text)

    def _send(self, text: str) -> None:
        """Write what a failed call still owes, so that no line is torn, then `text`."""
        owed = len(self._owed)
        data = left = self._owed + text.encode()
        try:
            while left:
                written = self._write(left)
                if written is None:
                    raise BlockingIOError(errno.EAGAIN, "the reader is behind")
                left = left[written:]
        except ValueError:
            self._leave()
        except OSError as error:
            if isinstance(error, BrokenPipeError) or (self._terminal and error.errno == errno.EIO):  # EIO: hung up
                self._leave()
            done = len(data) - len(left)
            torn = done < owed or data[:done][-1:] not in {b"", b"\n"}
            self._owed = b"".join(left.partition(b"\n")[:2]) if torn else b""
            raise Retryable(f"standard output: {error}") from error
        self._owed = b""

    def _leave(self) -> NoReturn:
        """Turn away from the stream, else the interpreter complains when it ends (Python's Note on SIGPIPE)."""
        if self._stream is None or self._stream is sys.stdout:
            with suppress(OSError, ValueError):
                stdout, null = sys.stdout.fileno(), os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, stdout)
                os.close(null)
        raise Gone("the reader of standard output has gone")


def _writer(stream: Any) -> Callable[[bytes], int | None]:
    """Return the `write` of the lowest layer of `stream`: only that one tells how much of a write went through."""
    stream = getattr(stream, "buffer", stream)
    stream = getattr(stream, "raw", stream)
    if not isinstance(stream, io.TextIOBase):
        return stream.write  # type: ignore[no-any-return]

    def write(data: bytes) -> int:
        stream.write(data.decode())
        stream.flush()
        return len(data)

    return write


def _is_finite(point: Datapoint) -> bool:
    rise, total = point.increase, point.summary
    if not isfinite(point.value) or (rise is not None and not isfinite(rise)):
        return False
    return total is None or all(map(isfinite, (total.sum, total.minimum, total.maximum, *total.values)))


@lru_cache(maxsize=256)
def _time(at: int) -> str:
    """Return `at` (ns since the epoch) as 2026-11-20T10:00:05.250Z."""
    ms = at // 1_000_000
    moment = EPOCH + timedelta(milliseconds=ms)
    return moment.isoformat(timespec="milliseconds" if ms % 1000 else "seconds").replace("+00:00", "Z")


def _json(batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
    lines = []
    for point in batch:
        metric, value, dims, at, since, start, summary, increase = point
        before, after = _json_parts(metric, dims)
        try:
            line = f'{{"time": "{_time(at)}"{before}{value!r}{after}'
            if increase is not None:
                line += f', "increase": {increase!r}'
            if since is not None:
                line += f', "since": "{_time(since)}"'
            if start is not None and (increase is not None or summary is not None):
                line += f', "start": "{_time(start)}"'
            if summary is not None:
                line += f', "summary": {json.dumps(summary._asdict())}'
        except OverflowError:
            rejected.append(Rejected(point, "time out of range"))
        else:
            lines.append(line + "}\n")
    return "".join(lines)


@lru_cache(maxsize=SERIES)
def _json_parts(metric: Metric, dims: Dimensions) -> tuple[str, str]:
    """Return what stands before the value, and after it."""
    known = json.dumps({"name": metric.name, "kind": metric.kind, "unit": metric.unit})
    return f', {known[1:-1]}, "value": ', f', "dims": {json.dumps(dict(dims.items_sorted))}'


class _Table:
    """Draws one table a tick, on a terminal over the one before."""

    def __init__(self, stream: Any, *, in_place: bool) -> None:
        self._stream, self._in_place = stream, in_place
        self._up = ""
        self._cut: list[str] = []

    def draw(self, batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
        del rejected  # people may see everything
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError, AttributeError):
            size = shutil.get_terminal_size()
        batch = sorted(batch, key=lambda point: point.at)
        if self._in_place:  # one table of the newest, with what came late
            batch = [*{(point.metric.name, point.dims): point for point in batch}.values()]
        ticks = [batch] if self._in_place else [[*tick] for _, tick in groupby(batch, key=lambda point: point.at)]
        return "".join([self._frame(_lines(tick, size.columns or 80), size.lines or 24) for tick in ticks])

    def rest(self) -> str:
        """Return the last table whole, if it was cut to the height of the terminal."""
        return self._frame(self._cut, len(self._cut) + 1) if self._cut else ""

    def _frame(self, lines: list[str], height: int) -> str:
        if not self._in_place:
            return "\n".join([*lines, "", ""])
        self._cut = lines if len(lines) >= height else []
        if self._cut and len(lines := [line for line in lines if line]) >= height:
            lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines, shown at the end"]
        text = self._up + "".join([f"\x1b[K{line}\n" for line in lines]) + "\x1b[J"
        self._up = f"\x1b[{len(lines)}F"
        return text


def _lines(points: list[Datapoint], width: int) -> list[str]:
    """Return one table, `width` cells wide; numbers are never cut, names and dimensions may be."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415  only people need it

    points = sorted(points, key=lambda point: point.metric.name)
    own = {key for point in points for key in point.metric.dims}
    common = {pair for pair in points[0].dims.items_sorted if pair[0] not in own}
    common.intersection_update(*(point.dims.items_sorted for point in points))
    figures = _figures(points)
    pairs = [tuple(pair for pair in point.dims.items_sorted if pair not in common) for point in points]
    names = ["metric", *(_shown(point.metric.name) for point in points)]
    dims = ["dimensions", *(_pairs(pair, 9999) for pair in pairs)]

    room = max(width - len(figures[0]), 24) - 4
    longest = max(map(cell_len, names))
    dims_width = min(max(map(cell_len, dims)), max(room - longest, room // 3))
    name_width = min(longest, room - dims_width)
    dims[1:] = [_pairs(pair, dims_width) for pair in pairs]
    lines = [" ".join((_time(max(point.at for point in points)), _pairs(tuple(sorted(common)), max(width - 25, 12))))]
    area = ""
    for name, dim, figure in zip(names, dims, figures, strict=True):
        if area != (area := name.partition(".")[0]):
            lines.append("")
        cells = set_cell_size(_middle(name, name_width), name_width), set_cell_size(dim, dims_width), figure
        lines.append("  ".join(cells))
    return [line.rstrip() for line in lines]


def _figures(points: list[Datapoint]) -> list[str]:
    """Return a title, and what people want to know of each point: a gauge as it is, a counter as its rate."""
    rows = [("value", "", "min", "max")]
    for metric, value, _, at, _, start, total, increase in points:
        figure, unit, note = value, metric.unit, ""
        if metric.kind is Kind.COUNTER and increase is not None and start is not None and start < at:
            figure, unit = increase / (at - start) * 1e9, f"{unit}/s"
        elif metric.kind is Kind.COUNTER:
            note = "total"
        divisor, word = _scale(total.maximum if total else figure, unit)
        low, high = (_digits(total.minimum / divisor), _digits(total.maximum / divisor)) if total else ("", "")
        rows.append((_digits(figure / divisor), f"{word} {note}".strip(), low, high))
    w = [max(map(len, column)) for column in zip(*rows, strict=True)]
    if not any(point.summary for point in points):
        return [f"{row[0]:>{w[0]}} {row[1]:{w[1]}}" for row in rows]
    return [f"{row[0]:>{w[0]}} {row[1]:{w[1]}}  {row[2]:>{w[2]}}  {row[3]:>{w[3]}}" for row in rows]


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return by what to divide for people, and the word to say: 2**30 and GiB; `{thread}` needs none, `{kill}/s` /s."""
    factor, word, prefixes = READABLE.get(unit) or (1, re.sub(r"^(\{.*\}|1)(?=$|/)", "", _shown(unit)), ("",))
    divisor, step = 1 / factor, 1024 if "Ki" in prefixes else 1000
    prefix = ""
    for prefix in prefixes if value else ():
        if abs(value / divisor) < 999.5 or prefix == prefixes[-1]:
            break
        divisor *= step
    return divisor, prefix + word


@lru_cache(maxsize=SERIES)
def _pairs(pairs: tuple[tuple[str, str], ...], width: int) -> str:
    """Return pairs as `key=value`, the longest values cut until all fit into `width`; cut once more if need be."""
    text, most = " ".join(f"{_shown(key)}={_shown(value)}" for key, value in pairs), width
    while len(text) > width and most > 6:
        text = " ".join(f"{_shown(key)}={_middle(_shown(value), most)}" for key, value in pairs)
        most -= 1
    return _middle(text, width)


def _middle(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, an ellipsis in its middle if it is longer."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2]}…{text[len(text) - (width - 1) // 2 :]}"


def _shown(text: str) -> str:
    """Return `text` without what would steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)


def _emf(namespace: str, resolution: int, batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
    events: list[_Event] = []
    latest: dict[tuple[Dimensions, int], _Event] = {}
    for point in batch:
        name, definition, reason = _emf_series(point.metric, point.dims, resolution)
        if reason := reason or _emf_fault(point):
            rejected.append(Rejected(point, reason))
            continue
        key = (point.dims, point.at // 1_000_000)
        for number in _emf_numbers(point):
            event = latest.get(key)
            if event is None or not event.add(name, definition, number):
                event = latest[key] = _Event(namespace, *key)
                event.add(name, definition, number)
                events.append(event)
    return "".join([event.line() for event in events])


class _Event:
    """One log event: metrics of one moment and one set of dimensions, each name once."""

    __slots__ = ("_after", "_before", "_metrics", "_size")

    def __init__(self, namespace: str, dims: Dimensions, ms: int) -> None:
        directive = f'"Namespace":{json.dumps(namespace)},"Dimensions":[{compact([*dims])}],"Metrics":['
        self._before = f'{{"_aws":{{"Timestamp":{ms},"CloudWatchMetrics":[{{{directive}'
        self._after = "]}]}" + "".join(f",{json.dumps(key)}:{json.dumps(value)}" for key, value in dims.items_sorted)
        self._metrics: dict[str, tuple[str, str]] = {}
        self._size = len(self._before) + len(self._after) + 2

    def add(self, name: str, definition: str, number: str) -> bool:
        """Add a metric; return False where its name is taken, or the event is full."""
        size = self._size + len(name) + len(definition) + len(number) + 3
        if name in self._metrics or len(self._metrics) == EMF_NUMBERS or size > EMF_BYTES:
            return False
        self._metrics[name] = (definition, number)
        self._size = size
        return True

    def line(self) -> str:
        """Return the event as a line."""
        definitions = ",".join([definition for definition, _ in self._metrics.values()])
        numbers = "".join([f",{name}:{number}" for name, (_, number) in self._metrics.items()])
        return f"{self._before}{definitions}{self._after}{numbers}}}\n"


@lru_cache(maxsize=SERIES)
def _emf_series(metric: Metric, dims: Dimensions, resolution: int) -> tuple[str, str, str | None]:
    """Return a metric's name and definition as JSON, or why CloudWatch will never take this series."""
    reason = None
    try:
        unit = _emf_unit(metric.unit)
    except KeyError:
        unit, reason = "None", "unknown unit"
    if len(dims) > EMF_DIMENSIONS:
        reason = "too many dimensions"
    elif not _is_allowed(metric.name, 255):
        reason = "metric name not allowed"
    elif not all(_is_allowed(key, 255) and key[0] != ":" for key in dims):
        reason = "dimension name not allowed"
    elif not all(_is_allowed(value, 1024) for _, value in dims.items_sorted):
        reason = "dimension value not allowed"
    elif metric.name in dims or "_aws" in {metric.name, *dims}:
        reason = "name taken"
    definition = {"Name": metric.name, "Unit": unit, "StorageResolution": resolution}
    return json.dumps(metric.name), compact(definition), reason


def _emf_unit(unit: str) -> str:
    """Return CloudWatch's unit; raise KeyError where nobody has chosen one."""
    return "Count" if unit.startswith("{") and unit.endswith("}") else EMF_UNITS[unit]


def _emf_fault(point: Datapoint) -> str | None:
    """Return why CloudWatch will never take this point of a good series."""
    figure = point.increase if point.metric.kind is Kind.COUNTER else point.value
    if figure is None:
        return "first reading of a counter"
    total = point.summary
    figures = (figure,) if total is None else (total.minimum, total.maximum)
    return None if all(abs(figure) <= EMF_LARGEST for figure in figures) else "number out of range"


def _emf_numbers(point: Datapoint) -> list[str]:
    """Return a point's number, or its samples in arrays, as JSON: one text for each event that it takes."""
    total = point.summary
    if total is None:
        return [repr(point.increase if point.metric.kind is Kind.COUNTER else point.value)]
    samples = [*chain.from_iterable(map(repeat, total.values, total.counts))]
    parts = (samples[i : i + EMF_NUMBERS] for i in range(0, len(samples), EMF_NUMBERS))
    return [compact(part) for part in parts]


def _is_allowed(text: str, most: int) -> bool:
    """Tell whether CloudWatch takes `text` as a name or a value: printable ASCII, not blank, at most `most` long."""
    return 0 < len(text) <= most and text.isascii() and text.isprintable() and not text.isspace()
