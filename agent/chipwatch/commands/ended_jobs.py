"""`chipwatch jobs --since`: lists ended and running jobs, and how well they used their accelerators."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.base.table import csv_line
from chipwatch.commands import answers, health
from chipwatch.commands.output import say_if_slow, show
from chipwatch.contract.errors import ConfigError
from chipwatch.history.job_records import JobRecord, read, records_of
from chipwatch.net.status_socket import NoAgent
from chipwatch.show.fleet.poll import Access
from chipwatch.show.fleet.store import PromClient, jobs
from chipwatch.show.report import amounts

STATES: Final = (*answers.STATES, *answers.REST)
CAUSES: Final = ("lost", "unknown", "no_process", "startup", "held", "data", "network", "host", "other")
STORE_WINDOW: Final = 3600.0
"""Seconds of the past for which a store is asked without --since."""


def main(given: SimpleNamespace) -> int:
    """Print the jobs that held an accelerator within a time, as text, JSON or CSV; raise ConfigError."""
    name = getattr(given, "job", None)
    if hasattr(given, "prometheus"):
        access = Access(**{key: getattr(given, key) for key in Access._fields if hasattr(given, key)})
        with closing(PromClient(given.prometheus, access)) as client, say_if_slow("waiting for the store"):
            records = jobs(client, getattr(given, "since", STORE_WINDOW))
    else:
        records = _here(given, time.time_ns() / 1e9 - given.since if hasattr(given, "since") else 0.0)
    chosen = sorted((item for item in records if name in (None, item.job)), key=lambda item: (item.since, item.job))
    form = getattr(given, "format", "json" if hasattr(given, "json") else "text")
    if hasattr(given, "json") and form != "json":
        raise ConfigError(f"--json and --format {form} are two forms: give one of them")
    if form == "json":
        return show(json.dumps({"jobs": msgspec.to_builtins(chosen)}, indent=1))
    if form == "text" and not chosen:
        asked = "job" if name is None else f"job {one_line(name)}"
        return show(f"no {asked} held an accelerator{' in this time' if hasattr(given, 'since') else ''}")
    notes = (
        f"job {one_line(item.job, answers.LONGEST)}: the agent did not run at its end;"
        f" up to {amounts.clock(item.end_unseen)} more is unseen"
        for item in chosen
        if item.end_unseen and form == "text"
    )
    rows = _csv(chosen) if form == "csv" else answers.aligned([_row(record) for record in chosen])
    return show("\n".join((*rows, *notes)))


def _here(given: SimpleNamespace, since: float) -> list[JobRecord]:
    """Return the jobs of this machine that held an accelerator after `since` (s since the epoch)."""
    records = read(records_of(health.folder_of(given)), since)
    try:
        answer: Mapping[str, Any] = health.question(given, "jobs")
    except NoAgent:  # ended jobs have records on disk
        answer = {}
    running = msgspec.convert([*answer.get("ended", ()), *answer.get("jobs", ())], list[JobRecord])
    by_job = {(record.kind, record.namespace, record.job, record.since): record for record in [*records, *running]}
    return [item for item in by_job.values() if item.until >= since]


def _csv(records: Iterable[JobRecord]) -> Iterator[str]:
    """Yield a header, then a line for each job, in seconds, bytes, joules and dollars."""
    plain = [name for name in JobRecord.__struct_fields__ if name not in ("seconds", "idle", "joules")]
    yield csv_line([*plain, *STATES, *(f"idle_{cause}" for cause in CAUSES), *(f"joules_{state}" for state in STATES)])
    for record in records:
        values = [getattr(record, name) for name in plain]
        spent = [record.seconds.get(state, 0) for state in STATES], [record.idle.get(cause, 0) for cause in CAUSES]
        yield csv_line([*values, *spent[0], *spent[1], *(record.joules.get(state, 0) for state in STATES)])


def _row(record: JobRecord) -> dict[str, str]:
    charged, elapsed = sum(record.seconds.values()), record.until - record.since
    seen = charged - sum(record.seconds.get(state, 0) for state in answers.REST)
    worked = record.seconds.get("busy", 0) + record.seconds.get("throttled", 0)
    cause, idle = max(record.idle.items(), key=lambda item: item[1], default=("", 0.0))
    cpus = (record.cpus or 0) * elapsed
    return {
        "JOB": one_line(record.job, answers.LONGEST),
        "USER": one_line(record.user, answers.LONGEST) or "-",
        "STARTED": time.strftime("%m-%d %H:%M", time.localtime(record.since)),
        "ELAPSED": amounts.clock(max(0.0, elapsed)),
        "GPU TIME": amounts.clock(charged),
        "GPU": f"{100 * worked / seen:.0f} %" if seen > 0 else "-",
        "IDLE BY": f"{cause} {100 * idle / charged:.0f} %" if idle and charged else "-",
        "GPU MEMORY": amounts.binary(record.memory_max) if record.memory_max else "-",
        "CPU": f"{100 * (record.cpu or 0) / cpus:.0f} %" if cpus > 0 else "-",
        "MEMORY": amounts.binary(record.host_memory_max) if record.host_memory_max else "-",
        "EFFICIENCY": "-" if record.efficiency is None else f"{record.efficiency:.0f} %",
        "ENERGY": amounts.energy_of(record.energy, record.joules) if record.energy else "-",
        "COST": "-" if record.cost is None else f"${record.cost:,.2f}",
    }
