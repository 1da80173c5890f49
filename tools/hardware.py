"""Makes docs/hardware.md from hardware.txt (what is read of which accelerator, tried on what) and nvidia_smi.txt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/hardware.md"
DATA = ROOT / "tools/hardware.txt"
SMI = ROOT / "tools/nvidia_smi.txt"
FRAME = ROOT / "tools/hardware.md.txt"
"""The page but for its tables, which follow from DATA and SMI."""
TRIED = ("real", "capture", "mock", "library", "made")
"""Ways of trying, the best first."""


class Row(NamedTuple):
    """A signal of some models of one vendor."""

    vendor: str
    models: tuple[str, ...]
    signal: str
    metrics: tuple[str, ...]
    tried: str


class Printed(NamedTuple):
    """Values that nvidia-smi prints: a name with a metric, or names and why they have none."""

    group: str
    names: tuple[str, ...]
    values: int
    metric: str
    further: str
    """A further dimension and its value, or the reason."""


def _lines(file: Path) -> list[list[str]]:
    return [line.split("|") for line in file.read_text(encoding="utf-8").splitlines() if line[:1] not in ("", "#")]


def rows() -> list[Row]:
    """Return the lines of DATA."""
    return [
        Row(vendor, tuple(models.split(", ")), signal, tuple(metrics.split(", ")), tried)
        for vendor, models, signal, metrics, tried in _lines(DATA)
    ]


def printed() -> list[Printed]:
    """Return the lines of SMI."""
    return [
        Printed(group, tuple(names.split(", ")), int(values), metric, further)
        for group, names, values, metric, further in _lines(SMI)
    ]


def _tail() -> str:
    """Return the end of the page, with what nvidia-smi prints."""
    every = printed()
    counts = {has: sum(row.values for row in every if bool(row.metric) is has) for has in (True, False)}
    metrics = (
        f"| {row.group} | {row.names[0]} | {row.values} | `{row.metric}{f'{{{row.further}}}' * bool(row.further)}` |"
        for row in every
        if row.metric
    )
    reasons = (
        f"| {row.group} | {', '.join(row.names)} | {row.values} | {row.further} |" for row in every if not row.metric
    )
    return _frame()[1].format(
        all=sum(counts.values()), read=counts[True], rest=counts[False],
        metrics="\n".join(metrics), reasons="\n".join(reasons),
    )  # fmt: skip


def _frame() -> list[str]:
    """Return the page before and after its tables."""
    return FRAME.read_text(encoding="utf-8").split("\n[tables]\n")


def page() -> str:
    """Return the page."""
    all_rows = rows()
    vendors = dict.fromkeys(row.vendor for row in all_rows)
    return "\n".join([_frame()[0], *(part for vendor in vendors for part in _vendor(vendor, all_rows)), _tail()])


def _vendor(vendor: str, all_rows: list[Row]) -> Iterator[str]:
    """Yield the table of a vendor: a line for each model, a column for each signal; then the signals' metrics."""
    here = [row for row in all_rows if row.vendor == vendor]
    signals = dict.fromkeys(row.signal for row in here)
    yield f"## {vendor}\n"
    yield f"| model | {' | '.join(signals)} |\n|---|{'---|' * len(signals)}"
    for model in dict.fromkeys(model for row in here for model in row.models):
        tried = {row.signal: row.tried for row in here if model in row.models}
        yield f"| {model} | {' | '.join(tried.get(signal, '-') for signal in signals)} |"
    yield "\n| signal | metrics |\n|---|---|"
    for signal in signals:
        metrics = dict.fromkeys(metric for row in here if row.signal == signal for metric in row.metrics)
        yield f"| {signal} | {', '.join(f'`{metric}`' for metric in metrics)} |"
    yield ""
