"""Dashboards and alarms use the schemas that a run sends."""

import json
import re
import subprocess
import sys

import pytest
from tests.agent.advisor.dashboard.strict import check_cloudwatch, query
from tests.doubles.cloudwatch import CloudwatchDouble, environment, isolate

from chipwatch.advisor.catalogue import catalogue
from chipwatch.config.naming import profiles
from chipwatch.config.plugins import FAMILIES
from chipwatch.contract.datapoint import Level

WORDS = ("host", "gpu", "neuron", "tpu", "ipu", "process")
NAMES = [name for word in WORDS for name in FAMILIES.get(word, (word,))]
SOURCE = """
from optionless import *
from chipwatch.advisor.discovery import UNKNOWN, _stand_ins
from chipwatch.contract.datapoint import Kind
from chipwatch.config.plugins import COLLECTORS, PROCESSORS, load

class All(Optionless, Collector):
    reads = 0
    collected = []
    for name in NAMES:
        plugin = load(COLLECTORS, name)
        adds = {"nvidia": ADDS, "amd": ADDS[:1], "intel": ADDS[:1]}.get(name)  # AMD and Intel have the uuid alone
        collected += plugin.metrics if adds is None else plugin(plugin.Config(dimensions=adds)).metrics
    metrics = sorted([*collected, *load(PROCESSORS, "jobs").metrics], key=lambda m: m.level)

    def _points(self):
        for metric in self.metrics:
            if metric.name != "job.cost":  # which is sent only where a price is set
                for point in _stand_ins(metric, 2):
                    yield point
                    for key in ("partition", "namespace") if "job" in point.dims else ():
                        yield point._replace(dims=point.dims | {key: "x"})

    def collect(self, at):
        self.reads += 1
        done = set()
        for point in self._points():
            key = (point.metric.name, point.dims)
            if key in done:
                continue
            done.add(key)
            dims = Dimensions({k: v.replace(UNKNOWN, "nobody knew") for k, v in point.dims.items()})
            if point.metric.kind is Kind.COUNTER:
                yield point.metric.point(at, float(self.reads), dims, start_time=1)
            else:
                yield point.metric.point(at, 1.0, dims)
"""


@pytest.fixture
def sent(agent, plugins_folder, tmp_path):
    """Run the real command with a collector that yields every metric; return namespaces, names and dimensions sent."""

    def run(*words, adds=(), **env):
        source = f"NAMES, ADDS = {NAMES!r}, {adds!r}\n{SOURCE}"
        plugins_folder.add("all_of_them", source, collectors=[("all_of_them", "All")])
        with CloudwatchDouble() as service:
            done = agent.run(
                "--once", "--collector", "all_of_them", "--sink", "cloudwatch", "--endpoint-url", service.url,
                "--region", "us-east-1", "--spool", tmp_path / "spool", *words,
                env={**environment(), "PYTHONPATH": plugins_folder.folder,
                     "CHIPWATCH_SINKS__CLOUDWATCH__MAX_SERIES": "0", **env},
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return {(d.namespace, d.name, tuple(sorted(key for key, _ in d.dims))) for d in service.datums}

    return run


MACHINE = ("--common-dims", "instance_id,region", "--dim", "instance_id=i-1", "--dim", "region=r", "--dim", "team=ml")
FLAGS = {"common_dims": ["instance_id", "region"], "dims": {"instance_id": "i-1", "region": "r", "team": "ml"}}


@pytest.mark.parametrize("names", profiles.PROFILES)
def test_every_search_and_query_names_exactly_what_a_run_sends(sent, document, names):
    adds = profiles.profile(names).adds
    theirs = sent(*MACHINE, "--names", names, "--level", "all", "-n", "Our/fleet", adds=adds)
    flags = {**FLAGS, "names": names, "level": "all", "namespace": "Our/fleet"}

    board = document("cloudwatch", flags, families=WORDS, devices=2)
    ours = {(namespace, name, dims) for namespace, name, dims, _ in check_cloudwatch(board)}
    assert ours <= theirs
    second = profiles.profile(names).copies  # of both names one is drawn
    copies = {*second, *(copy.name.template for copy in second.values())}
    more = {name for _, name, _ in theirs - ours if "nobody knew" not in name}
    assert {name for name in more if re.sub(r"\b[01]\b", "{gpu}", name) not in copies} == set()

    alarms = document("cloudwatch", flags, families=WORDS, devices=2, alarms=True)
    assert {query(alarm["Metrics"][0]["Expression"])[:3] for alarm in alarms} <= theirs


def names_of(board):
    return {series[1] for series in check_cloudwatch(board)}


def declared(level, *collectors):
    return {metric.name for name in collectors for metric in catalogue()[name] if metric.level <= level}


@pytest.mark.parametrize("level", ["basic", "detailed", "all"])
def test_every_level_shows_what_it_sends(document, level):
    names = names_of(document("cloudwatch", {"level": level}, families=("cpu", "memory")))
    assert names == declared(Level[level.upper()], "cpu", "memory")


def test_what_the_sink_leaves_out_is_not_shown(document, tmp_path, made):
    file = tmp_path / "a.toml"
    file.write_text('[sinks.cloudwatch]\ninclude = ["cpu.*", "agent.*"]\nexclude = ["*.load"]\nlevel = "detailed"\n')
    names = names_of(document("cloudwatch", file=file, families=("cpu", "memory")))
    assert names >= {"cpu.utilization", "cpu.mode.utilization", "agent.memory.rss", "agent.sink.sent"}
    assert not {name for name in names if name.startswith("memory") or name == "cpu.load"}


def test_the_share_of_watched_processes_is_shown_only_where_they_are_watched(document):
    share = "gpu.process.utilization"
    assert share not in names_of(document("cloudwatch", families=("gpu",)))
    assert share in names_of(document("cloudwatch", families=("gpu", "process")))
    assert share in names_of(document("cloudwatch", {"pid": 1}, families=("gpu",)))


def test_dimensions_that_the_configuration_adds_to_a_metric_are_in_its_schema(document, made, tmp_path):
    file = tmp_path / "a.toml"
    file.write_text('[collectors.nvidia]\ndimensions = ["uuid"]\n')
    found = check_cloudwatch(document("cloudwatch", file=file, families=("nvidia",)))
    assert ("Chipwatch", "gpu.utilization", ("gpu", "uuid"), "Average") in found
    found = check_cloudwatch(document("cloudwatch", {"common_dims": ["neuron_runtime_tag"]}, families=("neuron",)))
    tagged = ("neuron_core", "neuron_device", "neuron_runtime_tag")
    assert ("Chipwatch", "neuron.core.utilization", tagged, "Average") in found
    assert ("Chipwatch", "neuron.runtimes", (), "Average") in found


def test_a_name_that_holds_what_only_a_machine_knows_is_left_out_and_said(made):
    board = made("cloudwatch", {"names": "wandb", "level": "all"}, families=("disk",))
    assert any("disk.device.read" in note for note in board.notes)
    assert "\N{REPLACEMENT CHARACTER}" not in board.text


# -- the command ----------------------------------------------------------------------------------------------------


def test_unless_told_otherwise_it_shows_this_machine_and_what_the_configuration_names(agent):
    words = ("dashboard", "--cloud", "cloudwatch", "--region", "us-east-1")
    here = json.loads(agent.run(*words).stdout)
    assert {"cpu.utilization", "memory.used"} <= names_of(here)
    assert "neuron.core.utilization" not in names_of(here)
    both = json.loads(agent.run(*words, "--collector", "memory", "--collector", "neuron").stdout)
    assert {"memory.used", "neuron.core.utilization"} <= names_of(both)
    assert "cpu.utilization" not in names_of(both)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--cloud", "azure"], "--cloud: no dashboards for 'azure'; choose from: cloudwatch, cloudwatch-promql, google, grafana"),
        (["--cloud", "cloudwatch", "--for", "cpu"], "no AWS region, and each graph needs one: set --region or AWS_REGION"),
        (["--cloud", "google", "--for", "gup"], "--for gup: no such collector or family; did you mean gpu?"),
        (["--cloud", "google", "--for", ","], "--for ,: expected words separated by commas; see chipwatch dashboard --help"),
        (["--cloud", "google", "--for", "cpu", "--alarms", "--threshold", "gpu-idel=3"], "--threshold gpu-idel: no such alarm; did you mean gpu-idle or gpu-xid?"),
        (["--cloud", "google", "--threshold", "gpu-idle"], "--threshold gpu-idle: expected ALARM=NUMBER; see chipwatch dashboard --help"),
        (["--cloud", "google", "--devices", "0"], "--devices 0: expected a whole number from 1 to 86400; see chipwatch dashboard --help"),
        (["--cloud", "google", "--names", "x", "--for", "cpu"], "--names x: no such naming profile; choose from: native, wandb, wandb-docs, mlflow, cwagent, neuron-prometheus, dcgm, dcgm4.7, node, otel"),
        (["--cloud", "cloudwatch", "--region", "us-east-1", "--for", "cpu", "-n", "a'b"], "CloudWatch's searches and queries cannot contain the name \"a'b\": no quotes, no backslashes"),
        (["--cloud", "cloudwatch", "--region", "us-east-1", "--for", "cpu", "--period", "61"], "--period: CloudWatch has 1, 5, 10, 20, 30 and whole minutes, not 61 s"),
        (["--cloud", "cloudwatch", "--alarms", "--for", "gpu", "--minutes", "gpu-idle=181"], "--minutes: gpu-idle: an alarm of CloudWatch looks back 180 minutes at most"),
        (["--cloud", "google", "--alarms", "--for", "cpu", "--minutes", "agent-silent=1"], "--minutes: agent-silent: Google waits 2 to 1410 minutes for a metric"),
    ],
)  # fmt: skip
def test_wrong_usage_is_one_line_and_exit_code_2(here, monkeypatch, words, line):
    isolate(monkeypatch)
    done = here("dashboard", *words)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"chipwatch: {line}\n")


@pytest.mark.parametrize("cloud", ["cloudwatch", "google"])
def test_a_laptop_without_the_clouds_library_makes_the_same(agent, made, cloud, tmp_path):
    program = """
import sys
for name in ("botocore", "google", "google.cloud"):
    sys.modules[name] = None
from chipwatch.commands import cli
cli.main(sys.argv[1:])
"""
    file = tmp_path / "a.toml"
    table = 'namespace = "Ours"' if cloud == "cloudwatch" else 'prefix = "custom.googleapis.com/ours/"'
    file.write_text(f"[sinks.{cloud}]\n{table}\nwindow = 120\n")
    words = ["dashboard", "--cloud", cloud, "--region", "us-east-1", "--for", "host,gpu", "--config", str(file)]
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout == f"{made(cloud, file=file, families=('host', 'gpu')).text}\n"
    done = subprocess.run(
        [sys.executable, "-c", program, "plan", "--sink", cloud], check=False, capture_output=True, text=True
    )
    assert f"sink {cloud} cannot be loaded: No module named " in done.stderr
    assert f"; install chipwatch with the extra '{cloud}'" in done.stderr
