"""The screen: composes its lines from a machine and a view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import chain
from typing import Final, NamedTuple

from agent.commands.top.draw import Line, Style, axis, fit, flow, scaled, shown, sides, whole, width_of
from agent.commands.top.machine import Device, Machine, Process
from agent.commands.top.view import HELP, LETTERS, SORTS, View

FULL: Final = 100
"""Columns from which all of an accelerator is shown."""
COMPACT: Final = 80
"""Columns below which the least is shown."""
WIDE: Final = 160
"""Columns from which each accelerator has a graph of its own."""
SMALLEST: Final = (40, 10)
WARM, HOT = 75, 85
"""Temperatures (°C) from which a chip is marked; our choice, since each model has limits of its own."""
FULL_MEMORY: Final = 95
"""Share of an accelerator's memory (%) from which it is marked."""
BUSY: Final = 90
"""Share of a host's resource (%) from which it is marked."""
KINDS: Final = {"gpu": "GPU", "neuron_device": "Neuron", "ipu": "IPU", "tpu": "TPU"}
KEYS: Final = (
    ("q", "quit"), ("?", "help"), ("/", "filter"), ("s", "sort"), ("r", "reverse"), ("p", "processes"), ("g", "graphs"),
    ("1", "CPUs"), ("space", "pause"), ("+-", "zoom"), ("w", "snapshot"),
)  # fmt: skip


TRENDS: Final = (
    ("utilization", "utilization", 100.0, " %"), ("device memory", "memory", 100.0, " %"),
    ("power", "power", 0.0, " W"),
    ("cpu.utilization", "CPU", 100.0, " %"), ("memory.utilization", "host memory", 100.0, " %"),
    ("network.received", "received", 0.0, "B/s"), ("network.sent", "sent", 0.0, "B/s"),
    ("disk.read", "disk read", 0.0, "B/s"), ("disk.written", "disk written", 0.0, "B/s"),
)  # fmt: skip
"""Trend of the machine, title, its largest value (0: what was seen), unit."""


class Notes(NamedTuple):
    """What is shown beside the readings."""

    title: str
    """Name of the machine or of the recording."""
    mode: str = ""
    """The interval, or place and speed in a recording."""
    delivery: Sequence[Line] = ()
    """A part for each sink of the running agent."""
    troubles: Sequence[str] = ()
    """What is wrong with collectors."""


class Column(NamedTuple):
    """A column of the table of accelerators."""

    title: str
    width: int
    """Cells; 0: a bar, which gets its share of what is left."""
    columns: int
    """Columns of the screen from which it is shown."""
    cell: Callable[[Device], tuple[str, str]]
    """Returns the text and its role."""
    percent: Callable[[Device], float | None] | None = None
    """Returns what a bar shows."""
    left: bool = False


def _level(value: float | None, warn: float, bad: float) -> str:
    return "" if value is None or value < warn else "warn" if value < bad else "bad"


def _memory(device: Device) -> tuple[str, str]:
    used, total, share = device.get("used"), device.total, device.memory
    role = "warn" if share is not None and share >= FULL_MEMORY else ""
    if used is None:
        return ("-" if share is None else f"{share:.0f} %"), role
    gib = 2.0**30
    return (f"{used / gib:.0f}/{total / gib:.0f}G" if total else f"{scaled(used, 1024)}"), role


def _power(device: Device) -> tuple[str, str]:
    power, limit, share = device.get("power"), device.get("limit"), device.power
    if power is None:
        return ("-" if share is None else f"{share:.0f} %"), ""
    limit = limit or (100 * power / share if share else None)
    return f"{power:.0f}/{limit:.0f} W" if limit else f"{power:.0f} W", ""


def _temperature(device: Device) -> tuple[str, str]:
    value = device.get("temperature")
    return whole(value), _level(value, WARM, HOT)


def _model(device: Device) -> tuple[str, str]:
    return shown(device.model.removeprefix("NVIDIA ")) or KINDS.get(device.key[0][0], ""), ""


COLUMNS: Final = (
    Column("#", 4, 0, lambda device: (shown(device.label), "label")),
    Column("model", 16, FULL, _model, left=True),
    Column("utilization", 0, 0, lambda device: (whole(device.get("utilization")), ""), lambda d: d.get("utilization")),
    Column("memory", 0, 0, _memory, lambda device: device.memory),
    Column("tensor", 6, FULL, lambda device: (whole(device.get("tensor")), "")),
    Column("power", 9, COMPACT, _power),
    Column("temp", 4, 0, _temperature),
    Column("clock", 5, FULL, lambda device: (whole(device.get("clock")), "")),
    Column("flags", 5, COMPACT, lambda device: (device.flags, "warn"), left=True),
    Column("state", 18, 0, lambda device: device.state, left=True),
)
FIGURE_CELLS: Final = {"utilization": 4, "memory": 8}
"""Cells of the number beside a bar."""


def compose(machine: Machine, view: View, size: tuple[int, int], notes: Notes, style: Style) -> list[Line]:
    """Return the lines of a screen of `size` (columns, lines)."""
    width, height = size
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return _filled([[(f"at least {SMALLEST[0]}x{SMALLEST[1]}", "bad")]], size)
    if view.help:
        return _filled(_help(width), size)
    top = _header(machine, view, notes, width)
    every = machine.devices
    devices = _sorted([one for one in every if _matches(view.filter, one)], view)
    if not machine.now:
        return _filled([*top, [("reading ...", "dim")]], size)
    room = height - len(top) - 1
    strip = _host(machine, width, style) if every else _host_rows(machine, width, style)
    if view.cores:
        strip += _cores(machine, width, style, most=max(1, room // 3))
    strip += [[(f"! {shown(text)}", "warn")] for text in notes.troubles]
    strip = strip[: max(1, room - (3 if every else 0))]
    room -= len(strip)
    body: list[Line] = []
    listed = _processes(machine, view)
    hidden = 0
    if every:
        table = _table(devices, width, style)
        count = max(0, min(len(devices), room - 2))
        hidden = len(devices) - count
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


def _header(machine: Machine, view: View, notes: Notes, width: int) -> list[Line]:
    at = datetime.fromtimestamp(machine.now / 1e9, UTC).astimezone() if machine.now else None
    left: Line = [("chipwatch top", "title"), (f"  {shown(notes.title)}", "head")]
    left += [(f"  {at:%H:%M:%S}" if at else "", ""), (f"  {notes.mode}", "dim")]
    if view.paused:
        left += [("  paused", "warn")]
    right = flow(notes.delivery, 10_000)[0] if notes.delivery else []
    if width_of(left) + width_of(right) + 2 <= width:
        return [sides(left, right, width)]
    return [left, *flow(notes.delivery, width)]


def _host(machine: Machine, width: int, style: Style) -> list[Line]:
    """Return the strip of the host, for a machine with accelerators."""
    bar = 10 if width >= FULL else 6
    cpu, used, total = (machine.of_host(name) for name in ("cpu.utilization", "memory.used", "memory.total"))
    share = machine.of_host("memory.utilization")
    items: list[Line] = [[("CPU ", "label"), *style.bar(cpu, bar), (f" {whole(cpu)} %", _level(cpu, BUSY, 101))]]
    if (load := machine.of_host("cpu.load 1m")) is not None:
        cores = len(machine.cores())
        items[0] += [("  load ", "label"), (f"{load:.1f}" + (f"/{cores}" if cores else ""), "")]
    memory = f" {scaled(used, 1024)}/{scaled(total, 1024)}" if used is not None and total else f" {whole(share)} %"
    items.append([("MEM ", "label"), *style.bar(share, bar), (memory, _level(share, BUSY, 97))])
    if swap := machine.of_host("swap.used"):
        items.append([("SWAP ", "label"), (scaled(swap, 1024), "warn")])
    if waits := [(what, value) for what in ("cpu", "memory", "io")
                 if (value := machine.of_host(f"pressure.{what} some")) is not None]:  # fmt: skip
        texts = [(f"{what} {value:.0f} ", _level(value, 10, 40)) for what, value in waits]
        items.append([("WAIT ", "label"), *texts, ("%", "")])
    items.append([("DISK ", "label"), *_rates(machine, ("r", "disk.read"), ("w", "disk.written")), *_fullest(machine)])
    items.append([("NET ", "label"), *_rates(machine, ("in", "network.received"), ("out", "network.sent"))])
    return flow(items, width)


def _rates(machine: Machine, *names: tuple[str, str]) -> Line:
    texts = [f"{word} {'-' if (rate := machine.of_host(name)) is None else scaled(rate)}" for word, name in names]
    return [(" ".join(texts), "")]


def _fullest(machine: Machine) -> Line:
    """Return the file system with the largest share in use."""
    name = "disk.utilization "
    shares = [(machine.of_host(path) or 0, path.removeprefix(name)) for path in machine.host.names(name)]
    if not shares:
        return []
    share, path = max(shares)
    return [(f"  {shown(path)[-20:]} {share:.0f} % full", _level(share, BUSY, 97))]


def _host_rows(machine: Machine, width: int, style: Style) -> list[Line]:
    """Return a row for each resource of the host, for a machine without accelerators."""
    rows: list[Line] = [style.rule(width)]
    bar = max(10, width - 44)
    for label, name, of in (
        ("CPU", "cpu.utilization", ""), ("memory", "memory.utilization", "memory.total"),
        ("swap", "swap.utilization", ""), ("CPU pressure", "pressure.cpu some", ""),
        ("memory pressure", "pressure.memory some", ""), ("I/O pressure", "pressure.io some", ""),
        *((f"disk {path}", f"disk.utilization {path}", f"disk.used {path}") for path in _paths(machine)),
    ):  # fmt: skip
        if (value := machine.of_host(name)) is not None:
            total = machine.of_host(of) if of else None
            text = f" {value:5.1f} %" + (f"  {scaled(total, 1024)}" if total else "")
            rows.append(
                [(f"{shown(label)[:20]:20} ", "label"), *style.bar(value, bar), (text, _level(value, BUSY, 97))]
            )
    loads = [f"{window} {load:.2f}" for window in ("1m", "5m", "15m")
             if (load := machine.of_host(f"cpu.load {window}")) is not None]  # fmt: skip
    rows.append([(f"{'load':20} ", "label"), ("  ".join(loads) or "-", "")])
    rows.append([(f"{'disk, B/s':20} ", "label"), *_rates(machine, ("read", "disk.read"), ("written", "disk.written"))])
    rows.append([(f"{'network, B/s':20} ", "label"),
                 *_rates(machine, ("received", "network.received"), ("sent", "network.sent"))])  # fmt: skip
    return [*rows, [("no accelerator was found on this machine", "dim")]]


def _paths(machine: Machine) -> list[str]:
    name = "disk.utilization "
    return sorted(path.removeprefix(name) for path in machine.host.names(name))[:8]


def _cores(machine: Machine, width: int, style: Style, most: int) -> list[Line]:
    """Return the logical CPUs in at most `most` lines."""
    values = machine.cores()
    each = next((cells for cells in (14, 9, 5) if -(-len(values) // max(1, width // cells)) <= most), 5)
    items: list[Line] = []
    for number, value in enumerate(values):
        cell: Line = [(f"{number:3} ", "dim"), (f"{value:3.0f} ", _level(value, BUSY, 101))] if each > 5 else []
        items.append([*cell, *style.bar(value, each - width_of(cell) - 1), (" ", "")])
    per_line = max(1, width // each)
    return [[*chain(*items[at : at + per_line])] for at in range(0, len(items), per_line)][:most]


def _table(devices: Sequence[Device], width: int, style: Style) -> list[Line]:
    """Return the title and the rows of the accelerators."""
    columns = [column for column in COLUMNS if width >= column.columns]
    columns = [column for column in columns if column.title not in ("tensor", "clock") or
               any(device.get(column.title) is not None for device in devices)]  # fmt: skip
    graph = (width - 100) // 3 if width >= WIDE else 0
    fixed = (
        sum(column.width or FIGURE_CELLS[column.title] + 1 for column in columns)
        + 2 * len(columns)
        + (graph + 2) * (graph > 0)
    )
    bar = max(4, (width - fixed) // 2)
    title: Line = []
    for column in columns:
        cells = column.width or bar + 1 + FIGURE_CELLS[column.title]
        title.append((f"{column.title:{'<' if column.left or not column.width else '>'}{cells}}  ", "head"))
    rows = [[*title, (f"last {graph * style.per_cell} readings"[:graph], "head")]]
    for device in devices:
        row: Line = []
        for column in columns:
            text, role = column.cell(device)
            role = "dim" if device.silent and column.title != "state" else role
            if column.percent:
                row += [*style.bar(column.percent(device), bar, role or "bar"), (" ", "")]
                row.append((f"{text:>{FIGURE_CELLS[column.title]}}", role))
            else:
                row.append((f"{text:{'<' if column.left else '>'}{column.width}}"[: column.width], role))
            row.append(("  ", ""))
        if graph:
            row.append((style.graph(_last(device.history, graph * style.per_cell), 1, 100)[0], "graph"))
        rows.append(row)
    return rows


def _last(values: Sequence[float | None], count: int) -> list[float | None]:
    known = [*values][-count:]
    return [*([None] * (count - len(known))), *known]


def _matches(word: str, device: Device) -> bool:
    texts = (device.label, device.model, device.state[0], *(p.user for p in device.processes or ()))
    return not word or any(word.lower() in text.lower() for text in texts)


def _sorted(devices: list[Device], view: View) -> list[Device]:
    """Return the devices in the order of the view: numbers ascend, figures descend."""
    what = SORTS[view.sort]
    if what != "number":
        devices = sorted(devices, key=lambda one: -(one.memory or 0) if what == "memory" else -(one.get(what) or 0))
    return devices[::-1] if view.reverse else devices


def _graphs(machine: Machine, view: View, width: int, room: int, style: Style) -> list[Line]:
    """Return the graphs in at most `room` lines, the time axis below them."""
    found = [row for row in TRENDS if machine.trends.get(row[0])][: min(5, max(1, (room - 2) // 2))]
    if not found or room < 3 or not view.graphs:
        return []
    rows = min((room - 2) // len(found), 4)
    label = 20
    cells = width - label
    count = cells * style.per_cell
    end = machine.now - int(view.back * 1e9)
    lines: list[Line] = [style.rule(width)]
    for name, title, most, unit in found:
        values = machine.trends[name].means(end, view.step, count)
        known = [value for value in values if value is not None]
        peak = most or max([*known, 1e-9])
        graph = style.graph(values, rows, peak)
        now = "-" if values[-1] is None else f"{values[-1]:.0f}" if most or unit == " W" else scaled(values[-1])
        texts = [f"{title:13}{now:>4}{unit}", "" if most else f"{'':8}max {scaled(peak):>5}", "", ""]
        lines += [
            [(f"{text:{label}}"[:label], "label"), (part, "graph")] for text, part in zip(texts, graph, strict=False)
        ]
    return [*lines, [(" " * label, ""), (axis(cells, count * view.step, view.back), "dim")]]


def _processes(machine: Machine, view: View) -> list[Line]:
    """Return the title and the rows of the processes of accelerators; nothing if no driver lists any."""
    if not view.processes:
        return []
    word = view.filter.lower()
    found = [(device, one) for device in machine.devices for one in device.processes or ()
             if word in f"{device.label} {device.model} {one.user} {one.command} {one.pid}".lower()]  # fmt: skip
    if not found:
        return []
    if SORTS[view.sort] != "number":
        by_memory = SORTS[view.sort] == "memory"
        found.sort(key=lambda pair: -((pair[1].memory if by_memory else pair[1].share) or 0))
    if view.reverse:
        found.reverse()
    lines: list[Line] = [
        [(f"{'#':>4}  {'PID':>8}  {'user':10}  {'memory':>7}  {'share':>5}  {'CPU':>5}  command", "head")]
    ]
    lines += [_process(device, one) for device, one in found]
    return lines


def _process(device: Device, one: Process) -> Line:
    memory = "-" if one.memory is None else scaled(one.memory, 1024)
    figures = f"{memory:>7}  {whole(one.share):>5}  {whole(one.cpu):>5}"
    return [
        (f"{shown(device.label):>4}", "label"), (f"  {one.pid:8}  {shown(one.user)[:10]:10}  {figures}  ", ""),
        (shown(one.command), ""),
    ]  # fmt: skip


def _footer(view: View, width: int, hidden: int) -> Line:
    if view.typing:
        return [("filter: ", "key"), (f"{view.filter}_", "")]
    if view.message:
        return [(shown(view.message), "warn")]
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
