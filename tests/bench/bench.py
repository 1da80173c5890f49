"""Measures what the project promises to cost, and prints it beside what was asked: as JSON, then as a table."""

import argparse
import dataclasses
import json
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

from tests.bench import kept
from tests.bench.amd import eight_cards
from tests.bench.beside import beside
from tests.bench.cloudwatch import cloudwatch
from tests.bench.command import last_window, make_run, start_and_stop, steady
from tests.bench.figure import FULL, QUICK, CannotMeasure, Effort, Figure, Skipped
from tests.bench.google import google
from tests.bench.jobs import eight_gpus_with_jobs
from tests.bench.kernel import kernel_log
from tests.bench.mlflow import mlflow
from tests.bench.neuron import neuron_records
from tests.bench.nvidia import eight_gpus, gpu_memory
from tests.bench.openmetrics import large_page
from tests.bench.otlp import otlp
from tests.bench.prometheus import prometheus
from tests.bench.rdma import eight_ports
from tests.bench.reading import host_set, many_cores, process_tree
from tests.bench.scale import scale
from tests.bench.series import many_series
from tests.bench.ticking import growth, whole_tick

Measured = Sequence[Figure | Skipped]
MEASUREMENTS: dict[str, Callable[[Effort], list[Figure]]] = {
    "beside": beside,
    "host": host_set,
    "cores": many_cores,
    "tick": whole_tick,
    "processes": process_tree,
    "steady": steady,
    "growth": growth,
    "start": start_and_stop,
    "last": last_window,
    "series": many_series,
    "make": make_run,
    "cloudwatch": cloudwatch,
    "google": google,
    "kernel": kernel_log,
    "mlflow": mlflow,
    "neuron": neuron_records,
    "gpus": eight_gpus,
    "gpu-memory": gpu_memory,
    "jobs": eight_gpus_with_jobs,
    "amd": eight_cards,
    "rdma": eight_ports,
    "openmetrics": large_page,
    "otlp": otlp,
    "prometheus": prometheus,
    "scale": scale,
}


class OutOfTime(Exception):
    """All of it took too long."""


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Measure, print, end: with 0, unless a measurement failed or a figure is worse than in the last release."""
    options = parser().parse_args(argv)
    effort = QUICK if options.quick else FULL
    about, measured = machine(), measure(options.only or [*MEASUREMENTS], effort)
    found = kept.compare(measured, kept.load())
    if options.keep:
        kept.keep(measured)
    text = json.dumps(report(about, found, quick=options.quick), indent=1)
    if options.json:
        options.json.write_text(text + "\n")
    out = {"both": f"{text}\n\n{table(about, found)}", "json": text, "table": table(about, found)}[options.format]
    sys.stdout.write(out + "\n")
    sys.exit(any(one.verdict in ("FAIL", "WORSE") for one in found))


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    made.add_argument("--keep", action="store_true", help="keep the figures for the comparison, as a release does")
    made.add_argument("--quick", action="store_true", help="fewer and shorter measurements")
    made.add_argument("--only", action="append", choices=MEASUREMENTS, metavar="NAME",
                      help=f"one of {', '.join(MEASUREMENTS)}; may be repeated")  # fmt: skip
    made.add_argument("--json", type=Path, metavar="FILE", help="write the JSON to FILE, too")
    made.add_argument("--format", choices=("both", "json", "table"), default="both")
    return made


def measure(names: Sequence[str], effort: Effort) -> list[Figure | Skipped]:
    """Take the measurements one after the other; one that fails leaves the others."""
    found: list[Figure | Skipped] = []

    def out_of_time(number: int, frame: object) -> NoReturn:
        raise OutOfTime

    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(effort.limit)
    left = list(names)
    try:
        while left:
            sys.stderr.write(f"{left[0]} … ")
            sys.stderr.flush()
            found += one(left[0], effort)
            left.pop(0)
    except OutOfTime:
        found += [Skipped(name, f"not done within {effort.limit} s") for name in left]
    signal.alarm(0)
    sys.stderr.write("\n")
    return found


def one(name: str, effort: Effort) -> Measured:
    """Take one measurement."""
    try:
        before = kept.reference()
        figures = MEASUREMENTS[name](effort)
        return kept.with_reference(figures, (before + kept.reference()) / 2)
    except OutOfTime:
        raise
    except CannotMeasure as reason:
        return [Skipped(name, str(reason))]
    except Exception as problem:  # noqa: BLE001  said in its place
        traceback.print_exc()
        return [Skipped(name, f"{type(problem).__name__}: {problem}", "FAIL")]


def machine() -> dict[str, Any]:
    """Say where and when this was measured."""
    model = platform.processor()
    if (cpuinfo := Path("/proc/cpuinfo")).exists():
        named = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = named[0] if named else model
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "hostname": platform.node(),
        "cpu": model or platform.machine(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
    }


def report(about: dict[str, Any], found: Measured, *, quick: bool) -> dict[str, Any]:
    """Return everything for machines."""
    rows = [
        {**dataclasses.asdict(one), "median": one.median, "min": min(one.values), "max": max(one.values),
         "verdict": one.verdict} if isinstance(one, Figure) else dataclasses.asdict(one)
        for one in found
    ]  # fmt: skip
    return {"machine": about, "quick": quick, "compared": "median", "figures": rows}


def table(about: dict[str, Any], found: Measured) -> str:
    """Return everything for people."""
    rows = [("figure", "asked", "measured", "kept", "min .. max", "", "how measured")]
    for one in found:
        if isinstance(one, Skipped):
            rows.append((one.name, "", "", "", "", one.verdict, one.reason))
            continue
        asked = "" if one.asked is None else f"<= {number(one.asked)} {one.unit}".strip()
        spread = f"{number(min(one.values))} .. {number(max(one.values))} (n={len(one.values)})"
        before = number(one.kept) if isinstance(one, kept.Compared) and one.kept is not None else ""
        rows.append((one.name, asked, f"{number(one.median)} {one.unit}".strip(), before, spread, one.verdict, one.how))
    widths = [max(len(row[n]) for row in rows) for n in range(6)] + [0]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines.insert(1, "-" * (sum(widths) + 10))
    head = ", ".join(f"{key} {value}" for key, value in about.items())
    return "\n".join(
        [
            head,
            "Compared are medians: with what is asked, and with what the last release had, times the reference loop of this run.",
            "",
            *lines,
        ]
    )


def number(value: float) -> str:
    """Return three digits of a number, or all before its point."""
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
