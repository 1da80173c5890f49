"""As a new user would try it: the command, dummy credentials, a stand-in for AWS that somebody else wrote."""

import os
import re
import subprocess
import sys
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import botocore.session
import psutil
import pytest
from tests.doubles.cloudwatch import isolate

LONG = 60.0


@pytest.fixture(autouse=True)
def _no_way_out(monkeypatch):
    isolate(monkeypatch)


@contextmanager
def moto_server(folder):
    """Run moto's server on a free port of 127.0.0.1; give its address."""
    log = folder / "moto.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        yield lambda: re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())
    finally:
        process.kill()
        process.wait(LONG)


@pytest.fixture
def moto(tmp_path, until):
    with moto_server(tmp_path) as found:
        yield until(found)[1]


@pytest.fixture
def cloudwatch(moto):
    """botocore's client of moto, to look with."""
    client = botocore.session.Session().create_client(
        "cloudwatch", "us-east-1", endpoint_url=moto, aws_access_key_id="dummy", aws_secret_access_key="dummy"
    )
    yield client
    client.close()


def test_this_machines_metrics_appear(agent, moto, cloudwatch, tmp_path):
    words = ("--sink", "cloudwatch", "--endpoint-url", moto, "--region", "us-east-1", "--once")
    words += ("--common-dims", "instance_id,instance_type", "--dim", "instance_id=i-0abc", "--dim", "instance_type=c7i")
    begun = datetime.now(UTC)

    done = agent.run(*words, "--spool", tmp_path / "spool")

    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    listed = {
        (metric["MetricName"], tuple((dim["Name"], dim["Value"]) for dim in metric["Dimensions"]))
        for metric in cloudwatch.list_metrics(Namespace="Chipwatch")["Metrics"]
    }
    machine = (("instance_id", "i-0abc"), ("instance_type", "c7i"))
    assert {("cpu.utilization", machine), ("memory.utilization", machine), ("memory.used", machine)} <= listed
    assert any(name == "disk.utilization" and ("path", "/") in dims for name, dims in listed)

    assert 0 <= newest(cloudwatch, "cpu.utilization", machine, begun) <= 100
    assert newest(cloudwatch, "memory.utilization", machine, begun) == pytest.approx(
        psutil.virtual_memory().percent, abs=15
    )
    assert newest(cloudwatch, "memory.used", machine, begun) > 0


def newest(cloudwatch, name, dims, begun):
    """Return the one value of a metric since `begun`, as get_metric_data gives it."""
    metric = {
        "Namespace": "Chipwatch",
        "MetricName": name,
        "Dimensions": [{"Name": key, "Value": value} for key, value in dims],
    }
    found = cloudwatch.get_metric_data(
        MetricDataQueries=[{"Id": "a", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Average"}}],
        StartTime=begun - timedelta(minutes=1),
        EndTime=begun + timedelta(minutes=2),
    )
    (series,) = found["MetricDataResults"]
    assert len(series["Values"]) == 1, f"{name}: {series}"
    assert abs(series["Timestamps"][0] - begun) < timedelta(minutes=3)
    return series["Values"][0]


def test_a_wrong_configuration_is_explained_and_the_readings_are_kept(agent, tmp_path):
    done = agent.run("--sink", "cloudwatch", "--once", "--spool", tmp_path / "spool")

    assert "no AWS region" in done.stderr
    assert "points: no AWS region" in done.stderr
    assert (tmp_path / "spool" / "cloudwatch.db").exists()
