"""Agents killed at any moment in any weather: no finished window is lost, and the ledger is what the service took."""

import json
import multiprocessing
import os
import sqlite3
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random

from tests.doubles.monitoring import MonitoringDouble
from tests.faults import answers, lives
from tests.faults.figures import Figures

from chipwatch.contract.sink import SLACK

KILLS = 10
"""In one trial, over one spool."""
LONG = 60.0
AT_WORK = 0.7
"""Share of the kills that come when a window has ended; the others may come while the agent begins."""
STORM = 10
"""Requests to Cloud Monitoring that the last agent makes before all goes well."""
ROOT = Path(__file__).parents[2]


def context() -> multiprocessing.context.ForkServerContext:
    """Return where lives are forked: from a process that has imported everything, and has no threads."""
    os.environ.setdefault("PYTHONPATH", str(ROOT))
    made = multiprocessing.get_context("forkserver")
    made.set_forkserver_preload(["tests.faults.lives"])
    return made


def books(path: Path) -> tuple[dict[str, int], int]:
    """Return the ledger in a spool's file, and how many points it owes."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=LONG)) as db:
        db.execute("BEGIN")
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'ledger'").fetchone():
            return {}, 0  # it is in the making
        ledger = dict(db.execute("SELECT entry, points FROM ledger"))
        (owed,) = db.execute("SELECT coalesce(sum(points - done), 0) FROM chunk").fetchone()
    return ledger, owed


class Trial:
    """Lives over one spool, the last of which end in good order."""

    def __init__(self, run: Callable[..., None], address: str, folder: Path) -> None:
        self.folder, self.life = folder, -1
        self._run, self._address, self._begun = run, address, time.time_ns()
        self._made = context()
        self.failures: list[str] = []
        self.spool = folder / f"{run.__name__}.db"

    def kill(self, seconds: float, *, at_work: bool) -> None:
        """Kill an agent that many seconds after it began, or after its first window ended."""
        process = self._start()
        journal = self.folder / f"appended.{self.life}"
        if at_work and not self._wait(lambda: journal.exists() and journal.stat().st_size > 0):
            self.failures.append(f"life {self.life} spools nothing in {LONG:.0f} s")
        process.join(seconds)
        if process.exitcode is not None:
            self.failures.append(f"life {self.life} ended by itself with {process.exitcode}")
        process.kill()
        process.join(LONG)

    def end(self, enough: Callable[[], bool], calm: Callable[[], None]) -> None:
        """Let an agent see `enough` of the storm, deliver what was there before it, and stop; others send what it left."""
        self._live(enough, calm)
        deadline = time.monotonic() + LONG
        while books(self.spool)[1] and time.monotonic() < deadline:  # at a stop a time-out of a busy machine is final
            self._live(lambda: True, calm)

    def _live(self, enough: Callable[[], bool], calm: Callable[[], None]) -> None:
        process = self._start()
        try:
            if not self._wait(enough):
                self.failures.append(f"the last agent does not ask any more in {LONG:.0f} s")
            calm()
            if not self._wait(lambda: books(self.spool)[0].get("sent", 0) >= self._due()):
                self.failures.append(f"what was due is not delivered in {LONG:.0f} s: {books(self.spool)}")
            process.terminate()
            process.join(LONG)
            if process.exitcode != 0:
                self.failures.append(f"the last life ends with {process.exitcode}")
        finally:
            process.kill()
            process.join(LONG)

    def appended(self) -> Iterator[list]:
        """Yield what the spools took, by their journals."""
        for life in range(self.life + 1):
            journal = self.folder / f"appended.{life}"
            for line in journal.read_text().splitlines() if journal.exists() else ():
                yield json.loads(line)

    def judge(self, accepted: int) -> tuple[int, int]:
        """Check the ledger and the logs; return the ledger's points and the bytes of the logs."""
        ledger, owed = books(self.spool)
        if owed or ledger != {"collected": accepted, "sent": accepted}:
            self.failures.append(f"the service took {accepted} points, the ledger says {ledger}, {owed} are owed")
        logs = [file.read_text(errors="replace") for file in sorted(self.folder.glob("log.*"))]
        for life, log in enumerate(logs):
            if "Traceback" in log:
                self.failures.append(f"life {life} printed a traceback: {log.strip().splitlines()[-1]}")
                break
        return ledger.get("collected", 0), sum(map(len, logs))

    def _due(self) -> int:
        before = [journal for life in range(self.life) if (journal := self.folder / f"appended.{life}").exists()]
        return sum(len(journal.read_bytes().splitlines()) for journal in before) + 1

    def _start(self) -> multiprocessing.Process:
        self.life += 1
        words = (self._address, self.folder, self.life, self._begun)
        process = self._made.Process(target=self._run, args=words, daemon=True)
        process.start()
        return process

    def _wait(self, condition: Callable[[], bool]) -> bool:
        deadline = time.monotonic() + LONG
        while not (met := condition()) and time.monotonic() < deadline:
            time.sleep(0.02)
        return met


def cloudwatch(dice: Random, folder: Path, kills: int = KILLS, most: float = 1.0) -> tuple[Counter[str], list[str]]:
    """Return counts and failures of one trial with CloudWatch."""
    with answers.StormyCloudwatch(dice) as double:
        trial = Trial(lives.cloudwatch, double.url, folder)
        for _ in range(kills):
            double.well = dice.choice([0.0, 0.3, 0.7, 1.0])
            trial.kill(dice.uniform(0.05, most), at_work=dice.random() < AT_WORK)
        double.well = 0.5
        trial.end(lambda: len(double.asked) == len(answers.KINDS), lambda: setattr(double, "well", 1.0))
        taken, asked = list(double.taken), dict(double.asked)
    trial.failures += [f"the service refuses a request: {refusal}" for refusal in double.refused[:1]]
    points = Counter(lives.of_datum(datum) for request in taken for datum in request.datums)
    expected = Counter(map(_as_shown, trial.appended()))
    lost, failures = expected - Counter(dict.fromkeys(points, 1)), trial.failures
    if lost:
        failures.append(
            f"{lost.total()} of {expected.total()} points that a spool took were lost, as {next(iter(lost))}"
        )
    unlogged = Counter(dict(key[1])["life"] for key in points.keys() - expected.keys())
    if any(count > lives.GAUGES + 1 for count in unlogged.values()):
        failures.append(f"the service took points that no spool did: {unlogged}")
    last = {request.life: n for n, request in enumerate(taken)}
    ended: set[object] = set()
    for n, request in enumerate(taken):
        if again := ended.intersection(map(lives.of_datum, request.datums)):
            failures.append(f"{len(again)} points came again though their answer was heard")
            break
        if request.certain and (last[request.life] != n):
            ended.update(map(lives.of_datum, request.datums))
    collected, logged = trial.judge(len(points))
    bad = sum(count for kind, count in asked.items() if kind != "good")
    doubled = points.total() - len(points)
    counts = Counter(kills=kills, points=collected, doubled=doubled, lost=lost.total())
    return counts + Counter({"bad answers": bad, "log bytes": logged}), failures


def _as_shown(line: list) -> tuple:
    name, dims, at, values, counts = line
    return name, tuple(map(tuple, dims)), at, tuple(values), tuple(counts)


def google(dice: Random, folder: Path, kills: int = KILLS, most: float = 1.0) -> tuple[Counter[str], list[str]]:
    """Return counts and failures of one trial with Cloud Monitoring."""
    with MonitoringDouble() as double:
        gate = answers.Gate(double.port, dice)
        double.weather = answers.statuses(Random(dice.random()), lambda: gate.well)
        trial = Trial(lives.google, gate.target, folder)
        for _ in range(kills):
            gate.well = dice.choice([0.0, 0.3, 0.7, 1.0])
            trial.kill(dice.uniform(0.05, most), at_work=dice.random() < AT_WORK)
        gate.well = 0.5
        trial.end(lambda: sum(double.answered.values()) > STORM, lambda: setattr(gate, "well", 1.0))
        gate.close()
        asked = Counter(gate.asked) - Counter({"pass": gate.asked.get("pass", 0)})
        bad = asked.total() + sum(count for code, count in double.answered.items() if code != "OK")
        stored = {
            (key.type.partition("chipwatch/")[2], dict(key.labels).get("n", "")): {p.end: p.value for p in points}
            for key, points in double.series.items()
        }
        starts = {p.start for key, points in double.series.items() if key.type.endswith("total") for p in points}
    failures = trial.failures
    if len(starts) > 1:
        failures.append(f"the start of a counter moved in mid-series: {sorted(starts)}")
    expected = [*trial.appended()]
    lost = [line for line in expected if not _is_stored(stored, *line)]
    if lost:
        failures.append(f"{len(lost)} of {len(expected)} points that a spool took were lost, as {lost[0]}")
    collected, logged = trial.judge(sum(map(len, stored.values())))
    counts = Counter(kills=kills, points=collected, lost=len(lost))
    return counts + Counter({"bad answers": bad, "log bytes": logged}), failures


def _is_stored(stored: dict, name: str, n: str, at: int, value: float) -> bool:
    points = stored.get((name, n), {})
    most = at + SLACK * 1e9 + 1e6  # the sink moves an end by up to SLACK, and rounds it up to the service's precision
    return any(at <= end <= most and abs(points[end] - value) < 1e-9 * max(1, value) for end in points)


def run(figures: Figures, trial: Callable[..., tuple[Counter[str], list[str]]]) -> None:
    """Kill agents until that is done or the time is over."""
    for dice in figures.trials():
        with tempfile.TemporaryDirectory() as folder:
            counts, failures = trial(dice, Path(folder))
        figures.counts.update(counts)
        for text in failures:
            figures.fail(text)
