"""Writes the measured parts of docs/benchmarks.md, each between two comments; all else on the page is left as it is."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tests.bench.nvidia import GPUS
from tests.bench.scale import Course
from tests.peers.chart import Bar
from tests.peers.chart import short as number
from tests.peers.measure import Usage, ratios
from tests.peers.programs import BY_NAME, PROGRAMS, Program

REFERENCE = "psutil"
GROUPS = ("this host", f"{GPUS} GPUs of a fake driver")
HEAD = "| program | CPU, ms/s (lowest to highest) | x the loop with psutil | RSS, MB | PSS, MB | threads | context switches/s | reads + writes/s | to disk, B/s | sent, B/s |"  # fmt: skip


def replaced(page: str, part: str, text: str, by: str = "make peers") -> str:
    """Return the page with `text` between the comments of a part; raise LookupError where they are missing."""
    begin, end = f"<!-- {part}, by `{by}` -->", f"<!-- end of {part} -->"
    before, found, rest = page.partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise LookupError(f"the page has no part {begin} ... {end}")
    return f"{before}{begin}\n{text.strip()}\n{end}{after}"


def table(results: Mapping[str, Sequence[Usage]], absent: Mapping[str, str]) -> str:
    """Return the table of medians, and a list of what is left out and why."""
    lines = [HEAD, "|---" * HEAD.count(" | ") + "|---|"]
    base = results.get(REFERENCE)
    lines += [row(program, results[program.name], base) for program in PROGRAMS if program.name in results]
    if absent:
        lines += ["", "Left out:", ""]
        lines += [f"- {BY_NAME[name].title}: {reason}" for name, reason in sorted(absent.items())]
    return "\n".join(lines)


def row(program: Program, runs: Sequence[Usage], base: Sequence[Usage] | None) -> str:
    """Return the line of one program."""
    cpu = [run.cpu for run in runs]
    share = "" if not base else f"{statistics.median(ratios(runs, base)):.2f}"
    rest = [median(runs, key) for key in ("rss", "pss", "threads", "switches", "calls", "written", "sent")]
    spread = f"{number(statistics.median(cpu))} ({number(min(cpu))} to {number(max(cpu))})"
    title = f"{program.title} ({GPUS} GPUs)" if program.gpus else program.title
    title = f"**{title}**" if program.ours else title
    return f"| {title} | {spread} | {share} | {' | '.join(f'{value:,.0f}' if value >= 100 else number(value) for value in rest)} |"


def median(runs: Sequence[Usage], key: str) -> float:
    """Return the median of one column."""
    return statistics.median(getattr(run, key) for run in runs)


def bars(results: Mapping[str, Sequence[Usage]]) -> list[Bar]:
    """Return what the chart shows."""
    return [
        Bar(BY_NAME[name].title, GROUPS[BY_NAME[name].gpus], BY_NAME[name].ours, median(runs, "cpu"),
            (min(run.cpu for run in runs), max(run.cpu for run in runs)), median(runs, "rss"))
        for name in BY_NAME if (runs := results.get(name))
    ]  # fmt: skip


def machine(about: Mapping[str, Any], runs: int, seconds: float, warm: float) -> str:
    """Return where and how long this was measured."""
    rows = [f"| {key} | {value} |" for key, value in about.items() if key != "hostname"]
    rows.append(f"| measured | {runs} rounds of {seconds:.0f} s, {warm:.0f} s after the start of the last program |")
    return "\n".join(["| | |", "|---|---|", *rows])


def scale(courses: Sequence[Course]) -> str:
    """Return the CPU of a tick by size, and the slopes."""
    lines = ["| of | CPU of a tick, ms, by size | slope |", "|---|---|---|"]
    for course in courses:
        points = ", ".join(f"{size:,}: {number(ms)}" for size, ms in zip(course.sizes, course.medians, strict=True))
        lines.append(f"| {course.name} | {points} | {course.slope:.2f} |")
    return "\n".join(lines)
