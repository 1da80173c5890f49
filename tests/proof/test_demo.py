"""`make demo`: its page draws; Ctrl-C ends every program and leaves nothing; a port that is taken is one plain line."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.ports import free_port
from tests.proof import parts
from tests.proof.chromium import Page
from tests.proof.scraping import LONG

pytestmark = pytest.mark.proof
ROOT = Path(__file__).parents[2]


def start(folder, *words, **env):
    return subprocess.Popen(
        [sys.executable, "-m", "tools.demo", "--nodes", "1", *map(str, words)],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(folder), **env}, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip


def test_the_demo_needs_no_package_that_only_developers_install(tmp_path):
    program = """
import importlib.metadata, json, pathlib, sys, tools.demo
from tests.doubles.nvml.driver import CannotBuild, build
try:
    build(pathlib.Path(sys.argv[1]))
except CannotBuild:
    pass
of = importlib.metadata.packages_distributions()
print(json.dumps([name for word in {word.partition(".")[0] for word in sys.modules} for name in of.get(word, ())]))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, tmp_path], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    pinned = re.findall(r"(?m)^([\w.-]+)==", (ROOT / "requirements/constraints.txt").read_text())
    assert {name.lower().replace("_", "-") for name in json.loads(done.stdout)} <= {*pinned, "chipwatch", "setuptools"}


def test_its_prometheus_serves_a_page_that_draws_the_dashboards(tmp_path, tmp_path_factory):
    programs = parts.debian("prometheus", tmp_path).parent
    with start(tmp_path_factory.mktemp("d"), "--seconds", 240, PATH=f"{programs}:{os.environ['PATH']}") as demo:
        try:
            said = next(line for line in demo.stdout if "demo: ready" in line)
            with Page(re.search(r"http://\S+", said)[0], tmp_path) as page:
                page.until("document.body.dataset.drawn && document.querySelectorAll('canvas').length > 4")
                assert page.errors() == []
        finally:
            demo.send_signal(signal.SIGINT)


def members(group):
    """Return the processes of a group that have not ended."""
    stats = [stat.read_text().rpartition(")")[2].split() for stat in Path("/proc").glob("[0-9]*/stat")]
    return [stat for stat in stats if int(stat[2]) == group and stat[0] != "Z"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="/proc of Linux shows what is left")
@pytest.mark.parametrize("ends", ["the terminal", "a closed terminal", "a signal to the demo alone", "a kill"])
def test_ctrl_c_ends_all_programs_and_leaves_no_file(until, tmp_path, ends):
    port = free_port()
    demo = start(tmp_path, "--agents", "--port", port)

    def served():
        try:
            return urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5).status == 200
        except OSError:
            assert demo.poll() is None, demo.stdout.read()
            return False

    try:
        until(served, LONG)
        assert len(members(demo.pid)) == 2
        if ends == "a kill":
            demo.kill()
            demo.communicate(timeout=LONG)
            until(lambda: not members(demo.pid), LONG)
            return
        if ends != "a signal to the demo alone":  # a terminal signals the agents too
            os.killpg(demo.pid, signal.SIGINT if ends == "the terminal" else signal.SIGHUP)
        else:
            demo.send_signal(signal.SIGTERM)
        said, _ = demo.communicate(timeout=LONG)
        assert (demo.returncode, said.splitlines()[-1]) == (0, "demo: all is stopped")
        assert members(demo.pid) == []
        assert [*tmp_path.iterdir()] == []
        socket.create_server(("127.0.0.1", port)).close()
    finally:
        for process in members(demo.pid):
            os.killpg(int(process[2]), signal.SIGKILL)


def test_a_port_that_is_taken_is_one_line_and_starts_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        demo = start(tmp_path, "--agents", "--port", port)
        said, _ = demo.communicate(timeout=LONG)
    assert (demo.returncode, said.count("\n")) == (1, 1)
    assert said.startswith(f"demo: 127.0.0.1:{port}: Address already in use; end the program that listens there, or")
    assert members(demo.pid) == []


def test_the_shell_of_the_demo_node_sees_its_jobs_and_leaves_nothing(tmp_path, tmp_path_factory):
    files, shell = tmp_path_factory.mktemp("f"), tmp_path / "shell"  # short: the status socket is in `files`
    shell.write_text("#!/bin/sh\nfor n in 1 2 3 4 5 6 7 8 9; do sleep 2; chipwatch jobs | grep 41352 && exit 7; done\n")
    shell.chmod(0o755)
    env = {**os.environ, "SHELL": str(shell), "TMPDIR": str(files)}
    words = [sys.executable, "-m", "tools.demo", "--shell"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=90, env=env, check=False)
    if "no C compiler" in done.stdout:
        pytest.skip("the fake driver needs a C compiler")
    assert (done.returncode, " eve " in done.stdout) == (7, True), done.stdout + done.stderr
    assert not [*files.iterdir()]
