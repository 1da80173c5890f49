"""The real command beside doubles of the platforms."""

import json
import time
import urllib.error
import urllib.request
from datetime import datetime
from itertools import pairwise

import pytest
from tests.doubles.gce import POD, SECRET, Gce
from tests.ports import free_port

from chipwatch.commands.run import identify
from chipwatch.config.identity.autoscaling import TAGS
from chipwatch.config.identity.platforms import DOCUMENT, ENDPOINT, VARIABLE
from chipwatch.config.identity.resolver import UnknownIdentity
from chipwatch.config.options import Config

QUICK = ("--collector", "memory", "--interval", "0.2", "--format", "json")
FILE_SINK = """
import json
from dataclasses import dataclass
from chipwatch.contract.sink import Limits, Sink

class FileSink(Sink):
    limits = Limits(max_points=100, window=0, flush=0)

    @dataclass(frozen=True)
    class Config:
        path: str = ""

    def __init__(self, config):
        self.path = config.path

    def write(self, batch):
        with open(self.path, "a") as file:
            file.writelines(json.dumps([point.metric.name, point.at, dict(point.dims)]) + "\\n" for point in batch)
        return []
"""


def lines(done):
    return [json.loads(line) for line in done.stdout.splitlines()]


def seconds(point):
    return datetime.fromisoformat(point["time"]).timestamp()


def test_every_line_has_the_instance_id(agent, imds, xen):
    words = "instance_id,instance_type,region,availability_zone,account_id,ami_id"
    done = agent.run("--once", *QUICK, "--sys", xen, "--common-dims", words, env={ENDPOINT: imds.url})
    assert (done.returncode, done.stderr) == (0, "")
    points = lines(done)
    assert points
    assert all(
        point["dims"]
        == {
            "account_id": "123456789012",
            "ami_id": "ami-5fb8c835",
            "availability_zone": "us-west-2b",
            "instance_id": "i-1234567890abcdef0",
            "instance_type": "trn1.32xlarge",
            "region": "us-west-2",
        }
        for point in points
    )
    assert imds.requests == ["PUT /latest/api/token", f"GET {DOCUMENT}"]


def test_nothing_is_sent_until_the_service_answers_then_every_sample_since_the_start(agent, imds, nitro, until):
    imds.silent_until = time.monotonic() + 3600
    running = agent.start(*QUICK, "--sys", nitro, "--common-dims", "instance_id,region", env={ENDPOINT: imds.url})
    until(lambda: len(imds.requests) >= 3)
    assert running.points() == []
    imds.silent_until, answered = 0.0, time.time()
    until(running.points)
    until(lambda: seconds(running.points()[-1]) > answered + 0.5)
    assert running.stop()[0] == 0
    points = running.points()
    assert all(point["dims"] == {"instance_id": "i-1234567890abcdef0", "region": "us-west-2"} for point in points)
    ticks = sorted({seconds(point) for point in points})
    assert ticks[0] < answered - 0.9, "the first sample is from before the service answered"
    assert all(later - earlier < 5 for earlier, later in pairwise(ticks)), (
        "no sample is missing, but for a busy machine"
    )
    assert running.errors().count("not known yet: region (EC2: ") == 1


def test_without_the_platform_the_agent_exits_with_1_and_one_line(agent, imds, elsewhere, beside):
    imds.hops = "hang"
    done = agent.run(*QUICK, "--sys", elsewhere, "--common-dims", "instance_id,instance_type", env=beside(imds))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("chipwatch: --common-dims: no value found for instance_id, instance_type (DMI: ")
    assert done.stderr.endswith("; set it with --dim instance_id=VALUE, or leave it out\n")
    assert done.stderr.count("\n") == 1


def test_a_watched_command_is_not_started_without_an_identity(agent, imds, elsewhere, beside, tmp_path):
    imds.close()
    made = tmp_path / "made"
    words = ("--collector", "memory", "--sys", elsewhere, "--common-dims", "region", "--", "touch", made)
    assert agent.run(*words, env=beside(imds)).returncode == 1
    assert not made.exists()


def test_samples_from_before_the_identity_was_known_are_sent_after_a_restart(agent, imds, nitro, until, plugins_folder):
    plugins_folder.add("keeper", FILE_SINK, sinks=[("keeper", "FileSink")])
    path = plugins_folder.folder / "points.jsonl"
    env = {ENDPOINT: imds.url, "PYTHONPATH": plugins_folder.folder, "CHIPWATCH_SINKS__KEEPER__PATH": path}
    words = (*QUICK, "--sink", "keeper", "--spool", plugins_folder.folder, "--sys", nitro, "--common-dims", "region")
    imds.hops = "reset"
    first = agent.start(*words, env=env)
    until((plugins_folder.folder / "keeper.db").exists)
    asked = len(imds.requests)
    until(lambda: len(imds.requests) > asked + 1)
    assert first.stop()[0] == 0
    stopped = time.time_ns()
    assert not path.exists()
    assert "points were not sent" in first.errors()
    imds.hops = ""
    second = agent.start(*words, env=env)
    until(path.exists)
    assert second.stop()[0] == 0
    points = [json.loads(line) for line in path.read_text().splitlines()]
    assert any(at < stopped for _, at, _ in points)
    assert all(dims == {"region": "us-west-2"} for _, _, dims in points)


def test_the_agent_is_ready_once_the_identity_is_known(agent, imds, nitro, until):
    port = free_port()
    imds.hops = "reset"
    words = (*QUICK, "--sys", nitro, "--common-dims", "region", "--health", port)
    agent.start(*words, env={ENDPOINT: imds.url})

    def ready():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return json.load(refused)
        except OSError:
            return None

    until(lambda: (ready() or {}).get("identified") is False)
    imds.hops = ""
    until(lambda: ready().get("identified") is True)


def test_check_prints_each_value_and_its_origin(agent, imds, nitro):
    imds.tags = {"aws:autoscaling:groupName": "trainers"}
    words = "instance_id,region,autoscaling_group,neuron_runtime_tag"
    env = {ENDPOINT: imds.url}
    done = agent.run(
        "check", "--collector", "memory", "--sys", nitro, "--common-dims", words, "--dim", "team=ml", env=env
    )
    assert done.returncode == 0
    told = [line for line in done.stdout.splitlines() if line.startswith("identity")]
    assert told == [
        f"identity   instance_id        ok       i-1234567890abcdef0, from {nitro}/class/dmi/id/board_asset_tag",
        f"identity   region             ok       us-west-2, from {imds.url}{DOCUMENT}",
        f"identity   autoscaling_group  ok       trainers, from {imds.url}{TAGS}/aws:autoscaling:groupName",
        "identity   neuron_runtime_tag ok       of each point, from its collector",
        "identity   team               ok       ml, from the configuration",
        "identity   autoscaling_group=trainers, instance_id=i-1234567890abcdef0, region=us-west-2, team=ml",
    ]


def test_check_prints_what_is_missing_and_where_it_looked(agent, imds, elsewhere, beside):
    imds.close()
    words = ("check", "--collector", "memory", "--sys", elsewhere, "--common-dims", "hostname,region")
    done = agent.run(*words, env=beside(imds))
    assert done.returncode == 1
    hostname, failed = [line for line in done.stdout.splitlines() if line.startswith("identity")]
    assert hostname.startswith("identity   hostname           ok ")
    assert failed == (
        f"identity   FAILED   --common-dims: no value found for region (ECS: {VARIABLE} is not set; EC2: {imds.url} cannot"
        f" be reached: Connection refused; GCE: {imds.url} cannot be reached: Connection refused); set it with --dim region=VALUE, or leave it out"
    )


def test_once_waits_for_a_silent_platform_and_then_ends(imds, nitro, monkeypatch):
    imds.hops = "reset"
    monkeypatch.setenv(ENDPOINT, imds.url)
    with pytest.raises(UnknownIdentity, match=r"no value found for region .*hop"):
        identify(Config(common_dims=("region",), sys=nitro), 0.1)


def test_no_token_is_logged(agent, imds, xen):
    done = agent.run(
        "--once", *QUICK, "--sys", xen, "--common-dims", "region", "--log-level", "debug", env={ENDPOINT: imds.url}
    )
    assert done.returncode == 0
    assert imds.tokens()
    assert not any(token in done.stdout + done.stderr for token in imds.tokens())


# -- Google -------------------------------------------------------------------------------------------------------


def test_attributes_of_the_instance_are_neither_printed_nor_logged(agent, gce, google, beside):
    words = ("--sys", google, "--common-dims", "instance_id,k8s_cluster", "--log-level", "debug")
    done = agent.run("--once", *QUICK, *words, env=beside(gce))
    assert done.returncode == 1
    assert f"GCE: {gce.url}/computeMetadata/v1 lacks k8s_cluster" in done.stderr
    assert SECRET not in done.stdout + done.stderr


def test_a_new_pod_waits_for_its_metadata_server(agent, google, beside):
    env = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    with Gce(POD) as gce:
        gce.starts_in(2.5)
        words = ("--sys", google, "--common-dims", "k8s_cluster,k8s_location,instance_id")
        done = agent.run("--once", *QUICK, *words, env=env | beside(gce))
    assert done.returncode == 0
    dims = {"instance_id": "3459945890685455413", "k8s_cluster": "gpu-1", "k8s_location": "us-central1"}
    assert lines(done)[0]["dims"] == dims
