"""neuron-monitor | chipwatch --stdin neuron: the drop-in for neuron-monitor-cloudwatch.py."""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, environment
from tests.doubles.monitoring import MonitoringDouble

FIXTURES = Path(__file__).parents[1] / "fixtures" / "neuron"
TRN2 = (FIXTURES / "synthetic_trn2_v3d.jsonl").read_bytes()
FOUR = (FIXTURES / "synthetic_inf1_four_containers_same_tag.jsonl").read_bytes()
LONG = 60.0


@pytest.fixture(autouse=True)
def _no_metadata_service(monkeypatch):
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def record(**changes):
    return json.dumps(json.loads(TRN2.splitlines()[0]) | changes).encode() + b"\n"


def test_records_name_their_instance_and_the_end_of_the_input_is_the_end(agent):
    done = agent.run(
        "--stdin", "neuron", "--common-dims", "instance_id,instance_type", input=TRN2, stdin=None, text=False
    )

    assert (done.returncode, done.stderr) == (0, b"")
    points = lines(done.stdout)
    cores = {p["dims"]["neuron_core"]: p["value"] for p in points if p["name"] == "neuron.core.utilization"}
    assert set(cores) == {"0", "1", "2", "3"}
    told = json.loads(TRN2.splitlines()[0])["instance_info"]
    assert {(p["dims"]["instance_id"], p["dims"]["instance_type"]) for p in points} == {
        (told["instance_id"], told["instance_type"])
    }


def test_a_record_that_was_cut_is_an_error_and_what_came_before_it_is_sent(agent):
    done = agent.run("--stdin", "neuron", input=TRN2 + TRN2[:500], stdin=None, text=False)

    assert done.returncode == 1
    assert b"ended within a record" in done.stderr
    assert b"Traceback" not in done.stderr
    assert any(p["name"] == "neuron.core.utilization" for p in lines(done.stdout))


def test_a_later_record_that_knows_more_is_heard_and_nothing_was_lost_before_it(agent, until):
    reader, writer = os.pipe()
    words = ("--stdin", "neuron", "--interval", 0.2, "--common-dims", "instance_id")
    out = agent.folder / "later.jsonl"
    with out.open("wb") as into:
        process = subprocess.Popen([*agent.command, *map(str, words)], stdin=reader, stdout=into, env=agent.env())
    os.close(reader)
    silent = record(instance_info={"instance_id": "", "error": "no metadata"})
    try:
        for _ in range(3):
            os.write(writer, silent)
        assert out.read_bytes() == b""
        os.write(writer, record())
        points = until(lambda: lines(out.read_text().rpartition("\n")[0]))  # the last one may be half written
        assert {p["dims"]["instance_id"] for p in points} == {
            json.loads(TRN2.splitlines()[0])["instance_info"]["instance_id"]
        }
    finally:
        os.close(writer)
    assert process.wait(LONG) == 0
    done = {}
    for p in lines(out.read_text()):
        if p["name"] == "neuron.execution.outcomes" and p["dims"]["outcome"] == "completed":
            done = p
    each = json.loads(TRN2.splitlines()[0])["neuron_runtime_data"][0]["report"]["execution_stats"]
    assert done["value"] == 4 * each["execution_summary"]["completed"]


def test_records_that_never_name_the_instance_end_with_1_and_what_to_do(agent):
    done = agent.run(
        "--stdin", "neuron", "--common-dims", "instance_id", input=record(instance_info={}), stdin=None, text=False
    )

    assert (done.returncode, done.stdout) == (1, b"")
    assert b"--dim instance_id=VALUE" in done.stderr


def test_series_of_runtimes_by_their_tag_where_that_is_asked_for(agent):
    words = ("--stdin", "neuron", "--common-dims", "neuron_runtime_tag")
    merged = lines(agent.run(*words[:2], input=FOUR, stdin=None, text=False).stdout)
    tagged = lines(agent.run(*words, input=FOUR, stdin=None, text=False).stdout)

    assert not any("neuron_runtime_tag" in p["dims"] for p in merged)
    assert {p["dims"]["neuron_runtime_tag"] for p in tagged if p["name"] == "neuron.core.utilization"} == {"untagged"}


def test_it_ends_the_moment_its_input_does_and_burns_nothing(agent):
    before = os.times()
    done = agent.run("--stdin", "neuron", "--interval", 5, "--window", 3600, input=FOUR, stdin=None, text=False)
    after = os.times()

    assert done.returncode == 0
    assert all("summary" in p for p in lines(done.stdout) if p["kind"] == "gauge"), (
        "the last window is sent however short"
    )
    assert after.children_user + after.children_system - before.children_user - before.children_system < 2.0


@pytest.mark.parametrize(
    ("named", "areas"),
    [
        ((), {"neuron", "memory", "disk"}),
        (("neuron",), {"neuron"}),
        (("neuron", "memory"), {"neuron", "memory"}),
        (("memory",), {"neuron", "memory"}),
    ],
)
def test_the_collectors_that_are_named_run_beside_the_records_and_all_where_none_is(agent, named, areas):
    words = ("--stdin", "neuron", *(word for name in named for word in ("--collector", name)))
    done = agent.run(*words, input=TRN2, stdin=None, text=False)

    found = {p["name"].partition(".")[0] for p in lines(done.stdout)}
    assert found >= areas
    assert not named or found == areas


PROFILES = {
    "native": "neuron.execution.outcomes",
    "wandb": "neuron.execution.outcomes",
    "cwagent": "node_neuron_execution_status_completed",
    "neuron-prometheus": "execution_status_total",
}
COMPLETED = sum(
    runtime["report"]["execution_stats"]["execution_summary"]["completed"]
    for line in TRN2.splitlines()
    for runtime in json.loads(line)["neuron_runtime_data"]
)


def is_of_completed(name, labels):
    return "completed" in (*labels.values(), *name.split("_"))


@pytest.mark.parametrize(("profile", "name"), PROFILES.items())
def test_what_the_first_record_counts_is_counted_under_every_name(agent, profile, name):
    words = ("--stdin", "neuron", "--collector", "neuron", "--names", profile)
    done = agent.run(*words, input=TRN2, stdin=None, text=False)

    points = [p for p in lines(done.stdout) if p["name"] == name and is_of_completed(name, p["dims"])]
    assert [(p["value"], p["increase"]) for p in points] == [(COMPLETED, COMPLETED)]


@pytest.mark.parametrize(("profile", "name"), [*PROFILES.items()][::3])
def test_what_the_first_record_counts_is_counted_at_google(agent, tmp_path, profile, name):
    words = ("--stdin", "neuron", "--collector", "neuron", "--names", profile, "--sink", "google")
    with MonitoringDouble() as double:
        at = {"CHIPWATCH_SINKS__GOOGLE__ENDPOINT": double.target, "CHIPWATCH_SINKS__GOOGLE__INSECURE": "true"}
        more = ("--project", "some-project", "--spool", tmp_path / "spool")
        done = agent.run(*words, *more, input=TRN2, stdin=None, text=False, env=at)
        while not (keys := double.keys("/" + name.replace(".", "/"))):
            # The stop has its time; what a busy machine could not send in it is in the spool.
            assert b", kept 0" not in done.stderr
            agent.run(*words, *more, input=b"", stdin=None, text=False, env=at)
        stored = [double.series[key] for key in keys if is_of_completed(name, dict(key.labels))]

    assert done.returncode == 0, done.stderr
    assert [[point.value for point in points] for points in stored] == [[COMPLETED]]
    assert set(double.count) == {"stored"}  # and nothing was refused, were it but for its description


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--stdin", "neuron", "--", "true"), "stdin"),
        (("--stdin", "neuro"), "--stdin neuro: no such collector; did you mean neuron"),
        (("--stdin", "nvidia"), "--stdin: nvidia does not read standard input"),
    ],
)
def test_wrong_use_is_one_line(here, words, says):
    done = here(*words)

    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_scripts_command_line_sends_to_cloudwatch(agent, tmp_path):
    words = "--stdin neuron --sink cloudwatch --region ap-northeast-1 -d instance_id,instance_type -n Fleet"
    with CloudwatchDouble() as double:
        done = agent.run(
            *words.split(), "--endpoint-url", double.url, "--spool", tmp_path / "spool", "--high-resolution-metrics",
            input=TRN2, stdin=None, text=False, env=environment(),
        )  # fmt: skip
        datums = list(double.datums)

    assert done.returncode == 0, done.stderr
    told = json.loads(TRN2.splitlines()[0])["instance_info"]
    assert {datum.namespace for datum in datums} == {"Fleet"}
    assert {datum.resolution for datum in datums} == {1}
    assert all(("instance_id", told["instance_id"]) in dict(datum.dims).items() for datum in datums)
    assert {"neuron.core.utilization", "neuron.execution.outcomes"} <= {datum.name for datum in datums}
