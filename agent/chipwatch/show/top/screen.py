"""Composes the lines of the screen from the state of a machine and the user's choices."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import attrgetter
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NamedTuple

from chipwatch.jobs.device_key import device_label
from chipwatch.show.report.amounts import clock
from chipwatch.show.top import accelerators, host
from chipwatch.show.top.accelerators import COMPACT
from chipwatch.show.top.draw import Line, fit, flow, rule, scaled, shown, sides, width_of
from chipwatch.show.top.graphs import graphs
from chipwatch.show.top.machine import ListedProcess, MachineState
from chipwatch.show.top.processes import HERE, details
from chipwatch.show.top.table import Column, figures, fitting, has, ordered, table, title_at
from chipwatch.show.top.view import Drawn, View

SMALLEST: Final = (40, 10)
PROCESS_COLUMNS: Final = (
    Column("#", 4, lambda process: (device_label(process.device), "label"), lambda _: 0.0, optional=True),
    Column("PID", 8, lambda process: (f"{process.pid}", ""), lambda process: -process.pid),
    Column("user", 10, lambda process: (process.user, ""), left=True, snug=True),
    Column("job", 10, lambda process: (process.job, ""), left=True, optional=True, snug=True),
    figures("memory", 7, attrgetter("memory"), partial(scaled, step=1024), optional=True),
    figures("share", 5, attrgetter("share"), optional=True),
    figures("CPU", 5, attrgetter("cpu")),
    figures("%MEM", 4, attrgetter("resident"), "{:.1f}".format, columns=COMPACT),
    figures("time", 8, attrgetter("age"), clock, columns=COMPACT),
    Column("command", 0, lambda process: (process.command, ""), left=True, rest=True),
)  # fmt: skip


class Guide(NamedTuple):
    """The texts that explain the keys of a screen."""

    keys: Sequence[tuple[str, str]]
    """Keys of the last line, with a word each; the first ones that fit are shown."""
    tasks: Sequence[tuple[str, Sequence[tuple[str, str]]]]
    notes: Sequence[str]


GUIDES: Final = {
    name: Guide(**guide) for name, guide in json.loads(Path(__file__).with_name("guides.json").read_bytes()).items()
}


class Look(NamedTuple):
    """The user's choices, and the size of the screen in columns and lines."""

    view: View
    width: int
    height: int


class Notes(NamedTuple):
    """Texts of the screen that are not readings."""

    title: str
    """Name of the machine or the recording."""
    mode: str = ""
    """The interval, or the position and speed in a recording."""
    delivery: Sequence[Line] = ()
    """A piece for each sink of the running agent."""
    troubles: Sequence[str] = ()
    """Faults of collectors."""
    jobs: Sequence[str] = ()
    """Lines about jobs."""
    proc: str = HERE
    """Where the node's /proc is mounted."""


def compose(machine: MachineState, view: View, size: tuple[int, int], notes: Notes) -> list[Line]:
    """Return the lines of a machine's screen of `size` (columns, lines)."""
    guide = GUIDES["machine"] if machine.now else GUIDES["machine"]._replace(keys=())
    look = Look(view, *size)
    return framed(look, guide, lambda: _lines(machine, notes, look))


def framed(look: Look, guide: Guide, body: Callable[[], list[Line]]) -> list[Line]:
    """Return the lines of any screen: those that `body` returns and a last line, or the help."""
    view, width, height = look
    if width < SMALLEST[0] or height < SMALLEST[1]:
        return filled([[(f"at least {SMALLEST[0]}x{SMALLEST[1]}", "bad")]], width, height)
    if view.help:
        return filled(help_lines(guide, width), width, height)
    return [*filled(body(), width, height - 1), fit(footer(view, width, guide.keys), width)]


def _lines(machine: MachineState, notes: Notes, look: Look) -> list[Line]:
    view, width, height = look
    top = _header(machine, view, notes, width)[: max(2, height // 3)]
    every = machine.devices
    devices = [device for device in every if accelerators.matches(view.filter, device)]
    troubles: list[Line] = [[(f"! {text}", "warn")] for text in notes.troubles]
    if not machine.now:
        return [*top, [("reading ...", "dim")], *troubles]
    chosen = next((each for each in machine.processes if each.key == view.selected), None)
    if view.details and chosen:
        rows = ((f"{name:14}", shown(" ".join(text.split()))) for name, text in details(chosen, notes.proc).items())
        return [*top, *(line for head, text in rows for line in _wrapped(head, text, width, "label", max_lines=8))]
    view.drawn = Drawn()
    room = height - len(top) - 1
    strip = host.strip(machine, width) if every else host.rows(machine, width)
    if view.cores:
        strip += host.cores(machine, width, most=max(1, room // 3))
    strip += [[(text, "label")] for text in notes.jobs] + troubles
    strip = strip[: max(1, room - (3 if every else 0))]
    lines = [*top, *strip]
    if every:
        columns = accelerators.columns_of(devices, width)
        add_table(lines, 0, ordered(devices, columns, view.sorts[0], reverse=view.reverse), columns, look)
        lines += [] if devices else [[(f"nothing here has {view.filter!r}; Esc clears the filter", "warn")]]
    room = height - 1 - len(lines)
    processes = _processes(machine, view) if view.processes else []
    space = room if not processes or room < 6 else max(3, room - min(len(processes) + 2, room * 2 // 3))
    lines += graphs(machine, view, width, space)
    if processes and height - 1 - len(lines) >= 3:
        columns = fitting(PROCESS_COLUMNS, processes, width)
        add_table(lines, 1, ordered(processes, columns, view.sorts[1], reverse=view.reverse), columns, look)
    view.page = max(1, height // 2)
    return lines


def add_table(lines: list[Line], number: int, items: Sequence[Any], columns: Sequence[Column], look: Look) -> None:
    """Add a table of ordered rows to `lines`: a rule, the titles, as many rows as fit, the selected one among them."""
    view, width, height = look
    rows = [item.key for item in items]
    count = max(0, min(len(items), height - len(lines) - 3))
    first = min(view.firsts[number], len(items) - count)
    at = rows.index(view.selected) if view.selected in rows else None
    if at is not None:
        first = min(max(first, at - count + 1), at)
    view.firsts[number] = first
    drawn = view.drawn
    drawn.rows[number], drawn.columns[number] = rows, [column.title for column in columns]
    drawn.hidden += len(items) - count
    mark = None if at is None else at - first
    shown = items[first : first + count]
    drawn.titles[len(lines) + 1] = number, partial(title_at, columns, width)
    drawn.lines |= dict(enumerate(rows[first : first + count], len(lines) + 2))
    lines += [rule(width), *table(columns, shown, width, chosen=view.sorts[number], mark=mark)]


def filled(lines: Sequence[Line], width: int, height: int) -> list[Line]:
    """Return `height` lines of `width` cells, cut or filled."""
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


def _processes(machine: MachineState, view: View) -> list[ListedProcess]:
    """Return the processes that match the filter."""
    models = {device.key: device.model for device in machine.devices}
    texts = ((device_label(each.device), models.get(each.device, ""), each.user, each.job, f"{each.pid}", each.command)
             for each in machine.processes)  # fmt: skip
    return [each for each, row in zip(machine.processes, texts, strict=True) if has(view.filter, row)]


def _wrapped(head: str, text: str, width: int, role: str, **options: Any) -> list[Line]:
    """Wrap a text to lines of `width` behind its head, which has the role `role`."""
    parts = wrap(text, width - len(head), **options) or [""]
    return [[(head if part is parts[0] else " " * len(head), role), (part, "")] for part in parts]


def footer(view: View, width: int, keys: Sequence[tuple[str, str]]) -> Line:
    """Return the last line: a question, a message, or the keys and the choices."""
    if view.typing:
        return [("filter: ", "key"), (f"{view.filter}_", "")]
    if view.message:
        return [(view.message, "warn")]
    above, hidden = sum(view.firsts), view.drawn.hidden
    chosen = [f"filter {view.filter!r}"] if view.filter else []
    chosen += [f"by {title}" for title in view.sorts if title]
    chosen += [f"{above} above, {hidden - above} below"] if hidden else []
    right: Line = [("   ".join(chosen), "dim")]
    line: Line = []
    for key, word in keys:
        if width_of(line) + len(key) + len(word) + 3 + width_of(right) <= width:
            line += [(key, "key"), (f" {word}  ", "dim")]
    return sides(line, right, width)


def help_lines(guide: Guide, width: int) -> list[Line]:
    """Return the help: tasks with their keys, then notes."""
    lines: list[Line] = []
    for task, rows in guide.tasks:
        lines.append([(task, "title")])
        for keys, text in rows:
            lines += _wrapped(f"  {keys:15} ", text, width, "key")
    return [*lines, *([(part, "dim")] for text in guide.notes for part in wrap(text, width))]
