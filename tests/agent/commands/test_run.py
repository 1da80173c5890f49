"""`chipwatch run` as users know it: the real command, real signals, real pipes."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.ports import free_port

from chipwatch.commands import run
from chipwatch.config.load import load
from chipwatch.contract.datapoint import Dimensions
from chipwatch.engine.build import assemble

LONG = 60.0
IN_TIME = 2.0
"""Seconds that an end may take: one is promised, and a machine that runs tests is busy."""
FEW = ("--collector", "memory", "--format", "json")


def seconds(point) -> float:
    """Return the moment of a point, cut to milliseconds as it is."""
    return datetime.fromisoformat(point["time"]).timestamp()


@pytest.fixture
def port():
    return free_port()


# -- once, and for a while ------------------------------------------------------------------------------------------


def test_once_prints_one_reading_of_everything_with_the_common_dimensions_and_nothing_else(agent):
    words = ("--collector", "memory,cpu", "--level", "detailed", "--log-level", "debug")
    common = ("--common-dims", "hostname,slurm_job", "--dim", "team=ml")
    done = agent.run("--once", *words, *common, env={"SLURM_JOB_ID": "77"})
    points = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert len({p["time"] for p in points}) == 1
    assert {"memory.used", "cpu.utilization", "agent.memory.rss"} <= {p["name"] for p in points}
    expected = {"hostname": os.uname().nodename, "slurm_job": "77", "team": "ml"}
    assert all(expected.items() <= p["dims"].items() for p in points)


def test_once_shows_counters_with_their_increase(agent):
    done = agent.run("--once", "--level", "all", "--no-collector", "container")
    assert done.stderr == ""
    counters = [p for p in map(json.loads, done.stdout.splitlines()) if p["kind"] == "counter"]
    assert counters
    assert all({"start_time", "increase"} <= p.keys() for p in counters)


def test_a_duration_ends_it_with_0_and_with_the_last_moment(agent):
    begun = time.monotonic()
    done = agent.run("--duration", "0.6", "--interval", "0.25", *FEW)
    assert time.monotonic() - begun < LONG / 2
    times = sorted({seconds(json.loads(line)) for line in done.stdout.splitlines()})
    assert (done.returncode, done.stderr) == (0, "")
    assert 0.55 <= times[-1] - times[0] < LONG / 2


# -- beside a process -----------------------------------------------------------------------------------------------


PARENT = """if True:
    import os, subprocess, sys, time
    words = [*sys.argv[1:], "--pid", str(os.getpid()), "--parent", str(os.getpid())]
    block = bytearray(60_000_000)
    started = subprocess.Popen(words, start_new_session=True)
    print(started.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def beside(agent, tmp_path):
    """A process that has started the agent beside it."""
    words = [*agent.command, "--interval", "0.1", "--summary", tmp_path / "summary", "--collector", "process"]
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=agent.env(),
        text=True,
    )
    yield process
    process.kill()
    process.wait()
    process.stdout.close()
    process.stdin.close()


def ended(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] in "ZX"
    except OSError:
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_its_parent_and_leaves_a_summary_of_it(beside, tmp_path, until, number):
    # The agent prints there too, perhaps before its parent.
    pid, summary = int(next(line for line in beside.stdout if line.strip().isdecimal())), tmp_path / "summary"
    until(lambda: summary.exists() and "\n  memory " in summary.read_text())
    assert not ended(pid)
    beside.send_signal(number)
    until(lambda: ended(pid))
    first, *lines = summary.read_text().splitlines()
    assert re.fullmatch(rf"chipwatch: watched process {beside.pid} for [\d.]+ s", first)
    (memory,) = [line for line in lines if line.startswith("  memory ")]
    assert re.fullmatch(r"  memory    peak (5\d|6\d|7\d|8\d)\.\d MiB in 1 process", memory), "the agent is not counted"
    assert any(re.fullmatch(r"  sent      stdout (\d+) of \1 points", line) for line in lines), lines


# -- the end --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_in_time_with_0_and_with_the_last_sample(agent, until, number):
    running = agent.start("--interval", "60", *FEW)
    until(running.points)
    asked = time.time()
    code, took = running.stop(number)
    assert (code, running.errors()) == (0, "")
    assert took < IN_TIME
    assert asked - 0.001 <= seconds(running.points()[-1]) <= asked + LONG


def test_a_window_cut_short_by_a_signal_is_sent_and_has_every_sample(agent, until, port):
    running = agent.start("--interval", "0.1", "--window", "3600", *FEW, "--health", port)
    until(lambda: answer(port, "/healthz")[0] == 200)
    time.sleep(0.5)  # some ticks; how many does not matter
    assert running.points() == []
    assert running.stop()[0] == 0
    used = [p for p in running.points() if p["name"] == "memory.used"]
    assert 1 <= len(used) <= 2
    assert sum(p["summary"]["count"] for p in used) >= 3


@pytest.mark.parametrize(("first", "second"), [(signal.SIGTERM, signal.SIGINT), (signal.SIGINT, signal.SIGHUP)])
def test_a_second_signal_of_any_kind_ends_it_at_once(agent, until, plugins_folder, first, second):
    plugins_folder.add("slow", HUNG_SINK, sinks=[("slow", "Slow")])
    running = agent.start("--interval", "0.2", "--sink", "slow", "--sink", "stdout", "--collector", "memory",
                          env={"PYTHONPATH": plugins_folder.folder})  # fmt: skip
    until(running.points)
    running.process.send_signal(first)
    with pytest.raises(subprocess.TimeoutExpired):
        running.process.wait(0.5)  # the sink has its seven seconds
    code, took = running.stop(second)
    assert code == -second
    assert took < IN_TIME


HUNG_SINK = """
import threading
from optionless import *

class Slow(Optionless, Sink):
    limits = Limits(max_points=100, window=0, flush=0, durable=False)

    def write(self, batch):
        threading.Event().wait()
"""


def test_a_single_reading_names_the_sink_that_hangs(agent, plugins_folder):
    plugins_folder.add("slow", HUNG_SINK, sinks=[("slow", "Slow")])
    words = ("--once", "--interval", "0.1", "--sink", "slow", "--sink", "stdout", "--collector", "memory")
    done = agent.run(*words, env={"PYTHONPATH": plugins_folder.folder})
    assert done.returncode == 1
    said = [line.partition("chipwatch: ")[2] for line in done.stderr.splitlines() if "no answer" in line]
    assert said == ["slow: no answer within 7 s of the end"]


def test_a_single_reading_for_a_scraper_alone_is_refused_and_beside_another_sink_gives_a_warning(agent, port):
    text = "--once: it ends before anything can scrape prometheus; leave it out, or give --duration"
    env = {"CHIPWATCH_SINKS__PROMETHEUS__LISTEN": f"127.0.0.1:{port}"}
    alone = agent.run("--once", "--sink", "prometheus", *FEW[:2], env=env)
    assert (alone.returncode, alone.stdout, alone.stderr) == (2, "", f"chipwatch: {text}\n")
    both = agent.run("--once", "--interval", "0.1", "--sink", "prometheus", "--sink", "stdout", *FEW, env=env)
    assert (both.returncode, both.stderr.partition("chipwatch: ")[2]) == (0, f"{text}\n")
    assert both.stdout


def test_a_reader_who_leaves_ends_it_quietly_with_0(agent):
    script = f'"{agent.command[0]}" --interval 0.1 {" ".join(FEW)} | head -n 1; exit "${{PIPESTATUS[0]}}"'
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, env=agent.env(), timeout=LONG, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["name"]


def test_a_closed_standard_output_is_reported_with_what_is_lost_and_no_traceback(agent):
    script = f'exec "{agent.command[0]}" --duration 0.5 --interval 0.1 {" ".join(FEW)} >&-'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, env=agent.env(), check=False)
    refused, ledger = done.stderr.splitlines()
    assert "standard output is closed" in refused
    assert re.search(r"stopping: collected (\d+), sent 0, rejected 0, dropped \1, kept 0$", ledger)
    once = script.replace("--duration 0.5", "--once")
    done = subprocess.run(["bash", "-c", once], capture_output=True, text=True, env=agent.env(), check=False)
    assert (done.returncode, "standard output is closed" in done.stderr) == (1, True)
    assert "Traceback" not in done.stderr


# -- a watched command ----------------------------------------------------------------------------------------------


def python(program: str) -> list[str]:
    return ["--", sys.executable, "-c", program]


class File:
    """To which the stdout sink writes beside a command."""

    def __init__(self, path):
        self.path, self.env = path, {"CHIPWATCH_SINKS__STDOUT__PATH": path}

    def points(self):
        lines = self.path.read_text().splitlines(keepends=True) if self.path.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture
def file(tmp_path):
    return File(tmp_path / "points.jsonl")


def test_the_commands_code_is_the_agents_and_its_end_ends_the_agent(agent, file):
    done = agent.run("--interval", "60", *FEW, *python("raise SystemExit(42)"), env=file.env)
    assert done.returncode == 42
    assert {point["name"] for point in file.points()} >= {"memory.used", "incident.recorded"}


def test_a_command_that_a_signal_ended_gives_128_and_its_number(agent):
    done = agent.run("--collector", "memory", *python("import os; os.kill(os.getpid(), 9)"))
    assert done.returncode == 128 + 9
    assert " ended with 137 (SIGKILL) after " in done.stderr


def test_the_code_is_known_also_where_a_parent_ignores_the_end_of_its_children(agent):
    program = (
        "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = (*agent.command, "--quiet", "--collector", "memory", "--", "sh", "-c", "exit 3")
    done = subprocess.run([sys.executable, "-c", program, *words], env=agent.env(), timeout=LONG, check=False)
    assert done.returncode == 3


def test_a_command_that_is_not_there_gives_127_and_one_that_cannot_be_executed_126(agent, tmp_path):
    for command, code, why in (("/no/such/command", 127, "command not found"), (tmp_path, 126, "Permission denied")):
        done = agent.run("--", command)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", f"chipwatch: {command}: {why}\n")


def test_a_sink_that_gets_nothing_is_named_while_the_command_runs(monkeypatch, tmp_path):
    monkeypatch.setattr(run, "EARLY", 0.0)
    config = load(None, {
        "sink": ["otlp"], "endpoint_url": "http://127.0.0.1:9", "collector": ["memory"], "interval": "0.1",
        "window": "0.1", "flush": "0.1", "spool": str(tmp_path),
    }, {})  # fmt: skip
    pipeline, lines = assemble(config, Dimensions), list[str]()
    run._tell_early(pipeline, lines.append)
    pipeline.after_tick.append(lambda: pipeline.stop() if lines else None)
    pipeline.start()
    pipeline.run(LONG)
    pipeline.close()
    (line,) = lines
    assert line == "chipwatch: otlp: nothing is sent so far: 127.0.0.1:9: nothing listens there (Connection refused)"


def test_a_sink_has_15_seconds_before_it_is_named(monkeypatch):
    now, lines = [100.0], list[str]()
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    worker = SimpleNamespace(health=SimpleNamespace(delivered=None, last_error="down"))
    pipeline = SimpleNamespace(routes=[SimpleNamespace(name="otlp", worker=worker)], after_tick=[])
    run._tell_early(pipeline, lines.append)
    (look,) = pipeline.after_tick
    for now[0], count in ((114.9, 0), (115.0, 1)):
        look()
        assert len(lines) == count


@pytest.mark.parametrize("words", [["--sink", "stdout"], ["--format", "json"]], ids=lambda words: words[0])
def test_standard_output_is_the_commands_and_a_sink_that_would_write_there_is_refused(here, tmp_path, words):
    done = here(*words, "--", "touch", tmp_path / "begun")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "chipwatch: sinks.stdout: standard output belongs to the command after --; write to a file with"
        " [sinks.stdout] path = FILE, or choose another sink\n"
    )
    assert not (tmp_path / "begun").exists()


def test_the_command_has_the_agents_standard_streams(agent):
    program = "print(input()); import sys; print('e', file=sys.stderr)"
    done = agent.run("--collector", "memory", "--quiet", *python(program), input="hello\n", stdin=None)
    assert (done.stdout, done.stderr) == ("hello\n", "e\n")


def test_whatever_libraries_print_on_standard_error_does_not_reach_the_command_s(agent, plugins_folder):
    plugins_folder.add(
        "noisy",
        """
        import os
        from chipwatch.contract.collector import Collector
        from chipwatch.collectors.memory import MemoryCollector

        class Noisy(MemoryCollector):
            def collect(self, at):
                os.write(2, b"noise of a library")
                return super().collect(at)
        """,
        collectors=[("noisy", "Noisy")],
    )
    program = "import time; time.sleep(0.5)"
    env = {"PYTHONPATH": plugins_folder.folder}
    done = agent.run("--interval", "0.1", "--collector", "noisy", *python(program), env=env)
    assert done.stderr.startswith("chipwatch: ")
    assert "noise" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_is_passed_on_to_the_command(agent, until, tmp_path, number):
    ready = tmp_path / "ready"
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(7))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "for _ in range(3000):  # one long sleep would miss a signal that comes just before it\n"
        "    time.sleep(0.02)\n"
    )
    running = agent.start("--interval", "60", "--collector", "memory", *python(program), start_new_session=True)
    until(ready.exists)
    code, took = running.stop(number)
    assert code == 7
    assert took < IN_TIME


def test_a_command_that_ignores_sigterm_goes_on_and_so_does_the_agent(agent, until, tmp_path, file):
    ready, heard = tmp_path / "ready", tmp_path / "heard"
    program = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal(signal.SIGTERM, lambda *_: pathlib.Path({str(heard)!r}).touch())\n"
        "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(5))\n"
        f"pathlib.Path({str(ready)!r}).touch()\n"
        "for _ in range(3000):  # one long sleep would miss a signal that comes just before it\n"
        "    time.sleep(0.02)\n"
    )
    running = agent.start("--interval", "0.1", *FEW, *python(program), env=file.env)
    until(ready.exists)
    running.process.send_signal(signal.SIGTERM)
    until(heard.exists)
    before = len(file.points())
    until(lambda: len(file.points()) > before + 6)
    assert running.process.poll() is None
    assert running.stop(signal.SIGUSR2)[0] == 5


def test_a_signal_that_comes_while_the_command_starts_is_forwarded(agent, plugins_folder):
    (plugins_folder.folder / "sitecustomize.py").write_text(
        "import signal, subprocess\n"
        "class Interrupted(subprocess.Popen):\n"
        "    def __init__(self, *words, **options):\n"
        "        super().__init__(*words, **options)\n"
        "        signal.raise_signal(signal.SIGTERM)\n"
        "subprocess.Popen = Interrupted\n"
    )
    env = {"PYTHONPATH": plugins_folder.folder}
    done = agent.run("--quiet", "--collector", "memory", *python("import time; time.sleep(60)"), env=env)
    assert done.returncode == 128 + signal.SIGTERM


def test_a_command_that_outlives_the_duration_is_waited_for_before_the_summary_is_printed(agent):
    program = "import sys, time; time.sleep(1.5); sys.exit('last words')"
    done = agent.run("--duration", "0.2", "--collector", "memory", *python(program))
    assert done.returncode == 1
    first, second, *_ = done.stderr.splitlines()
    assert first == "last words"
    assert float(re.search(r" ended with 1 after (.*) s$", second)[1]) >= 1.5


def test_the_last_moments_of_a_command_are_in_the_last_sample(agent, file):
    program = "import sys, time; time.sleep(0.4); sys.stderr.write(repr(time.time()))"
    done = agent.run("--quiet", "--interval", "60", *FEW, *python(program), env=file.env)
    assert seconds(file.points()[-1]) >= float(done.stderr) - 0.001


def test_the_tree_of_the_command_is_what_is_watched(agent, file):
    program = "import os, time; block = bytearray(50_000_000); time.sleep(0.8)"
    done = agent.run("--interval", "0.2", "--collector", "process", *python(program), env=file.env)
    rss = [p["value"] for p in file.points() if p["name"] == "process.memory.rss"]
    assert done.returncode == 0
    assert rss
    assert 50_000_000 < max(rss) < 500_000_000


WRONG = "--pid=1", "--level=many", "--names=x", "--format=xml", "--sink=xyz", "--collector=xyz", "--dim=x", "--health=x"


@pytest.mark.parametrize("word", WRONG)
def test_nothing_is_started_before_everything_is_found_right(here, tmp_path, word):
    started = tmp_path / "started"
    done = here(word, *python(f"import pathlib; pathlib.Path({str(started)!r}).touch()"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert not started.exists()


def test_no_command_is_started_where_the_port_is_taken(here, tmp_path):
    started = tmp_path / "started"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        done = here("--health", number, *python(f"import pathlib; pathlib.Path({str(started)!r}).touch()"))
    assert done.returncode == 2
    assert (
        done.stderr
        == f"chipwatch: --health {number}: another program uses it (Address already in use); choose another address or port\n"
    )
    assert not started.exists()


# -- health ---------------------------------------------------------------------------------------------------------


def answer(number: int, path: str):
    connection = http.client.HTTPConnection("127.0.0.1", number, timeout=10)
    try:
        connection.request("GET", path)
        got = connection.getresponse()
        return got.status, json.loads(got.read())
    except OSError:
        return None, None
    finally:
        connection.close()


def listening(pid: int) -> set[str]:
    """Return the sockets of a process that listen, by their numbers in /proc."""
    held = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            held |= set(re.findall(r"socket:\[(\d+)\]", str(link.readlink())))
        except FileNotFoundError:
            continue
    rows = [
        line.split()
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()
    ]
    return held & {row[9] for row in rows if row[3] == "0A"}


def test_health_and_readiness_are_served_where_asked_for_and_stop_in_time(agent, until, port):
    running = agent.start("--interval", "0.2", *FEW, "--health", port)
    until(lambda: answer(port, "/healthz")[0] == 200)
    code, facts = answer(port, "/readyz")
    assert (code, facts["ok"], facts["refused"]) == (200, True, {})
    assert "stdout" in facts["spooled"]
    assert answer(port, "/metrics")[0] == 404
    code, took = running.stop()
    assert code == 0
    assert took < IN_TIME


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="no /proc here")
def test_nothing_listens_unless_it_is_asked_for(agent, until, port):
    quiet, open_ = agent.start("--interval", "0.2", *FEW), agent.start("--interval", "0.2", *FEW, "--health", port)
    until(lambda: quiet.points() and open_.points())
    assert listening(quiet.pid) == set()
    assert len(listening(open_.pid)) == 1


def test_a_sink_that_is_refused_makes_it_not_ready_but_it_is_healthy(agent, until, port, plugins_folder):
    source = HUNG_SINK.replace("    def write(self, batch):\n        threading.Event().wait()", REFUSED)
    plugins_folder.add("refused", source, sinks=[("refused", "Slow")])
    running = agent.start("--interval", "0.2", "--sink", "refused", "--collector", "memory", "--health", port,
                          env={"PYTHONPATH": plugins_folder.folder})  # fmt: skip
    until(lambda: answer(port, "/readyz")[1] and answer(port, "/readyz")[1]["refused"])
    code, facts = answer(port, "/readyz")
    assert (code, facts["refused"]) == (503, {"refused": "no such role"})
    assert facts["spooled"]["refused"] > 0
    assert answer(port, "/healthz")[0] == 200
    assert running.stop()[0] == 0
    assert running.errors().count("no such role") == 1


REFUSED = """
    def write(self, batch):
        from chipwatch.contract.errors import Refused
        raise Refused("no such role")
"""


# -- signals while it starts -----------------------------------------------------------------------------------------

SIGNALLED = """if True:
    import os, sys
    name, number = sys.argv[1], int(sys.argv[2])
    del sys.argv[1:3]
    def look(frame, event, _):
        if event == "call" and frame.f_code.co_name == name and "chipwatch" in frame.f_code.co_filename:
            sys.setprofile(None)
            os.kill(os.getpid(), number)
    from chipwatch.__main__ import main
    sys.setprofile(look)
    main()
"""


@pytest.mark.parametrize("place", ["open_standard_streams", "code_of_failure", "metrics"])
def test_ctrl_c_ends_a_command_that_starts_without_a_traceback(agent, place):
    words = [sys.executable, "-c", SIGNALLED, place, str(int(signal.SIGINT)), "list"]
    done = subprocess.run(words, env=agent.env(), capture_output=True, text=True, timeout=LONG, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize("place", ["open_standard_streams", "load", "assemble"])
def test_a_hang_up_while_it_starts_reloads_and_does_not_end_it(agent, place):
    words = [sys.executable, "-c", SIGNALLED, place, str(int(signal.SIGHUP)), *FEW, "--interval", "0.2"]
    with subprocess.Popen(words, env=agent.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline()
        process.terminate()
        _, told = process.communicate(timeout=LONG)
    assert json.loads(line)["name"].startswith("memory.")
    assert process.returncode == 0, told


@pytest.mark.parametrize("words", [["list"], ["--", "sleep", "60"]])
def test_a_command_that_a_terminal_leaves_behind_while_it_starts_ends(agent, words):
    words = [sys.executable, "-c", SIGNALLED, "parse", str(int(signal.SIGHUP)), *words]
    done = subprocess.run(words, env=agent.env(), capture_output=True, text=True, timeout=LONG, check=False)
    assert done.returncode == -signal.SIGHUP
