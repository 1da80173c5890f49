"""A sink in a separate wheel has a price, a dashboard and alarms like ours: the examples of docs/."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests import wheels

PAGE = "".join((Path(__file__).parents[2] / f"docs/writing-a{one}.md").read_text() for one in ("-sink", "n-advisor"))


def shown(language):
    """Return the page's blocks of code of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    return tmp_path_factory.mktemp("udp")


@pytest.fixture(scope="module")
def site(project, tmp_path_factory):
    (sink, _, advisor), (pyproject, *_, entry_points) = shown("python"), shown("toml")
    files = {"chipwatch_udp.py": sink, "chipwatch_udp_advisor.py": advisor}
    files["pyproject.toml"] = f"{pyproject}\n{entry_points}"
    return wheels.install(files, project, tmp_path_factory.mktemp("site"))


@pytest.fixture
def run(here, site, monkeypatch):
    """Run the command in this process, which sees the plugin."""
    monkeypatch.syspath_prepend(site)
    return here


def test_the_plan_knows_its_price_and_its_quota(run):
    words = ("--sink", "udp", "--collector", "memory", "--hosts", "10", "--dim", "hostname=a")
    text = run("plan", *words).stdout
    (sink,) = json.loads(run("plan", *words, "--format", "json").stdout)["sinks"]
    points = sink["now"]["points"] / 1e6
    (line,) = sink["now"]["bill"]
    assert (sink["kind"], line["dollars"]) == ("priced", round(points * 0.25, 2))
    assert (sink["tariff"]["service"], line["as_of"]) == ("Example Metrics", "2026-10-01, the price list")
    (quota,) = sink["now"]["quotas"]
    assert (quota["what"], quota["limit"], quota["whose"]) == ("active series", 10_000, "an account may have")
    assert f"{line['dollars']:,.2f}" in text


def test_it_has_a_dashboard(run):
    done = run("dashboard", "--cloud", "udp", "--for", "memory", "--prefix", "fleet")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("dashboard fleet of 127.0.0.1:8125\n")
    assert "graph 'Memory': memory.available, memory.used\n" in done.stdout


def test_it_has_alarms(run):
    pages = ("--runbooks", "https://example.org/runbooks")
    done = run("dashboard", "--cloud", "udp", "--for", "memory", "--alarms", *pages)
    assert (done.returncode, done.stderr) == (0, "")
    line = "warning chipwatch-memory-full: max of memory.utilization above 95 for 10 min: Memory near its limit"
    assert line in done.stdout.splitlines()
    assert any(text.startswith("critical chipwatch-fleet-silent: absent of ") for text in done.stdout.splitlines())


@pytest.mark.parametrize("word", ["plan", "dashboard", "check"])
def test_an_advisor_that_cannot_be_imported_is_named(agent, site, tmp_path, word):
    (tmp_path / "chipwatch_udp_advisor.py").write_text("raise RuntimeError('a bug')")
    words = {"plan": ["--sink", "udp"], "dashboard": ["--cloud", "udp"], "check": ["--sink", "udp"]}[word]
    done = agent.run(word, *words, "--collector", "memory", env={"PYTHONPATH": f"{tmp_path}:{site}"})
    assert done.returncode == (1 if word == "check" else 2)
    assert "advisors.udp: its import fails: RuntimeError: a bug" in (done.stdout if word == "check" else done.stderr)


def test_a_run_loads_no_advisor(agent, site, tmp_path):
    program = "import sys; from chipwatch.commands import cli\ntry:\n cli.main(sys.argv[1:])\nfinally:\n print(*sys.modules, file=sys.stderr)"
    words = ["--once", "--interval", "0.1", "--sink", "udp,stdout", "--format", "json", "--collector", "memory"]
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": f"{site}:{Path(__file__).parents[2]}"},
    )  # fmt: skip
    loaded = set(done.stderr.split())
    assert {"chipwatch_udp", "chipwatch_sinks.stdout", "chipwatch.engine.build"} <= loaded
    assert not {name for name in loaded if "advi" in name or "plan" in name.split(".") or "_prices" in name}
