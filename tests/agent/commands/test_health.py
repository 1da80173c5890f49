import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress

import pytest
from tests.doubles.cloudwatch import environment

from chipwatch.commands import health as module
from chipwatch.commands.command_line import parse
from chipwatch.commands.health import probe
from chipwatch.contract.errors import ConfigError
from chipwatch.service.health_server import health_server
from chipwatch.service.heartbeat import NAME, Heartbeat

pytest.importorskip("fcntl")

IN_TIME = 10.0


@pytest.fixture
def ask(tmp_path):
    """Ask as the command line would; the state's folder is this test's."""

    def run(*words, **env):
        return probe(parse(["status", "--health", *words]), {"STATE_DIRECTORY": str(tmp_path), **env})

    return run


@pytest.fixture
def alive(tmp_path):
    made = Heartbeat(tmp_path / NAME, 5.0)
    yield made
    made.close()


@pytest.fixture
def server():
    answers = {"healthy": (True, {"a": 1}), "ready": (False, {"refused": {"cloud": "no such role"}})}
    made = health_server("0", lambda: answers["healthy"], lambda: answers["ready"])
    made.answers = answers
    yield made
    made.close()


# -- the heartbeat --------------------------------------------------------------------------------------------------


def test_an_agent_that_ticks_is_healthy(ask, alive):
    alive.beat(None)
    good, line = ask()
    assert good
    assert line.startswith(f"healthy: process {os.getpid()} ticked 0.")


def test_one_that_is_refused_is_healthy_but_not_ready(ask, alive):
    alive.beat("cloudwatch refuses: no such role")
    assert ask()[0]
    assert ask("--ready") == (False, f"process {os.getpid()} is not ready: cloudwatch refuses: no such role")
    alive.beat(None)
    assert ask("--ready")[0]


def test_one_that_has_not_ticked_yet_is_not_healthy(ask, alive):
    assert ask() == (False, f"process {os.getpid()} has not read anything yet")


@pytest.mark.parametrize("seconds", [15.1, 1000, -1])
def test_one_whose_clock_hangs_is_not_healthy(ask, alive, monkeypatch, seconds):
    alive.beat(None)
    now = time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + seconds)
    good, line = ask()
    assert not good
    assert "hangs: its last tick was" in line


def test_one_that_has_ended_is_not_healthy_however_fresh_its_last_word(ask, alive):
    alive.beat(None)
    alive.close()
    good, line = ask()
    assert not good
    assert line.startswith("no agent runs with its state in ")
    assert "--spool" in line
    assert "--health PORT" in line


@pytest.mark.parametrize("text", [b"", b"x", b"[]", b"{}", b'{"at": 1}', b'{"at": 1, "late": "x", "pid": 1}', b"\xff"])
def test_a_file_without_a_statement_does_not_count_as_a_heartbeat(ask, alive, tmp_path, text):
    (tmp_path / NAME).write_bytes(text)
    good, line = ask()
    assert not good
    assert "is not a heartbeat of an agent" in line


def test_where_there_is_none_it_says_what_to_do(ask, tmp_path):
    good, line = ask()
    assert not good
    assert f"{tmp_path / NAME}: No such file or directory" in line
    assert "started with --health PORT answers at that port: give the same --health" in line
    assert "\n" not in line


def test_the_folder_is_found_as_the_agent_finds_it(ask, tmp_path):
    one, two, three = (tmp_path / name for name in ("one", "two", "three"))
    file = tmp_path / "a.toml"
    file.write_text(f'spool = "{one}"\n[sinks.cloudwatch]\nnamespace = "x"\n')
    held = Heartbeat(one / NAME, 5.0)
    held.beat(None)
    assert ask("--config", str(file))[0]
    assert ask(CHIPWATCH_CONFIG=str(file))[0]
    assert ask(CHIPWATCH_SPOOL=str(one))[0]
    assert ask("--spool", str(one), CHIPWATCH_SPOOL=str(two))[0]
    assert not ask("--config", str(file), CHIPWATCH_SPOOL=str(three))[0]
    held.close()


# -- the server -----------------------------------------------------------------------------------------------------


def test_a_server_is_asked_where_the_configuration_has_one_and_there_is_no_heartbeat(ask, server, alive, tmp_path):
    alive.close()
    assert ask("--health", str(server.port)) == (True, 'healthy: {"ok": true, "a": 1}')
    refused = 'not ready: {"ok": false, "refused": {"cloud": "no such role"}}'
    assert ask("--ready", "--health", f"127.0.0.1:{server.port}") == (False, refused)
    assert ask(CHIPWATCH_HEALTH=f"0.0.0.0:{server.port}")[0]
    file = tmp_path / "a.toml"
    file.write_text(f'health = "{server.port}"')
    assert ask("--config", str(file))[0]
    server.answers["healthy"] = (False, {})
    assert ask("--health", str(server.port)) == (False, 'not healthy: {"ok": false}')


def test_a_running_agents_heartbeat_goes_before_a_server(ask, alive):
    alive.beat(None)
    assert ask("--health", "1")[0]


def test_no_server_is_a_no(ask):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    good, line = ask("--health", f"127.0.0.1:{port}")
    assert not good
    assert line.startswith(f"no answer from 127.0.0.1:{port}: ")


@pytest.mark.parametrize("answer", [b"", b"220 mail\r\n", b"HTTP/1.0 500 no\r\n\r\n"])
def test_another_server_is_a_no(ask, answer):
    def serve():
        connection, _ = listening.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        assert not ask("--health", f"127.0.0.1:{listening.getsockname()[1]}")[0]
        thread.join()


def test_a_server_that_answers_by_drops_is_waited_for_only_so_long(ask, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.3)
    ended = threading.Event()

    def drip():
        with suppress(OSError), listening.accept()[0] as connection:
            while not ended.wait(0.05):
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=drip)
        thread.start()
        begun = time.monotonic()
        assert not ask("--health", f"127.0.0.1:{listening.getsockname()[1]}")[0]
        assert time.monotonic() - begun < 30
        ended.set()
        thread.join()


def test_a_server_that_says_nothing_is_waited_for_only_so_long(ask, monkeypatch):
    monkeypatch.setattr(module, "TIMEOUT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert ask("--health", f"127.0.0.1:{silent.getsockname()[1]}") == (
            False, f"no answer from 127.0.0.1:{silent.getsockname()[1]}: timed out",
        )  # fmt: skip


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["--health", "x"], r"--health: expected \[HOST:\]PORT, got 'x'"),
        (["--config", "/no/such.toml"], "/no/such.toml: No such file or directory"),
        (["--config", __file__], "not TOML"),
    ],
)
def test_what_cannot_be_asked_is_wrong_usage(ask, words, fault):
    with pytest.raises(ConfigError, match=fault):
        ask(*words)


# -- the command ----------------------------------------------------------------------------------------------------

UNREACHABLE = ("--sink", "cloudwatch", "--endpoint-url", "http://127.0.0.1:9", "--region", "us-east-1",
               "--collector", "memory", "--interval", "0.2")  # fmt: skip


def test_a_running_agent_is_healthy_without_a_port_until_it_hangs_or_dies(agent, ask, until, tmp_path):
    spool = ("--spool", str(tmp_path / "spool"))
    assert not ask(*spool)[0]
    running = agent.start(*UNREACHABLE, *spool, env=environment())
    until(lambda: ask(*spool)[0])
    assert ask(*spool, "--ready")[0]
    running.process.send_signal(signal.SIGSTOP)
    assert "hangs" in until(lambda: (asked := ask(*spool)) and not asked[0] and asked[1])
    running.process.send_signal(signal.SIGCONT)
    until(lambda: ask(*spool)[0])
    assert agent.run("status", "--health", *spool).returncode == 0
    running.process.kill()
    running.process.wait(IN_TIME)
    done = agent.run("status", "--health", *spool)
    assert done.returncode == 1
    assert done.stdout.startswith("no agent runs with its state in ")
    assert (done.stdout.count("\n"), done.stderr) == (1, "")


def test_an_agent_that_does_not_know_who_it_is_is_healthy_but_not_ready(agent, ask, until, tmp_path):
    spool = ("--spool", str(tmp_path / "spool"))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        metadata = f"http://127.0.0.1:{silent.getsockname()[1]}"
        agent.start(*UNREACHABLE, *spool, "--common-dims", "ecs_task",
                    env={**environment(), "ECS_CONTAINER_METADATA_URI_V4": metadata})  # fmt: skip
        until(lambda: ask(*spool)[0])
        good, line = ask(*spool, "--ready")
    assert not good
    assert "not known yet who this machine is" in line


def test_an_agent_without_a_spool_leaves_no_file_and_one_reading_neither(agent, until, tmp_path):
    state = tmp_path / "state"
    running = agent.start("--interval", "0.2", "--collector", "memory", "--spool", state)
    until(running.points)
    assert not (state / NAME).exists()
    assert agent.run("--once", *UNREACHABLE, "--spool", state, env=environment()).returncode == 1
    assert not (state / NAME).exists()


def test_it_loads_little_and_takes_little(tmp_path):
    program = """
import sys
from chipwatch.commands import cli
try:
    cli.main(["status", "--health", "--spool", sys.argv[1]])
except SystemExit as end:
    assert end.code == 1
print(*{m.partition(".")[0] for m in sys.modules} - sys.stdlib_module_names, file=sys.stderr)
"""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path[:0] = {sys.path!r}\n{program}", tmp_path],
                          capture_output=True, text=True, check=True)  # fmt: skip
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    theirs = "_", "distutils", "sitecustomize"
    assert {name for name in done.stderr.split() if not name.startswith(theirs)} <= {"chipwatch", "cython_runtime"}
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.3  # 0.06 on an idle machine


def test_what_an_agent_says_is_json_that_others_may_read(alive, tmp_path):
    alive.beat(None)
    assert set(json.loads((tmp_path / NAME).read_text())) == {"at", "late", "why", "pid"}
