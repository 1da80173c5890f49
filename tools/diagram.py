"""Draws the diagram in README: what chipwatch reads, what it does with it, and where it sends."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

COLUMNS: Final = (
    ("one machine", ("GPUs, TPUs, Trainium: 8 makers", "CPU, memory, disks, network", "jobs: Slurm, Kubernetes, ECS", "kernel log, fabric, sensors", "any Prometheus endpoint")),
    ("chipwatch", ("read every 5 s", "whose GPU, why idle", "a point a minute, true percentiles", "kept on disk until accepted", "limits on series and cost")),
    ("where you look", ("CloudWatch, Google Cloud", "Prometheus, OpenTelemetry", "MLflow and W&B runs", "JSON lines, files", "terminal: top, jobs, verdict")),
)  # fmt: skip
WIDTH, GAP, ROW, HEAD, EDGE = 270, 55, 40, 52, 20
"""Pixels of a column, between columns, of a row, of a column's title, and around all."""


def diagram() -> str:
    """Return the SVG."""
    rows = max(len(texts) for _, texts in COLUMNS)
    width, height = 2 * EDGE + len(COLUMNS) * WIDTH + (len(COLUMNS) - 1) * GAP, 2 * EDGE + HEAD + rows * ROW
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="15">',
        f'<rect width="{width}" height="{height}" rx="10" fill="#fbfbfb"/>',
    ]
    for n, (title, texts) in enumerate(COLUMNS):
        left = EDGE + n * (WIDTH + GAP)
        parts += _column(left, height, title, texts, is_ours=n == 1)
        if n:
            parts.append(_arrow(left - GAP, height // 2))
    return "\n".join([*parts, "</svg>", ""])


def _column(left: int, height: int, title: str, texts: Sequence[str], *, is_ours: bool) -> list[str]:
    color = "#1a7f37" if is_ours else "#57606a"
    middle = left + WIDTH // 2
    lines = [
        f'<rect x="{left}" y="{EDGE}" width="{WIDTH}" height="{height - 2 * EDGE}" rx="8" fill="#ffffff" stroke="{color}" stroke-width="2"/>',
        f'<text x="{middle}" y="{EDGE + 32}" text-anchor="middle" font-weight="bold" font-size="18" fill="{color}">{escape(title)}</text>',
    ]
    for n, text in enumerate(texts):
        y = EDGE + HEAD + n * ROW + 22
        lines.append(f'<text x="{middle}" y="{y}" text-anchor="middle" fill="#24292f">{escape(text)}</text>')
    return lines


def _arrow(left: int, y: int) -> str:
    end = left + GAP - 8
    return f'<path d="M{left + 8} {y}H{end}m-9 -6l9 6l-9 6" fill="none" stroke="#57606a" stroke-width="2"/>'
