"""Judges lives from outside, by servers, files, pages, sockets and the process; docs/maintain/properties.md has the laws."""

import json
import os
import re
import sqlite3
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from datetime import datetime
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from prometheus_client.parser import text_string_to_metric_families
from tests.search import job_laws
from tests.search.machine import GPUS, Machine
from tests.search.plan import Plan
from tests.search.world import DOUBTFUL, SECRET, Servers

from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Summary
from chipwatch.engine.spool.sqlite import decode_points
from chipwatch.history.columns import NotARecording, load

LONG, SLOW = 60.0, 6.0
"""Seconds that anything may take; and by which a reading may be late on a machine that is idle but for this."""
SIZES = ("memory", "files", "threads")
MOST, GROWS = (260 << 20, 120, 24), (8 << 20, 8, 8)
"""Bytes, files and threads of an agent with all libraries loaded (110 MiB), and of what comes after its first seconds."""
MOST_LOG = 64 << 10
"""Bytes of log of one life: each cause is logged once an hour."""
FEW = 10
"""Most points that are sent beside a tick, such as the news of an incident."""
FIRST, IN_FLIGHT = 1000, 128 << 10
"""Most bytes of the first line of a recording, and of chunks that are being sent, which are not dropped meanwhile."""
MANY, LONGEST = 8, 1_500_000_000
"""Moments of a journal that has more ticks than it must have, and ns that it may then cover: a part of a ring, with slack."""
Series = tuple[str, tuple[tuple[str, str], ...]]


class Line(NamedTuple):
    """A point of standard output."""

    life: int
    series: Series
    kind: str
    at: int
    """Milliseconds since the epoch."""
    value: float
    start: str | None
    increase: float


def books(path: Path) -> tuple[Counter[str], int]:
    """Return the ledger in a spool's file and how many points it owes, of one and the same moment."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=LONG)) as db:
        db.execute("BEGIN")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'ledger'").fetchone():
            return Counter(), 0  # it is in the making
        ledger = Counter(dict(db.execute("SELECT entry, points FROM ledger")))
        (left,) = db.execute("SELECT coalesce(sum(points - done), 0) FROM chunk").fetchone()
    return ledger, left


def chunks(path: Path) -> list[tuple[bytes, int, int, str]]:
    """Return bytes, points, ended points and namespace of each chunk of a spool; none while it is in the making."""
    with suppress(sqlite3.OperationalError), closing(sqlite3.connect(path, timeout=LONG)) as db:
        rows = db.execute("SELECT body, points, done, destination FROM chunk ORDER BY key").fetchall()
        return [(*row, json.loads(label[:-8]).get("namespace", "")) for *row, label in rows]
    return []


def owing(path: Path) -> Iterator[tuple[Datapoint, Dimensions | None, str]]:
    """Yield the points that a spool's file owes, with what they have in common and their namespace."""
    for body, count, done, namespace in chunks(path):
        points, common = decode_points(body, count)
        yield from ((point, common, namespace) for point in points[done:])


def shown(point: Datapoint, common: Dimensions | None, namespace: str) -> tuple[Any, ...]:
    """Return what CloudWatch is to show of a point: name, dimensions, second, numbers, counts and namespace."""
    value = point.increase if point.metric.kind is Kind.COUNTER else point.value
    total = point.summary or Summary(1, value, value, value, (value,), (1,))  # type: ignore[arg-type]
    dims = (common or Dimensions()) | point.dims
    return point.metric.name, dims.items_sorted, point.at // 10**9, total.values, total.counts, namespace


def of_datum(datum: Any) -> tuple[Any, ...]:
    """Return the same of a datum that the double has stored."""
    numbers = (datum.values, datum.counts) if datum.value is None else ((datum.value,), (1,))
    return (datum.name, datum.dims, datum.timestamp, *numbers, datum.namespace)


def page(port: int) -> str:
    """Return the page of Prometheus; empty while nobody serves it, or if its agent is killed meanwhile."""
    with (
        suppress(OSError, HTTPException),
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer,
    ):
        return str(answer.read().decode())
    return ""


class Seen:
    """The lives of a plan as they were seen, and which properties did not hold."""

    def __init__(self, plan: Plan, folder: Path, machine: Machine, servers: Servers) -> None:
        self.plan, self.folder, self.machine, self.servers = plan, folder, machine, servers
        self.failures: dict[str, str] = {}
        """Property -> what was seen instead, of its first failure."""
        self.sometimes: Counter[str] = Counter()
        self.ends: dict[int, str] = {}
        self.died: dict[int, float] = {}
        """When each life was over (ms since the epoch)."""
        self.due: dict[str, list[tuple[Datapoint, Dimensions | None, str]]] = defaultdict(list)
        """Sink -> what its spool owed at an end."""
        self.jumps, self.namespace, self.is_disk_bad = 0, "", False
        self.recorded: set[int] = set()
        """Moments that the recording of the run had at an end of a life."""
        self.sizes: dict[int, tuple[int, ...]] = {}
        self.reloaded: set[int] = set()
        """Lives whose configuration has changed: their sums begin again."""
        self.pages: dict[str, tuple[int, float]] = {}
        self.began = self.ended_at = time.monotonic()

    def fail(self, law: str, text: str) -> None:
        """Note that a property does not hold."""
        self.failures.setdefault(law, text)

    def spools(self) -> list[Path]:
        """Return the files of spools that are there."""
        return sorted((self.folder / "state").glob("*.db"))

    # -- while an agent runs -----------------------------------------------------------------------------------------

    def balance(self, path: Path) -> tuple[Counter[str], int]:
        """Check the ledger of a spool."""
        try:
            ledger, left = books(path)
        except sqlite3.Error as problem:
            self.fail("delivery: a spool can be read at any time", f"{path.name}: {problem}")
            return Counter(), 0
        ended = sum(points for entry, points in ledger.items() if entry != "collected")
        if ledger["collected"] != ended + left:
            self.fail(
                "delivery: collected = sent + rejected + dropped + kept", f"{path.name}: {dict(ledger)}, {left} kept"
            )
        if any(points < 0 for points in ledger.values()):
            self.fail("delivery: no count is negative", f"{path.name}: {dict(ledger)}")
        return ledger, left

    def owed_here(self, path: Path) -> int:
        """Return how many points a spool owes to the destination that is set."""
        return sum(count - done for _, count, done, name in chunks(path) if name in {"", self.namespace})

    def ended(self, path: Path) -> int:
        """Return how many points of a spool have ended."""
        ledger, _ = books(path)
        return ledger.total() - ledger["collected"]

    def scraped(self, text: str, life: int) -> None:
        """Take a page: no counter falls within a life, unless the machine's counters began again."""
        try:
            families = [*text_string_to_metric_families(text)]
        except ValueError as problem:
            self.fail("status: a page can be parsed", f"{problem}")
            return
        for sample in [sample for family in families if family.type == "counter" for sample in family.samples]:
            if not sample.name.endswith("_total"):
                continue
            key = f"{sample.name} {sorted(sample.labels.items())}"
            before = self.pages.get(key, (-1, 0.0))
            if before[0] == life and life not in self.reloaded and sample.value < before[1] and not self.is_reset(key):
                self.fail("counters: a page's counter falls only with a reset", f"{key}: {before[1]} to {sample.value}")
            self.pages[key] = life, sample.value
        if families:
            self.sometimes["a page is scraped"] += 1

    def is_reset(self, key: str) -> bool:
        """Return whether the machine may have begun a counter again: the driver does so with each change of a GPU."""
        return "counters begin again" in self.machine.happened or (
            key.startswith("gpu_") and bool(self.machine.happened)
        )

    def answered(self, status: dict[str, Any], jobs: dict[str, Any]) -> None:
        """Take the answers of the socket."""
        self.sometimes["the socket answers"] += 1
        for name, sink in status["sinks"].items():
            ended = sink["sent"] + sum(sink["rejected"].values()) + sum(sink["dropped"].values())
            # Numbers are read without a lock: a window may be between two of them.
            if not 0 <= sink["collected"] - ended - sink["kept"] <= 5000:
                self.fail("status: the sums of a sink agree with its ledger", f"{name}: {sink}")
        charged, held = (jobs.get(key, 0.0) for key in ("charged_seconds", "allocated_seconds"))
        if abs(charged - held) > 0.01:
            self.fail("jobs: what is charged is what was held", f"charged {charged}, held {held}")
        if jobs and not charged <= GPUS * (time.monotonic() - self.began) * (1e9 if self.jumps else 1) + 1:
            self.fail(
                "jobs: no more is charged than there was", f"charged {charged} in {time.monotonic() - self.began}"
            )
        if text := job_laws.answer_is_whole(jobs):
            self.fail("jobs: time, causes and cost of a job agree", text)
        text = json.dumps([status, jobs])
        if SECRET in text:
            self.fail("secrets: no secret gets out", "by the socket")

    def measure(self, pid: int) -> None:
        """Check how big a process is; from a while after its start on it grows no more."""
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            size = process.memory_info().rss, process.num_fds(), process.num_threads()
            first = self.sizes.setdefault(pid, size)
            for name, most, grows, now, before in zip(SIZES, MOST, GROWS, size, first, strict=True):
                if now > most or (now - before > grows and not self.is_disk_bad):
                    self.fail(
                        "bounds: memory, files and threads of a process",
                        f"{name}: {now:,} of {most:,}, {before:,} before",
                    )

    # -- what was printed --------------------------------------------------------------------------------------------

    def lines(self) -> Iterator[Line]:
        """Yield the points that were printed; the last line of a killed life may be cut."""
        for life, file in sorted((int(file.suffix[1:]), file) for file in self.folder.glob("out.*")):
            for line in file.read_text(errors="replace").splitlines(keepends=True):
                if not line.endswith("\n"):
                    self.sometimes["a line of output is cut by a kill"] += 1
                    continue
                one = json.loads(line)
                at = datetime.fromisoformat(one["time"])
                series = one["name"], tuple(sorted(one["dims"].items()))
                yield Line(life, series, one["kind"], round(at.timestamp() * 1000), one["value"],
                           one.get("start_time"), one.get("increase", 0.0))  # fmt: skip


LOSSES = ("neither sent nor written to disk", "neither sent nor written to disk|recorder: .*; it ends")
"""Messages that a stop may end with 1 for, without and with a recording that was asked for."""


def judge_life(seen: Seen, number: int, code: int | None) -> None:
    """Check what a life left behind; `code`: how it ended."""
    log = (seen.folder / f"log.{number}").read_text(errors="replace")
    if code == 2 and "\nchipwatch: record: " in f"\n{log}" and seen.is_disk_bad:
        seen.sometimes["a recording is refused at the start"] += 1
    elif code == 1 and seen.is_disk_bad and re.search(LOSSES[bool(seen.plan.options["record"])], log):
        seen.sometimes["a stop says what is lost"] += 1
    elif code not in {0, -9} or (code == -9 and seen.ends[number] == "stopped"):
        seen.fail("life: an agent ends only by a signal, with 0", f"life {number} ends with {code}: {log[-300:]}")
    wrong = {
        "life: no fault of the world is a traceback": "Traceback" in log,
        "bounds: a log": len(log) > MOST_LOG,
        "secrets: no control character is printed": re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\u2028]", log),
        "secrets: no secret gets out": SECRET.removeprefix("Bearer ") in log,
    }
    for law in [law for law, is_so in wrong.items() if is_so]:
        seen.fail(law, f"life {number}, {len(log):,} bytes: {log[-400:]!r}")
    for path in seen.spools():
        seen.balance(path)
        seen.due[path.stem] += owing(path)
        sizes = [len(body) for body, *_ in chunks(path)]
        size, newest = sum(sizes), max(sizes, default=0)
        if size - newest - IN_FLIGHT > (most := int(str(seen.plan.options["spool_bytes"]))):
            seen.fail("bounds: a spool's chunks", f"{path.name}: {size:,} of {most:,}, and {newest:,} of the newest")
    _recorded_until(seen)
    for file in (seen.folder / "state").rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o077:
            seen.fail("secrets: only the owner can read the state", f"{file}")
        if file.suffix == ".corrupt":
            seen.fail("life: a kill damages no file", f"{file}")


def _recorded_until(seen: Seen) -> None:
    """Note the moments that the recording of the run has now: they must stay in it. Look at what a kill left of a ring."""
    file = seen.folder / "run.chipwatch"
    if file.exists() and (recorded := _recording(seen, file)):
        seen.recorded.update(at for column in recorded.columns for at in column.times)
    for file in (seen.folder / "state").glob("recorder*/*.chipwatch") if not seen.jumps else ():
        with suppress(NotARecording):
            moments = sorted({at for column in load(file).columns for at in column.times})
            if len(moments) > MANY and moments[-1] - moments[3] > LONGEST:  # the first may be of late readings
                seen.fail("recorder: a journal of a ring ends in time", f"{file.name}: {moments[0]} to {moments[-1]}")


def _recording(seen: Seen, file: Path) -> Any:
    try:
        recorded = load(file)
    except NotARecording as problem:
        if "no sample" not in str(problem) and file.stat().st_size > FIRST:  # it was killed before the first one
            seen.fail("recorder: what has its name can be read", f"{file.name}: {problem}")
        return None
    if recorded.broken:
        seen.fail("recorder: a kill breaks no line of a sealed file", f"{file.name}: {recorded.broken} lines")
    return recorded


def judge(seen: Seen) -> None:
    """Check all that was seen, at the end."""
    lines = [*seen.lines()]
    _delivered(seen, lines)
    _counters(seen, lines)
    _recorded(seen, lines)
    if seen.plan.options["processors"]:
        _jobs(seen, lines)
    if (reached := seen.folder / "reached").exists():
        seen.sometimes.update({f"reached {point}" for point in reached.read_text().splitlines()})
    asked = seen.servers.cloudwatch.asked if seen.servers.cloudwatch else {}
    seen.sometimes.update({f"cloudwatch: {kind}": count for kind, count in asked.items()} | seen.servers.asked)
    for path in seen.spools():
        ledger, left = books(path)
        if ledger["dropped:too old"]:
            seen.fail("delivery: a clock that jumps costs no point its age", f"{path.name}: {dict(ledger)}")
        seen.sometimes.update(entry for entry in ledger if entry.startswith(("rejected", "dropped")))
        if left:
            seen.fail("delivery: nothing stays owed once all is well", f"{path.name}: {left} of {dict(ledger)}")


def _delivered(seen: Seen, lines: list[Line]) -> None:
    for path in seen.spools():
        ledger, _ = books(path)
        lost = sum(points for entry, points in ledger.items() if entry.startswith(("rejected", "dropped")))
        got, due, taken, wrong = _taken(seen, path.stem)
        if wrong:
            seen.fail("delivery: no request breaks a rule of the service", f"{path.stem}: {wrong[0]}")
        if ledger["sent"] > taken:
            seen.fail("delivery: what counts as sent was taken", f"{path.stem}: sent {ledger['sent']}, taken {taken}")
        if len(got) > ledger["collected"] and not seen.is_disk_bad:
            seen.fail("delivery: what was taken was collected", f"{path.stem}: {len(got)} of {ledger['collected']}")
        if len(missing := due - {*got}) > lost:
            text = f"{path.stem}: {len(missing)} missing, {lost} counted; {next(iter(missing))}"
            seen.fail("delivery: what a spool owed at a kill arrives", text)
        if path.stem in {"otlp", "cloudwatch"} and seen.plan.options["window"] == 0 and not seen.is_disk_bad:
            lacks = _otlp_lacks(seen, lines) if path.stem == "otlp" else _cloudwatch_lacks(seen, lines, got)
            if len(missing := [*lacks]) > lost:
                text = f"{path.stem}: {len(missing)} missing, {lost} counted; {missing[0]}"
                seen.fail("delivery: all sinks get the same readings", text)
        seen.sometimes["a spool owes points at an end"] += bool(due)


def _taken(seen: Seen, sink: str) -> tuple[Counter[Any], set[Any], int, list[Any]]:
    """Return what a service took, what a spool owed at an end, how many points were taken, and what broke a rule."""
    servers, due = seen.servers, seen.due[sink]
    if sink == "cloudwatch" and servers.cloudwatch:
        got = Counter(of_datum(datum) for one in servers.cloudwatch.taken for datum in one)
        wrong = [one for one in servers.cloudwatch.refused if "ime" not in one.message]
        return got, {shown(*one) for one in due}, got.total(), wrong
    if sink == "otlp" and servers.otlp:
        took = [one for one in servers.otlp.requests if one.end in (200, *DOUBTFUL)]
        got = Counter((p.name, _dims(p), p.at) for one in took for p in one.points if p.value is not None)
        return got, {(p.metric.name, p.dims.items_sorted, p.at) for p, *_ in due}, got.total(), []
    if servers.google:
        stored = servers.google.series.items()
        got = Counter(
            (key.type.partition("chipwatch/")[2], dict(key.labels).get("gpu")) for key, ps in stored for _ in ps
        )
        named = {(p.metric.name.replace(".", "/"), p.dims.get("gpu")) for p, *_ in due}
        told = books(seen.folder / "state" / "google.db")[0]
        # An agent that has lost an answer, and then the points to send again, does not know what its service has.
        is_blind = seen.jumps or seen.is_disk_bad or "dropped:spool full" in told
        refused = [] if is_blind else [of for of in told if of.startswith("rejected")]
        return got, named, servers.google.count["stored"], refused
    return Counter(), set(), 0, []


def _dims(point: Any) -> tuple[tuple[str, str], ...]:
    """Return the dimensions of a point at the receiver of OTLP, some of which are its resource's."""
    machine = [pair for pair in point.resource if pair[0] in {"user", "partition", "namespace"}]
    return tuple(sorted([*point.attributes, *machine]))


def _printed(seen: Seen, lines: list[Line]) -> Iterator[Line]:
    """Yield what was printed, but for the last readings before a kill: they may be on one side alone, and come late."""
    peak = max(Counter((line.life, line.at) for line in lines).values(), default=0)
    for life in seen.ends:
        of_life = [line for line in lines if line.life == life]
        yield from of_life[: -3 * peak] if seen.ends[life] == "killed" else of_life


def _cloudwatch_lacks(seen: Seen, lines: list[Line], got: Counter[Any]) -> Iterator[Line]:
    """Yield the readings of standard output that CloudWatch lacks: gauges, and increases; some metrics it never gets."""
    had = {(name, dims, second, *values) for name, dims, second, values, *_ in got}
    names = {name for name, *_ in got}
    for line in (line for line in _printed(seen, lines) if line.series[0] in names):
        value = line.value if line.kind == "gauge" else line.increase
        if (line.kind == "gauge" or value > 0) and (*line.series, line.at // 1000, value) not in had:
            yield line


def _otlp_lacks(seen: Seen, lines: list[Line]) -> Iterator[Line]:
    """Yield the readings of standard output that a receiver of OTLP lacks; check the values of the others."""
    assert seen.servers.otlp
    values = {
        (point.name, _dims(point), point.at // 10**6): point.value
        for point in seen.servers.otlp.points
        if point.value is not None
    }
    is_delta = seen.plan.options["temporality"] == "delta"
    for line in (line for line in _printed(seen, lines) if line.kind == "gauge" or not is_delta):
        name, dims = line.series
        value = values.get((name, tuple(pair for pair in dims if pair[0] != "host"), line.at))
        if value is None:
            yield line
        elif abs(value - line.value) > 1e-9 * max(1.0, abs(line.value)):
            seen.fail("delivery: no value is altered on its way", f"{line}: {value}")


def _counters(seen: Seen, lines: Iterable[Line]) -> None:
    shown: dict[Any, list[tuple[float, Any]]] = defaultdict(list)
    for line in [line for line in lines if line.kind == "counter"]:
        shown["stdout", seen.is_disk_bad and line.life, line.series].append((line.value, line.start))
        if line.increase < 0:
            seen.fail("counters: no increase is negative", f"{line}")
    for series, point in [] if seen.is_disk_bad else _sums(seen):  # a disk that takes nothing keeps no start
        shown[series].append((point.value, point.start))
    for series, values in shown.items():
        for one, two in pairwise(values):
            if two[0] < one[0] and two[1] == one[1]:
                seen.fail("counters: a value falls only with a newer start", f"{series}: {one} then {two}")
    if seen.servers.cloudwatch and not seen.jumps:
        once = {of_datum(datum) for one in seen.servers.cloudwatch.taken for datum in one}
        sent = [values for values in once if values[0] == "network.sent"]
        total = sum(value * n for *_, values, counts, _ in sent for value, n in zip(values, counts, strict=True))
        if total > seen.machine.real:
            seen.fail("counters: increases add up to no more than was real", f"{total} of {seen.machine.real}")


def _sums(seen: Seen) -> Iterator[tuple[Any, Any]]:
    """Yield series and point of each cumulative counter that a service has, in order of time."""
    servers = seen.servers
    if servers.otlp and not seen.jumps and seen.plan.options["temporality"] == "cumulative":
        for point in sorted(servers.otlp.points, key=lambda point: point.at):
            if point.kind.startswith("sum") and point.value is not None:
                yield ("otlp", point.resource, point.name, point.attributes), point
    for key, stored in (servers.google.series if servers.google else {}).items():
        if key.type.endswith("total"):
            yield from ((("google", key), point) for point in sorted(stored, key=lambda point: point.end))


def _recorded(seen: Seen, lines: list[Line]) -> None:
    written = {
        (line.series[0], tuple(pair for pair in line.series[1] if pair[0] != "host"), line.at): line.value
        for line in lines
    }
    kept: set[int] = set()
    run: set[int] = set()
    """Moments in the files of the run that somebody asked for (ms)."""
    files = [*(seen.folder / "state" / "incidents").glob("*.chipwatch"), *seen.folder.glob("run*.chipwatch")]
    for file in files:
        if not (recorded := _recording(seen, file)):
            continue
        seen.sometimes["an incident is sealed" if file.parent.name == "incidents" else "a run is recorded"] += 1
        seen.sometimes.update(f"incident: {event.cause}" for event in recorded.events)
        moments = {at for column in recorded.columns for at in column.times}
        kept |= moments
        if file.parent.name == "incidents":
            _whole(seen, lines, file.name, {at // 10**6 for at in moments})
        else:
            run |= {at // 10**6 for at in moments}
        for column in recorded.columns if file.parent.name == "incidents" and not seen.jumps else ():
            key = column.metric.name, column.dims.items_sorted
            for at, value in zip(column.times, column.values, strict=True):
                if value != (read := written.get((*key, at // 10**6), value)):
                    seen.fail("recorder: no value that was not read", f"{file.name}: {key} {at} {value}, not {read}")
    if seen.plan.options["record"]:
        _whole(seen, lines, "the run", run, is_all=True)
    if lost := seen.recorded - kept:
        seen.fail("recorder: what a file had at a kill stays in it", f"{len(lost)} of {len(seen.recorded)}")
    rings = [*(seen.folder / "state").glob("recorder*/*.chipwatch")]
    if rings:
        seen.fail("recorder: an agent that ends in order leaves no ring", f"{rings}")


def _whole(seen: Seen, lines: Iterable[Line], name: str, moments: set[int], *, is_all: bool = False) -> None:
    """Check that a recording lacks no tick between its first and its last; with `is_all`, none of a life that was stopped."""
    if seen.is_disk_bad or seen.jumps:
        return
    points = Counter((line.life, line.at) for line in lines)
    for life in seen.ends:
        printed = {at for (of, at), count in points.items() if of == life and count > FEW}
        there, is_whole = printed & moments, is_all and seen.ends[life] == "stopped"
        first, last = min(there, default=0), max(there, default=0)
        if missing := {at for at in printed - moments if is_whole or first < at < last}:
            text = f"{name}: {len(missing)} of {len(printed)} ticks of life {life}"
            seen.fail("recorder: a recording has every tick", text)


def _jobs(seen: Seen, lines: list[Line]) -> None:
    ticks, machine = job_laws.ticks_of(lines), seen.machine
    wrong = job_laws.judge_ticks(ticks, machine)
    counts = [(sum(tick.of(job_laws.COUNT).values()), tick) for tick in ticks if tick.of(job_laws.COUNT)]
    for count, tick in counts:
        if count > GPUS + 1e-6:
            seen.fail("jobs: a GPU is in one state at a time", f"{count} at {tick.at}")
        if count < GPUS - 1e-6 and not seen.machine.happened:
            seen.fail("jobs: each GPU is answered for", f"{count} at {tick.at}")
    if not (seen.jumps or seen.is_disk_bad):
        files = (seen.folder / "state").glob("ended-*.jsonl*")
        rows = job_laws.read_records(file.read_text(errors="replace") for file in files)
        seen.sometimes["a job leaves a record"] += len(rows)
        wrong |= job_laws.judge_records(rows, ticks, machine)
    if not (seen.plan.paced or seen.jumps):
        wrong |= job_laws.judge_devices(lines, machine, seen.died)
        if not (seen.is_disk_bad or "a GPU is lost" in seen.machine.happened):
            born = {line.life: line.at for line in reversed(lines)}
            wrong |= job_laws.judge_time(ticks, machine, born, seen.died)
        for job, stretches in ((str(pid), stretches) for pid, stretches in machine.held.items()):
            seconds, gpus = max((tick.seconds(job) for tick in ticks), default=0.0), machine.gpus_of(job)
            slack = gpus * len(stretches) * SLOW * (1 + os.getloadavg()[0] / 2)
            if seconds > (most := machine.held_seconds(job, seen.ended_at)) + slack:
                wrong["jobs: a job is charged no more than it held"] = f"{job}: {seconds} of {most} s"
            seen.sometimes["a job is charged"] += seconds > 0
    for law, text in wrong.items():
        seen.fail(law, text)
