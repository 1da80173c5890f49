"""Modules that a running agent loads: each costs memory on every machine of a fleet."""

import subprocess
import sys

import pytest
from tests.conftest import no_nvidia
from tests.doubles import cloudwatch
from tests.doubles.gce import Gce
from tests.doubles.otlp import OtlpDouble

FOREIGN = {"boto3", "botocore", "cryptography", "google", "grpc", "requests", "rich", "urllib3", "yaml"}
BIG = {
    "asyncio", "concurrent.futures", "csv", "importlib.metadata", "mimetypes", "multiprocessing", "psutil", "random", "shutil", "sqlite3",
    "statistics", "stringprep", "subprocess", "tempfile", "tomllib", "unicodedata", "unittest", "zipfile",
}  # fmt: skip
"""Of the standard library; without a use in an agent that prints."""
OWN = {
    "chipwatch.collectors.openmetrics",
    "chipwatch.collectors.textfile",
    "chipwatch.contract.advice",
    "chipwatch.host.exposition",
    "chipwatch.show.report.summary",
    "chipwatch.host.wrapped",
    "chipwatch.engine.spool.sqlite",
    "chipwatch.contract.testing",
    "chipwatch_sinks.stdout.table",
}
NETWORK = {"chipwatch.service.life", "email", "http.client", "ssl", "zlib"}
LIST = """
import atexit, sys
atexit.register(lambda: print("LOADED", *sys.modules, file=sys.stderr))
from chipwatch.__main__ import main
main()
"""


def loaded(*words, **env):
    """Return the modules that a run of the agent has loaded at its end, and the packages that they are in."""
    command = [sys.executable, "-c", LIST, "--once", "--interval", "0.2", *words]
    done = subprocess.run(command, env=cloudwatch.environment(**env), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    names = done.stderr.partition("LOADED ")[2].split()
    assert "chipwatch.engine.clock" in names
    return {*names, *(name.partition(".")[0] for name in names)}


def test_an_agent_that_prints_loads_neither_network_nor_disk_nor_messages(tmp_path):
    unwanted = FOREIGN | BIG | OWN | NETWORK
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
    assert found & (FOREIGN | BIG - {"random", "sqlite3"} | OWN - {"chipwatch.engine.spool.sqlite"}) == set()
