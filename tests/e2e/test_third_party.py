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
def within(here, installed, monkeypatch):
    """Run the command in this process, which sees the plugin."""
    monkeypatch.syspath_prepend(installed)
    return here


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "agent.toml"
        path.write_text(text)
        return path

    return write


def test_its_metrics_are_listed(within):
    rows = [row for row in json.loads(within("list", "--format", "json").stdout) if row["collector"] == "acme"]
    assert [(row["name"], row["unit"], row["level"], row["dimensions"]) for row in rows] == [
        ("acme.temperature", "Cel", "basic", "chip"),
        ("acme.alarms", "{alarm}", "detailed", ""),
    ]


def test_its_options_are_in_the_sample_configuration(within):
    sample = within("config").stdout
    assert "\n# [collectors.acme]\n#   How many chips there are.\n# chips = 1\n" in sample
    assert '\n# [sinks.acme-file]\n#   Where to write.\n# path = "acme.txt"\n' in sample
    assert tomllib.loads(sample) == {}


def test_it_is_checked_with_the_rest_and_says_what_it_lacks(within, file):
    done = within("check", "--sink", "acme-file")
    assert re.search(r"^collector +acme +ok +1 series: 1 chips of Acme$", done.stdout, re.MULTILINE)
    assert re.search(r"^sink +acme-file +ok +the file acme.txt$", done.stdout, re.MULTILINE)
    done = within("check", "-v", "--config", file("[collectors.acme]\nchips = 0\n"))
    assert done.returncode == 0
    assert re.search(r"^collector +acme +absent +no chip of Acme in slot 1 to 8$", done.stdout, re.MULTILINE)
    assert re.search(r"^collector +memory +ok ", done.stdout, re.MULTILINE)


def test_it_runs_beside_the_rest_without_being_asked_for(agent, installed):
    done = agent.run("--once", env={"PYTHONPATH": installed})
    assert (done.returncode, done.stderr) == (0, "")
    names = {json.loads(line)["name"] for line in done.stdout.splitlines()}
    assert {"acme.temperature", "memory.used"} <= names
    assert "acme.alarms" not in names


def test_it_runs_with_its_options_from_a_file_and_the_environment_and_its_sinks_are_written_to(
    agent, installed, file, tmp_path
):
    sinks = "".join(f'[sinks.{n}]\ntype = "acme-file"\npath = "{tmp_path}/{n}.txt"\n' for n in ("one", "two"))
    config = file(f'collector = ["acme"]\n[collectors.acme]\noffset = 0.5\n{sinks}')
    env = {"PYTHONPATH": installed, "CHIPWATCH_COLLECTORS__ACME__CHIPS": "2"}
    done = agent.run("--once", "--config", config, "--dim", "team=ml", env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    one, two = ((tmp_path / name).read_text().splitlines() for name in ("one.txt", "two.txt"))
    assert one == two
    assert [line for line in one if line.startswith("acme.")] == [
        "acme.temperature 40.5 {'chip': '0', 'team': 'ml'}",
        "acme.temperature 41.5 {'chip': '1', 'team': 'ml'}",
    ]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[collectors.acme]\nchip = 2", "collectors.acme.chip: no such option; did you mean chips?"),
        ('[collectors.acme]\nchips = "2"', "collectors.acme.chips: expected a whole number, got '2'"),
        ("[sinks.acme-file]\npath = 1", "sinks.acme-file.path: expected a path, got 1"),
        ("[sinks.acme-file]\npaht = 1", "sinks.acme-file.paht: no such option; did you mean path?"),
    ],
)
def test_a_wrong_option_of_it_is_refused_by_path(within, file, text, line):
    path = file(f"{text}\n")
    done = within("--once", "--config", path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"chipwatch: {path}: {line}\n")
