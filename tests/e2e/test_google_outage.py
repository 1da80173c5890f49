"""Cloud Monitoring is away, the agent is killed and started again: every point arrives once, and series go on."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from itertools import pairwise
from pathlib import Path

from tests.doubles import monitoring as service
from tests.doubles.cloudwatch import CloudwatchDouble, environment
from tests.doubles.gce import VM, Gce
from tests.doubles.monitoring import MonitoringDouble
from tests.e2e import google_child as child

from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.sink import SLACK
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window
from chipwatch_sinks.google import GoogleSink

ROOT = Path(__file__).parents[2]
LONG = 60.0
S = 10**9


def ledger(path):
    """Return the ledger in a spool's file, empty while it is in the making."""
    try:
        with closing(sqlite3.connect(path, timeout=LONG)) as db:
            return Counter(dict(db.execute("SELECT entry, points FROM ledger")))
    except sqlite3.OperationalError:
        return Counter()


def left(path):
    with closing(sqlite3.connect(path, timeout=LONG)) as db:
        return db.execute("SELECT coalesce(sum(points - done), 0) FROM chunk").fetchone()[0]


class Lives:
    """Agents one after the other over one spool."""

    def __init__(self, target, folder):
        self.target, self.folder, self.begun, self.count = target, folder, time.time_ns(), 0
        self.spool = folder / "google.db"

    def start(self):
        words = [self.target, str(self.folder), str(self.count), str(self.begun)]
        self.count += 1
        env = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen([sys.executable, child.__file__, *words], env=env, stderr=subprocess.PIPE)

    def collected(self):
        return ledger(self.spool)["collected"]


def wait_for(process, condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "what the test waits for does not come"
        time.sleep(0.005)


def moods():
    """Of twenty requests turn one away, and lose the answer to another."""
    rounds = itertools.cycle(range(20))

    def weather():
        return {3: service.AWAY, 11: service.LOST}.get(next(rounds))

    return weather


def end(process):
    process.send_signal(signal.SIGTERM)
    assert process.wait(LONG) == 0, process.stderr.read().decode()


def test_outages_kills_and_restarts_in_mid_series_lose_nothing_and_break_no_series(tmp_path):
    a_window = child.GAUGES + 1
    with MonitoringDouble(listen=False) as double:
        lives = Lives(double.target, tmp_path)
        with lives.start() as process:  # killed while the service is away
            wait_for(process, lambda: lives.collected() >= 20 * a_window)
            process.kill()
        double.weather = moods()
        double.start()
        with lives.start() as process:  # killed in the midst of sending
            wait_for(process, lambda: double.count["stored"] >= 40 * a_window)
            process.kill()
        with lives.start() as process:  # stopped in good order
            before = double.count["stored"]
            wait_for(process, lambda: double.count["stored"] >= before + 10 * a_window)
            end(process)
        double.weather = lambda: None
        with lives.start() as process:
            before = double.count["stored"]
            wait_for(process, lambda: double.count["stored"] >= before + 10 * a_window)
            end(process)

        series = {key: [*double.series[key]] for key in double.series}
        refused = {code: count for code, count in double.count.items() if code != "stored"}

    books = ledger(lives.spool)
    assert left(lives.spool) == 0
    stored = sum(map(len, series.values()))
    assert books["sent"] == stored, (books, stored)
    assert books["collected"] == books["sent"]
    assert {entry for entry, points in books.items() if points} == {"collected", "sent"}
    assert set(refused) <= {"INVALID_ARGUMENT", "FAILED_PRECONDITION"}  # the retries of what was stored already
    assert len(series) == a_window
    assert lives.count == 4
    for points in series.values():
        assert all(later.end - earlier.end >= 10 * S for earlier, later in pairwise(points))
    (counted,) = (points for key, points in series.items() if key.type.endswith("test/total"))
    assert {point.start for point in counted} == {lives.begun - 2 * child.AGO}, "the start moved"
    assert len(counted) > 60
    for before, point in pairwise([counted[0]._replace(end=0), *counted]):
        late = child.total(point.end, lives.begun - 2 * child.AGO) - point.value  # ms
        gap = point.end - before.end  # of a point moved to where Google takes it; after a restart SLACK longer
        is_late = late == (10 - SLACK) * 1000  # a reading that came after the window of its tick had ended
        assert is_late or 0 <= late <= (gap / 10**6 if gap in (10 * S, (10 + SLACK) * S) else 0), (late, gap)


def test_a_run_delivers_its_last_reading_at_whatever_second_it_is_stopped():
    with MonitoringDouble() as double:
        born = time.time_ns() // (60 * S) * 60 * S - 3600 * S
        last = {}
        for seconds in range(1, 75):
            config = GoogleSink.Config(project="some-project", endpoint=double.target, insecure=True)
            sink, spool, common = GoogleSink(config), Spool("google"), Dimensions(run=str(seconds))
            worker = Worker("google", sink, spool, common=lambda common=common: common)
            window = Window(60, born=born, spacing=sink.limits.spacing, first=10)
            route = Route(MetricFilter(Level.ALL), window, spool, worker, lambda common=common: common)
            for at in range(born + S, born + (seconds + 1) * S, S):
                route.take([child.TOTAL.point(at, at - born, start_time=born), child.LEVEL.point(at, 1.0)], at)
            route.close_window()
            worker.start()
            worker.stop()
            assert worker.join(LONG)
            last[common["run"]] = float(at - born)
            assert (spool.ledger.collected, spool.ledger.rejected.total()) == (spool.ledger.sent, 0)
        delivered = {
            dict(key.labels)["run"]: points[-1].value
            for key, points in double.series.items()
            if key.type.endswith("test/total")
        }
        assert {**double.count}.keys() == {"stored"}
    assert delivered == last


def test_the_real_command_killed_in_an_outage_delivers_every_point_after_it(agent, until, tmp_path):
    spool = tmp_path / "spool"
    with MonitoringDouble(listen=False) as double:
        words = ("--sink", "google", "--project", "some-project", "--collector", "memory", "--collector", "network")
        words += ("--interval", "1", "--flush", "0", "--dim", "host=test", "--spool", spool, "--log-level", "info")
        env = {
            "CHIPWATCH_SINKS__GOOGLE__ENDPOINT": double.target,
            "CHIPWATCH_SINKS__GOOGLE__INSECURE": "true",
            "CHIPWATCH_SINKS__GOOGLE__WINDOW": "10",
            "NO_GCE_CHECK": "true",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        first = agent.start(*words, env=env)
        until(lambda: ledger(spool / "google.db")["collected"] > 0)
        due = ledger(spool / "google.db")["collected"]
        first.process.kill()
        first.process.wait()

        double.start()
        second = agent.start(*words, env=env)
        until(lambda: double.count["stored"] >= due)
        code, _ = second.stop()

    assert code == 0, second.errors()
    books = ledger(spool / "google.db")
    assert left(spool / "google.db") == 0
    assert books["sent"] == double.count["stored"] >= due
    assert set(double.count) == {"stored"}
    assert {dict(key.labels)["host"] for key in double.series} == {"test"}
    assert {key.resource for key in double.series} == {"generic_node"}


def test_an_agent_that_sends_to_cloudwatch_alone_loads_nothing_of_google(tmp_path):
    words = (
        "import sys; from chipwatch.commands import cli\n"
        "try: cli.main(sys.argv[1:])\n"
        "except SystemExit as end: assert end.code == 0, end.code\n"
        "assert 'botocore' in sys.modules\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'grpc', 'google', 'proto', 'requests'}))"
    )
    with CloudwatchDouble() as double:
        options = ["--sink", "cloudwatch", "--region", "eu-west-1", "--endpoint-url", double.url, "--once"]
        command = [sys.executable, "-c", words, *options, "--spool", str(tmp_path)]
        done = subprocess.run(
            command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=LONG, check=False
        )
        assert double.datums
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_a_machine_of_googles_writes_into_its_own_project_under_its_own_resource(agent, tmp_path):
    with Gce() as metadata, MonitoringDouble() as double:
        env = {
            "GCE_METADATA_HOST": metadata.host,
            "CHIPWATCH_SINKS__GOOGLE__ENDPOINT": double.target,
            "CHIPWATCH_SINKS__GOOGLE__INSECURE": "true",
        }
        words = ("--sink", "google", "--sink", "stdout", "--format", "json", "--common-dims", "instance_type")
        done = agent.run(*words, "--collector", "memory", "--once", "--interval", "1", "--spool", tmp_path, env=env)

    assert done.returncode == 0, done.stderr
    facts = VM["instance"]
    zone = facts["zone"].rpartition("/")[2]
    assert {(key.project, key.resource, key.labels, key.resource_labels) for key in double.series} == {(
        VM["project"]["projectId"],
        "gce_instance",
        (("instance_type", facts["machineType"].rpartition("/")[2]),),
        (("instance_id", str(facts["id"])), ("zone", zone)),
    )}  # fmt: skip
    assert "@" not in done.stdout
    assert zone not in done.stdout
