"""Every export of `chipwatch` is typed, and plugins with every method are built, checked and run."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent import plugins_of_every_kind

import chipwatch

FILE = Path(plugins_of_every_kind.__file__)


@pytest.fixture
def run(agent, plugins_folder):
    """Run the command where the plugins are installed."""
    plugins_folder.add(
        "rich_plugins",
        FILE.read_text(),
        collectors=[("rich", "RichCollector")],
        processors=[("rich", "RichProcessor")],
        sinks=[("rich", "RichSink")],
        advisors=[("rich", "RichAdvisor")],
    )
    return lambda *words: agent.run(*words, env={"PYTHONPATH": plugins_folder.folder})


def test_the_file_of_plugins_uses_every_export():
    imported = re.search(r"^from chipwatch import \(\n(.*?)^\)", FILE.read_text(), re.MULTILINE | re.DOTALL)[1]
    names = set(re.findall(r"\w+", imported))
    assert names == {*chipwatch.__all__}


def test_their_types_are_right_and_none_is_any(tmp_path):
    file = tmp_path / "rich_plugins.py"
    file.write_text(FILE.read_text())
    words = ("--strict", "--disallow-any-expr", "--disallow-any-unimported", "--cache-dir", tmp_path / "cache")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *map(str, words), file],
        capture_output=True, text=True, cwd=tmp_path, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_together_they_have_every_method_that_a_base_has(tmp_path):
    theirs = plugins_of_every_kind.check_them(tmp_path / "lines")
    for base in (chipwatch.Collector, chipwatch.Processor, chipwatch.Sink, chipwatch.Advisor):
        ours = [name for name, member in vars(base).items() if callable(member) and not name.startswith("_")]
        own = {name for cls in theirs if issubclass(cls, base) for name in vars(cls)}
        assert own >= {*ours}


def test_plugins_with_every_method_are_checked_and_run_by_the_real_command(run, tmp_path):
    lines, words = tmp_path / "lines", ("--collector", "rich", "--sink", "rich", "--level", "all")
    file = tmp_path / "agent.toml"
    file.write_text(f'[sinks.rich]\npath = "{lines}"\n')
    checked = run("check", *words, "--config", file)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "1 device" in checked.stdout
    assert f"appends to {lines}" in checked.stdout
    done = run(*words, "--config", file, "--interval", "0.2", "--duration", "0.5")
    assert (done.returncode, done.stderr) == (0, "")
    names = {line.split()[0] for line in lines.read_text().splitlines()}
    assert names >= {"rich.power", "rich.energy", "rich.sent", "rich.load"}


def test_an_advisor_with_every_method_is_asked_by_the_real_command(run, tmp_path):
    file = tmp_path / "agent.toml"
    file.write_text(f'[sinks.rich]\npath = "{tmp_path / "lines"}"\n')
    words = ("--collector", "rich", "--config", file)
    plan = json.loads(run("plan", *words, "--sink", "rich", "--format", "json").stdout)["sinks"][0]
    tariff = plan["tariff"]
    assert (tariff["service"], tariff["charges_for"], plan["kind"]) == ("Rich Metrics", "bytes", "priced")
    assert plan["now"]["bytes"] > 0
    assert re.fullmatch(r"The alarms look at \d+ series\.", plan["notes"][0])
    board = run("dashboard", *words, "--cloud", "richboard")
    assert (board.returncode, "rich.power" in board.stdout) == (0, True)


def test_an_advisor_whose_tariff_is_something_else_is_refused_in_one_line(agent, plugins_folder, tmp_path):
    source = FILE.read_text().replace('tariff = Tariff("Rich Metrics", charges_for="bytes")', 'tariff = "Rich Metrics"')
    plugins_folder.add("rich_plugins", source, sinks=[("rich", "RichSink")], advisors=[("rich", "RichAdvisor")])
    file = tmp_path / "agent.toml"
    file.write_text(f'[sinks.rich]\npath = "{tmp_path / "lines"}"\n')
    words = ("plan", "--collector", "memory", "--sink", "rich", "--config", file)
    done = agent.run(*words, env={"PYTHONPATH": plugins_folder.folder})
    line = "chipwatch: advisors.rich: it fails: TypeError: tariff: expected Tariff, got 'Rich Metrics'\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", line)


def test_an_advisor_that_does_not_derive_is_refused_in_one_line_that_says_what_to_write(
    agent, plugins_folder, tmp_path
):
    source = FILE.read_text().replace("class RichAdvisor(Advisor):", "class RichAdvisor:")
    plugins_folder.add("rich_plugins", source, sinks=[("rich", "RichSink")], advisors=[("rich", "RichAdvisor")])
    file = tmp_path / "agent.toml"
    file.write_text(f'[sinks.rich]\npath = "{tmp_path / "lines"}"\n')
    words = ("plan", "--collector", "memory", "--sink", "rich", "--config", file)
    done = agent.run(*words, env={"PYTHONPATH": plugins_folder.folder})
    assert (done.returncode, done.stdout) == (2, "")
    says = "does not derive from Advisor: write `from chipwatch import Advisor` and `class RichAdvisor(Advisor):`\n"
    assert done.stderr == f"chipwatch: advisors.rich: not a plugin: <class 'rich_plugins.RichAdvisor'> {says}"
