"""The screen: composes its lines from a machine and a view."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

from chipwatch.top import accelerators, host
from chipwatch.top.draw import Glyphs, Line, axis, fit, flow, padded, scaled, sides, whole, width_of
from chipwatch.top.machine import Accelerator, ListedProcess, MachineState
from chipwatch.top.view import HELP, LETTERS, SORTS, View

SMALLEST: Final = (40, 10)
TALLEST: Final = 8
"""Lines of a graph."""
KEYS: Final = (
    ("q", "quit"), ("?", "help"), ("/", "filter"), ("s", "sort"), ("r", "reverse"), ("p", "processes"), ("g", "graphs"),
    ("1", "CPUs"), ("space", "pause"), ("+-", "zoom"), ("w", "snapshot"),
)  # fmt: skip
PROCESS_COLUMNS: Final = (
    ("#", 4, False), ("PID", 8, False), ("user", 10, True), ("job", 10, True), ("memory", 7, False),
    ("share", 5, False), ("CPU", 5, False),
)  # fmt: skip
"""Title, cells, and whether the column is aligned at the left."""
TRENDS: Final = (
    ("utilization", "utilization", 100.0, " %"), ("device memory", "memory", 100.0, " %"),
    ("power", "power", 0.0, " W"),
    ("cpu.utilization", "CPU", 100.0, " %"), ("memory.utilization", "host memory", 100.0, " %"),
    ("network.received", "received", 0.0, "B/s"), ("network.sent", "sent", 0.0, "B/s"),
    ("disk.read", "disk read", 0.0, "B/s"), ("disk.written", "disk written", 0.0, "B/s"),
)  # fmt: skip
"""Trend of the machine, title, its largest value (0: the largest one shown), unit."""


class Notes(NamedTuple):
    """Texts beside the readings."""

    title: str
    """Name of the machine or of the recording."""
    mode: str = ""
    """The interval, or place and speed in a recording."""
    delivery: Sequence[Line] = ()
    """A part for each sink of the running agent."""
    troubles: Sequence[str] = ()
    """Faults of collectors."""
    jobs: Sequence[str] = ()
    """A line for each job of which no device is known."""


def compose(machine: MachineState, view: View, size: tuple[int, int], notes: Notes, style: Glyphs) -> list[Line]:
    """Return the lines of a screen of `size` (columns, lines)."""
    width, height = size
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return _filled([[(f"at least {SMALLEST[0]}x{SMALLEST[1]}", "bad")]], size)
    if view.help:
        return _filled(_help(width), size)
    top = _header(machine, view, notes, width)[: max(2, height // 3)]
    every = machine.devices
    devices = accelerators.ordered([device for device in every if accelerators.matches(view.filter, device)], view)
    nothing = f"nothing here has {view.filter!r}; Esc clears the filter"
    troubles: list[Line] = [[(f"! {text}", "warn")] for text in notes.troubles]
    if not machine.now:
        return _filled([*top, [("reading ...", "dim")], *troubles], size)
    room = height - len(top) - 1
    strip = host.strip(machine, width, style) if every else host.rows(machine, width, style)
    if view.cores:
        strip += host.cores(machine, width, style, most=max(1, room // 3))
    strip += [[(text, "label")] for text in notes.jobs] + troubles
    strip = strip[: max(1, room - (3 if every else 0))]
    room -= len(strip)
    body: list[Line] = []
    listed = _processes(machine, view)
    hidden = 0
    if every:
        table = [*accelerators.table(devices, width, style), *([] if devices else [[(nothing, "warn")]])]
        count = max(0, min(len(table) - 1, room - 2))
        hidden = max(0, len(devices) - count)
        first = min(view.offset, hidden)
        body += [style.rule(width), table[0], *table[1 + first : 1 + first + count]]
        room -= count + 2
    space = room if not listed or room < 6 else max(3, room - min(len(listed) + 1, room // 2))
    graphs = _graphs(machine, view, width, space, style)
    room -= len(graphs)
    body += graphs
    view.page = max(1, height // 2)
    if listed and room >= 3:
        count = min(len(listed) - 1, room - 2)
        first = min(max(0, view.offset - hidden), len(listed) - 1 - count)
        body += [style.rule(width), listed[0], *listed[1 + first : 1 + first + count]]
        hidden += len(listed) - 1 - count
    view.last = hidden
    view.offset = min(view.offset, hidden)
    lines = [*top, *strip, *body]
    return [*_filled(lines, (width, height - 1)), fit(_footer(view, width, hidden), width)]


def _filled(lines: Sequence[Line], size: tuple[int, int]) -> list[Line]:
    """Return exactly as many lines, as wide, as the screen has."""
    width, height = size
    return [fit(line, width) for line in (*lines, *([] for _ in range(height)))][:height]


def _header(machine: MachineState, view: View, notes: Notes, width: int) -> list[Line]:
    at = datetime.fromtimestamp(machine.now / 1e9, UTC).astimezone() if machine.now else None
    left: Line = [("chipwatch top", "title"), (f"  {notes.title}", "head")]
    left += [(f"  {at:%H:%M:%S}" if at else "", ""), (f"  {notes.mode}", "dim")]
    if view.paused:
        left += [("  paused", "warn")]
    right = flow(notes.delivery, 10_000)[0] if notes.delivery else []
    if width_of(left) + width_of(right) + 2 <= width:
        return [sides(left, right, width)]
    return [left, *flow(notes.delivery, width)]


def _graphs(machine: MachineState, view: View, width: int, room: int, style: Glyphs) -> list[Line]:
    """Return the graphs in at most `room` lines, the time axis below them."""
    shown = [row for row in TRENDS if machine.trends.get(row[0])][: min(5, max(1, (room - 2) // 2))]
    if not shown or room < 3 or not view.graphs:
        return []
    rows = min((room - 2) // len(shown), TALLEST)
    label = 20
    cells = width - label
    count = cells * style.per_cell
    end = machine.now - int(view.back * 1e9)
    lines: list[Line] = [style.rule(width)]
    for name, title, most, unit in shown:
        values = machine.trends[name].means(end, view.step, count)
        peak = most or max([*(value for value in values if value is not None), 1e-9])
        graph = style.graph(values, rows, peak)
        now = "-" if values[-1] is None else f"{values[-1]:.0f}" if most or unit == " W" else scaled(values[-1])
        texts = [f"{title:13}{now:>4}{unit}", "" if most else f"{'':8}max {scaled(peak):>5}", *[""] * rows]
        lines += [
            [(f"{text:{label}}"[:label], "label"), (part, "graph")] for text, part in zip(texts, graph, strict=False)
        ]
    return [*lines, [(" " * label, ""), (axis(cells, count * view.step, view.back), "dim")]]


def _processes(machine: MachineState, view: View) -> list[Line]:
    """Return the title and the rows of the processes of accelerators; nothing if no driver lists any."""
    if not view.processes:
        return []
    word = view.filter.lower()
    rows = [(device, process) for device in machine.devices for process in device.processes or ()
            if word in _words(device, process).lower()]  # fmt: skip
    if not rows:
        return []
    if SORTS[view.sort] != "number":
        by_memory = SORTS[view.sort] == "memory"
        rows.sort(key=lambda row: -((row[1].memory if by_memory else row[1].share) or 0))
    if view.reverse:
        rows.reverse()
    titles = _aligned([title for title, *_ in PROCESS_COLUMNS])
    return [[(f"{titles}  command", "head")], *(_process(device, process) for device, process in rows)]


def _words(device: Accelerator, process: ListedProcess) -> str:
    return " ".join((device.label, device.model, process.user, process.job, f"{process.pid}", process.command))


def _process(device: Accelerator, process: ListedProcess) -> Line:
    memory = "-" if process.memory is None else scaled(process.memory, 1024)
    number, user, job = f"{process.pid}", process.user, process.job
    text = _aligned(["", number, user, job, memory, whole(process.share), whole(process.cpu)])
    width = PROCESS_COLUMNS[0][1]
    return [(padded(device.label, width, left=False), "label"), (f"{text[width:]}  ", ""), (process.command, "")]


def _aligned(cells: Sequence[str]) -> str:
    columns = zip(cells, PROCESS_COLUMNS, strict=True)
    return "  ".join(padded(cell, width, left=left) for cell, (_, width, left) in columns)


def _footer(view: View, width: int, hidden: int) -> Line:
    if view.typing:
        return [("filter: ", "key"), (f"{view.filter}_", "")]
    if view.message:
        return [(view.message, "warn")]
    chosen = [f"filter {view.filter!r}"] if view.filter else []
    chosen += [f"by {SORTS[view.sort]}"] if view.sort else []
    chosen += [f"{view.offset} above, {hidden - view.offset} below"] if hidden else []
    right: Line = [("   ".join(chosen), "dim")]
    line: Line = []
    for key, word in KEYS:
        if width_of(line) + len(key) + len(word) + 3 + width_of(right) <= width:
            line += [(key, "key"), (f" {word}  ", "dim")]
    return sides(line, right, width)


def _help(width: int) -> list[Line]:
    lines: list[Line] = [[("Keys", "title")], *([(f"  {keys:12}", "key"), (text, "")] for keys, text in HELP)]
    words, text = LETTERS.split(), ""
    for word in words:
        if len(text) + len(word) >= width:
            lines, text = [*lines, [(text, "")]], ""
        text += f"{word} "
    return [*lines, [(text, "")], [("Any figure that cannot be read is a dash: absent is not zero.", "dim")]]
