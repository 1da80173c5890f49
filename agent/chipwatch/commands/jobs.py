"""`agent jobs`: which job holds which accelerator, and what it did with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from rich.cells import cell_len

from chipwatch.redaction import one_line
from chipwatch.report import amounts

STATES: Final = ("busy", "stalled", "held", "throttled", "lost")
REST: Final = ("unknown", "unseen")
"""States that have a column only if a job has them."""
RIGHT: Final = frozenset(
    {"GPUS", "SINCE", *(state.upper() for state in (*STATES, *REST)), "MEMORY MAX", "ENERGY", "COST"}
)
LONGEST: Final = 40
"""Characters of a job's name that are shown."""


def as_text(answer: Mapping[str, Any]) -> str:
    """Return the answer as a table, with a row for the devices that no job holds, and what could not be known."""
    rows = [_row(job, answer) for job in sorted(answer["jobs"], key=lambda job: job["since"])]
    free = [device for device in answer["devices"] if not device["jobs"]]
    if free:
        rows.append({"JOB": "-", "USER": "-", "GPUS": _number(free), "NOW": _now(free, answer["at"])})
    if not rows:
        rows = [{"NOW": "no accelerator is known"}]
    titles = [title for title in _titles() if any(row.get(title) for row in rows)]
    for title, empty in {"COST": "-", **dict.fromkeys(state.upper() for state in REST), "USER": "-"}.items():
        if title in titles and all(row.get(title) in (None, "", empty, "0 %") for row in rows):
            titles.remove(title)
    lines = [*_aligned([dict(zip(titles, titles, strict=True)), *rows], titles)]
    lines += [f"{what} unknown: {one_line(str(why))}" for what, why in answer["missing"].items()]
    return "\n".join(lines)


def _titles() -> list[str]:
    states = [state.upper() for state in (*STATES, *REST)]
    return ["JOB", "USER", "GPUS", "SINCE", *states, "MEMORY MAX", "ENERGY", "COST", "NOW"]


def _row(job: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, str]:
    key = {name: job[name] for name in ("kind", "namespace", "job")}  # two jobs may have one name
    mine = [device for device in answer["devices"] if key in device["holders"]]
    total = sum(job["seconds"].values())
    shares = {state: 100 * job["seconds"][state] / total if total else 0.0 for state in (*STATES, *REST)}
    return {
        "JOB": one_line(job["job"], LONGEST),
        "USER": one_line(job["user"], LONGEST) or "-",
        "GPUS": _number(mine),
        "SINCE": amounts.clock(max(0.0, answer["at"] - job["since"])),
        **{state.upper(): f"{share:.0f} %" for state, share in shares.items()},
        "MEMORY MAX": amounts.binary(job["memory_max"]) if job["memory_max"] else "-",
        "ENERGY": amounts.energy(job["energy"]) if job["energy"] else "-",
        "COST": "-" if job["cost"] is None else f"${job['cost']:,.2f}",
        "NOW": _now(mine, answer["at"]),
    }


def _number(devices: Iterable[Mapping[str, Any]]) -> str:
    return f"{sum(device['slices'] for device in devices):.2f}".rstrip("0").rstrip(".")


def _now(devices: Sequence[Mapping[str, Any]], at: float) -> str:
    """Return what devices do now: `0-3 busy; 4,5 held: no kernel since 10:28`."""
    groups: dict[str, list[str]] = {}
    for device in devices:
        groups.setdefault(_state(device, at), []).append(device["device"])
    return "; ".join(f"{_ranges(numbers)} {state}" for state, numbers in groups.items())


def _state(device: Mapping[str, Any], at: float) -> str:
    state, since = device["state"], device["seconds_since_kernel"]
    if state == "held":
        moment = "" if since is None else time.strftime(" since %H:%M", time.localtime(at - since))
        return f"held: no kernel{moment}"
    if state == "stalled" and device["cause"] not in ("", "other"):
        return f"stalled: {device['cause']}"
    return str(state)


def _ranges(numbers: Iterable[str]) -> str:
    """Return numbers as `0-3,5`; those of parts, such as 0.1, stay as they are."""
    parts: list[list[str]] = []
    for number in numbers:
        last = parts[-1][-1] if parts else ""
        if number.isdecimal() and last.isdecimal() and int(number) == int(last) + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join("-".join((part[0], part[-1])) if len(part) > 2 else ",".join(part) for part in parts)


def _aligned(rows: Sequence[Mapping[str, str]], titles: Sequence[str]) -> Iterator[str]:
    widths = {title: max(cell_len(row.get(title) or "") for row in rows) for title in titles}
    for row in rows:
        cells = []
        for title in titles:
            cell = row.get(title) or ""
            spaces = " " * (widths[title] - cell_len(cell))
            cells.append(spaces + cell if title in RIGHT else cell + spaces)
        yield "  ".join(cells).rstrip()
