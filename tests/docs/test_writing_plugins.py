"""The plugins that docs/ shows are whole: checked for types and style, built into wheels, and run."""

import dataclasses
import json
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from tests import wheels

import chipwatch

ROOT = Path(__file__).parents[2]
PAGES = {
    "chipwatch_entropy": "docs/writing-a-collector.md",
    "chipwatch_udp": "docs/writing-a-sink.md",
    "chipwatch_memory_share": "docs/writing-a-processor.md",
}
"""Module -> the page that shows it."""
CONTRACT = ROOT / "docs/plugin-contract.md"
SHARE = "memory.per_busy_cpu"


def shown(page, language):
    """Return the blocks of code of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A folder for each example, with the files that its page shows."""
    folder = tmp_path_factory.mktemp("examples")
    for name, page in PAGES.items():
        (folder / name).mkdir()
        (source, *_), (project, *_) = shown(page, "python"), shown(page, "toml")
        (folder / name / f"{name}.py").write_text(source)
        (folder / name / "pyproject.toml").write_text(project)
    return folder


@pytest.fixture(scope="module")
def installed(project, tmp_path_factory):
    target = tmp_path_factory.mktemp("site")
    for name in PAGES:
        wheels.install({}, project / name, target)
    return target


@pytest.fixture
def run(agent, installed):
    return lambda *words, **options: agent.run(*words, env={"PYTHONPATH": installed}, **options)


def checked(project, *words):
    sources = sorted(project.glob("*/*.py"))
    assert len(sources) == len(PAGES)
    done = subprocess.run(
        [sys.executable, "-m", *words, *map(str, sources)],
        capture_output=True, text=True, cwd=project, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_they_import_nothing_of_ours_but_chipwatch(project):
    for source in project.glob("*/*.py"):
        ours = re.findall(r"^(?:from|import) ((?:agent|sinks|chipwatch)\b\S*)", source.read_text(), re.MULTILINE)
        assert ours == ["chipwatch"]


def test_their_types_are_right(project, tmp_path):
    checked(project, "mypy", "--strict", "--cache-dir", str(tmp_path))


def test_they_keep_to_the_style_of_the_house_but_for_docstrings_of_what_the_contract_documents(project):
    checked(
        project, "ruff", "check", "--no-cache", "--config", str(ROOT / "pyproject.toml"), "--ignore", "D102,D107,INP"
    )
    checked(project, "ruff", "format", "--check", "--no-cache", "--config", str(ROOT / "pyproject.toml"))


def test_the_collector_is_listed_and_read(run, tmp_path):
    rows = json.loads(run("list", "--format", "json").stdout)
    assert [row["collector"] for row in rows if row["name"] == "entropy.available"] == ["entropy"]
    random = tmp_path / "sys/kernel/random"
    random.mkdir(parents=True)
    words = ("--once", "--interval", "0.1", "--collector", "entropy", "--proc", tmp_path)
    assert "entropy_avail is absent" in run("check", *words[3:]).stdout
    (random / "entropy_avail").write_text("256\n")
    done = run(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["value"] == 256


def test_the_processor_derives_from_what_two_collectors_read(run):
    busy = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as load:  # a CPU in use, else there is nothing to divide by
        try:
            done = run("--once", "--interval", "0.3", "--collector", "cpu,memory")
        finally:
            load.kill()
    assert (done.returncode, done.stderr) == (0, "")
    points = {point["name"]: point["value"] for point in map(json.loads, done.stdout.splitlines())}
    share = points[SHARE] * points["cpu.utilization"] / 100
    assert share == pytest.approx(points["memory.used"], rel=0.2)


@pytest.fixture
def within(here, installed, monkeypatch):
    """Run the command in this process, which sees the plugins."""
    monkeypatch.syspath_prepend(installed)
    return here


def test_the_processor_is_listed_checked_and_in_the_sample_configuration(within):
    (row,) = [row for row in json.loads(within("list", "--format", "json").stdout) if row["name"] == SHARE]
    assert (row["collector"], row["unit"], row["level"]) == ("memory-share", "By", "basic")
    assert re.search(r"^processor +memory-share +ok +[01] series$", within("check").stdout, re.MULTILINE)
    sample = within("config").stdout
    assert "\n# [processors.memory-share]\n#   CPUs of this machine.\n# cpus = 1\n" in sample
    assert tomllib.loads(sample) == {}


def test_the_status_of_a_running_agent_shows_the_processor_but_where_the_configuration_leaves_it_out(
    agent, installed, until, tmp_path
):
    words = ("--collector", "cpu,memory", "--sink", "otlp", "--endpoint-url", "http://127.0.0.1:9", "--interval", "0.1")
    for name, more in (("with", ()), ("without", ("--no-processor", "memory-share"))):
        agent.start(*words, *more, "--spool", tmp_path / name, env={"PYTHONPATH": installed})

    def processors(name):
        done = agent.run("status", "--json", "--spool", tmp_path / name)
        return done.returncode == 0 and json.loads(done.stdout)["processors"]

    until(lambda: (found := processors("with")) and found["memory-share"]["state"] == "ok")
    assert "memory-share" not in until(lambda: processors("without"))
    line = re.search("^memory-share +ok, .*$", agent.run("status", "--spool", tmp_path / "with").stdout, re.MULTILINE)
    assert re.fullmatch(r"memory-share +ok, (0 points|1 point), \d+\.\d ms", line[0])


def test_both_sinks_of_the_page_send_under_their_own_names(run, tmp_path):
    _, instances = shown(PAGES["chipwatch_udp"], "toml")
    assert {table["type"] for table in tomllib.loads(instances)["sinks"].values()} == {"udp"}
    file = tmp_path / "agent.toml"
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as near,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as far,
    ):
        ports = []
        for one in (near, far):
            one.bind(("127.0.0.1", 0))
            one.settimeout(30)
            ports.append(f"port = {one.getsockname()[1]}\n")
        text = (
            instances.replace('host = "192.0.2.7"\n', "").replace('type = "udp"\n', 'type = "udp"\n{}').format(*ports)
        )
        file.write_text('collector = ["memory"]\n' + text)
        done = run("--once", "--interval", "0.1", "--config", file, "--spool", tmp_path / "spool")
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
        for one in (near, far):
            assert re.search(r"^memory\.used \d", one.recv(65536).decode(), re.MULTILINE)
    assert sorted(path.name for path in (tmp_path / "spool").glob("*.db")) == ["far.db", "near.db"]


@pytest.mark.parametrize("name", PAGES)
def test_the_test_on_each_page_passes_as_it_stands(name, project, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(project / name)
    code = next(block for block in shown(PAGES[name], "python") if "\ndef test_" in block)
    world: dict = {}
    exec(code, world)  # of our page
    (test,) = [value for word, value in world.items() if word.startswith("test_")]
    test(*[tmp_path] * test.__code__.co_argcount)


def test_the_page_on_collectors_has_the_parameters_of_a_metric_by_their_names():
    (words,) = re.findall(r"`gauge\((name, .*?)\)`", (ROOT / PAGES["chipwatch_entropy"]).read_text())
    names = re.findall(r"(\w+)(?:=(?:Level\.DETAILED|\(.*?\)))?(?:, |$)", words)
    for declare in (chipwatch.gauge, chipwatch.counter):
        assert names == [*declare.__code__.co_varnames[: declare.__code__.co_argcount]]


def test_the_three_lines_of_a_counter_keep_the_contract():
    blocks = shown(PAGES["chipwatch_entropy"], "python")
    declared, state, point = next(block for block in blocks if block.startswith("SENT = ")).splitlines()
    code = (
        f"from chipwatch import *\n{declared}\nclass Link(Collector):\n metrics = (SENT,)\n def open(self, given):\n  {state}\n"
        f" def collect(self, at):\n  {point}\n"
    )
    world = {}
    exec(code, world)  # of our page
    assert [point.value for point in chipwatch.check_collector(world["Link"]())] == [17, 17, 17]


def test_every_need_and_every_method_of_a_base_is_explained_on_some_page():
    pages = "".join(page.read_text() for page in (CONTRACT, *ROOT.glob("docs/writing-*.md")))
    bases = (chipwatch.Collector, chipwatch.Processor, chipwatch.Sink, chipwatch.Advisor)
    methods = {name for base in bases for name, member in vars(base).items() if callable(member) and name[0] != "_"}
    assert [name for name in methods if not re.search(rf"\b{name}\(|`{name}`", pages)] == []
    needs = {field.name for field in dataclasses.fields(chipwatch.Needs)}
    assert [name for name in needs if f"| `{name}=" not in pages] == []
    given = {field.name for field in dataclasses.fields(chipwatch.Given)}
    assert [name for name in given if f"given.{name}" not in pages] == []


def test_the_page_of_a_plugin_fits_one_screen_and_its_example_passes_its_test(monkeypatch, tmp_path):
    page = ROOT / "docs/writing-a-plugin.md"
    source, test = shown(page, "python")
    template = page.parent / "plugin-template"
    assert [source, test] == [(template / name).read_text() for name in ("chipwatch_zones.py", "test_zones.py")]
    points = tomllib.loads((template / "pyproject.toml").read_text())["project"]["entry-points"]
    assert points == {"chipwatch.collectors": {"zones": "chipwatch_zones:ZoneCollector"}}
    assert len(source.splitlines()) <= 28
    assert len(page.read_text().splitlines()) <= 60
    (tmp_path / "chipwatch_zones.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    world = {}
    exec(test, world)  # of our page
    world["test_it_reads_a_zone"](tmp_path)


def test_the_contract_has_every_field_of_a_point_and_of_the_limits_with_its_defaults():
    page, limits = CONTRACT.read_text(), chipwatch.Limits(max_points=1)
    assert f"| `window`, `flush` | your defaults in seconds ({limits.window:g} and {limits.flush:g})" in page
    assert f"refuses a point ({limits.max_age}: any age)" in page
    rows = re.findall(r"(?m)^\| `(\w+)` \| `?\w+.* \| .* \| .* \|$", page)
    assert tuple(rows[: len(chipwatch.Datapoint._fields)]) == chipwatch.Datapoint._fields
    assert {field.name for field in dataclasses.fields(chipwatch.Limits) if f"`{field.name}`" not in page} == set()
