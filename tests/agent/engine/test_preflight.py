"""Metrics that a sink never accepts are reported before anything is sent."""

import json
import urllib.error
import urllib.request

import pytest
from tests.ports import free_port

from chipwatch.config.options import Config
from chipwatch.contract.datapoint import Level, gauge
from chipwatch.contract.sink import Limits, Sink
from chipwatch.engine.preflight import dimension_faults, faults

PICKY = """
from dataclasses import dataclass
from chipwatch.contract.sink import Limits, Rejected, Sink

class Picky(Sink):
    limits = Limits(max_points=100, window=0, flush=0, durable=False)

    @dataclass(frozen=True)
    class Config:
        blind: bool = False
        bad_name: str = "none"

    def __init__(self, config):
        self.config = config

    def why(self, metric, dims):
        if any(not value.isascii() for value in dims.values()):
            return "dimension value not allowed"
        return "metric name not allowed" if metric.name.startswith(self.config.bad_name) else None

    def refuses(self, metric, dims):
        return None if self.config.blind else self.why(metric, dims)

    def write(self, batch):
        return [Rejected(p, why) for p in batch if (why := self.why(p.metric, p.dims))]
"""
FAULT = "dims.site = 'Zürich': picky rejects every point that has it: dimension value not allowed"


@pytest.fixture
def port():
    return free_port()


@pytest.fixture
def run(agent, plugins_folder):
    plugins_folder.add("picky", PICKY, sinks=[("picky", "Picky")])

    def run(*words, command=(), **env):
        return agent.run(*words, "--sink", "picky", "--collector", "memory", *command,
                         env={"PYTHONPATH": plugins_folder.folder, "PYTHONIOENCODING": "utf-8", **env},
                         encoding="utf-8")  # fmt: skip

    return run


class Strict(Sink):
    limits = Limits(max_points=10)

    def write(self, batch):
        return ()

    def refuses(self, metric, dims):
        if len(dims) > 3:
            return "too many dimensions"
        return next((f"{key} is taken" for key in dims if key == "taken"), None)


def told(dims, words=(), metrics=(), rename=None):
    config = Config(dims=dims, common_dims=words)
    return [tuple(fault) for fault in faults("strict", Strict(), config, metrics, rename)]


def test_each_dimension_that_a_sink_rejects_is_named_with_its_value():
    found = told({"taken": "a\nb" * 100, "site": "x"})
    value = ("a\nb" * 100)[:60]
    text = f"dims.taken = {value!r}: strict rejects every point that has it: taken is taken; change it, or leave it out"
    assert found == [(text, True)]


def test_dimensions_that_are_too_many_only_together_are_one_fault():
    (fault,) = dimension_faults("strict", Strict(), dict.fromkeys("abcd", "x"), "common_dims")
    assert fault.text.startswith("common_dims: strict rejects every point that has these 4: too many dimensions")


def test_metrics_that_a_sink_rejects_are_named_and_the_others_go_on():
    few, many = gauge("x.few", "1", "A.", dims=("n",)), gauge("x.many", "1", "A.", Level.BASIC, ("n", "m"))
    assert told({"site": "x"}, ["hostname"], [few, many]) == [
        ("strict rejects every point of x.many: too many dimensions", False)
    ]
    assert told({"site": "x"}, ["hostname"], [many]) == [
        ("strict rejects every point of x.many: too many dimensions", True)
    ]
    assert told({"site": "x"}, [], [few, many]) == []


def test_metrics_are_judged_by_the_names_that_they_are_sent_under():
    def rename(point):
        return point._replace(dims=point.dims | {"taken": "x"})

    names = [gauge(f"x.{n}", "1", "A.") for n in range(5)]
    assert told({}, [], names, rename) == [
        ("strict rejects every point of x.0, x.1, x.2 and 2 more: taken is taken", True)
    ]


def test_an_agent_whose_sink_would_reject_everything_does_not_start(run, tmp_path):
    for command in ([], ["--", "touch", tmp_path / "begun"]):
        done = run("run", "--dim", "site=Zürich", command=command)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == f"chipwatch: {FAULT}; change it, or leave it out\n"
    assert not (tmp_path / "begun").exists()


def test_cloudwatch_limits_dimensions(agent, tmp_path):
    pytest.importorskip("botocore")
    done = agent.run("run", "--sink", "cloudwatch", "--collector", "memory", "--spool", tmp_path / "spool",
                     "--dim", "site=Z\u00fcrich", env={"PYTHONIOENCODING": "utf-8"}, encoding="utf-8")  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.startswith("chipwatch: dims.site = 'Zürich': cloudwatch rejects every point that has it")
    assert not (tmp_path / "spool").exists()


def test_a_check_says_it_and_is_not_ok(run):
    done = run("check", "--dim", "site=Zürich")
    assert done.returncode == 1
    assert FAULT in done.stdout
    assert "sink       picky        ok" in done.stdout


def test_a_check_judges_what_it_finds_out_about_the_machine(run, tmp_path):
    done = run("check", "--common-dims", "slurm_job", SLURM_JOB_ID="jób")
    assert done.returncode == 1
    assert "common_dims.slurm_job = 'jób': picky rejects every point that has it" in done.stdout
    assert run("check", "--common-dims", "slurm_job", SLURM_JOB_ID="7").returncode == 0


def test_a_plan_says_it_as_text_and_as_json(run):
    done = run("plan", "--dim", "site=Zürich")
    assert done.returncode == 1
    assert f"FAILED: {FAULT}" in " ".join(done.stdout.split())
    done = run("plan", "--dim", "site=Zürich", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["sinks"][0]["rejected"] == [f"{FAULT}; change it, or leave it out"]


def test_rejected_metrics_are_logged_and_the_others_sent(run):
    env = {"CHIPWATCH_SINKS__PICKY__BAD_NAME": "memory.u"}
    done = run("run", "--once", **env)
    assert done.returncode == 0
    assert done.stderr.count("picky rejects every point of memory.utilization") == 1
    assert run("check", **env).returncode == 1


def test_an_agent_all_of_whose_points_are_rejected_is_not_ready(agent, until, port, plugins_folder):
    plugins_folder.add("picky", PICKY, sinks=[("picky", "Picky")])
    running = agent.start("--interval", "0.2", "--sink", "picky", "--collector", "memory", "--health", f"127.0.0.1:{port}",
                          "--common-dims", "slurm_job",
                          env={"PYTHONPATH": plugins_folder.folder, "SLURM_JOB_ID": "jób",
                               "CHIPWATCH_SINKS__PICKY__BLIND": "true", "PYTHONIOENCODING": "utf-8"})  # fmt: skip

    def answer():
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=10) as got:
                return got.status, json.load(got)
        except urllib.error.HTTPError as got:
            with got:
                return got.code, json.load(got)
        except OSError:
            return None, None

    until(lambda: (answer()[1] or {}).get("refused"))
    code, facts = answer()
    assert code == 503
    assert facts["refused"]["picky"].startswith(
        "every point is rejected: dimension value not allowed (for example memory."
    )
    assert "jób" in facts["refused"]["picky"]
    assert running.stop()[0] == 0
    assert running.errors().count("points are rejected") == 1
