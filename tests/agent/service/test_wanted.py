import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from chipwatch.config.options import Config
from chipwatch.service.wanted import IDLE, Wanted, owner_of_watched, spared

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="jobs are found on Linux only")


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc/41"
    folder.mkdir(parents=True)
    (folder / "stat").write_text("41 (python) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 4 0 500 1000 25 0\n")
    (folder / "status").write_text("Uid:\t1000\t1000\t1000\t1000\n")
    (folder / "cgroup").write_text("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0\n")
    return tmp_path / "proc"


def test_the_process_that_is_watched_tells_the_job(proc):
    owner = owner_of_watched(Config(pid=41, proc=proc, root=proc.parent))
    assert (owner.kind, owner.job, owner.step, owner.user) == ("slurm", "7", "0", "1000")


def test_a_command_runs_in_the_job_of_this_process_wherever_the_hosts_proc_is(proc):
    owner = owner_of_watched(Config(proc=proc, root=Path("/")), wrapped=True)
    assert owner == owner_of_watched(Config(pid=os.getpid()))
    assert owner.user or owner.container


def test_without_a_watched_process_or_after_its_end_there_is_no_owner(proc):
    assert owner_of_watched(Config(proc=proc)) is None
    assert owner_of_watched(Config(pid=42, proc=proc)) is None


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ({}, IDLE),
        ({"collector": ("textfile", "cpu")}, IDLE - {"textfile"}),
        ({"collector": ("all",)}, set()),
        ({"sinks": {"stdout": {"include": ["job.gpu.*"]}}}, set()),
    ],
)
def test_a_run_spares_collectors_without_options_unless_they_or_their_metrics_are_named(options, left):
    assert spared(Config(sink=("stdout",), **options)) == left


def test_a_reading_that_was_stopped_is_not_blamed_on_the_configuration():
    ledger = SimpleNamespace(sent=0, collected=0)
    route = SimpleNamespace(
        name="out",
        spool=SimpleNamespace(ledger=ledger),
        worker=SimpleNamespace(health=SimpleNamespace(last_error=None)),
    )
    pipeline = SimpleNamespace(routes=[route], samplers=[], ticks=0)
    assert [*Wanted(Config(), pipeline, brief=True).undelivered()] == [
        "out: nothing was delivered: it was stopped before its reading ended"
    ]
