"""The run that watched processes name in their environment, or have started."""

import os
import pwd
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chipwatch.contract.errors import ConfigError, Refused, Retryable
from chipwatch.engine.delivery import Worker
from chipwatch.engine.spool.queue import Spool
from chipwatch_sinks.mlflow.finder import processes, started, started_at

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import sys; print(flush=True); sys.stdin.read()'], env={'%s': '%s'})"


@pytest.fixture
def tree(tmp_path):
    """Start a process whose child has one variable in its environment; return the pid of the parent."""
    started_now = []

    def start(variable="X", value="y", folder=tmp_path):
        folder.mkdir(exist_ok=True)
        parent = subprocess.Popen(
            [sys.executable, "-c", CHILD % (variable, value)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder,
            env={},
        )
        started_now.append(parent)
        assert parent.stdout.readline() == b"\n"  # the child runs
        return parent.pid

    yield start
    for parent in started_now:
        parent.communicate()


def test_the_environment_of_a_child_names_the_run(make_sink, tree, double, points):
    double.add("r9")
    sink = make_sink(run=None, pid=tree("MLFLOW_RUN_ID", "r9"))
    sink.write(points(1))
    assert len(double.runs["r9"].rows) == 1


def test_the_server_of_the_tree_is_used_where_we_have_none_and_gets_nothing_of_ours(make_sink, tree, double, points):
    pid = tree("MLFLOW_TRACKING_URI", double.url)
    sink = make_sink(tracking_uri=None, pid=pid, env={"MLFLOW_TRACKING_TOKEN": "secret"})
    sink.write(points(1))
    assert "authorization" not in double.requests[-1][1]


def test_a_store_in_the_environment_of_the_tree_is_refused_in_words(make_sink, tree):
    with pytest.raises(Refused, match=r"MLFLOW_TRACKING_URI of the watched process: 'sqlite:///x\.db' is a store"):
        make_sink(tracking_uri=None, pid=tree("MLFLOW_TRACKING_URI", "sqlite:///x.db"))


@pytest.mark.parametrize("status", ["RUNNING", "FINISHED"])
def test_the_run_that_the_command_has_started_is_taken(make_sink, tree, double, points, status):
    """As a script with `with mlflow.start_run():` starts one."""
    pid = tree()
    double.add("r2").tags["mlflow.source.name"] = "/home/ada/elsewhere.py"
    with pytest.raises(
        Retryable,
        match=f"of process {pid} has started no run on {double.url} so far; if it uses another server, set MLFLOW_TRACKING_URI",
    ):
        make_sink(run=None, pid=pid)
    program = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    double.add("r3", status=status).tags["mlflow.source.name"] = program
    make_sink(run=None, pid=pid).write(points(1))
    assert len(double.runs["r3"].rows) == 1


def test_a_missing_server_is_an_error_before_the_start_unless_a_process_may_name_it(make_sink):
    with pytest.raises(
        ConfigError,
        match=r"no tracking server is named: write MLFLOW_TRACKING_URI=http://HOST:5000 before this command",
    ):
        make_sink(opened=False, tracking_uri=None, run=None).check_start(())
    assert make_sink(opened=False, tracking_uri=None, run=None, pid=1).check_start(()) is None


def test_of_the_runs_that_the_user_began_since_only_one_may_be_of_the_command(make_sink, tree, double):
    pid = tree()
    program = Path(f"/proc/{pid}/cmdline").read_text().split("\0")[0]
    for run in ("r2", "r3"):
        double.add(run).tags["mlflow.source.name"] = program
    with pytest.raises(Retryable, match=f"process {pid} has started more than one run"):
        make_sink(run=None, pid=pid)
    query = next(body for path, _, body in double.requests if path.endswith("/runs/search"))
    since = int(query["filter"].partition(">= ")[2].split()[0])
    assert abs(since - time.time_ns() / 10**6) < 600_000
    assert f"tags.`mlflow.user` = '{pwd.getpwuid(os.getuid()).pw_name}'" in query["filter"]
    assert query["experiment_ids"] == ["7"]


def test_a_process_that_is_gone_or_none_names_nothing(make_sink, tmp_path):
    assert started(tmp_path, 1) == ""
    assert started_at(tmp_path, 1, 5) == 0
    assert [*processes(tmp_path, 1)] == []
    with pytest.raises(Retryable, match="names no run"):
        make_sink(run=None, pid=1, proc=tmp_path)


def test_a_run_is_found_although_its_process_has_just_ended(make_sink, tree, double, points):
    process = subprocess.Popen(["sleep", "60"])
    double.runs["r1"].tags["mlflow.source.name"] = "/usr/bin/sleep"
    sink = make_sink(opened=False, run=None, pid=process.pid)
    before = sink.destination()
    process.kill()
    process.wait()
    sink.open()
    assert sink.destination() == before | {"run": "r1"}
    sink.write(points(1))
    assert len(double.runs["r1"].rows) == 1


def test_what_waited_for_the_run_of_one_process_is_not_sent_to_that_of_another(
    make_sink, tree, double, points, tmp_path
):
    """The points of a command that named no run do not mix with the next command's."""
    for pid, run in ((tree(), ""), (tree("MLFLOW_RUN_ID", "r9"), "r9")):
        sink = make_sink(opened=False, run=None, pid=pid)
        spool = Spool("mlflow", tmp_path / "s.db", max_age=1e6, destination=sink.destination())
        worker = Worker("mlflow", sink, spool)
        double.add("r9")
        spool.append(points(2))
        worker.start()
        worker.stop()
        assert worker.join(30)
        spool.close()
        assert len(double.runs["r9"].rows) == (2 if run else 0)
