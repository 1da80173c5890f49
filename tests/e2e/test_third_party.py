"""A plugin in a separate wheel works with no change here: it is listed, checked, configured and run."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from tests import wheels

PYPROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "acme-chips"
version = "1.2.3"
requires-python = ">=3.11"

[project.entry-points."chipwatch.collectors"]
acme = "acme_chips:AcmeCollector"

[project.entry-points."chipwatch.sinks"]
acme-file = "acme_chips:FileSink"
"""
SOURCE = '''
"""Chips of Acme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from chipwatch import (
    Collector, Datapoint, Dimensions, Level, Limits, Rejected, Sink, Unavailable, counter, gauge,
)

HEAT = gauge("acme.temperature", "Cel", "How hot a chip of Acme is.", dims=("chip",))
ALARMS = counter("acme.alarms", "{alarm}", "Alarms of all chips.", Level.DETAILED)


class AcmeCollector(Collector):
    """Reads the chips of Acme."""

    metrics = (HEAT, ALARMS)

    @dataclass(frozen=True, slots=True)
    class Config:
        chips: int = 1
        """How many chips there are."""
        offset: float = 0.0
        """Added to every temperature."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._start_time: int | None = None

    def open(self, given: Given) -> None:
        if not self._config.chips:
            raise Unavailable("no chip of Acme in slot 1 to 8")

    def collect(self, at: int) -> Iterable[Datapoint]:
        self._start_time = self._start_time or at
        for chip in range(self._config.chips):
            yield HEAT.point(at, 40.0 + chip + self._config.offset, Dimensions(chip=str(chip)))
        yield ALARMS.point(at, 0, start_time=self._start_time)

    def describe(self) -> str:
        return f"{self._config.chips} chips of Acme"


class FileSink(Sink):
    """Appends names and values to a file."""

    limits = Limits(max_points=10, durable=False, window=0, flush=0)

    @dataclass(frozen=True, slots=True)
    class Config:
        path: Path = Path("acme.txt")
        """Where to write."""

    def __init__(self, config: Config) -> None:
        self._path = config.path

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        with self._path.open("a") as file:
            file.writelines(f"{point.metric.name} {point.value} {dict(point.dims)}\\n" for point in batch)
        return ()

    def describe(self) -> str:
        return f"the file {self._path}"
'''


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Build the wheel and unpack it where only PYTHONPATH leads to."""
    files = {"pyproject.toml": PYPROJECT, "acme_chips.py": SOURCE}
    target = wheels.install(files, tmp_path_factory.mktemp("acme"), tmp_path_factory.mktemp("site"))
    assert (target / "acme_chips-1.2.3.dist-info/entry_points.txt").exists() or list(target.glob("*.dist-info"))
    return target


@pytest.fixture
def run(agent, installed):
    return lambda *words, **options: agent.run(*words, env={"PYTHONPATH": installed}, **options)


def points(done):
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_it_is_not_there_before_it_is_installed(agent):
    done = agent.run("--collector", "acme", "--once")
    assert done.returncode == 2
    assert done.stderr.startswith("chipwatch: --collector acme: no such collector; ")


def test_its_metrics_are_listed(run):
    rows = [row for row in json.loads(run("list", "--format", "json").stdout) if row["collector"] == "acme"]
    assert [(row["name"], row["unit"], row["level"], row["dimensions"]) for row in rows] == [
        ("acme.temperature", "Cel", "basic", "chip"),
        ("acme.alarms", "{alarm}", "detailed", ""),
    ]


def test_its_options_are_in_the_sample_configuration(run):
    sample = run("config").stdout
    assert "\n# [collectors.acme]\n#   How many chips there are.\n# chips = 1\n" in sample
    assert '\n# [sinks.acme-file]\n#   Where to write.\n# path = "acme.txt"\n' in sample
    assert tomllib.loads(sample) == {}


def test_it_is_checked_with_the_rest(run):
    done = run("check", "--sink", "acme-file")
    assert re.search(r"^collector +acme +ok +1 series: 1 chips of Acme$", done.stdout, re.MULTILINE)
    assert re.search(r"^sink +acme-file +ok +the file acme.txt$", done.stdout, re.MULTILINE)


def test_it_runs_beside_the_rest_without_being_asked_for(run):
    done = run("--once", "--interval", "0.1")
    names = {p["name"] for p in points(done)}
    assert {"acme.temperature", "memory.used"} <= names
    assert "acme.alarms" not in names


def test_it_runs_with_its_own_options_from_a_file(run, tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text('collector = ["acme"]\nlevel = "detailed"\n[collectors.acme]\nchips = 2\noffset = 0.5\n')
    found = {
        (p["name"], *p["dims"].values()): p["value"]
        for p in points(run("--once", "--interval", "0.1", "--config", file))
    }
    assert found["acme.temperature", "0"] == 40.5
    assert found["acme.temperature", "1"] == 41.5
    assert ("acme.alarms",) not in found  # none has happened


def test_its_options_come_from_the_environment_as_well(agent, installed):
    env = {"PYTHONPATH": installed, "CHIPWATCH_COLLECTORS__ACME__CHIPS": "3"}
    assert len(points(agent.run("--once", "--interval", "0.1", "--collector", "acme", env=env))) == 3


def test_its_sink_is_written_to(run, tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text(f'collector = ["acme"]\n[sinks.acme-file]\npath = "{tmp_path}/out.txt"\n')
    done = run("--once", "--interval", "0.1", "--config", file, "--dim", "team=ml")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "out.txt").read_text() == "acme.temperature 40.0 {'chip': '0', 'team': 'ml'}\n"


def test_its_sink_may_be_there_several_times(run, tmp_path):
    file = tmp_path / "agent.toml"
    tables = "".join(f'[sinks.{n}]\ntype = "acme-file"\npath = "{tmp_path}/{n}.txt"\n' for n in ("one", "two"))
    file.write_text(f'collector = ["acme"]\n{tables}')
    done = run("--once", "--interval", "0.1", "--config", file)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (
        (tmp_path / "one.txt").read_text()
        == (tmp_path / "two.txt").read_text()
        == "acme.temperature 40.0 {'chip': '0'}\n"
    )


def test_where_it_finds_nothing_it_says_so_and_the_rest_goes_on(run, tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text("[collectors.acme]\nchips = 0\n")
    done = run("check", "-v", "--config", file)
    assert done.returncode == 0
    assert re.search(r"^collector +acme +absent +no chip of Acme in slot 1 to 8$", done.stdout, re.MULTILINE)
    assert re.search(r"^collector +memory +ok ", done.stdout, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[collectors.acme]\nchip = 2", "collectors.acme.chip: no such option; did you mean chips?"),
        ('[collectors.acme]\nchips = "2"', "collectors.acme.chips: expected a whole number, got '2'"),
        ("[sinks.acme-file]\npath = 1", "sinks.acme-file.path: expected a path, got 1"),
        ("[sinks.acme-file]\npaht = 1", "sinks.acme-file.paht: no such option; did you mean path?"),
    ],
)
def test_a_wrong_option_of_it_is_refused_by_path(run, tmp_path, text, line):
    file = tmp_path / "agent.toml"
    file.write_text(text + "\n")
    done = run("--once", "--config", file)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"chipwatch: {file}: {line}\n")
