"""Shows points as a table: first the host, then accelerators, then the rest."""

from __future__ import annotations

import json
import logging
import os
import re
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any, Final, NamedTuple

from rich.cells import cell_len, set_cell_size

from chipwatch.base.table import GAP, TableColumn, cut_middle, fitting, table
from chipwatch.contract.datapoint import DEVICES, Datapoint, Dimensions, Kind
from chipwatch.contract.sink import Rejected
from chipwatch_sinks.stdout.jsonl import SERIES, utc

Pairs = tuple[tuple[str, str], ...]
WORDS: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())
READABLE: Final[dict[str, tuple[float, str, Sequence[str]]]] = {
    unit: (factor, word, WORDS["prefixes"][kind]) for unit, (factor, word, kind) in WORDS["units"].items()
}
"""UCUM unit of a gauge or of a counter's rate -> factor, and the unit and prefixes to show."""


RARE: Final = "{incident}"
"""Unit of a counter that is shown as a total, not as a rate."""
MIN_ELAPSED: Final = 1_000_000
"""Shortest window (ns) over which a rate is shown."""
FIRST: Final = ("cpu", "memory", "swap", "disk", "network")
"""The host's families of metrics, in the order in which they are shown."""
LEADING: Final = ("utilization", "memory.used", "memory.utilization", "temperature", "power")
"""Figures of accelerators in the order of the table's columns; others follow."""
MAIN: Final = "utilization"
"""Figure that comes first in a row, without its name."""
KERNEL_LOG, READ_ONLY = "kernel.events", "disk.read_only"
INCIDENT: Final = "incident.recorded"
"""Metric whose first point is shown as a sentence, since its value says nothing."""
MEMORY: Final = ("memory.used", "memory.available")
FAMILIES: Final = {"gpu": "GPU", "neuron_device": "Neuron device", "tpu": "TPU", "ipu": "IPU"}
SHOWN: Final = 30 * 10**9
"""Time (ns) for which a terminal shows a series after its last point."""
NO_DEVICE: Final = "no GPU found: each would be a row of load, memory, power; try `make demo-node`"
OWN: Final = "agent."
"""Beginning of the names of metrics about the agent itself."""


class Figure(NamedTuple):
    """A point's value as texts."""

    text: str
    unit: str
    span: str
    """Minimum and maximum in brackets, after a space; "" unless the point has a window."""


class NewRecords(logging.Handler):
    """Notes that a record was logged, which a screen must not cover."""

    are_there = False

    def emit(self, record: logging.LogRecord) -> None:
        self.are_there = True


class Table:
    """
    Prints a table for each tick, as wide as `stream`: the host, a row for each accelerator, and the rest.

    On a terminal, each batch is a screen as high as the terminal, and rows keep their places. It is drawn over the
    last one, unless the agent has logged something since then, the size has changed, a line of the last one was too
    wide, or TERM is dumb: then below it.
    `rest` returns the rows that the last screen had no room for.
    """

    def __init__(self, stream: Any, *, is_terminal: bool, own: bool, machine: str = "") -> None:
        """With `own`, also show metrics about the agent itself; otherwise only if there is nothing else."""
        self._stream, self._is_terminal, self._own, self._machine = stream, is_terminal, own, machine
        self._cut: list[str] = []
        self._last: dict[tuple[str, Dimensions], Datapoint] = {}
        """Newest point of each series on the screen; some series are not read at each tick."""
        self._times = deque[int](maxlen=3)
        """Times of the newest points of the last screens (ns since the epoch)."""
        self._moved: set[tuple[str, Dimensions]] = set()
        """Counters of events that have risen; they keep their rows."""
        self._incidents: set[Dimensions] = set()
        """Incidents that were already shown as a sentence."""
        self._log, self._drawn = NewRecords(), (0, 0, 0)
        """`_drawn`: lines of the last screen; width and height of the terminal then."""
        logging.getLogger().addHandler(self._log)

    def draw(self, batch: Sequence[Datapoint], rejected: list[Rejected]) -> str:
        """Return a table for each tick of `batch`; names and dimensions may be shortened, numbers never."""
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError, AttributeError):
            from shutil import get_terminal_size

            size = get_terminal_size()
        width = size.columns or 80
        batch = sorted(batch, key=lambda point: point.at)
        if not self._own:
            batch = [point for point in batch if not point.metric.name.startswith(OWN)] or batch
        batch = [point for point in batch if not _begins_now(point)] or batch
        incidents = dict.fromkeys(point.dims for point in batch if point.metric.name == INCIDENT)
        files = (_shown(dims.get("file", "")) for dims in incidents if dims not in self._incidents)
        news = [cut_middle(f"incident {file} is recorded: `chipwatch record list`", width) for file in files]
        self._incidents |= incidents.keys()
        if not (batch := [point for point in batch if point.metric.name != INCIDENT]):
            self._log.are_there = True
            return "".join(f"{line}\n" for line in news)
        if self._is_terminal:  # a screen shows the newest point of each series
            self._last.update({(point.metric.name, point.dims): point for point in batch})
            oldest = batch[-1].at - SHOWN
            self._last = {series: point for series, point in self._last.items() if point.at >= oldest}
            batch = [*self._last.values()]
            return self._screen(batch, news, width, size.lines or 24)
        tables = []
        for at, tick in groupby(batch, key=lambda point: point.at):
            points = [*tick]
            common = _common(points)
            head = f"{utc(at)} {_pairs(tuple(sorted(common)), max(width - 25, 12))}".rstrip()
            tables.append("\n".join([head, *_body(points, common, width), ""]))
        return "\n".join([*news, *tables, ""])

    def rest(self) -> str:
        """Return the lines for which the last screen had no room; draw no more."""
        logging.getLogger().removeHandler(self._log)
        return "".join(f"{line}\n" for line in self._cut)

    def _screen(self, points: list[Datapoint], news: Sequence[str], width: int, height: int) -> str:
        """Return a screen of the newest points, the most important ones first; keep what does not fit for `rest`."""
        self._times.append(at := max(point.at for point in points))
        steps = [(after - before) / 1e9 for before, after in pairwise(self._times)]  # the last one may be cut short
        events = [point for point in points if _is_event(point)]
        happened = (point for point in events if point.increase or (point.value and point.metric.kind is Kind.GAUGE))
        self._moved |= {(point.metric.name, point.dims) for point in happened}
        quiet = [point for point in events if (point.metric.name, point.dims) not in self._moved]
        shown = [point for point in points if not _is_event(point) or (point.metric.name, point.dims) in self._moved]
        dims, clock = _common(points), time.strftime("%H:%M:%S", time.localtime(at / 1e9))
        every = f"every {round(max(steps), 1):g} s" if steps else ""
        end = [cut_middle("Ctrl-C ends; `chipwatch top` for a full screen", width)] if steps else []
        end += [] if any(map(_device, points)) else [cut_middle(NO_DEVICE, width)]
        lines = [
            cut_middle("  ".join(filter(None, (self._machine, *_facts(points), clock, every))), width),
            *([_pairs(tuple(sorted(dims)), width)] if dims else []),
            *_body(shown, dims, width),
            *_quiet(quiet, width),
        ]
        self._cut, room = [], max(2, height - 2 - len(end))
        if len(lines) > room:
            lines = [line for line in lines if line]
        if len(lines) > room:
            lines, self._cut = lines[: room - 1], lines[room - 1 :]
            end.insert(0, f"… {len(self._cut)} more line{'s' * (len(self._cut) > 1)}, shown at the end")
        lines += [*end, "", ""]
        (last, *size), self._drawn = self._drawn, (len(lines) - 1, width, height)
        is_below = self._log.are_there or size != [width, height] or os.environ.get("TERM", "dumb") == "dumb"
        self._log.are_there = any(cell_len(line) > width for line in lines)  # such a line takes several rows
        return ("" if is_below else f"\x1b[{last}F\x1b[J") + "\n".join([*news, *lines])


def _facts(points: Sequence[Datapoint]) -> list[str]:
    """Return the facts for the heading: the host's memory, and how many accelerators the points are of."""
    memory = [point.value for point in points if point.metric.name in MEMORY]
    kinds = Counter(key[0][0] for key in {_device(point)[:1] for point in points} if key)
    divisor, unit = _scale(sum(memory), "By")
    total = [f"{_digits(sum(memory) / divisor)} {unit}"] if len(memory) == len(MEMORY) else []
    return [*total, *(f"{many} {FAMILIES.get(kind, kind)}{'s' * (many > 1)}" for kind, many in kinds.items())]


def _is_event(point: Datapoint) -> bool:
    """Return True if a counter counts events of the host, such as errors, and not bytes or seconds."""
    metric = point.metric
    counts = metric.kind is Kind.COUNTER and metric.unit.startswith("{")
    return (counts and not _device(point)) or metric.name == READ_ONLY


def _begins_now(point: Datapoint) -> bool:
    """Return True for the first reading of a total that is counted from the agent's start, and so is 0."""
    return point.metric.unit == "By" and point.value == 0 and (point.start_time or 0) >= point.at


def _device(point: Datapoint) -> Pairs:
    """Return the dimensions of a point that name an accelerator."""
    return tuple((name, point.dims[name]) for name in DEVICES if name in point.dims)


def _common(points: Sequence[Datapoint]) -> set[tuple[str, str]]:
    """Return the dimensions that all points share, without the metrics' own."""
    own = {key for point in points for key in point.metric.dims}
    common = {pair for pair in points[0].dims.items_sorted if pair[0] not in own}
    return common.intersection(*(point.dims.items_sorted for point in points))


def _body(points: list[Datapoint], common: set[tuple[str, str]], width: int) -> list[str]:
    """Return the host's rows (FIRST), a table for each kind of accelerator, and rows of everything else."""
    hosts = [point for point in points if not _device(point)]
    rows: dict[tuple[int, str], list[tuple[str, str]]] = {}
    for point, figure in zip(hosts, _figures(hosts), strict=True):
        family, _, name = map(_shown, point.metric.name.partition("."))
        values = [_shown(pair[1]) for pair in point.dims.items_sorted if pair not in common]
        place = FIRST.index(family) if family in FIRST else len(FIRST) + (family == OWN[:-1])
        row = rows.setdefault((place, " ".join((family, *values))), [])
        text = f"{figure.text:>5} {figure.unit:<4}{figure.span}"
        row.insert(0 if name == MAIN else len(row), (f"{name} " * (name != MAIN), text))
    first, others = ([key for key in sorted(rows) if (key[0] < len(FIRST)) is leads] for leads in (True, False))
    tables = _tables([point for point in points if _device(point)], common, width)
    parts = [_families({key: rows[key] for key in keys}, width) for keys in (first, others)]
    return [*parts[0], *tables, *([""] if tables and others else []), *parts[1]]


def _families(rows: Mapping[tuple[int, str], Sequence[tuple[str, str]]], width: int) -> list[str]:
    """Return rows such as `disk /  28.5 %  used 29 GiB`; a label or name may be shortened, a value never."""
    label = min(max([9, *(cell_len(name) for _, name in rows)]), max(12, width // 3))
    lines: list[str] = []
    for (_, family), cells in rows.items():
        line, used = set_cell_size(cut_middle(family, label), label), label
        for name, value in cells:
            room = width - label - len(GAP) - len(value.rstrip())
            name_ = set_cell_size(name, room) if cell_len(name) > room else name
            size = len(GAP) + cell_len(name_) + len(value)
            if used > label and used + size - len(value) + len(value.rstrip()) > width:
                lines, line, used = [*lines, line.rstrip()], " " * label, label
            line, used = line + GAP + name_ + value, used + size
        lines.append(line.rstrip())
    return lines


def _quiet(points: Sequence[Datapoint], width: int) -> list[str]:
    """Return a line about events that have not happened, such as `kernel log: nothing; errors: none`."""
    names = dict.fromkeys(_shown(point.metric.name) for point in points)
    logs = ["kernel log: nothing"] if names.pop(KERNEL_LOG, names) is None else []
    text = "; ".join([*logs, *([f"none so far: {', '.join(names)}"] if names else [])])
    return [f"{text[: width - 1]}…" if len(text) > width else text] if text else []


def _tables(points: list[Datapoint], common: set[tuple[str, str]], width: int) -> list[str]:
    """Return a table for each kind of accelerator, with the most important figures first."""
    rows: dict[str, dict[Pairs, dict[tuple[str, str], Figure]]] = {}
    for point, figure in zip(points, _figures(points), strict=True):
        key = _device(point)
        further = (pair[1] for pair in point.dims.items_sorted if pair not in common and pair not in key)
        name = " ".join((point.metric.name.partition(".")[2], *further))
        rows.setdefault(".".join(name for name, _ in key), {}).setdefault(key, {})[_shown(name), figure.unit] = figure
    return [line for kind, devices in rows.items() for line in _devices(kind, devices, width)]


def _devices(kind: str, rows: Mapping[Pairs, Mapping[tuple[str, str], Figure]], width: int) -> list[str]:
    """Return a table with a row for each device; columns that do not fit follow in a second table."""
    rows = dict(sorted(rows.items(), key=lambda row: [(len(value), value) for _, value in row[0]]))
    labels = [cut_middle(_shown(".".join(value for _, value in key)), 24) for key in rows]
    first = TableColumn([kind, "", *labels])
    columns = []
    names = dict.fromkeys(chain.from_iterable(rows.values()))
    for name, unit in sorted(names, key=lambda key: LEADING.index(key[0]) if key[0] in LEADING else len(LEADING)):
        figures = [row.get((name, unit)) for row in rows.values()]
        cells = [figure.text + figure.span if figure else "-" for figure in figures]
        widest = max(map(len, (unit, *cells)))
        title = cut_middle(name, max(widest, width - first.width - len(GAP)))
        columns.append(TableColumn([title, unit, *cells], right=True))
    lines: list[str] = []
    while columns:
        many = fitting(columns, width - first.width)
        lines += ["", *table([first, *columns[:many]])]
        columns = columns[many:]
    return lines


def _figures(points: list[Datapoint]) -> list[Figure]:
    """Return each point's figure: a gauge's value, a counter's rate or total, in one unit for each metric."""
    read, largest = [], dict[tuple[str, str], float]()
    for metric, value, _, at, _, start, total, increase in points:
        figure, unit, note = value, metric.unit, ""
        moves = metric.kind is Kind.COUNTER and unit != RARE
        if moves and increase is not None and start is not None and start < at - MIN_ELAPSED:
            figure, unit = increase / (at - start) * 1e9, f"{unit}/s"
        elif metric.kind is Kind.COUNTER:
            note = " total"
        read.append((figure, unit, note, total))
        key = metric.name, unit
        largest[key] = max(largest.get(key, 0.0), abs(total.maximum if total else figure))
    figures = []
    for point, (figure, unit, note, total) in zip(points, read, strict=True):
        divisor, word = _scale(largest[point.metric.name, unit], unit)
        span = f" ({_digits(total.minimum / divisor)}..{_digits(total.maximum / divisor)})" if total else ""
        figures.append(Figure(_digits(figure / divisor), f"{word}{note}".strip(), span))
    return figures


def _digits(number: float) -> str:
    return f"{number:,.0f}" if abs(number) >= 999.5 else f"{number:.3g}"


def _scale(value: float, unit: str) -> tuple[float, str]:
    """Return the divisor and the unit to show, such as 2**30 and GiB; `{thread}` is shown as "", `{kill}/s` as /s."""
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
    """Return pairs as `key=value`; to fit `width`, first the longest values are shortened, then the whole text."""
    text, most = " ".join(f"{_shown(key)}={_shown(value)}" for key, value in pairs), width
    while len(text) > width and most > 6:
        text = " ".join(f"{_shown(key)}={cut_middle(_shown(value), most)}" for key, value in pairs)
        most -= 1
    return cut_middle(text, width)


def _shown(text: str) -> str:
    """Return `text` without control characters."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "\ufffd" for c in text)
