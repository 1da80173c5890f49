"""The processor of docs/writing-a-processor.md, in a separate wheel, is listed, checked, configured and run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/writing-a-processor.md").read_text()
SOURCE, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PYPROJECT,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
SHARE = "memory.per_busy_cpu"
BROKEN = """
from dataclasses import dataclass

from chipwatch import Processor

class Broken(Processor):
    @dataclass(frozen=True)
    class Config:
        pass

    def __init__(self, config):
        pass

    def derive(self, tick, at, facts):
        raise SystemExit("no luck")
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory_share")
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "chipwatch_memory_share.py").write_text(SOURCE)
    return folder


@pytest.fixture(scope="module")
def installed(project, tmp_path_factory):
    """Build the wheel and unpack it where only PYTHONPATH leads to, as `pip install --target` does."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(project / "dist")],
        cwd=project, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (wheel,) = (project / "dist").glob("*.whl")
    target = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target


@pytest.fixture
def run(agent, installed):
    return lambda *words, **options: agent.run(*words, env={"PYTHONPATH": installed}, **options)


def points(done):
    assert done.returncode == 0, done.stderr
    return {(p := json.loads(line))["name"]: p["value"] for line in done.stdout.splitlines()}


@pytest.fixture
def config(tmp_path):
    def write(text):
        file = tmp_path / "agent.toml"
        file.write_text(f'collector = ["cpu", "memory"]\n{text}\n')
        return file

    return write


def test_it_is_type_checked_as_its_page_shows_it(project, tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path}", "chipwatch_memory_share.py"],
        cwd=project, env={"MYPYPATH": str(ROOT)}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.stdout.startswith("Success"), done.stdout + done.stderr


def test_its_metrics_are_listed(run):
    (row,) = [row for row in json.loads(run("list", "--format", "json").stdout) if row["name"] == SHARE]
    assert (row["collector"], row["unit"], row["level"]) == ("memory-share", "By", "basic")


def test_its_options_are_in_the_sample_configuration(run):
    sample = run("config").stdout
    assert "\n# [processors.memory-share]\n#   CPUs of this machine.\n# cpus = 1\n" in sample
    assert tomllib.loads(sample) == {}


def test_it_is_checked_with_the_rest(run):
    assert re.search(r"^processor +memory-share +ok +[01] series$", run("check").stdout, re.MULTILINE)


def test_it_sees_what_the_collectors_gave_and_its_points_are_printed_beside_theirs(run, config, until):
    file = config("[processors.memory-share]\ncpus = 4")

    def with_share():  # a CPU that was idle between the two readings gives none
        found = points(run("--once", "--interval", "0.1", "--config", file))
        return found if SHARE in found else None

    found = until(with_share)
    assert found[SHARE] == pytest.approx(found["memory.used"] / (4 * found["cpu.utilization"] / 100))


def test_it_does_not_run_where_the_configuration_says_so(run, config):
    found = points(run("--once", "--interval", "0.1", "--config", config('no_processor = ["memory-share"]')))
    assert "memory.used" in found
    assert SHARE not in found


def test_the_status_of_a_running_agent_shows_it(agent, installed, config, tmp_path, until):
    spool = tmp_path / "state"
    running = agent.start(
        "--sink", "cloudwatch", "--region", "eu-west-1", "--endpoint-url", "http://127.0.0.1:9", "--interval", "0.1",
        "--config", config(""), "--spool", spool,
        env={"PYTHONPATH": installed, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
    )  # fmt: skip

    def state():
        assert running.process.poll() is None, running.errors()
        done = agent.run("status", "--json", "--spool", spool)
        return json.loads(done.stdout)["processors"]["memory-share"]["state"] if done.returncode == 0 else None

    until(lambda: state() == "ok")
    line = re.search("^memory-share +ok, .*$", agent.run("status", "--spool", spool).stdout, re.MULTILINE)
    assert re.fullmatch(r"memory-share +ok, (0 points|1 point), \d+\.\d ms", line[0])


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[processors.memory-share]\ncpu = 2", "processors.memory-share.cpu: no such option; did you mean cpus?"),
        ('processor = ["memory-shar"]', "processor: no such processor 'memory-shar'; did you mean memory-share?"),
        ('no_processor = ["memory-shar"]', "no_processor: no such processor 'memory-shar'; did you mean memory-share?"),
    ],
)
def test_a_wrong_word_about_it_is_refused_by_path(run, config, text, line):
    done = run("--once", "--config", config(text))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f": {line}\n")


def test_one_that_fails_costs_its_own_points_only(agent, plugins_folder, config):
    plugins_folder.add("broken", BROKEN, processors=[("broken", "Broken")])
    done = agent.run("--once", "--interval", "0.1", "--config", config(""), env={"PYTHONPATH": plugins_folder.folder})
    assert "memory.used" in points(done)
    assert done.stderr.count("processor broken: failed: no luck") == 1
