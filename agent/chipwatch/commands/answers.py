"""`chipwatch status`, `chipwatch jobs` and `chipwatch why`: ask the running agent, print its answer."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final

from chipwatch.base.redaction import one_line
from chipwatch.base.table import TableColumn, table
from chipwatch.base.text import count, duration, is_lacking, line_width, nearest
from chipwatch.commands.health import folder_of
from chipwatch.commands.output import show, wrapped
from chipwatch.contract.errors import ConfigError
from chipwatch.jobs.accounting import STATES
from chipwatch.jobs.device_key import device_label
from chipwatch.net.status_socket import ask
from chipwatch.show.report import amounts
from chipwatch.show.report.devices import DeviceState, device_states, groups

WIDTH: Final = 110


def status(given: SimpleNamespace) -> int:
    """Print what the running agent collects and delivers."""
    return _show(given, "status", lambda answer: status_text(answer, verbose=hasattr(given, "verbose")))


def jobs(given: SimpleNamespace) -> int:
    """Print which job holds which accelerator."""
    return _show(given, "jobs", jobs_text, lambda answer: {**answer, "groups": groups(answer)})


def why(given: SimpleNamespace) -> int:
    """Print why jobs are slow."""
    return _show(given, "jobs", lambda it: why_text(it, given.name), lambda it: {"jobs": chosen(it, given.name)})


def _show(given: SimpleNamespace, word: str, text: Callable[[Any], str], data: Callable[[Any], object] = dict) -> int:
    """Ask the agent, and print its answer as `text` or, with --json, as `data`."""
    answer = ask(folder_of(given), word)
    return show(json.dumps(data(answer), indent=1) if hasattr(given, "json") else text(answer))


def chosen(answer: Mapping[str, Any], name: str | None) -> list[Mapping[str, Any]]:
    """Return the jobs with this name, all if it is None; raise ConfigError if no job has it."""
    jobs: list[Mapping[str, Any]] = [job for job in answer["jobs"] if name in (None, job["job"])]
    if name is not None and not jobs:
        names = [job["job"] for job in answer["jobs"]]
        hint = nearest(name, names, f"; those that do: {', '.join(names) or 'none'}")
        raise ConfigError(f"no job {name} holds an accelerator here{hint}")
    return jobs


def why_text(answer: Mapping[str, Any], name: str | None) -> str:
    """Return a block of lines for each job: the causes that slow it, or why none is named."""
    lines = [line for job in chosen(answer, name) for line in _lines(job, answer["dollars_per_hour"])]
    lines = lines or ["no job holds an accelerator"]
    return "\n".join([*lines, *(f"{what} unknown: {one_line(str(why))}" for what, why in answer["missing"].items())])


def _lines(job: Mapping[str, Any], price: float | None) -> Iterator[str]:
    why, user = job["why"], one_line(job["user"])
    lost = f" loses {100 * why['lost']:.0f} % of its GPU time here" if why["causes"] and why["lost"] else ""
    yield f"job {one_line(job['job'])}{f' ({user})' if user else ''}{lost}:"
    parts = [] if why["causes"] else [("  ", why["sentence"])]
    for number, cause in enumerate(why["causes"], 1):
        parts.append((f"  {number}  ", f"{cause['says']}.{_cost(cause, price)}"))
        parts += [("     ", f"by: {'; '.join(cause['evidence'])}"), ("     ", cause["do"])]
    for head, text in parts:
        yield from wrapped(head, one_line(text), line_width(WIDTH))


def _cost(cause: Mapping[str, Any], price: float | None) -> str:
    if not (hours := 24 * cause["lost"]):
        return ""
    dollars = "" if price is None else f" (${hours * price:,.2f})"
    return f" {'At most' if cause['is_most'] else 'About'} {hours:.3g} GPU-hours{dollars} a day."


SPARE: Final = (
    "EFF", "CPU", "MEMORY", "UNSEEN", "THROTTLED", "ENERGY", "GPU MEMORY", "MEMORY MAX", "STARTED", "STALLED",
    "UNKNOWN", "ELAPSED", "SINCE", "COST", "GPU TIME", "LOST", "HELD", "BUSY", "NODES", "USER", "WORST", "IDLE BY",
)  # fmt: skip
"""Columns that a narrow terminal does without, in the order in which they go."""
LEFT: Final = ("JOB", "USER", "STARTED", "IDLE BY", "NOW")
"""Columns of tables of jobs whose cells are aligned left."""
EMPTY: Final = dict.fromkeys(("USER", "EFF", "COST"), ("", "-")) | {"UNKNOWN": ("", "0 %"), "UNSEEN": ("", "0 %")}
"""Column -> cells that count as empty, "" for other columns. A column with only empty cells is left out."""
LONGEST: Final = 40
"""Most characters of a job's name."""


def status_text(answer: Mapping[str, Any], *, verbose: bool = False) -> str:
    """Return the agent's state as text; with `verbose` also why collectors are absent."""
    share = answer["cpu_percent"]
    usage = f"{answer['cpu_seconds']:.1f} s of CPU to start" if share is None else f"{share:.1f} % of a core"
    up = duration(answer["uptime_seconds"], 2)
    head = f"chipwatch {answer['version']}, process {answer['pid']}, running for {up}, {usage}"
    rows = [row for name, sink in answer["sinks"].items() for row in _sink(name, sink)]
    missing = []
    for name, source in (*answer["collectors"].items(), *answer["processors"].items()):
        if source["state"] == "absent" and is_lacking(source["error"]) and not verbose:
            missing.append(name if source is answer["collectors"].get(name) else f"{name} (processor)")
            continue
        took = f", {1000 * source['seconds']:.1f} ms" if source["state"] == "ok" else ""
        error = f": {source['error']}" if source["error"] else ""
        rows.append((name, f"{source['state']}, {count(source['points'])}{took}{error}"))
    lines = table([TableColumn([*map(one_line, cells)]) for cells in zip(*rows, strict=True)], gap="   ")
    rest = [f"absent here: {', '.join(missing)} (-v says why)"] if missing else []
    return "\n".join((head, *lines, *rest, one_line(_judged(answer))))


def _judged(answer: Mapping[str, Any]) -> str:
    """Return the last line: fine, or the faults."""
    sources, sinks = [*answer["collectors"].items(), *answer["processors"].items()], answer["sinks"]
    faults = [f"{name} fails" for name, source in sources if source["state"] == "failing"]
    faults += [f"{name} cannot send" for name, sink in sinks.items() if sink["last_error"] and sink["kept"]]
    if answer["not_ready"] or faults:
        return f"not fine: {'; '.join(filter(None, (answer['not_ready'], *faults)))}"
    read = sum(source["state"] == "ok" for name, source in answer["collectors"].items() if name != "agent")
    waiting = sum(sink["seconds_since_delivery"] is None for sink in sinks.values())
    rest = f"{len(sinks) - waiting} sink{'s' * (len(sinks) - waiting != 1)} delivered"
    return f"fine: {read} collector{'s' * (read != 1)} read, {rest}{f', {waiting} not yet' if waiting else ''}"


def _sink(name: str, sink: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the rows of a sink: its counts, the reasons for lost points, and its last error."""
    counts = {"sent": sink["sent"], "rejected": sum(sink["rejected"].values())}
    counts |= {"dropped": sum(sink["dropped"].values()), "kept": sink["kept"]}
    last = sink["seconds_since_delivery"]
    delivery = "nothing delivered yet" if last is None else f"last delivery {duration(last, 2)} ago"
    words = sink.get("status") or "   ".join((*(f"{word} {n:,}" for word, n in counts.items()), delivery))
    yield name, words
    for reason, n in {**sink["rejected"], **sink["dropped"]}.items():
        yield "", f"{n:,}: {reason}"
    if sink["series_left_out"]:
        yield "", f"{sink['series_left_out']:,} series are left out: exclude metrics, or raise max_series"
    if sink["last_error"] and sink["kept"]:
        yield "", f"last error: {sink['last_error']}"


def jobs_text(answer: Mapping[str, Any]) -> str:
    """Return a table of jobs with a row for free devices, then why jobs are slow, then unknown things."""
    devices, at = device_states(answer), answer["at"]
    rows = [_row(job, devices, at) for job in sorted(answer["jobs"], key=lambda job: job["since"])]
    if free := [device for device in devices if not device.jobs]:
        rows.append({"JOB": "-", "USER": "-", "GPUS": _number(free), "NOW": _now(free, at)})
    doubts: dict[str, list[str]] = {}
    for device in free:
        if device.reason:
            doubts.setdefault(device.reason, []).append(device_label(device.key))
    slow = (job for job in answer["jobs"] if job["why"]["causes"])
    lines = [
        *(aligned(rows) if rows else ["no accelerator is known"]),
        *(one_line(f"{one_line(job['job'], LONGEST)}: {job['why']['sentence']}") for job in slow),
        *(f"holder of {_ranges(numbers)} not known: {one_line(why)}" for why, numbers in doubts.items()),
        *(f"{what} unknown: {one_line(str(why))}" for what, why in answer["missing"].items()),
    ]
    return "\n".join(lines)


def aligned(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """
    Return the lines of a table of jobs without its empty columns; on a narrow terminal also without some of SPARE.

    The first row has all titles in their order.
    """
    cells = {title: [title, *(row.get(title, "") for row in rows)] for title in rows[0]}
    columns = [TableColumn(cells[title], title not in LEFT, EMPTY.get(title, ("",))) for title in cells]
    lines = [*table(columns, width=line_width(sys.maxsize), spare=SPARE)]
    return lines if lines == [*table(columns)] else [*lines, "some columns have no room here; --json has all"]


def _row(job: Mapping[str, Any], devices: Iterable[DeviceState], at: float) -> dict[str, str]:
    key = {name: job[name] for name in ("kind", "namespace", "job")}  # the name alone may not be unique
    mine = [device for device in devices if key in device.holders]
    total = sum(job["seconds"].values())
    shares = {state: 100 * job["seconds"][state] / total if total else 0.0 for state in STATES}
    return {
        "JOB": one_line(job["job"], LONGEST),
        "USER": one_line(job["user"], LONGEST) or "-",
        "GPUS": _number(mine),
        "SINCE": amounts.clock(max(0.0, at - job["since"])),
        **{state.upper(): f"{share:.0f} %" for state, share in shares.items()},
        "MEMORY MAX": amounts.binary(job["memory_max"]) if job["memory_max"] else "-",
        "EFF": "-" if job["efficiency"] is None else f"{job['efficiency']:.0f} %",
        "ENERGY": amounts.energy(job["energy"]) if job["energy"] else "-",
        "COST": "-" if job["cost"] is None else f"${job['cost']:,.2f}",
        "NOW": _now(mine, at),
    }


def _number(devices: Iterable[DeviceState]) -> str:
    return f"{sum(device.slices for device in devices):.2f}".rstrip("0").rstrip(".")


def _now(devices: Sequence[DeviceState], at: float) -> str:
    """Say what devices do now: `0-3 busy; 4,5 held: no kernel since 10:28`."""
    numbers_by_doing: dict[str, list[str]] = {}
    for device in devices:
        since = device.seconds_since_kernel
        moment = "" if since is None else time.strftime(" since %H:%M", time.localtime(at - since))
        numbers_by_doing.setdefault(device.doing(f"held: no kernel{moment}"), []).append(device_label(device.key))
    return one_line("; ".join(f"{_ranges(numbers)} {doing}" for doing, numbers in numbers_by_doing.items()))


def _ranges(numbers: Iterable[str]) -> str:
    """Join numbers of devices: `0-3,5`; numbers of partitions, such as 0.1, form no ranges."""
    parts: list[list[str]] = []
    for number in numbers:
        last = parts[-1][-1] if parts else ""
        if number.isdecimal() and last.isdecimal() and int(number) == int(last) + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join("-".join((part[0], part[-1])) if len(part) > 2 else ",".join(part) for part in parts)
