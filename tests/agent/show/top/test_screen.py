"""`chipwatch top` in a pseudo-terminal, as a terminal emulator shows it."""

import json
import os
import re
import signal
import stat
import subprocess
import sys
import termios
import time

import psutil
import pytest
from tests.agent.show.top.conftest import ENTERED, LEFT, Seat
from tests.doubles.cloudwatch import environment

USER = psutil.Process().username()  # columns show its beginning
SIZES = [(60, 20), (80, 24), (120, 40), (240, 60)]
COLORED = re.compile(rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")
PLUGINS = """
import threading
from chipwatch.contract.facts import Device, DeviceProcess
from optionless import *

METRIC = gauge("gpu.utilization", "%", "A share.", dims=("gpu",))
GPU = Dimensions(gpu="7")

class Plugin(Optionless):
    metrics = ()
    read = 0

class Hanging(Plugin, Collector):
    metrics = (METRIC,)

    def collect(self, at):
        self.read += 1
        if self.read > 3:
            threading.Event().wait()
        yield METRIC.point(at, 50.0 + self.read, GPU)

class Wrong(Plugin, Collector):
    metrics = (METRIC,)
    knows = (Device,)

    def facts(self):
        return [Device(GPU, 5)]

    def collect(self, at):
        yield METRIC.point(at, 50.0, GPU)

class Malformed(Plugin, Collector):
    knows = (DeviceProcess,)

    def facts(self):
        return [DeviceProcess(Dimensions(gpu="0"), "no number")]

    def collect(self, at):
        return ()

class Odd(Plugin, Processor):
    def derive(self, tick, at, facts):
        return ()

    def answer(self):
        raise TypeError("not an answer")
"""


@pytest.fixture
def child():
    """Start a process that waits, with a secret in its environment."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(99)"], env=os.environ | {"SECRET_TOKEN": "hunter2"}
    )
    yield process
    process.kill()
    process.wait()


def row(text, number):
    """Return the words of the row of an accelerator."""
    return next(line.split() for line in text.splitlines() if line.split()[:1] == [str(number)])


def test_each_accelerator_has_a_row_at_every_size_and_a_terminal_that_is_resized_is_filled_again(sit, gpus):
    seat = sit(size=SIZES[0], env=gpus.env)
    for columns, lines in SIZES:
        seat.resize(columns, lines)
        expected = {"90": True, "lost": True, "H100": columns >= 100, "600/700 W": columns >= 80}
        seat.until(lambda text: "q quit" in text.splitlines()[-1])
        text = seat.until(lambda text, expected=expected: {word: word in text for word in expected} == expected)
        assert len(text.splitlines()) == lines
        for n in (0, 1, 2, 3, 4, 7):
            assert {str(90 - n), str(60 + n), f"{70 - n}/80G"} <= {*row(text, n)}, text
        assert row(text, 6)[-1] == "lost"
        assert "free" in text
        assert ("1980" in text) == (columns > 140)
        assert "CPU " in text
        assert seat.lines[0].startswith("chipwatch top")
    seat.resize(20, 5)
    seat.shows("at least")


def test_a_narrow_screen_has_host_and_graphs_and_processes_where_there_is_room(sit, gpus):
    text = sit(size=(100, 50), env=gpus.env).shows("utilization", "now", USER[:10], "  python", "%MEM")
    assert re.search(rf" 3 +{os.getpid()} +{re.escape(USER[:10])} +(\S+ +)?13G", text)
    assert re.search(rf"{os.getpid()} .* \d+\.\d +\d+:\d\d:\d\d  python", text)
    assert sys.executable not in text


def test_a_wide_screen_has_job_and_user_of_a_device_and_why_its_clock_is_held_down(sit, gpus):
    words = re.compile("(?s) job .*1980.*(stalled|busy|held)")
    text = sit(size=(160, 50), env=gpus.env).until(lambda text: words.search(text) and "T" in row(text, 2))
    assert re.search(rf"(busy|stalled|held)[^\n]* {re.escape(USER[:8])} ", text)
    assert "1980" in row(text, 1)


@pytest.mark.parametrize(
    ("words", "env", "is_colored"),
    [((), {"NO_COLOR": "1"}, False), (("--colors", "none"), {}, False), (("--colors", "light"), {}, True)],
)
def test_colours_are_sent_unless_there_are_to_be_none(sit, gpus, words, env, is_colored):
    seat = sit(*words, env=gpus.env | env)
    seat.shows("H100", "lost", "now")
    assert bool(COLORED.search(seat.sent)) is is_colored


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGQUIT, 131), (signal.SIGINT, 0)],
    ids=["TERM", "HUP", "QUIT", "INT"],
)
def test_a_signal_ends_it_and_the_terminal_is_as_before(sit, number, code):
    seat = sit()
    seat.shows("CPU", "q quit")
    assert termios.tcgetattr(seat.file)[3] & (termios.ECHO | termios.ICANON) == 0
    seat.kill(number)
    assert seat.end() == code
    assert termios.tcgetattr(seat.file) == seat.before
    assert seat.sent.count(ENTERED) == seat.sent.count(LEFT) == 1
    assert seat.sent.endswith(LEFT)


@pytest.mark.parametrize("pause", [0, 0.1])
def test_a_signal_while_plugins_are_loaded_ends_it(sit, pause):
    seat = sit()
    seat.shows("chipwatch top")
    time.sleep(pause)
    seat.kill()
    assert seat.end() == 143


@pytest.mark.parametrize("pause", [0, 0.001])
def test_a_second_signal_does_not_interrupt_the_restoration(sit, pause):
    seat = sit()
    seat.shows("CPU", "q quit")
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT, signal.SIGTERM):
        seat.kill(number)
        time.sleep(pause)  # not a wait: it chooses the moment
    seat.end()
    assert seat.sent.endswith(LEFT)
    assert termios.tcgetattr(seat.file) == seat.before


def test_a_terminal_whose_output_is_stopped_does_not_hold_a_signal_up(sit):
    seat = sit()
    seat.shows("CPU", "q quit")
    seat.press("\x13")
    seat.kill()
    seat.end()
    assert seat.code == 143
    assert termios.tcgetattr(seat.file) == seat.before


def test_a_stop_and_a_continuation_take_the_screen_again(sit):
    seat = sit()
    seat.shows("q quit")
    seat.kill(signal.SIGTSTP)
    seat.until(lambda _: seat.sent.count(ENTERED) == 2)
    assert seat.sent.index(LEFT) < seat.sent.rindex(ENTERED)
    seat.shows("q quit")


def test_keys_sort_filter_and_switch(sit, gpus):
    seat = sit(size=(120, 50), env=gpus.env)
    seat.shows("H100", "lost", "now", USER[:8])

    def order():
        return [line.split()[0] for line in seat.lines if "H100" in line]

    assert order() == ["0", "1", "2", "3", "4", "5", "7"]
    seat.press("r")
    seat.until(lambda _: order()[0] == "7")
    seat.press("rs")
    seat.shows("by model")
    seat.press("S")
    seat.until(lambda text: "by " not in text)
    seat.press("/free\r")
    seat.until(lambda _: order() == ["5"])
    seat.press("\x1b")
    seat.until(lambda _: len(order()) == 7)
    seat.press(f"/{os.getpid()}\r")  # a process keeps its GPUs
    seat.until(lambda _: order() == ["0", "1", "2", "3", "4", "7"])
    seat.press("\x1b/nowhere\r")
    seat.shows("nothing here has 'nowhere'; Esc clears the filter")
    seat.press("\x1b")
    seat.until(lambda _: len(order()) == 7)
    seat.press("p")
    seat.until(lambda text: "PID" not in text)
    seat.press("g")
    seat.until(lambda text: " now" not in text)
    seat.press("gp")
    seat.shows(" now", "PID")
    seat.press("1")
    seat.until(lambda text: any(line.startswith("  0 ") and "H100" not in line for line in text.splitlines()))
    seat.press("1+")
    seat.shows("-3.3 min")
    seat.press("?")
    seat.shows("Find", "absent is not zero")
    seat.press("?")
    seat.shows("H100")
    seat.press(" ")
    seat.shows("paused")
    seat.press(" ")
    seat.until(lambda text: "paused" not in text)


def test_a_process_has_details_without_values_of_its_environment(sit, gpus, child):
    gpus.driver.gpus[0]["processes"] = f"{child.pid}:{2**30}"
    gpus.driver.write()
    seat = sit(env=gpus.env)
    seat.shows("H100", "PID", f" {child.pid} ")
    seat.press("\r")
    seat.shows("choose a process first")
    seat.press("\t\r")
    text = seat.shows("environment", "SECRET_TOKEN", "cgroup", "parents", f"{os.getpid()} ", "time.sleep(99)")
    assert "hunter2" not in text
    seat.press("\r")
    seat.until(lambda text: "environment" not in text)


def test_the_cause_that_slows_a_job_is_a_line(sit, gpus, child):
    gpus.driver.gpus[0]["processes"] = f"{child.pid}:{2**30}"
    gpus.driver.write()
    child.send_signal(signal.SIGSTOP)
    sit(env=gpus.env, size=(140, 50)).shows(f"process {child.pid} on gpu 0 is stopped")


def test_the_colour_of_a_graph_follows_the_load_and_nothing_blinks_or_is_erased(sit, gpus):
    for gpu, load in zip(gpus.driver.gpus, (97, 5, 50, 20), strict=False):
        gpu["utilization"]["gpu"] = gpu["gpm"]["1"] = load
    gpus.driver.write()
    seat = sit(env=gpus.env)
    seat.shows("H100", "97", "PID", "-2 s")
    x = next(line.index("busy 60 s") for line in seat.lines if "busy 60 s" in line)
    colors = [seat.screen.buffer[y][x].fg for y, line in enumerate(seat.lines) if "H100" in line][:4]
    assert len({*colors}) == 4
    assert not re.search(rb"\x1b\[(?:\d+;)*[56](?:;\d+)*m", re.sub(rb"38;5;\d+", b"", seat.sent))
    assert seat.sent.count(b"\x1b[2J") == 1


def test_a_host_without_accelerators_lists_its_processes_and_its_cores(sit, child):
    seat = sit("--no-collector", "nvidia", size=(100, 60))
    text = seat.shows("PID", "%MEM", "time", "command", "no accelerator was found", "load", "network")
    assert re.search(r"^memory .* %  \d", text, re.MULTILINE)
    seat.press(f"/{child.pid}\r")
    assert re.search(rf" {child.pid} .* python -c ", seat.shows("time.sleep(99)"))
    seat.press("1")
    seat.until(lambda text: any(line.startswith("  0 ") for line in text.splitlines()))


def test_a_click_chooses_a_row_and_sorts_by_a_title(sit, gpus):
    seat = sit(env=gpus.env)
    seat.shows("H100", "lost", f" {os.getpid()} ")
    seat.press(" ")  # else rows may move between a look and a click
    seat.shows("paused", f" {os.getpid()} ")

    def click(word):
        y, line = next((y, line) for y, line in enumerate(seat.lines, 1) if word in line)
        seat.press(f"\x1b[<0;{line.index(word) + 1};{y}M\x1b[<0;1;{y}m")

    click("temp")
    seat.shows("by temp")
    assert next(line.split()[0] for line in seat.lines if "H100" in line) == "7"
    click(f" {os.getpid()} ")
    click(f" {os.getpid()} ")
    seat.shows("environment")
    click("environment")
    seat.until(lambda text: "environment" not in text)
    seat.press("\x1b[<65;1;1M" * 9)
    seat.press("q")
    assert seat.end() == 0
    assert b"?1000l" in seat.sent.partition(LEFT)[0]


def test_graphs_begin_with_what_is_known(sit, gpus):
    text = sit(env=gpus.env).until(lambda text: "H100" in text and re.search(r"-[2-9] s", text))
    at = next(number for number, line in enumerate(text.splitlines()) if line.startswith("utilization"))
    assert any(line[20:24].strip() for line in text.splitlines()[at : at + 8]), text


def test_a_snapshot_is_json_for_its_owner_only(sit, gpus, tmp_path):
    seat = sit(env=gpus.env)
    seat.shows("H100", "lost", "600/700")
    seat.press("w")
    seat.shows("written: ")
    (path,) = tmp_path.glob("chipwatch-top-*.json")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    told = json.loads(path.read_text())
    first, lost = told["accelerators"][0], told["accelerators"][6]
    assert (first["gpu"], first["utilization"], first["used"]) == ("0", 90, 70 * 2**30)
    assert first["processes"][0]["pid"] == os.getpid()
    assert lost["state"] == "lost" or lost["state"] == 0
    assert "utilization" not in lost
    assert told["host"]["memory.total"] > 0


def test_an_accelerator_that_hangs_leaves_the_screen_alive(sit, plugins_folder):
    plugins_folder.add("theirs", PLUGINS, collectors=[("hanging", "Hanging")])
    seat = sit("--collector", "hanging,cpu", env={"PYTHONPATH": plugins_folder.folder})
    seat.until(lambda text: "7 " in text and "no answer for" in text)
    before = seat.lines[0]
    seat.until(lambda _: seat.lines[0] != before)
    assert "hanging: its last reading has not returned" in seat.text
    seat.press("q")
    assert seat.end() == 0


def test_an_output_that_is_not_a_terminal_is_refused_with_the_command_for_one_reading(agent, sit):
    done = agent.run("top")
    assert done.returncode == 2
    assert "chipwatch --once --format table" in done.stderr
    assert "not a terminal" in done.stderr
    seat = sit(env={"TERM": "dumb"})
    assert seat.end() == 2
    assert b"TERM=dumb" in seat.sent
    assert ENTERED not in seat.sent


def test_beside_an_agent_whose_sink_is_dead_its_kept_points_are_shown(agent, sit, tmp_path, until):
    spool = tmp_path / "spool"
    env = environment(AWS_REGION="us-east-1")
    words = ("--sink", "cloudwatch", "--endpoint-url", "http://127.0.0.1:9", "--interval", 1, "--window", 1)
    running = agent.start(*words, "--spool", spool, env=env)
    until((spool / "status.sock").exists)
    seat = sit("--spool", spool, size=(160, 30))
    text = seat.until(lambda text: re.search(r"cloudwatch failing sent 0, kept \d", text))
    assert "127.0.0.1:9" in text
    running.stop()
    seat.shows("no agent runs here")


def test_a_storm_of_sizes_leaves_a_whole_screen(sit, gpus):
    seat = sit(size=(120, 40), env=gpus.env)
    seat.shows("H100", "lost")
    for n in range(300):
        seat.resize(*((1, 1), (300, 80), (20, 5), (60 + n % 7, 20))[n % 4])
        seat.look(0)
    seat.resize(80, 24)
    seat.until(lambda text: "q quit" in text.splitlines()[-1] and text.startswith("chipwatch top"))
    seat.press("q")
    assert seat.end() == 0


def test_a_bug_is_printed_after_the_terminal_is_restored(sit, plugins_folder):
    plugins_folder.add("theirs", PLUGINS, collectors=[("wrong", "Wrong")])
    seat = sit("--collector", "wrong", env={"PYTHONPATH": plugins_folder.folder})
    assert seat.end() == 1
    assert b"bug: the program ends" in seat.sent[seat.sent.index(LEFT) :]
    assert termios.tcgetattr(seat.file) == seat.before


def test_a_terminal_that_another_program_left_without_blocking_gets_whole_frames(agent, tmp_path):
    script = "import os, sys; os.set_blocking(1, False); os.execv(sys.argv[1], sys.argv[1:])"
    words = [sys.executable, "-c", script, *agent.command, "top", "--interval", "0.1", "--collector", "cpu"]
    env = agent.env(TERM="xterm-256color", PYTHONUTF8=1, XDG_STATE_HOME=tmp_path)
    seat = Seat([*map(str, words)], env, tmp_path, (300, 90))
    try:
        seat.shows("CPU")
        for n in range(50):  # nobody looks, and the buffer of the terminal is full
            seat.resize(300 - n % 2, 90)
            time.sleep(0.01)
        seat.resize(80, 24)
        seat.until(lambda text: "q quit" in text.splitlines()[-1] and text.startswith("chipwatch top"))
        seat.press("q")
        assert seat.end() == 0
    finally:
        seat.close()


def test_models_and_processes_are_shown_without_a_processor(sit, gpus):
    sit("--no-processor", "jobs", env=gpus.env).shows("PID", "90", "H100")


def test_a_malformed_process_of_a_plugin_costs_only_the_facts_of_its_collector(sit, gpus, plugins_folder):
    plugins_folder.add("theirs", PLUGINS, collectors=[("wrong", "Malformed")])
    seat = sit("--collector", "gpu,wrong", env={**gpus.env, "PYTHONPATH": plugins_folder.folder})
    assert "bug" not in seat.shows("PID", "H100")


def test_a_bug_on_the_thread_that_reads_is_shown_and_its_traceback_follows_the_screen(sit, plugins_folder):
    plugins_folder.add("theirs", PLUGINS, processors=[("odd", "Odd")])
    seat = sit("--processor", "odd", env={"PYTHONPATH": plugins_folder.folder})
    seat.shows("a thread has ended by a bug", "TypeError")
    seat.press("q")
    assert seat.end() == 0
    assert b"Traceback" in seat.sent.partition(LEFT)[2]
