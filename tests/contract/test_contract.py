"""Promises of every plugin, checked on each installed entry point."""

import dataclasses
import os
import subprocess
import sys
import tomllib
import typing
from contextlib import suppress
from pathlib import Path

import pytest

from chipwatch.advisor.catalogue import catalogue
from chipwatch.commands.sample import field_docs
from chipwatch.config import plugins
from chipwatch.config.convert import convert
from chipwatch.config.identity.names import WORDS
from chipwatch.config.load import FRAME_KEYS, SHARED
from chipwatch.config.naming import rename as names
from chipwatch.config.naming.profiles import PROFILES
from chipwatch.config.options import Config
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Level, counter, gauge
from chipwatch.contract.errors import Refused, Retryable, Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.sink import Limits, Sink
from chipwatch.contract.testing import check_collector, check_sink
from chipwatch.engine.preflight import faults

ROOT = Path(__file__).parents[2]
GROUPS = {plugins.COLLECTORS: Collector, plugins.SINKS: Sink}
OURS = [(group, name) for group in GROUPS for name, point in plugins.installed(group).items()
        if point.value.startswith(("chipwatch.", "chipwatch_sinks."))]  # fmt: skip
COLLECTORS = [name for group, name in OURS if group == plugins.COLLECTORS]
SINKS = [name for group, name in OURS if group == plugins.SINKS]
KINDS = (gauge("x.load", "1", "The load.", dims=("core",)), counter("x.sent", "By", "Bytes."))

every_plugin = pytest.mark.parametrize(("group", "name"), OURS, ids=[name for _, name in OURS])
every_collector = pytest.mark.parametrize("name", COLLECTORS)
every_sink = pytest.mark.parametrize("name", SINKS)


def loaded(group: str, name: str):
    try:
        return plugins.load(group, name)
    except ModuleNotFoundError as missing:
        pytest.skip(f"{missing.name} is not installed")


def say_so(reason: Exception) -> None:
    """Fail unless a line says what is missing, and where it looked."""
    assert len(str(reason)) > 15
    assert "\n" not in str(reason)


@pytest.fixture(autouse=True)
def _no_cloud(monkeypatch, tmp_path):
    """Leave nothing in the environment that leads to somebody's cloud, nor to a metadata service."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "GCE_", "OTEL_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path))


def test_there_is_something_to_ask():
    assert {"container", "cpu", "disk", "memory", "network", "pressure", "process"} <= set(COLLECTORS)
    assert "stdout" in SINKS


def test_what_is_installed_is_what_the_project_declares():
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = {
        (group, name) for group in declared for name, point in plugins.installed(group).items()
        if point.value.startswith(("chipwatch.", "chipwatch_sinks."))
    }  # fmt: skip
    assert {(group, name) for group, points in declared.items() for name in points} == installed, "run `make` once more"


@every_plugin
def test_a_module_is_called_as_its_entry_point(group, name):
    value = plugins.installed(group)[name].value
    module, _, cls = value.partition(":")
    folder = "chipwatch.collectors." if group == plugins.COLLECTORS else "chipwatch_sinks."
    assert module == folder + name.rpartition("-")[2], "FLAVOUR-SINK is the sink with other defaults"
    assert cls.endswith("Collector" if group == plugins.COLLECTORS else "Sink")


@every_plugin
def test_a_plugin_is_of_its_kind_and_says_what_it_is(group, name):
    cls = loaded(group, name)
    assert GROUPS[group] in cls.__mro__
    assert cls.__doc__.strip()


@every_plugin
def test_options_are_a_frozen_dataclass_in_which_everything_has_a_default(group, name):
    config = loaded(group, name).Config
    assert dataclasses.is_dataclass(config)
    assert config.__dataclass_params__.frozen
    assert config() == config()
    for field in dataclasses.fields(config):
        assert field.init


@every_plugin
def test_every_option_is_explained_below_itself_unless_it_is_a_general_one(group, name):
    config = loaded(group, name).Config
    own = {field.name for field in dataclasses.fields(config)}
    assert own - set(field_docs(config)) <= set(SHARED)
    for text in field_docs(config).values():
        assert text.endswith((".", "?")), text


@every_plugin
def test_options_come_from_what_a_file_can_say(group, name):
    config = loaded(group, name).Config
    assert typing.get_type_hints(config)
    assert convert(config, {}, name) == config()


@every_sink
def test_no_option_of_a_sink_hides_one_of_the_frame(name):
    assert not FRAME_KEYS["sinks"] & {field.name for field in dataclasses.fields(loaded(plugins.SINKS, name).Config)}


def test_building_is_pure():
    """
    Importing may read modules; building may open no file and no socket, and start nothing.

    Nor does a collector import its driver's library before `open`: listing the catalogue imports every collector.
    """
    program = """
import sys, threading
from chipwatch.config import plugins
drivers = {"psutil", "pynvml", "rich", "boto3", "botocore", "google", "grpc", "http"}
seen = []
WATCHED = ("open", "socket.", "subprocess.", "os.fork", "os.posix_spawn", "os.listdir", "os.scandir", "os.mkdir", "sqlite3.")
sys.addaudithook(lambda event, args: seen.append((event, args)) if event.startswith(WATCHED) else None)
for group, name in (word.split("/") for word in sys.argv[1:]):
    try:
        cls = plugins.load(group, name)
    except ModuleNotFoundError:
        continue
    imported = drivers & {module.partition(".")[0] for module in sys.modules} if "collectors" in group else ()
    seen.clear()
    made = cls(cls.Config())
    if seen or imported or threading.active_count() > 1:
        print(name, seen, threading.enumerate(), *sorted(imported))
    made.close()
    made.close()
"""
    words = [f"{group}/{name}" for group, name in sorted(OURS)]  # collectors come first: a sink may load its library
    done = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, cwd=ROOT, check=False, timeout=60
    )
    assert (done.stdout, done.stderr) == ("", "")


@every_collector
@pytest.mark.parametrize("level", [Level.ALL, Level.BASIC], ids=["all", "basic"])
def test_a_collector_keeps_the_contract_on_this_machine(name, level):
    cls = loaded(plugins.COLLECTORS, name)
    config = cls.Config()
    if name == "process":
        config = cls.Config(pid=os.getpid())
    collector = cls(config)
    try:
        points = check_collector(collector, given=Given(level=level))
    except Unavailable as reason:
        say_so(reason)
        return
    assert collector.describe() is not None
    if level == Level.ALL:
        assert points or name in {"pressure", "jobs", "nccl"}


@every_collector
def test_a_collector_may_be_opened_again_after_it_was_closed_and_leaves_no_file_open(name, newly_open):
    cls = loaded(plugins.COLLECTORS, name)
    collector = cls(cls.Config())
    for _ in range(2):
        with suppress(Unavailable):
            collector.open(Given())
            list(collector.collect(7))
        collector.close()
        assert not newly_open()


@every_collector
def test_the_metrics_of_a_collector_are_declared_once_and_well(name):
    cls = loaded(plugins.COLLECTORS, name)
    metrics = cls.metrics
    assert metrics or name == "openmetrics"
    names = [(metric.name, metric.level, metric.dims) for metric in metrics]
    assert len(names) == len(set(names))
    for metric in metrics:
        assert metric.name == metric.name.lower()
        assert " " not in metric.name
        assert metric.help[0].isupper() or not metric.help[0].isalpha()
        assert metric.help.endswith(".")
        assert len(set(metric.dims)) == len(metric.dims)
        assert not {"pid", "host", "hostname", "instance_id"} & set(metric.dims)


def test_no_two_collectors_declare_one_name():
    from chipwatch.engine.self_metrics import AgentCollector

    owners: dict[str, set[str]] = {}
    classes = {name: loaded(plugins.COLLECTORS, name) for name in COLLECTORS} | {"agent": AgentCollector}
    for name, cls in classes.items():
        for metric in cls.metrics:
            owners.setdefault(metric.name, set()).add(name)
    twice = {metric: names for metric, names in owners.items() if len(names) > 1}
    assert all(metric.startswith(("gpu.", "ipu.", "tpu.", "neuron.")) for metric in twice), twice


@every_sink
def test_a_sinks_limits_are_sane(name):
    limits = loaded(plugins.SINKS, name).limits
    assert isinstance(limits, Limits)
    assert limits.max_points >= 1
    assert limits.window >= 0
    assert limits.flush >= 0
    assert limits.max_bytes is None or limits.max_bytes >= 10_000


@every_sink
def test_a_sink_keeps_the_contract_or_says_why_it_cannot_be_opened(name, capfd):
    cls = loaded(plugins.SINKS, name)
    at = 1_800_000_000_000_000_000
    batch = [KINDS[0].point(at, 0.5), KINDS[1].point(at, 7, start_time=at - 10**9)]
    options = {"format": "json"} if name == "stdout" else {}
    try:
        assert check_sink(cls(cls.Config(**options)), batch) == []
    except (Refused, Retryable) as reason:
        assert name != "stdout"
        say_so(reason)


@every_sink
def test_a_sink_loads_no_other_sink(name):
    loaded(plugins.SINKS, name)
    program = """
import sys
from chipwatch.config import plugins
plugins.load(plugins.SINKS, sys.argv[1])
print(*sorted({m.split(".")[1] for m in sys.modules if m.startswith("chipwatch_sinks.")}))
"""
    done = subprocess.run([sys.executable, "-c", program, name], capture_output=True, text=True, cwd=ROOT, check=True)
    assert {*done.stdout.split()} - {"common"} == {name.rpartition("-")[2]}


def test_a_run_with_the_standard_output_loads_no_cloud(agent):
    env = {"PYTHONPROFILEIMPORTTIME": "1"}
    done = agent.run("--once", "--interval", "0.1", "--format", "json", env=env)
    assert done.returncode == 0
    modules = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "chipwatch" in modules
    assert not {"boto3", "botocore", "google", "grpc", "rich", "asyncio", "psutil"} & modules


@every_sink
@pytest.mark.parametrize("profile", [*PROFILES])
def test_a_sink_takes_every_metric_of_ours_under_every_name(name, profile):
    cls = loaded(plugins.SINKS, name)
    metrics = [metric for of in catalogue().values() for metric in of]
    config = Config(dims={"site": "x"}, common_dims=WORDS[:5])
    assert not list(faults(name, cls(cls.Config()), config, metrics, names.renamer(profile)))
