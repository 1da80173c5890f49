"""`agent jobs`: which job holds which accelerator, and what it did with it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from chipwatch.redaction import one_line
from chipwatch.report import amounts
from chipwatch.report.devices import DeviceState, device_states, label
from chipwatch.report.table import TableColumn, table

STATES: Final = ("busy", "stalled", "held", "throttled", "lost")
REST: Final = ("unknown", "unseen")
"""States that have a column only if a job has them."""
RIGHT: Final = ("GPUS", "SINCE", *(state.upper() for state in (*STATES, *REST)), "MEMORY MAX", "ENERGY", "COST")
TITLES: Final = ("JOB", "USER", *RIGHT, "NOW")
EMPTY: Final = {"USER": ("", "-"), "COST": ("", "-"), **{state.upper(): ("", "0 %") for state in REST}}
"""Column -> cells of which no column consists; of others the empty cell."""
LONGEST: Final = 40
"""Characters of a job's name that are shown."""


def as_text(answer: Mapping[str, Any]) -> str:
    """Return the answer as a table, with a row for the devices that no job holds, and what could not be known."""
    devices, at = device_states(answer), answer["at"]
    rows = [_row(job, devices, at) for job in sorted(answer["jobs"], key=lambda job: job["since"])]
    free = [device for device in devices if not device.jobs]
    if free:
        rows.append({"JOB": "-", "USER": "-", "GPUS": _number(free), "NOW": _now(free, at)})
    rows = rows or [{"NOW": "no accelerator is known"}]
    columns = (
        TableColumn([title, *(row.get(title, "") for row in rows)], title in RIGHT, EMPTY.get(title, ("",)))
        for title in TITLES
    )
    lines = [*table(columns), *(f"{what} unknown: {one_line(str(why))}" for what, why in answer["missing"].items())]
    return "\n".join(lines)


def _row(job: Mapping[str, Any], devices: Iterable[DeviceState], at: float) -> dict[str, str]:
    key = {name: job[name] for name in ("kind", "namespace", "job")}  # two jobs may have one name
    mine = [device for device in devices if key in device.holders]
    total = sum(job["seconds"].values())
    shares = {state: 100 * job["seconds"][state] / total if total else 0.0 for state in (*STATES, *REST)}
    return {
        "JOB": one_line(job["job"], LONGEST),
        "USER": one_line(job["user"], LONGEST) or "-",
        "GPUS": _number(mine),
        "SINCE": amounts.clock(max(0.0, at - job["since"])),
        **{state.upper(): f"{share:.0f} %" for state, share in shares.items()},
        "MEMORY MAX": amounts.binary(job["memory_max"]) if job["memory_max"] else "-",
        "ENERGY": amounts.energy(job["energy"]) if job["energy"] else "-",
        "COST": "-" if job["cost"] is None else f"${job['cost']:,.2f}",
        "NOW": _now(mine, at),
    }


def _number(devices: Iterable[DeviceState]) -> str:
    return f"{sum(device.slices for device in devices):.2f}".rstrip("0").rstrip(".")


def _now(devices: Sequence[DeviceState], at: float) -> str:
    """Return what devices do now: `0-3 busy; 4,5 held: no kernel since 10:28`."""
    groups: dict[str, list[str]] = {}
    for device in devices:
        since = device.seconds_since_kernel
        moment = "" if since is None else time.strftime(" since %H:%M", time.localtime(at - since))
        groups.setdefault(device.doing(f"held: no kernel{moment}"), []).append(label(device.key))
    return "; ".join(f"{_ranges(numbers)} {doing}" for doing, numbers in groups.items())


def _ranges(numbers: Iterable[str]) -> str:
    """Return numbers as `0-3,5`; numbers of parts, such as 0.1, stay as they are."""
    parts: list[list[str]] = []
    for number in numbers:
        last = parts[-1][-1] if parts else ""
        if number.isdecimal() and last.isdecimal() and int(number) == int(last) + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    return ",".join("-".join((part[0], part[-1])) if len(part) > 2 else ",".join(part) for part in parts)
