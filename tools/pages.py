"""Pages and listings that follow from the collectors: metrics, names of OpenTelemetry, names of dimensions."""

from __future__ import annotations

from pathlib import Path

from chipwatch.advisor.catalogue import catalogue, rows
from chipwatch.config.identity.names import NAMES
from chipwatch.config.naming.profiles import profile

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/metrics.md"
OTEL_NAMES = ROOT / "docs/otel-names.md"
IDENTITY = ROOT / "docs/identity.md"
NAMES_BEGIN, NAMES_END = "<!-- dimension names, by `make golden` -->\n", "<!-- end of dimension names -->\n"


def intro(name: str) -> str:
    """Return the text of a page before its tables."""
    return (ROOT / f"tools/{name}.md.txt").read_text(encoding="utf-8")


def document() -> str:
    """Return the page on the metrics, grouped by collector."""
    parts = [intro("metrics")]
    for collector, metrics in catalogue().items():
        parts.append(f"## {collector}\n")
        if not metrics:
            parts.append("The names and labels that the endpoints give, and the dimension `endpoint`.\n")
            continue
        parts.append("| name | kind | unit | level | dimensions | what it is |\n|---|---|---|---|---|---|")
        for name, kind, unit, level, dims, _, text in rows({collector: metrics}):
            parts.append(f"| `{name}` | {kind} | `{unit}` | {level} | {dims.replace(',', ', ')} | {text} |")
        parts.append("")
    return "\n".join(parts)


def otel_names() -> str:
    """Return the page on the names of OpenTelemetry."""
    declared = {metric.name: metric for metrics in catalogue().values() for metric in metrics}
    rows = []
    for ours, name in profile("otel").names.items():
        scale = f"x {name.factor:g}" if name.factor != 1 else ""
        dims = ", ".join(f"`{key}={value.replace('|', ' or ')}`" for key, value in name.dims.items())
        rows.append(f"| `{ours}` | `{name.template}` | `{name.unit or declared[ours].unit}` | {scale} | {dims} |\n")
    return intro("otel-names").format(version=profile("otel").version) + "".join(rows)


def names() -> str:
    """Return docs/identity.md with its table of the dimension names."""
    page = IDENTITY.read_text(encoding="utf-8")
    head, mark, rest = page.partition(NAMES_BEGIN)
    _, end, tail = rest.partition(NAMES_END)
    if not (mark and end):
        raise LookupError(f"{IDENTITY.name} has no longer: {NAMES_BEGIN} and {NAMES_END}")
    rows = "".join(
        f"| {name.name} | {name.text} | {', '.join(name.sources) or 'its collector'} |"
        f" {'each host its own' if name.per_host else 'point by point' if not name.sources else 'shared'}"
        f"{', new at each start' if name.passing else ''}{', may come late' if name.late else ''} |\n"
        for name in NAMES
    )
    return f"{head}{mark}| name | what it is | known by | value |\n|---|---|---|---|\n{rows}{end}{tail}"
