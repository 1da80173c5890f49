"""A command on a terminal, wrapped: its output, its progress bar, its keys and the shell's job control are its own."""

import contextlib
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest
from tests.doubles.nvml.driver import VARIABLE, CannotBuild, Driver, build, machine_with

LONG = 60.0
PROGRAM = """
import sys, time
for n in range(200):
    print(f"line {n}", flush=True)
    if n % 10 == 9:
        sys.stderr.write(f"\\r{n // 2 + 1:3} % |{'#' * (n // 20):10}|")
        sys.stderr.flush()
        time.sleep(0.05)
sys.stderr.write("\\n")
"""
LEADER = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""
FAILING = """
import os
from chipwatch.collectors.memory import MemoryCollector

class Failing(MemoryCollector):
    def collect(self, at):
        os.write(2, b"printed by a library")
        raise RuntimeError("no reading")
"""


class Terminal:
    """A pseudo-terminal with a program as the leader of its session."""

    def __init__(self, command, env):
        self._master, its = pty.openpty()
        words = [sys.executable, "-c", LEADER, *map(str, command)]
        self.process = subprocess.Popen(words, stdin=its, stdout=its, stderr=its, env=env, start_new_session=True)
        os.close(its)
        self.text = ""

    def read(self):
        """Take what was printed within a moment; return whether the terminal is still open."""
        if select.select([self._master], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # EIO: all programs have closed it
                data = os.read(self._master, 65536)
                self.text += data.decode().replace("\r\n", "\n")
                return bool(data)
            return False
        return True

    def until(self, pattern):
        """Wait for a text that matches, and forget all up to there; return the match."""
        deadline = time.monotonic() + LONG
        while not (found := re.search(pattern, self.text)):
            assert self.read(), f"the terminal has closed after {self.text!r}"
            assert time.monotonic() < deadline, f"what the test waits for does not come after {self.text!r}"
        self.text = self.text[found.end() :]
        return found

    def type(self, keys):
        os.write(self._master, keys.encode())

    def ask(self, line, pattern):
        """Type a line and wait for a match; a shell that sets the terminal right may discard what came too soon."""
        deadline = time.monotonic() + LONG
        while not self.text and time.monotonic() < deadline:
            self.type(line)
            again = time.monotonic() + LONG / 4
            while not self.text and time.monotonic() < again:
                self.read()
        return self.until(pattern)

    def close(self):
        os.close(self._master)  # hangs up: the kernel ends what runs on it
        self.process.kill()
        self.process.wait(LONG)


@pytest.fixture
def terminal(agent, agent_command):
    """Start a program on a new terminal, with `agent` on the path."""
    started = []

    def start(*command, **env):
        path = f"{os.path.dirname(agent_command[0])}:{os.environ['PATH']}"  # noqa: PTH120
        started.append(Terminal(command, agent.env(PATH=path, **env)))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_two_hundred_lines_and_a_progress_bar_survive_while_a_collector_fails(terminal, plugins_folder, tmp_path):
    plugins_folder.add("failing", FAILING, collectors=[("failing", "Failing")])
    bare = terminal(sys.executable, "-c", PROGRAM)
    while bare.read():
        pass
    words = ("--interval", "0.1", "--collector", "failing", "--collector", "process", "--log-level", "debug")
    env = {"PYTHONPATH": plugins_folder.folder, "STATE_DIRECTORY": tmp_path / "state"}
    wrapped = terminal("agent", *words, "--", sys.executable, "-c", PROGRAM, **env)
    while wrapped.read():
        pass
    assert bare.text.count("\n") == 201
    assert "\r100 % |#########" in bare.text
    assert wrapped.text.startswith(bare.text)
    first, *lines = wrapped.text.removeprefix(bare.text).splitlines()
    assert first.startswith(f"chipwatch: {sys.executable} ended with 0 after ")
    assert any(line.startswith("  CPU ") for line in lines[:2]), "beneath the time that it waited"
    assert re.fullmatch(rf"chipwatch: \d+ errors? logged in {tmp_path}/state/command.log", lines[-1])
    assert "collector failing: failed: no reading" in (tmp_path / "state/command.log").read_text()


def test_keys_and_job_control_reach_the_command_as_without_the_agent(terminal, tmp_path):
    bash = shutil.which("bash")
    if not bash:
        pytest.skip("there is no bash")
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys, time\n"
        "def told(number, frame):\n"
        "    os.write(1, b'heard %d\\n' % number)\n"
        "    sys.exit(7)\n"
        "signal.signal(signal.SIGINT, told)\n"
        "while (word := input('word? ')) != 'swordfish':  # the shell may leave a line that was typed twice\n"
        "    pass\n"
        "print('got', word, flush=True)\n"
        "for _ in range(3000):  # one long sleep would miss a signal that comes just before it\n"
        "    time.sleep(0.02)\n"
    )
    shell = terminal(bash, "--norc", "--noprofile", "-i", PS1="prompt> ", TERM="dumb")
    shell.until("prompt> ")
    shell.type(f"chipwatch --collector memory -- {sys.executable} {program}\n")
    shell.until(r"word\? ")
    shell.type("\x1a")
    shell.until("Stopped.*\n.*prompt> ")
    shell.ask("ps -o stat= $(jobs -p) | cut -c1\n", "\nT\n.*prompt> ")
    shell.ask("fg\n", "chipwatch .*\n")
    shell.type("swordfish\n")
    shell.until("got swordfish\n")
    shell.type("\x03")
    shell.until(f"heard {int(signal.SIGINT)}\n(.|\n)*chipwatch: .* ended with 7 after .*\n(.|\n)*prompt> ")
    assert "heard" not in shell.text
    shell.ask("echo code $?\n", "\ncode 7\n")


@pytest.mark.parametrize(("variable", "value"), [("SLURM_LOCALID", "3"), ("LOCAL_RANK", "1")])
def test_only_the_first_process_of_a_job_on_a_machine_prints_a_summary(agent, variable, value):
    assert agent.run("--collector", "memory", "--", "true", env={variable: value}).stderr == ""
    assert agent.run("--collector", "memory", "--", "true", env={variable: 0}).stderr.startswith(
        "chipwatch: true ended"
    )


def test_gpus_are_in_the_summary_and_what_is_sent_stays_at_its_level(agent, tmp_path):
    try:
        library = build(tmp_path)
    except CannotBuild as reason:
        pytest.skip(str(reason))
    driver = Driver(tmp_path, "h100", 2)
    for gpu in driver.gpus:
        gpu["field"]["83"] = "1000000@650000"  # mJ, and mW by which it rises
        del gpu["processes"]  # it works, and the driver names nobody
    driver.write()
    (tmp_path / "proc/driver/nvidia").mkdir(parents=True)
    (tmp_path / "proc/driver/nvidia/version").touch()
    points = tmp_path / "points.jsonl"
    env = {
        "LD_LIBRARY_PATH": library.parent,
        VARIABLE: driver.path,
        "CHIPWATCH_COLLECTORS__NVIDIA__PROC": tmp_path / "proc",
        "CHIPWATCH_SINKS__STDOUT__PATH": points,
    }
    program = "import time; time.sleep(4)"
    words = ("--interval", "0.2", "--collector", "nvidia", "--format", "json")
    done = agent.run(*words, "--", sys.executable, "-c", program, env=env)
    lines = done.stderr.splitlines()
    title, *rows, doubt = (line.split() for line in lines if line.startswith(("  GPU", "    ")))
    assert " ".join(doubt) == "it is not known whether the command used them"  # the driver's pids are of elsewhere
    assert " ".join(title) == "GPU busy busy p95 memory peak efficiency energy energy, by state throttled"
    assert [row[0] for row in rows] == ["0", "1"]
    assert all(float(row[row.index("Wh") - 1]) > 0.2 for row in rows)
    sent = points.read_text()
    assert '"gpu.utilization"' in sent
    assert '"gpu.energy"' not in sent
    written = sent.count("\n")
    assert f"  sent      stdout {written:,} of {written:,} points" in lines  # a busy machine has a warning after it


@pytest.mark.parametrize(("pids", "line"), [("1:9", "(2 here, used by others)"), (None, "(2 here)")])
def test_a_command_that_used_no_gpu_has_no_cost_of_the_gpus_of_others(agent, tmp_path, pids, line):
    driver, env = machine_with(tmp_path, 2)
    for gpu in driver.gpus:
        gpu |= {"processes": pids, "kernels": "4/5" if pids else "0/1000+1000", "utilization": {}}
    driver.write()
    env["CHIPWATCH_PROCESSORS__JOBS__DOLLARS_PER_HOUR"] = "2.5"
    done = agent.run("--interval", "0.2", "--collector", "nvidia,jobs", "--", "sleep", "2", env=env)
    assert f"  GPU       used no GPU {line}" in done.stderr.splitlines()
    assert not re.search("  (cost|advice|time      acc)", done.stderr)


@pytest.mark.parametrize("place", ["no/folder/run.chipwatch", "folder", "full/run.chipwatch"])
def test_a_recording_that_cannot_be_written_is_refused_before_the_command_starts(agent, tmp_path, place):
    (tmp_path / "folder").mkdir()
    (tmp_path / "full").mkdir()
    limit = "ulimit -f 0; " if "full" in place else ""  # as on a full disk, the system takes no byte
    file, started = tmp_path / place, tmp_path / "started"
    done = in_shell(agent, f'{limit}exec "$@"', "record", file, "--collector", "memory", "--", "mkdir", started)
    assert done.returncode == 2
    assert done.stderr.startswith(f"chipwatch: record: {file}: ")
    assert not started.exists()
    assert place == "folder" or not file.exists()


def test_a_recording_that_fails_while_the_command_runs_is_the_last_line_of_the_summary(agent, tmp_path):
    file, words = tmp_path / "run.chipwatch", ("--collector", "memory", "--interval", "0.1", "--", "sleep", "4")
    done = in_shell(agent, 'ulimit -f 2; exec "$@"', "record", file, *words)
    assert done.returncode == 0, "the command's own"
    *_, head, last = [line for line in done.stderr.splitlines() if line.startswith("  ")]
    assert head.startswith(f"  recorded  {file} (")
    assert re.fullmatch(
        r"  recorded  not all of the run: nothing after [\d:]{8}: the (disk is full|file would be larger) .*", last
    )


def test_a_recording_that_is_not_whole_ends_with_an_error(agent, tmp_path):
    words = ("--collector", "memory", "--interval", "0.1", "--duration", "4")
    done = in_shell(agent, 'ulimit -f 2; exec "$@"', "record", tmp_path / "run.chipwatch", *words)
    assert done.returncode == 1
    assert re.search("recorder: the (disk is full|file would be larger)", done.stderr)


def test_a_command_that_cannot_start_leaves_no_recording(agent, tmp_path):
    file = tmp_path / "run.chipwatch"
    assert agent.run("record", file, "--collector", "memory", "--", tmp_path / "nothing").returncode == 127
    assert not file.exists()


def in_shell(agent, script, *words):
    """Run the command through a shell, which may set limits first."""
    command = ["sh", "-c", script, "sh", *agent.command, *map(str, words)]
    return subprocess.run(command, env=agent.env(), capture_output=True, text=True, timeout=LONG, check=False)
