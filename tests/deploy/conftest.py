"""What the checks of several deployments need: other people's servers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time

import pytest
import yaml

from tests.deploy import tools
from tests.doubles import kube
from tests.doubles.cloudwatch import isolate

LONG = 60.0


@pytest.fixture(scope="session")
def _moto(tmp_path_factory):
    log = tmp_path_factory.mktemp("moto") / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"],
            stdout=out,
            stderr=subprocess.STDOUT,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
    try:
        deadline = time.monotonic() + LONG
        while not (found := re.search(r"Running on (http://127\.0\.0\.1:\d+)", log.read_text())):
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, "moto's server does not start"
            time.sleep(0.02)
        yield found[1]
    finally:
        process.kill()
        process.wait(LONG)


@pytest.fixture
def moto(_moto, monkeypatch):
    """moto's server, one for all tests, and an environment in which nothing leads to AWS itself."""
    isolate(monkeypatch)
    return _moto


@pytest.fixture
def client(moto):
    """Make botocore's clients of moto, by the name of a service."""
    import botocore.session

    made = []

    def make(service):
        made.append(
            botocore.session.Session().create_client(
                service, "us-east-1", endpoint_url=moto, aws_access_key_id="dummy", aws_secret_access_key="dummy"
            )
        )
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(autouse=True)
def _helm_has_a_home(tmp_path, monkeypatch):
    for name in ("CACHE", "CONFIG", "DATA"):
        monkeypatch.setenv(f"HELM_{name}_HOME", str(tmp_path / name.lower()))
    monkeypatch.delenv("KUBECONFIG", raising=False)


@pytest.fixture
def api(tmp_path):
    """The address of a stand-in API server, and a kubeconfig that names it."""
    tools.kubernetes_validate()
    command = [tools.python_of_tools(), kube.__file__, "1.33"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            context = {"name": "x", "context": {"cluster": "x", "user": "x"}}
            config = {"apiVersion": "v1", "kind": "Config", "current-context": "x", "contexts": [context]}
            config |= {
                "clusters": [{"name": "x", "cluster": {"server": address}}],
                "users": [{"name": "x", "user": {}}],
            }
            file = tmp_path / "kubeconfig"
            file.write_text(yaml.safe_dump(config))
            file.chmod(0o600)
            yield file
        finally:
            server.terminate()
