"""The table of accelerators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from chipwatch.report.devices import FAMILIES
from chipwatch.top.draw import Glyphs, Line, level, padded, scaled, whole
from chipwatch.top.machine import Accelerator
from chipwatch.top.view import SORTS, View

FULL: Final = 100
"""Columns from which all of an accelerator is shown."""
COMPACT: Final = 80
"""Columns below which the least is shown."""
WIDE: Final = 160
"""Columns from which each accelerator has a graph."""
WARM, HOT = 75, 85
"""Temperatures (°C) from which a chip is marked; our choice: limits differ by model."""
FULL_MEMORY: Final = 95
"""Share of an accelerator's memory (%) from which it is marked."""


class Column(NamedTuple):
    """A column of the table of accelerators."""

    title: str
    width: int
    """Cells; 0: a bar, which gets its share of what is left."""
    columns: int
    """Columns of the screen from which it is shown."""
    cell: Callable[[Accelerator], tuple[str, str]]
    """Returns the text and its role."""
    percent: Callable[[Accelerator], float | None] | None = None
    """Returns the percent of a bar."""
    left: bool = False


def _memory(device: Accelerator) -> tuple[str, str]:
    used, total, share = device.get("used"), device.total, device.memory
    role = "warn" if share is not None and share >= FULL_MEMORY else ""
    if used is None:
        return ("-" if share is None else f"{share:.0f} %"), role
    gib = 2.0**30
    return (f"{used / gib:.0f}/{total / gib:.0f}G" if total else f"{scaled(used, 1024)}"), role


def _power(device: Accelerator) -> tuple[str, str]:
    power, limit, share = device.get("power"), device.get("limit"), device.power
    if power is None:
        return ("-" if share is None else f"{share:.0f} %"), ""
    limit = limit or (100 * power / share if share else None)
    return f"{power:.0f}/{limit:.0f} W" if limit else f"{power:.0f} W", ""


def _temperature(device: Accelerator) -> tuple[str, str]:
    value = device.get("temperature")
    return whole(value), level(value, WARM, HOT)


def _model(device: Accelerator) -> tuple[str, str]:
    return device.model.removeprefix("NVIDIA ") or FAMILIES.get(device.key[0][0], ""), ""


COLUMNS: Final = (
    Column("#", 4, 0, lambda device: (device.label, "label")),
    Column("model", 16, FULL, _model, left=True),
    Column("utilization", 0, 0, lambda device: (whole(device.get("utilization")), ""), lambda d: d.get("utilization")),
    Column("memory", 0, 0, _memory, lambda device: device.memory),
    Column("tensor", 6, FULL, lambda device: (whole(device.get("tensor")), "")),
    Column("power", 9, COMPACT, _power),
    Column("temp", 4, 0, _temperature),
    Column("clock", 5, FULL, lambda device: (whole(device.get("clock")), "")),
    Column("flags", 5, COMPACT, lambda device: (device.flags, "warn"), left=True),
    Column("state", 18, 0, lambda device: device.state, left=True),
    Column("job", 10, FULL, lambda device: (device.job, ""), left=True),
    Column("user", 8, FULL, lambda device: (device.user, ""), left=True),
)
IF_ANY: Final = ("tensor", "clock", "job", "user")
"""Columns that are shown only if some device has a value."""
YIELDING: Final = ("clock", "tensor", "model")
"""Columns that are left out, the first one first, until bars have LEAST_BAR cells."""
LEAST_BAR: Final = 6
FIGURE_CELLS: Final = {"utilization": 4, "memory": 8}
"""Cells of the number beside a bar."""


def table(devices: Sequence[Accelerator], width: int, style: Glyphs) -> list[Line]:
    """Return the title and the rows of the accelerators."""
    columns = [column for column in COLUMNS if width >= column.columns]
    columns = [column for column in columns if column.title not in IF_ANY or
               any(column.cell(device)[0] not in ("", "-") for device in devices)]  # fmt: skip
    graph = (width - 100) // 3 if width >= WIDE else 0
    room = width - (graph + 2) * (graph > 0)
    for title in YIELDING:
        if (room - _fixed(columns)) // 2 < LEAST_BAR:
            columns = [column for column in columns if column.title != title]
    bar = max(4, (room - _fixed(columns)) // 2)
    titles: Line = []
    for column in columns:
        cells = column.width or bar + 1 + FIGURE_CELLS[column.title]
        titles.append((f"{column.title:{'<' if column.left or not column.width else '>'}{cells}}  ", "head"))
    rows = [[*titles, (f"last {graph * style.per_cell} readings"[:graph], "head")]]
    for device in devices:
        row: Line = []
        for column in columns:
            text, role = column.cell(device)
            role = "dim" if device.silent and column.title != "state" else role
            if column.percent:
                row += [*style.bar(column.percent(device), bar, role or "bar"), (" ", "")]
                row.append((f"{text:>{FIGURE_CELLS[column.title]}}", role))
            else:
                row.append((padded(text, column.width, left=column.left), role))
            row.append(("  ", ""))
        if graph:
            row.append((style.graph(_last(device.history, graph * style.per_cell), 1, 100)[0], "graph"))
        rows.append(row)
    return rows


def _fixed(columns: Sequence[Column]) -> int:
    """Return the cells of all but the bars."""
    return sum(2 + (column.width or FIGURE_CELLS[column.title] + 1) for column in columns)


def _last(values: Sequence[float | None], count: int) -> list[float | None]:
    latest = [*values][-count:]
    return [*([None] * (count - len(latest))), *latest]


def matches(word: str, device: Accelerator) -> bool:
    """Return whether `word` is in a number, a model, a state, a job or a user of the device, or in its processes."""
    processes = (f"{item.user} {item.job} {item.pid} {item.command}" for item in device.processes or ())
    texts = (device.label, device.model, device.state[0], device.job, device.user, *processes)
    return not word or any(word.lower() in text.lower() for text in texts)


def ordered(devices: list[Accelerator], view: View) -> list[Accelerator]:
    """Return the devices in the order of the view: numbers ascend, figures descend."""
    figure = SORTS[view.sort]
    if figure != "number":
        devices = sorted(devices, key=lambda d: -((d.memory if figure == "memory" else d.get(figure)) or 0))
    return devices[::-1] if view.reverse else devices
