"""`make golden`: writes tests/golden/metrics.txt and docs/metrics.md anew from what the collectors declare."""

from __future__ import annotations

from pathlib import Path

from agent.report import catalogue, rows

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests/golden/metrics.txt"
DOCUMENT = ROOT / "docs/metrics.md"

INTRO = """# The metrics

Every metric of every collector. This page is written by `make golden`; `agent list` prints the same of what is installed.

A *gauge* is a reading now. A *counter* is cumulative and monotonic since a known moment. A value that could not be had
is not sent: absent is not zero. Units are UCUM words: `%` is 0 to 100, `By` bytes, `s` seconds, `Cel` degrees Celsius,
`1` a plain number, and words in braces say what is counted.

The level `basic` is sent unless more is asked for with `--level detailed` or `--level all`: every series costs money in
a cloud. The dimensions named here are a metric's own; those of `--common-dims` and `--dim` come on top.
"""


def golden() -> str:
    """Return name, kind, unit, level and dimensions of every metric, sorted by name."""
    table = sorted((name, kind, unit, level, dims or "-") for name, kind, unit, level, dims, _, _ in rows(catalogue()))
    return "".join(f"{' '.join(row)}\n" for row in table)  # not aligned: a new name changes one line


def document() -> str:
    """Return the page on the metrics, grouped by collector."""
    parts = [INTRO]
    for collector, metrics in catalogue().items():
        if not metrics:
            parts.append(
                f"## {collector}\n\nThe names and labels that the endpoints give, and the dimension `endpoint`.\n"
            )
            continue
        parts.append(
            f"## {collector}\n\n| name | kind | unit | level | dimensions | what it is |\n|---|---|---|---|---|---|"
        )
        for name, kind, unit, level, dims, _, text in rows({collector: metrics}):
            parts.append(f"| `{name}` | {kind} | `{unit}` | {level} | {dims.replace(',', ', ')} | {text} |")
        parts.append("")
    return "\n".join(parts)


def main() -> None:
    """Write both files."""
    for path, text in ((GOLDEN, golden()), (DOCUMENT, document())):
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
