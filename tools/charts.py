"""Draws the charts of docs/jobs.md, docs/dashboards.md and docs/prometheus.md, of the points of the node in README's picture."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import cycle
from typing import Any, Final

from chipwatch.advisor.dashboard.make import make
from chipwatch.advisor.dashboard.options import BoardOptions
from chipwatch.config.load import load
from chipwatch.contract.datapoint import Datapoint, Kind
from chipwatch_sinks.prometheus.names import family_of

COLORS: Final = ("#0969da", "#1a7f37", "#bf8700", "#cf222e", "#8250df", "#bc4c00", "#1b7c83", "#6e7781")
STATES: Final = {"busy": COLORS[1], "stalled": COLORS[2], "held": COLORS[5], "throttled": COLORS[4], "lost": COLORS[3]}
STYLE: Final = """
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
.head { font-size: 13px; font-weight: 600 } .unit { fill: #59636e; font-size: 11px } .ground { fill: #ffffff }
.grid { stroke: #d1d9e0; stroke-width: 1 } .line { fill: none; stroke-width: 1.5 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc } .unit { fill: #9198a1 } .ground { fill: #0d1117 } .grid { stroke: #3d444d }
}"""
PANELS: Final = ("CPU utilization", "Network throughput", "GPU utilization", "GPU memory utilization", "GPU power", "GPU temperature")  # fmt: skip
WIDTH, HEIGHT, EDGE, LEFT = 800, 150, 12, 44
"""Pixels of a picture, of the height of a panel, around all, and for the numbers of an axis."""


@dataclass(frozen=True)
class Graph:
    """One panel: its title, and the points (minute, value) of each line."""

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    is_stacked: bool = False
    unit: str = ""
    """Grafana's word for the unit."""


def jobs(answer: Mapping[str, Any]) -> str:
    """Return a bar for each job: the states of its GPU time, by the answer of the processor `jobs`."""
    rows, left, right = sorted(answer["jobs"], key=lambda job: job["job"]), 150, WIDTH - 60
    parts = []
    for n, job in enumerate(rows):
        x, y, total = float(left), 48 + 34 * n, sum(job["seconds"].values())
        parts.append(
            f'<text x="{left - 10}" y="{y + 16}" text-anchor="end">{escape(job["job"])}, {escape(job["user"])}</text>'
        )
        for state, color in STATES.items():
            share = job["seconds"][state] / total
            width = share * (right - left)
            if share:
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="22" fill="{color}"/>')
            if share >= 0.05:  # else the number is wider than its part
                parts.append(
                    f'<text x="{x + width / 2:.1f}" y="{y + 15}" text-anchor="middle" style="fill:#fff">{share:.0%}</text>'
                )
            x += width
        parts.append(f'<text class="unit" x="{right + 8}" y="{y + 15}">{total / 60:.0f} min</text>')
    legend = _legend(STATES.items(), left, 28)
    return _svg("States of the GPU time of each job", 48 + 34 * len(rows) + 8, [*legend, *parts])


def dashboard(points: Iterable[Datapoint]) -> str:
    """Return panels of the generated dashboard for Grafana, with these points."""
    board = json.loads(make(load(None, {}, {}), BoardOptions(cloud="grafana", families=("host", "nvidia"))).text)
    panels = {panel["title"]: panel for panel in board["panels"] if panel.get("targets")}
    points = [*points]
    graphs = [
        Graph(title, {
            name: line for target in panels[title]["targets"]
            for name, line in _lines(points, target["expr"].removeprefix("rate(").partition("{")[0]).items()
        }, unit=panels[title]["fieldConfig"]["defaults"]["unit"])
        for title in PANELS
    ]  # fmt: skip
    return _panels("Panels of the generated dashboard", graphs)


def prometheus(points: Iterable[Datapoint]) -> str:
    """Return what a query of Prometheus finds: the GPUs without a kernel, by cause."""
    name = "gpu_idle_time_seconds_total"
    sums: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    for label, line in _lines([*points], name, by="cause").items():
        for minute, value in line:
            sums[label][minute] += value
    lines = {label: sorted(line.items()) for label, line in sums.items() if max(line.values()) > 0.05}
    return _panels(
        f"sum by (cause) (rate({name}[1m]))", [Graph(f"sum by (cause) (rate({name}[1m]))", lines, is_stacked=True)]
    )


def _lines(points: Sequence[Datapoint], name: str, by: str = "gpu") -> dict[str, list[tuple[float, float]]]:
    """Return the lines of the metric that Prometheus knows by `name`: gauges in base units, counters as rates."""
    lines: defaultdict[str, defaultdict[float, float]] = defaultdict(lambda: defaultdict(float))
    begin = min(point.at for point in points)
    for point in points:
        family = family_of(point.metric)
        value = point.value
        if family.name == name:
            if point.metric.kind is Kind.COUNTER:
                value = (point.increase or 0.0) * 1e9 / (point.at - (point.window_start or 0))
            label = point.dims.get(by, point.metric.name)
            lines[label][(point.at - begin) / 6e10] += value * family.times / family.over
    return {label: sorted(line.items()) for label, line in lines.items()}


def _panels(title: str, graphs: Sequence[Graph]) -> str:
    columns = min(2, len(graphs))
    width = (WIDTH - (columns + 1) * EDGE) // columns
    parts = []
    for n, graph in enumerate(graphs):
        parts += _panel(graph, EDGE + n % columns * (width + EDGE), EDGE + n // columns * (HEIGHT + 44), width)
    return _svg(title, EDGE + (len(graphs) + columns - 1) // columns * (HEIGHT + 44), parts)


def _panel(graph: Graph, x: int, y: int, width: int) -> list[str]:
    top, bottom, left = y + 26, y + HEIGHT, x + LEFT
    minutes = sorted({minute for line in graph.lines.values() for minute, _ in line})
    sums = [sum(dict(line).get(minute, 0.0) for line in graph.lines.values()) for minute in minutes]
    most = max(sums if graph.is_stacked else [value for line in graph.lines.values() for _, value in line])
    size = 10 ** math.floor(math.log10(most))
    highest = size * next(step for step in (1, 2, 4, 6, 8, 10) if step * size >= most)

    def place(minute: float, value: float) -> str:
        return f"{left + minute / minutes[-1] * (width - LEFT):.1f} {bottom - value / highest * (bottom - top):.1f}"

    parts = [f'<text class="head" x="{x}" y="{y + 14}">{escape(graph.title)}</text>']
    for share in (0.0, 0.5, 1.0):
        height = bottom - share * (bottom - top)
        parts.append(f'<path class="grid" d="M{left} {height:.0f}H{x + width}"/>')
        parts.append(
            f'<text class="unit" x="{left - 6}" y="{height + 4:.0f}" text-anchor="end">{_number(share * highest, graph.unit)}</text>'
        )
    below = dict.fromkeys(minutes, 0.0)
    for color, line in zip(cycle(COLORS), graph.lines.values(), strict=False):
        if graph.is_stacked:
            above = {minute: base + dict(line).get(minute, 0.0) for minute, base in below.items()}
            path = "L".join(place(*pair) for pair in [*below.items(), *reversed(above.items())])
            parts.append(f'<path fill="{color}" d="M{path}Z"/>')
            below = above
        else:
            path = "L".join(place(*pair) for pair in line)
            parts.append(f'<path class="line" stroke="{color}" d="M{path}"/>')
    return parts + (_legend(zip(graph.lines, COLORS, strict=False), x, bottom + 18) if len(graph.lines) > 1 else [])


def _legend(entries: Iterable[tuple[str, str]], x: float, y: float) -> list[str]:
    parts = []
    for label, color in entries:
        parts.append(f'<rect x="{x}" y="{y - 9}" width="9" height="9" fill="{color}"/>')
        parts.append(f'<text class="unit" x="{x + 12}" y="{y}">{escape(label)}</text>')
        x += 26 + 6.2 * len(label)
    return parts


def _number(value: float, unit: str) -> str:
    if unit == "percentunit":
        return f"{value:.0%}"
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _svg(title: str, height: int, parts: Iterable[str]) -> str:
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>{STYLE}\n</style>",
        f'<rect class="ground" width="{WIDTH}" height="{height}" rx="6"/>',
    ]
    return "\n".join([*lines, *parts, "</svg>", ""])
