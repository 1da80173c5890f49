"""The table of accelerators: its columns, and which of them fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter, methodcaller
from typing import Final

from chipwatch.show.report.devices import FAMILIES
from chipwatch.show.top.draw import figure, level, scaled
from chipwatch.show.top.machine import Accelerator
from chipwatch.show.top.table import LEAST, Column, cells_of, figures, fitting, has

FULL: Final = 100
"""Width of the screen from which all columns are shown."""
COMPACT: Final = 80
"""Width of the screen below which only the most important columns are shown."""
WARM, HOT = 75, 85
"""Temperatures (°C) from which a chip is marked. They are our choice: limits differ by model."""
FULL_MEMORY: Final = 95
"""Share of memory in use (%) from which an accelerator is marked."""


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
    return figure(value), level(value, WARM, HOT)


def _model(device: Accelerator) -> tuple[str, str]:
    return device.model.removeprefix("NVIDIA ") or FAMILIES.get(device.key[0][0], ""), ""


HISTORY: Final = Column("history", 0, lambda _: ("", ""), None, FULL, history=Accelerator.history)
BUSY: Final = figures("busy 60 s", 4, attrgetter("busy"), percent=attrgetter("busy"))
COLUMNS: Final = (
    Column("#", 4, lambda device: (device.label, "label"), lambda _: 0.0),
    Column("model", 16, _model, columns=FULL, left=True, snug=True),
    BUSY,
    HISTORY,
    Column("memory", 8, _memory, lambda device: device.memory, percent=lambda device: device.memory),
    figures("tensor", 6, methodcaller("get", "tensor"), columns=FULL, optional=True),
    figures("eff", 4, methodcaller("get", "efficiency"), columns=FULL, optional=True),
    Column("power", 9, _power, lambda device: device.get("power") or device.power, COMPACT),
    Column("temp", 4, _temperature, lambda device: device.get("temperature")),
    figures("clock", 5, methodcaller("get", "clock"), columns=FULL, optional=True),
    Column("flags", 5, lambda device: (device.flags, "warn"), columns=COMPACT, left=True),
    Column("state", 18, lambda device: device.state, left=True),
    Column("job", 10, lambda device: (device.job, ""), columns=FULL, left=True, optional=True, snug=True),
    Column("user", 8, lambda device: (device.user, ""), columns=FULL, left=True, optional=True, snug=True),
)
YIELDING: Final = ("clock", "tensor", "eff", "history", "model")
"""Columns that are dropped in this order until bars and graphs have LEAST cells."""


def columns_of(devices: Sequence[Accelerator], width: int) -> list[Column]:
    """Return the columns that fit. Without room for the history, it takes the place of the bar."""
    columns = fitting(COLUMNS, devices, width)
    for title in YIELDING:
        if cells_of(columns, width) < LEAST:
            columns = [column for column in columns if column.title != title]
    if width >= COMPACT and HISTORY not in columns:
        graph = BUSY._replace(percent=None, history=HISTORY.history)
        columns = [graph if column is BUSY else column for column in columns]
    return [column._replace(cell=_dimmed(column)) for column in columns]


def _dimmed(column: Column) -> Callable[[Accelerator], tuple[str, str]]:
    """Return the function for the column's cells, which dims them for a silent device."""
    cell, is_dimmed = column.cell, column.title != "state"
    return lambda device: (cell(device)[0], "dim") if is_dimmed and device.silent else cell(device)


def matches(word: str, device: Accelerator) -> bool:
    """Return True if `word` is in the device's number, model, state, job or user, or in its processes."""
    processes = (f"{item.user} {item.job} {item.pid} {item.command}" for item in device.processes)
    return has(word, (device.label, device.model, device.state[0], device.job, device.user, *processes))
