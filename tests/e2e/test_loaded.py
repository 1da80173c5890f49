"""Modules that a running agent loads: each costs memory on every machine of a fleet."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from tests.conftest import no_nvidia
from tests.doubles import cloudwatch
from tests.doubles.gce import Gce
from tests.doubles.otlp import OtlpDouble

FOREIGN = {"boto3", "botocore", "cryptography", "google", "grpc", "requests", "rich", "urllib3", "yaml"}
BIG = {
    "asyncio", "concurrent.futures", "csv", "difflib", "importlib.metadata", "multiprocessing", "shutil", "sqlite3", "statistics",
    "subprocess", "tempfile", "tomllib", "unittest", "zipfile",
}  # fmt: skip
"""Of the standard library; without a use in an agent that prints."""
OWN = {
    "chipwatch.advice",
    "chipwatch.report.summary",
    "chipwatch.runtime.wrapped",
    "chipwatch.spool.sqlite",
    "chipwatch.testing",
}


def loaded(*words, **env):
    """Return the modules that a run of the agent imports, and the packages that they are in."""
    command = [sys.executable, "-X", "importtime", "-m", "chipwatch", "--once", "--interval", "0.2", *words]
    done = subprocess.run(command, env=cloudwatch.environment(**env), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE)
    assert "chipwatch.pipeline.clock" in names
    return {*names, *(name.partition(".")[0] for name in names)}


def test_an_agent_that_prints_loads_neither_network_nor_disk_nor_messages(tmp_path):
    unwanted = FOREIGN | BIG | OWN | {"email", "http.client", "ssl"}
    assert loaded("--format", "json", NO_GCE_CHECK="true", **no_nvidia(tmp_path)) & unwanted == set()


@pytest.mark.parametrize("is_google", [False, True], ids=["plain", "google"])
def test_an_agent_that_sends_otlp_loads_no_library_of_another(is_google, tmp_path):
    with OtlpDouble() as receiver, Gce() as gce:
        env = {"CHIPWATCH_SINKS__OTLP__ENDPOINT_URL": receiver.url, "CLOUDSDK_CONFIG": str(tmp_path)}
        if is_google:
            env |= {"CHIPWATCH_SINKS__OTLP__FLAVOUR": "google", "GCE_METADATA_HOST": gce.host, "NO_GCE_CHECK": ""}
        found = loaded("--sink", "otlp", "--spool", str(tmp_path), "--collector", "memory", **env)
        assert receiver.points
        assert gce.given == is_google
    assert found & (FOREIGN | BIG - {"sqlite3"} | OWN - {"chipwatch.spool.sqlite"}) == set()
