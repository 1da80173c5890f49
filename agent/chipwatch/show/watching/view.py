"""Draws the readings of a watch as HTML for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from statistics import fmean
from typing import TYPE_CHECKING, Final

from chipwatch.jobs.device_key import device_label, device_of
from chipwatch.show.report.devices import FIGURES

if TYPE_CHECKING:
    from chipwatch.history.columns import RecordedSeries

SHOWN: Final = (
    *FIGURES["utilization"], *FIGURES["memory"], "process.cpu.utilization", "process.memory.utilization",
    "cpu.utilization", "memory.utilization",
)  # fmt: skip
"""Metrics with a graph, all in percent."""
MOST: Final = 32
"""Most graphs of a view."""
DOTS: Final = 120
"""Most dots of a graph; each is a mean of several readings."""
WIDTH, HEIGHT = 240, 24


def html(summary: str, columns: Sequence[RecordedSeries]) -> str:
    """Return a small graph of each metric in SHOWN, and the summary."""
    shown = [column for name in SHOWN for column in columns if column.metric.name == name and column.values]
    rows = "".join(map(_row, shown[:MOST]))
    return f'<table class="chipwatch">{rows}</table><pre>{escape(summary)}</pre>'


def _row(column: RecordedSeries) -> str:
    many = -(-len(column.values) // DOTS)
    parts = (column.values[start : start + many] for start in range(0, len(column.values), many))
    means = [min(100.0, max(0.0, fmean(part))) for part in parts]
    step = WIDTH / max(1, len(means) - 1)
    dots = " ".join(f"{x * step:.0f},{HEIGHT - 1 - y * (HEIGHT - 2) / 100:.1f}" for x, y in enumerate(means))
    name = escape(f"{column.metric.name} {device_label(device_of(column.dims))}".rstrip())
    return (
        f'<tr><td style="text-align:left">{name}</td><td><svg width="{WIDTH}" height="{HEIGHT}" role="img">'
        f'<polyline points="{dots}" fill="none" stroke="currentColor"/></svg></td>'
        f"<td>{column.values[-1]:.0f} % now</td><td>mean {fmean(column.values):.0f} %</td>"
        f"<td>peak {max(column.values):.0f} %</td></tr>"
    )
