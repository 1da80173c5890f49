"""`chipwatch jobs --since` and `jobs HOST`: lists ended and running jobs, and how well they used accelerators."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.base.table import csv_line
from chipwatch.commands import answers, health
from chipwatch.commands.output import OK, say_if_slow, show
from chipwatch.contract.errors import CommandError, ConfigError
from chipwatch.history.job_records import JobRecord, read, records_of
from chipwatch.jobs.accounting import STATES
from chipwatch.net.status_socket import NoAgent, ask
from chipwatch.show.fleet.hosts import addresses
from chipwatch.show.fleet.jobs import FleetJob, cells_of, joined, notes_on, of_nodes, of_store
from chipwatch.show.fleet.poll import Access
from chipwatch.show.fleet.store import PromClient

CAUSES: Final = ("lost", "unknown", "no_process", "startup", "held", "data", "network", "host", "other")
WINDOW: Final = 3600.0
"""Seconds of the past for which nodes and stores are asked without --since."""


def main(given: SimpleNamespace) -> int:
    """Print the jobs of this machine that held an accelerator within a time; raise ConfigError."""
    return _print(given, _here(given, time.time_ns() / 1e9 - given.since if hasattr(given, "since") else 0.0))


def over_nodes(given: SimpleNamespace) -> int:
    """Print the jobs of many nodes, each once; raise ConfigError, or CommandError if a node is silent."""
    access = Access(**{key: getattr(given, key) for key in Access._fields if hasattr(given, key)})
    since, silent = getattr(given, "since", WINDOW), dict[str, str]()
    if hasattr(given, "prometheus"):
        with closing(PromClient(given.prometheus, access)) as client, say_if_slow("waiting for the store"):
            parts = of_store(client, since)
    else:
        nodes = addresses(given.hosts, by_ssh=hasattr(given, "ssh"))
        if hasattr(given, "since") and any(node.scheme != "ssh" for node in nodes):
            raise ConfigError("--since: a page has only jobs that hold accelerators now; give --ssh or --prometheus")
        with say_if_slow("waiting for the nodes"):
            parts = of_nodes(nodes, access, since, silent)
    _print(given, joined(parts, silent), " on the nodes that answered" if silent else "")
    if silent:
        first, why = next(iter(silent.items()))
        raise CommandError(f"the parts of {len(silent)} node{'s' * (len(silent) > 1)} are unknown: {first} ({why}) ...")
    return OK


def _print(given: SimpleNamespace, records: Sequence[JobRecord], where: str = "") -> int:
    """Print the chosen records in the chosen form; raise ConfigError."""
    name, user = getattr(given, "job", None), getattr(given, "user", None)
    chosen = [record for record in records if name in (None, record.job) and user in (None, record.user)]
    chosen.sort(key=lambda record: (record.since, record.job))
    form = getattr(given, "format", "json" if hasattr(given, "json") else "text")
    if hasattr(given, "json") and form != "json":
        raise ConfigError(f"--json and --format {form} are two forms: give one of them")
    if form == "json":
        return show(json.dumps({"jobs": msgspec.to_builtins(chosen)}, indent=1))
    if form == "csv":
        return show("\n".join(_csv(chosen, FleetJob if given.command == "jobs HOST" else JobRecord)))
    if not chosen:
        asked = "job" if name is None else f"job {one_line(name)}"
        return show(f"no {asked} held an accelerator{where}{' in this time' if hasattr(given, 'since') else ''}")
    notes = (f"job {one_line(item.job, answers.LONGEST)}: {note}" for item in chosen for note in notes_on(item))
    return show("\n".join((*answers.aligned([cells_of(record) for record in chosen]), *notes)))


def _here(given: SimpleNamespace, since: float) -> list[JobRecord]:
    """Return the jobs of this machine that held an accelerator after `since` (s since the epoch)."""
    records = read(records_of(health.folder_of(given)), since)
    try:
        answer: Mapping[str, Any] = ask(health.folder_of(given), "jobs")
    except NoAgent:  # ended jobs have records on disk
        answer = {}
    running = msgspec.convert([*answer.get("ended", ()), *answer.get("jobs", ())], list[JobRecord])
    by_job = {(record.kind, record.namespace, record.job, record.since): record for record in [*records, *running]}
    return [item for item in by_job.values() if item.until >= since]


def _csv(records: Iterable[JobRecord], kind: type[JobRecord]) -> Iterator[str]:
    """Yield a header, then a line for each job, in seconds, bytes, joules and dollars."""
    plain = [name for name in kind.__struct_fields__ if name not in ("seconds", "idle", "joules")]
    yield csv_line([*plain, *STATES, *(f"idle_{cause}" for cause in CAUSES), *(f"joules_{state}" for state in STATES)])
    for record in records:
        values = (json.dumps(it) if isinstance(it := getattr(record, name), list | dict) else it for name in plain)
        spent = [record.seconds.get(state, 0) for state in STATES], [record.idle.get(cause, 0) for cause in CAUSES]
        joules = [record.joules.get(state, 0) for state in STATES]
        yield csv_line([*values, *spent[0], *spent[1], *joules])
