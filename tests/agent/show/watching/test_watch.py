"""`chipwatch.watch` with a real agent: what it leaves alone in the process that it watches, and how each of them ends."""

import contextlib
import gc
import gzip
import logging
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest
from tests.doubles.nvml.driver import VARIABLE, Driver

import chipwatch
from chipwatch.history.columns import load

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
LONG = 60
QUICK = {"interval": 0.1, "collectors": "process"}


@pytest.fixture(autouse=True)
def temporary(tmp_path, monkeypatch):
    """The folder of temporary files, of this process and of each that it starts: multiprocessing needs a short path."""
    with tempfile.TemporaryDirectory(prefix="w") as name:
        folder = Path(name)
        monkeypatch.setenv("TMPDIR", name)
        monkeypatch.setattr("tempfile.tempdir", None)
        monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
        yield folder
        gc.collect()  # frames of exceptions may hold a watch
        assert [*folder.glob("chipwatch-*")] == []


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    return False


def agents(parent=None):
    """Return the agents that a process has started and that run."""
    found = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, ppid = file.read_text().rpartition(") ")[2].split()[:2]
            is_child = int(ppid) == (parent or os.getpid()) and state not in "ZX"
            if is_child and b"--summary=" in (file.parent / "cmdline").read_bytes():
                found.append(int(file.parent.name))
    return found


def without_agents():
    """Return the live processes of this process's tree, without agents: servers of other tests may be in it."""
    children = psutil.Process().children(recursive=True)
    return 1 + len([child for child in children if child.status() != psutil.STATUS_ZOMBIE]) - len(agents())


def last(run, name):
    """Return the last value of a series, None without a reading."""
    with contextlib.suppress(Exception):
        return next((column.values[-1] for column in run.columns() if column.metric.name == name), None)


def python(program, *words, **more):
    """Run a program that prints; return its output."""
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, timeout=LONG, check=False, **more
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_it_sums_up_this_process_without_the_agent_and_leaves_nothing_behind(until):
    files = {*Path("/proc/self/fd").iterdir()}
    with chipwatch.watch(**QUICK) as run:
        assert len(agents()) == 1
        assert {*Path("/proc/self/fd").iterdir()} == files
        until(lambda: last(run, "process.count") == without_agents())
        assert run.summary().startswith(f"chipwatch: watched process {os.getpid()} for ")
    assert agents() == []
    first, *lines = run.summary().splitlines()
    assert re.fullmatch(rf"chipwatch: watched process {os.getpid()} for [\d.]+ s", first)
    assert [line for line in lines if re.fullmatch(r"  memory    peak [\d.]+ MiB in \d+ process(es)?", line)]
    assert repr(run) == run.summary()
    assert run.path.exists()


def test_the_options_are_options_of_the_command_line(until, tmp_path):
    file = tmp_path / "file"
    file.write_text("level = 'all'\nnames = 'nonsense'\n")
    run = chipwatch.watch(collectors=["memory", "cpu"], config=file, options=["--no-collector", "cpu"])
    with pytest.raises(RuntimeError, match=r"^chipwatch: the agent ended with 2: .*file: names: .*nonsense"):
        run.start()
    with chipwatch.watch(
        0.1, collectors=["memory"], dims={"team": "ml"}, common_dims="hostname", record=tmp_path / "run"
    ) as run:
        until(lambda: last(run, "memory.used"))
    assert "  sent " not in run.summary()
    assert {"hostname": os.uname().nodename, "team": "ml"}.items() <= load(run.path).host.items()
    assert {column.metric.name.partition(".")[0] for column in run.columns()} <= {"memory", "agent"}


@pytest.fixture
def driver(library, tmp_path, monkeypatch):
    """A driver with two GPUs, which an agent that this process starts finds."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library.parent))
    driver = Driver(tmp_path, "h100", 2)
    for gpu in driver.gpus:
        del gpu["processes"]  # they work, and the driver names nobody
    driver.write()
    monkeypatch.setenv(VARIABLE, str(driver.path))
    version = tmp_path / "proc/driver/nvidia/version"
    version.parent.mkdir(parents=True)
    version.write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01\n")
    for name, folder in (("ROOT", tmp_path), ("PROC", tmp_path / "proc")):
        monkeypatch.setenv(f"CHIPWATCH_COLLECTORS__NVIDIA__{name}", str(folder))


def test_each_accelerator_has_a_row_and_a_graph_and_costs_what_was_set(driver, until, monkeypatch):
    monkeypatch.setenv("CHIPWATCH_PROCESSORS__JOBS__DOLLARS_PER_HOUR", "2.5")
    with chipwatch.watch(0.1, collectors="nvidia") as run:
        until(lambda: "  cost " in run.summary())
    rows = run.summary().splitlines()
    (head,) = [n for n, line in enumerate(rows) if re.match(r"  GPU +(busy|util)", line)]
    assert [line.split()[0] for line in rows[head + 1 : head + 3]] == ["0", "1"]
    assert [line for line in rows if re.match(r"  cost      at most 2 x [\d.]+ s at \$2\.50 an hour = ", line)]
    assert run._repr_html_().count('<td style="text-align:left">gpu.utilization ') == 2


def test_an_earlier_recording_is_kept_and_not_read(tmp_path):
    runs = [
        chipwatch.watch(0.1, collectors="memory", dims={"n": str(n)}, record=tmp_path / "run.chipwatch") for n in "123"
    ]
    for run in runs:
        with run:
            pass
    old, before, now = (load(tmp_path / name) for name in ("run-1.chipwatch", "run-2.chipwatch", "run.chipwatch"))
    assert [recorded.host["n"] for recorded in (old, before, now)] == ["1", "2", "3"]
    assert [len(column.times) for column in runs[2].columns()] == [len(column.times) for column in now.columns]
    shutil.copy(tmp_path / "run.chipwatch", tmp_path / "run-3.chipwatch")  # as the agent does it at 32 MB
    with gzip.open(tmp_path / "run.chipwatch") as file:
        header = file.readline()
    (tmp_path / "run.chipwatch").write_bytes(header)
    assert runs[2].columns() == now.columns


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sinks": "cloudwatc"}, "--sink cloudwatc: no such sink"),
        ({"interval": 0}, "--interval"),
        ({"level": "x"}, "--level"),
        ({"interval": "often"}, "--interval often: expected a time"),
    ],
    ids=["sink", "interval", "level", "time"],
)
def test_an_agent_that_cannot_start_is_an_error_with_its_last_message(options, message):
    with (
        pytest.raises(RuntimeError, match=f"^chipwatch: the agent ended with 2: {message}"),
        chipwatch.watch(**options),
    ):
        raise AssertionError("the block is not entered")
    assert agents() == []


def test_an_agent_that_dies_early_is_a_warning_and_never_hides_an_exception(until, caplog):
    run = chipwatch.watch(**QUICK)

    def train():
        with run:
            until(lambda: last(run, "process.count"))
            os.kill(agents()[0], signal.SIGKILL)
            until(lambda: not agents())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (
        logging.WARNING, "chipwatch: the agent ended with -9; what it read before is kept",
    )  # fmt: skip
    assert run.summary().endswith("\n  agent     the agent ended with -9")
    assert last(run, "process.count") == without_agents()


def test_an_agent_that_hangs_is_killed_after_a_while_and_what_it_read_is_there(until, caplog, monkeypatch):
    monkeypatch.setattr("chipwatch.show.watching.watch.STOP", 0.2)
    with chipwatch.watch(**QUICK) as run:
        until(lambda: last(run, "process.count") is not None)
        os.kill(agents()[0], signal.SIGSTOP)
    assert agents() == []
    assert last(run, "process.count") == without_agents()
    assert [record.getMessage() for record in caplog.records] == [
        "chipwatch: the agent ended with -9; what it read before is kept"
    ]


def test_it_is_started_once_and_stopped_as_often_as_one_likes():
    run = chipwatch.watch(**QUICK)
    assert run.summary() == "chipwatch: nothing is watched: it was not started"
    run.start()
    with pytest.raises(RuntimeError, match="started before"):
        run.start()
    run.stop()
    run.stop()
    with pytest.raises(RuntimeError, match="started before"):
        run.start()
    assert agents() == []
    run = chipwatch.watch(**QUICK).start()
    del run
    assert agents() == [], "one that is forgotten ends"


def test_nested_watches_and_watches_of_threads_are_independent(until):
    with chipwatch.watch(**QUICK) as outer:
        inner = chipwatch.watch(**QUICK)
        thread = threading.Thread(target=inner.start)
        thread.start()
        thread.join(LONG)
        until(
            lambda: last(inner, "process.count") == without_agents() + 1
        )  # the other agent is a process that this one has started
        assert len(agents()) == 2
        inner.stop()
        assert len(agents()) == 1
        at = max(column.times[-1] for column in outer.columns())
        until(lambda: max(column.times[-1] for column in outer.columns()) > at)
    assert agents() == []
    assert inner.path != outer.path


@pytest.mark.parametrize("end", ["pass", "raise SystemExit", "os._exit(0)", "del run"])
def test_a_forked_child_that_leaves_the_block_ends_nothing(end):
    program = f"""if True:
        import os, sys, time, chipwatch
        main = os.getpid()
        with chipwatch.watch(0.1, collectors="process") as run:
            agent = run._child.pid
            if not (child := os.fork()):
                assert "process " + str(main) in run.summary()
                {end}
            else:
                assert os.waitpid(child, 0)[1] == 0
        if os.getpid() == main:
            print(run._child.returncode, run.path.exists())
    """
    assert python(program) == "0 True\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_agent_ends_with_a_process_that_is_killed_and_lets_forked_children_live(until, number, temporary):
    program = """if True:
        import os, sys, time, chipwatch
        with chipwatch.watch(0.1, collectors="process") as run:
            if not os.fork():
                os.setsid()
                time.sleep(60)
            while not run.path.stat().st_size:
                time.sleep(0.01)
            print(run._child.pid, run.path.parent, flush=True)
            time.sleep(60)
    """
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        agent, folder = process.stdout.readline().split()
        (worker,) = {
            int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        } - {int(agent)}
        try:
            process.send_signal(number)
            process.wait(LONG)
            until(lambda: not is_running(int(agent)))
            assert is_running(worker)
            assert (Path(folder) / "run.chipwatch").stat().st_size, "the recording outlives a kill"
        finally:
            os.kill(worker, signal.SIGKILL)
    for file in Path(folder).iterdir():
        file.unlink()
    Path(folder).rmdir()


def test_it_ends_in_time_in_a_process_that_ignores_and_blocks_signals():
    program = """if True:
        import signal, time, chipwatch
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, signal.valid_signals())
        with chipwatch.watch(60, collectors="process") as run:
            begun = time.monotonic()
        print(time.monotonic() - begun)
        print(run.summary())
    """
    seconds, *lines = python(program).splitlines()
    assert float(seconds) < 5
    assert [line for line in lines if line.startswith("  memory")]


def test_a_folder_that_somebody_cleaned_hides_no_exception(temporary, caplog):
    run = chipwatch.watch(**QUICK)

    def train():
        with run:
            os.kill(agents()[0], signal.SIGSTOP)  # it would write some of them again
            while Path(f"/proc/{agents()[0]}/stat").read_text().rpartition(") ")[2][0] != "T":
                time.sleep(0.01)
            for file in [*run.path.parent.iterdir()]:
                file.unlink()
            os.kill(agents()[0], signal.SIGKILL)
            run._child.wait(LONG)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    assert run.summary() == "chipwatch: no reading so far\n  agent     the agent ended with -9"
    assert "no reading so far" in run._repr_html_()
    assert len(caplog.records) == 1


def test_a_program_that_cannot_be_started_leaves_nothing_behind(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        chipwatch.watch().start()


def test_only_the_first_rank_of_a_machine_is_watched_unless_asked(monkeypatch, tmp_path):
    for variable in ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"):
        with monkeypatch.context() as rank:
            rank.setenv(variable, "3")
            with chipwatch.watch(**QUICK) as run:
                assert agents() == []
            assert run.summary() == "chipwatch: nothing is watched: this is not the first rank of the machine"
    assert run.columns() == []
    assert "nothing is watched" in run._repr_html_()
    run.report(tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()
    monkeypatch.setenv("LOCAL_RANK", "3")
    with chipwatch.watch(**QUICK, everywhere=True):
        (agent,) = agents()
        assert os.getsid(agent) != os.getsid(0), "keys of the terminal do not reach it"


def test_under_torchrun_the_launcher_is_watched_with_all_ranks():
    program = """if True:
        import chipwatch, os
        with chipwatch.watch(0.1, collectors="process") as run:
            print(run.summary().split()[3] == str(os.getppid()))
        with chipwatch.watch(0.1, collectors="process", everywhere=True) as run:
            print(run.summary().split()[3] == str(os.getpid()))
    """
    env = {**os.environ, "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2"}
    assert python(program, env=env) == "True\nTrue\n"


WORKERS = """
import multiprocessing, sys
import chipwatch

def work(run):
    with chipwatch.watch(0.1, collectors="process") as own:
        return own.summary(), run.summary().split()[1], run._repr_html_()[:6]

def main():
    context = multiprocessing.get_context(sys.argv[1])
    with chipwatch.watch(0.1, collectors="process") as run, context.Pool(1) as pool:
        print(*pool.apply(work, [run]), sep="\\n")
        pool.close()
        pool.join()
        print(run._child.poll())

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_worker_of_multiprocessing_is_not_watched_and_reads_what_its_parent_gave_it(tmp_path, method):
    (tmp_path / "train.py").write_text(WORKERS)
    done = subprocess.run(
        [sys.executable, "train.py", method], capture_output=True, text=True, timeout=LONG, check=False, cwd=tmp_path
    )
    told = ["chipwatch: nothing is watched: multiprocessing started this process", "watched", "<table", "None"]
    assert (done.stdout.splitlines(), done.stderr) == (told, "")


def test_a_copy_ends_nothing():
    with chipwatch.watch(**QUICK) as run:
        copy = pickle.loads(pickle.dumps(run))
        assert copy.summary().startswith("chipwatch: watched ")
        copy.stop()
        del copy
        assert len(agents()) == 1


def test_it_loads_little_into_the_training():
    program = """if True:
        import sys, chipwatch
        with chipwatch.watch(0.1, collectors="process") as run:
            run.summary()
        print(sorted({name.partition(".")[0] for name in sys.modules} & {"msgspec", "psutil", "rich", "multiprocessing", "sqlite3"}))
    """
    assert python(program) == "[]\n"


def test_the_agent_finds_what_only_this_process_can_import(tmp_path, plugins_folder):
    source = """
        from optionless import *

        LOAD = gauge("mine.load", "1", "Load.")

        class Mine(Optionless, Collector):
            metrics = (LOAD,)

            def collect(self, at):
                yield LOAD.point(at, 7.0)
    """
    plugins_folder.add("my_plugins", source, collectors=[("mine", "Mine")])
    (tmp_path / "chipwatch.py").write_text("raise SystemExit('the wrong chipwatch')")
    program = """if True:
        import sys
        sys.path[0] = sys.argv[1]
        import chipwatch
        with chipwatch.watch(0.1, collectors="mine") as run:
            pass
        print({column.metric.name: column.values[0] for column in run.columns() if column.metric.name == "mine.load"})
    """
    assert python(program, plugins_folder.folder, cwd=tmp_path) == "{'mine.load': 7.0}\n"


def test_a_view_shows_graphs_and_escapes_what_it_reads(tmp_path, until):
    evil = "<script>alert(1)</script>"
    with chipwatch.watch(0.1, collectors="process", dims={"team": evil}) as run:
        until(lambda: last(run, "process.cpu.utilization") is not None)
    run.report(tmp_path / "report.html", price=2.5)
    assert "<script>alert" not in (tmp_path / "report.html").read_text()
    page = run._repr_html_()
    assert re.search(r"process.cpu.utilization</td><td><svg .*<polyline points=\"0,[\d.]+ ", page)
    from chipwatch.contract.datapoint import Dimensions, gauge
    from chipwatch.history.columns import RecordedSeries
    from chipwatch.show.watching.magic import html

    series = RecordedSeries(gauge("gpu.utilization", "%", "x"), Dimensions(gpu=evil))
    series.times.extend(range(1000))
    series.values.extend([-5.0, *range(998), 1e300])
    page = html(evil, [series])
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 2
    dots = re.search('points="(.*?)"', page)[1].split()
    assert len(dots) == 112
    assert all(0 < float(dot.split(",")[1]) < 24 for dot in dots)
    assert [dots[n].split(",")[0] for n in (0, -1)] == ["0", "240"]  # from edge to edge, however few readings


def test_without_a_library_of_tables_the_error_names_one():
    program = """if True:
        import sys, chipwatch
        sys.modules["pandas"] = sys.modules["polars"] = None
        for library in "", "polars", "xarray":
            try:
                chipwatch.watch().frame(library)
            except ModuleNotFoundError as problem:
                print(problem)
    """
    assert python(program).splitlines() == [
        "chipwatch: frame() needs pandas or polars: pip install pandas",
        "chipwatch: frame() needs polars: pip install polars",
        "chipwatch: frame() needs pandas or polars: pip install pandas",
    ]
