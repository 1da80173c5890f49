"""`chipwatch record --seal`, `record list`, `record export` and `report`: recordings and incidents."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec

from chipwatch.base.redaction import one_line, printable
from chipwatch.base.table import csv_line
from chipwatch.base.text import duration
from chipwatch.commands.health import folder_of
from chipwatch.commands.output import OK, show
from chipwatch.contract.datapoint import Kind
from chipwatch.contract.errors import CommandError, ConfigError
from chipwatch.history.columns import Line, Recorded, load_run, tail_of
from chipwatch.history.event import WHY
from chipwatch.history.ring import ENDING, INCIDENTS, lines_of, recordings_in
from chipwatch.net.status_socket import ask
from chipwatch.show.report.amounts import utc

JOB: Final = re.compile(r"[!-~]{1,40}")
CODE: Final = re.compile(r"\d{1,5}(:\d{1,3})?")


def seal(given: SimpleNamespace) -> int:
    """Ask the running agent to keep its last minutes as an incident. Raise NoAgent, ConfigError or CommandError."""
    job, code = getattr(given, "job", ""), getattr(given, "code", "")
    if (job or code) and not (hasattr(given, "seal") and JOB.fullmatch(job) and CODE.fullmatch(code)):
        raise ConfigError(
            f"--job {job!r} --code {code!r}: expected --seal --job NAME --code CODE, such as 41337 and 0:9"
        )
    if given.words:
        raise ConfigError(f"record --seal: {given.words[0]}: it takes no FILE; the running agent names the incident")
    answer = ask(folder_of(given), f"seal {job} {code}".strip())
    if not answer.get("sealed"):
        raise CommandError("record: the running agent keeps no recorder; see its log")
    after = duration(answer["seconds"])
    return show(f"the incident will be in {answer['folder']} in {after}: chipwatch record list")


def listing(given: SimpleNamespace) -> int:
    """Print a line for each recording in this folder, and each incident: time, cause, job, event, file."""
    if given.words[1:]:
        raise ConfigError(f"record list: {given.words[1]}: it takes no word; it lists the recordings in this folder")
    folder = folder_of(given) / INCIDENTS
    rows = [one_line(_row(path)) for path in (*sorted(Path().glob(f"*{ENDING}")), *recordings_in(folder))]
    why = "" if folder.parent.is_dir() else ": that folder is not there, so set --spool as the agent has it"
    return show("\n".join(rows) or f"no incident is recorded in {folder}{why}")


def _row(path: Path) -> str:
    head = Line()
    for line in chain(lines_of(path), lines_of(tail_of(path))):
        with suppress(ValueError, RecursionError):
            before, head = head, msgspec.json.decode(line, type=Line)
            head.started = head.started or before.started
        if head.event or head.at:  # an incident, or the first row
            break
    event, at = head.event, head.event.at if head.event else head.started
    when = f"{utc(at)}Z" if at else path.stem
    if event is None:
        state = "          it holds no reading yet" if at else "          it cannot be read"
        return f"{when}  {'recording' if head.at else state}  {path}"
    job, why = event.dims.get("job", ""), event.dims.get(WHY, "")
    what = f"{event.cause:<8}  {f'job {job}  ' if job else ''}{event.text}{f'; {why}' if why else ''}"
    return f"{when}  {what}  {path}"


def export(given: SimpleNamespace) -> int:
    """Print the samples of a recording. Raise NotARecording or CommandError."""
    if not given.words[1:]:
        raise ConfigError("record export: FILE is missing: chipwatch record export run.chipwatch --to csv")
    form, recorded = getattr(given, "to", "jsonl"), load_run(*map(Path, given.words[1:]))
    if form == "parquet":
        return _write_parquet(recorded)
    texts = {"jsonl": _json_lines, "csv": _csv, "openmetrics": _openmetrics}[form](recorded)
    while chunk := [*islice(texts, 10_000)]:  # more at once would take memory
        show("\n".join(chunk))
    return OK


def report(given: SimpleNamespace) -> int:
    """Write an HTML page about recordings, or serve it with `live`; raise CommandError."""
    from chipwatch.show.report.page.build import write
    from chipwatch.show.report.page.live import serve

    if hasattr(given, "live"):
        serve(given.files, given.price, given.grid, show)
    return show(write(given.files, given.output, given.price, given.grid))


def _utc(at: int) -> str:
    return utc(at, f"%Y-%m-%dT%H:%M:%S.{at % 10**9:09}Z")


def _json_lines(recorded: Recorded) -> Iterator[str]:
    for metric, value, dims, at, start, *_ in chain.from_iterable(points for _, points in recorded.ticks()):
        about = {"name": metric.name, "kind": metric.kind, "unit": metric.unit, "value": value}
        more = {} if start is None else {"start_time": _utc(start)}
        yield json.dumps({"time": _utc(at), **about, "dims": dict(dims), **more})


def _csv(recorded: Recorded) -> Iterator[str]:
    keys = sorted({key for column in recorded.columns for key in column.dims})
    names = ["time", "name", "kind", "unit", "value"]
    yield csv_line([*names, *(f"dims.{key}" if key in names else key for key in keys)])
    for metric, value, dims, at, *_ in chain.from_iterable(points for _, points in recorded.ticks()):
        yield csv_line([_utc(at), metric.name, metric.kind, metric.unit, value, *(dims.get(key, "") for key in keys)])


def _openmetrics(recorded: Recorded) -> Iterator[str]:
    last = ""
    for column in recorded.columns:
        name = _word(column.metric.name)
        if name != last:
            yield f"# TYPE {name} {column.metric.kind}"
        last = name
        pairs = ",".join(f"{_word(k)}={json.dumps(printable(v), ensure_ascii=False)}" for k, v in column.dims.items())
        series = f"{name}{'_total' * (column.metric.kind is Kind.COUNTER)}{{{pairs}}}"
        for at, value in zip(column.times, column.values, strict=True):
            yield f"{series} {value!r} {at // 10**9}.{at % 10**9:09}"
    yield "# EOF"


def _word(name: str) -> str:
    return re.sub("[^a-zA-Z0-9_]", "_", name)


def _write_parquet(recorded: Recorded) -> int:
    """Write a row for each sample to standard output, its time in ns since the epoch; raise CommandError."""
    if sys.stdout.isatty():
        raise ConfigError("record export: --to parquet prints no text: add > run.parquet")
    try:
        import pyarrow as pa  # type: ignore[import-not-found]
        from pyarrow import parquet
    except ImportError:
        raise CommandError("record export: --to parquet needs pyarrow: pip install pyarrow") from None
    table: dict[str, list[Any]] = {key: [] for key in ("time", "value", "name", "kind", "unit", "dims")}
    for column in recorded.columns:
        metric = column.metric
        texts = (metric.name, str(metric.kind), metric.unit, json.dumps(dict(column.dims)))
        every: list[Iterable[Any]] = [column.times, column.values, *([text] * len(column.times) for text in texts)]
        for key, values in zip(table, every, strict=True):
            table[key] += values
    parquet.write_table(pa.table(table), sys.stdout.buffer)
    return OK
