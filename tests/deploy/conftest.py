"""Fixtures of the checks of several deployments: other people's servers, and machines that boot."""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time

import pytest
import yaml
from tests.deploy import boot_machine, tools
from tests.deploy import terraform as tf
from tests.deploy.boot_machine import PYTHON, ROOT, run
from tests.doubles import kube
from tests.doubles.cloudwatch import isolate

LONG = 60.0


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark each test of this folder that neither builds nor boots anything."""
    for item in items:
        if item.path.is_relative_to(ROOT / "tests/deploy") and not item.get_closest_marker("deploy"):
            item.add_marker("deploy_files")


@pytest.fixture(scope="module")
def terraform(tmp_path_factory):
    with tf.providers() as served:
        yield tf.Terraform(tmp_path_factory.mktemp("terraform"), served)


@pytest.fixture(scope="module")
def planned(terraform, request):
    """Plan an example of the cloud whose modules are in FOLDER of the test's file, with what GIVEN has for it, once."""
    folder, given = request.module.FOLDER, request.module.GIVEN
    return functools.cache(lambda name: terraform.plan(folder / "examples" / name, given[name]))


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
def client(moto, at_the_end):
    """Make botocore's clients of moto, by the name of a service."""
    import botocore.session

    def make(service):
        keys = {"aws_access_key_id": "dummy", "aws_secret_access_key": "dummy"}
        session = botocore.session.Session()
        return at_the_end.enter_context(
            contextlib.closing(session.create_client(service, "us-east-1", endpoint_url=moto, **keys))
        )

    return make


@pytest.fixture(scope="session")
def as_root():
    if os.getuid() or sys.platform != "linux":
        pytest.skip("a machine is started by root on Linux alone")


@pytest.fixture(scope="session")
def dist(as_root, tmp_path_factory):
    """Make what `make dist` makes, for this machine's processor and Debian's Python alone."""
    folder = tmp_path_factory.mktemp("dist")
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary", ":all:")
    held = tmp_path_factory.mktemp("held")
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "--directory", folder, cwd=ROOT)
    machine = os.uname().machine
    of_debian = ("--python-version", PYTHON, "--platform", f"manylinux_2_28_{machine}", "--platform", f"manylinux_2_17_{machine}")  # fmt: skip
    run(*pip, *of_debian, "--no-deps", "--require-hashes", "-r", ROOT / "requirements/constraints.txt", "--dest", held)
    (wheel,) = folder.glob("*.whl")
    run(*pip, *of_debian, "--no-index", "--find-links", held, "--dest", folder / "wheelhouse", f"{wheel}[cloudwatch]")
    lines = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.relative_to(folder)}\n" for one in sorted(folder.rglob("*.whl"))]  # fmt: skip
    (folder / "SHA256SUMS").write_text("".join(lines))
    return folder


@pytest.fixture
def machine(dist, tmp_path):
    """Make a machine that executes user-data at its boot; it has the wheels, and credentials that mean nothing."""

    def make(user_data, debian=boot_machine.debian):
        made = boot_machine.Machine(debian(), tmp_path, user_data)
        shutil.copytree(dist, made.root / "opt/wheels")
        made.write("etc/chipwatch/environment", "AWS_ACCESS_KEY_ID=dummy\nAWS_SECRET_ACCESS_KEY=dummy\n")
        return made

    return make


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
