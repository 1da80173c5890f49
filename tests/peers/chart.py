"""Draws two figures of each program, such as its CPU and memory, as bars in an SVG that follows the reader's colours."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, LABELS, ROW, TOP = 800, 336, 22, 56
CPU, MEMORY = (LABELS + 10, 190), (600, 140)
"""Left edge and width of the bars of both columns."""
STYLE = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.head { font-size: 15px; font-weight: 600 } .unit, .value { fill: #59636e } .value { font-size: 11px }
.ours { font-weight: 600 } .bar { fill: #afb8c1 } .bar.us { fill: #0969da } .ground { fill: #ffffff }
.spread { stroke: #59636e; stroke-width: 1 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .unit, .value { fill: #9198a1 } .bar { fill: #4c5561 } .bar.us { fill: #4493f8 } .ground { fill: #0d1117 }
.spread { stroke: #9198a1 }
}"""


Columns = tuple[tuple[str, str], tuple[str, str]]


@dataclass(frozen=True)
class Bar:
    """One program: the medians of two figures, such as CPU and memory, and the lowest and highest of the first."""

    title: str
    group: str
    ours: bool
    cpu: float
    spread: tuple[float, float]
    memory: float


COSTS = ("CPU", "ms a second, at 1 s"), ("Memory", "MB resident")


def svg(
    bars: Sequence[Bar], title: str = "CPU and memory of the agent and of other programs", columns: Columns = COSTS
) -> str:
    """Return the chart, group by group, the least of the first figure first; `columns`: head and unit of each figure."""
    (first, first_unit), (second, second_unit) = columns
    groups = [*dict.fromkeys(bar.group for bar in bars)]
    rows = sorted(bars, key=lambda bar: (groups.index(bar.group), bar.cpu))
    height = TOP + ROW * (len(rows) + len(groups)) + 16
    top_cpu, top_memory = max(bar.spread[1] for bar in rows), max(bar.memory for bar in rows)
    begun: list[str] = []
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}\n</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
        f'<text class="head" x="{CPU[0]}" y="26">{first}</text><text class="unit" x="{CPU[0]}" y="44">{first_unit}</text>',
        f'<text class="head" x="{MEMORY[0]}" y="26">{second}</text><text class="unit" x="{MEMORY[0]}" y="44">{second_unit}</text>',
    ]
    for number, bar in enumerate(rows):
        y = TOP + ROW * (number + len(begun))
        if bar.group not in begun:
            begun.append(bar.group)
            lines.append(f'<text class="unit" x="{LABELS}" y="{y + 12}" text-anchor="end">{escape(bar.group)}</text>')
            y += ROW
        low, high = (CPU[0] + CPU[1] * value / top_cpu for value in bar.spread)
        owner = " us" if bar.ours else ""
        lines += [
            f'<text class="{"ours" if bar.ours else "peer"}" x="{LABELS}" y="{y + 12}" text-anchor="end">{escape(bar.title)}</text>',
            rect(CPU, bar.cpu / top_cpu, y, owner),
            f'<line class="spread" x1="{low:.1f}" x2="{high:.1f}" y1="{y + 8}" y2="{y + 8}"/>',
            f'<text class="value" x="{high + 6:.1f}" y="{y + 12}">{short(bar.cpu)}</text>',
            rect(MEMORY, bar.memory / top_memory, y, owner),
            f'<text class="value" x="{MEMORY[0] + MEMORY[1] * bar.memory / top_memory + 6:.1f}" y="{y + 12}">{short(bar.memory)}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def rect(column: tuple[int, int], share: float, y: int, owner: str) -> str:
    """Return a bar of this share of a column."""
    return f'<rect class="bar{owner}" x="{column[0]}" y="{y}" width="{max(1.0, column[1] * share):.1f}" height="15" rx="2"/>'


def short(value: float) -> str:
    """Return two digits of a number, or all before its point."""
    return f"{value:.0f}" if value >= 10 or not value else f"{value:.1f}" if value >= 1 else f"{value:.2f}"
