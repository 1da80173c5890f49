"""The image's Dockerfile, as others' checkers and we read it; what its steps cut, and that nothing that is used is cut."""

import json
import os
import re
import runpy
import shutil
import stat
import sys
import tomllib
from pathlib import Path

import botocore
import pytest
import rich
from tests.deploy import tools
from tests.deploy.boot_machine import run

from chipwatch.service.heartbeat import Heartbeat

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "ecs-sidecar"
DOCKERFILE = FOLDER / "Dockerfile"
NOT_ASKED = {
    "CKV_DOCKER_7": "bases are arguments with a tag, and `make image` insists on digests: the check does not look into arguments",
}
"""Checks of checkov that we do without, and why."""


def test_hadolint_finds_nothing():
    assert run(tools.hadolint(), DOCKERFILE).stdout == ""


@pytest.mark.proof
def test_checkov_finds_nothing():
    words = ("--framework", "dockerfile", "--skip-download", "--output", "json", "--file", DOCKERFILE)
    report = json.loads(run(tools.checkov(), *words, check=False).stdout)
    assert {found["check_id"] for found in report["results"]["failed_checks"]} == set(NOT_ASKED)
    assert report["summary"]["passed"] > 50


def test_what_runs_has_no_shell_no_root_and_asks_its_own_health():
    final = DOCKERFILE.read_text().partition("# -- image:")[2].partition("# -- neuron:")[0]
    users = re.findall(r"^USER (.*)", final, re.MULTILINE)
    assert users[-1] == "65532:65532"
    assert 'CMD ["/app/bin/agent", "status", "--health"]' in final
    assert 'ENTRYPOINT ["/app/bin/agent"]' in final
    assert re.findall(r"^COPY (\S+)", final, re.MULTILINE) == ["--from=build"] * 2, "no fake driver of the demo"
    for line in re.findall(r"^(?:RUN|CMD|ENTRYPOINT) (.*)", final, re.MULTILINE):
        assert line.startswith("["), f"{line}: needs a shell"


def test_all_that_is_written_goes_to_the_one_folder_that_can_be():
    text = DOCKERFILE.read_text()
    (folder,) = json.loads(re.search(r"^VOLUME (.*)", text, re.MULTILINE)[1])
    assert {re.search(rf"\b{name}=(\S+)", text)[1] for name in ("STATE_DIRECTORY", "TMPDIR")} == {folder}


def test_the_context_holds_what_is_installed_and_nothing_else():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*"
    for name in [line[1:] for line in lines if line.startswith("!")]:
        assert (ROOT / name).exists(), name
    assert {
        f"!{name.partition('/')[0]}"
        for name in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"][
            "packages"
        ]
    } <= set(lines)
    needed = re.findall(r"^COPY (?!--from)(\S+)|(ecs-sidecar/\S+\.py)", DOCKERFILE.read_text(), re.MULTILINE)
    assert {name for pair in needed for name in pair if name} == {
        ".", "requirements", "ecs-sidecar/slim.py", "ecs-sidecar/prove.py",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("extras", "files"),
    [
        ("", "base build"),
        ("cloudwatch", "base build cloudwatch"),
        ("google,tpu", "base build google tpu"),
        ("all", "base build cloudwatch google kubernetes prometheus tpu"),
    ],
)
def test_an_image_downloads_what_its_extras_need_by_their_own_files(extras, files):
    words = re.search(r"\$\(for name .*done\)", DOCKERFILE.read_text())[0]
    done = run("sh", "-c", f"echo {words}", env={"PATH": os.defpath, "EXTRAS": extras})
    assert done.stdout.split() == [
        word for name in files.split() for word in ("--requirement", f"requirements/{name}.txt")
    ]
    assert all((ROOT / word).is_file() for word in done.stdout.split()[1::2])


def test_bases_without_a_digest_are_refused_by_name():
    for given, missing in (
        ([], "IMAGE"),
        (["IMAGE=x"], "BUILD_BASE"),
        (["IMAGE=x", "BUILD_BASE=python:3.13"], "BUILD_BASE"),
        (["IMAGE=x", f"BUILD_BASE=python@sha256:{'0' * 64}"], "RUN_BASE"),
    ):
        done = run("make", "--no-print-directory", "image", "DOCKER=false", *given, cwd=ROOT, check=False)
        assert done.returncode
        assert missing in done.stderr.splitlines()[0]


def test_images_of_both_machines_become_one_manifest(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/calls\n')
    docker.chmod(0o755)
    bases = [f"{name}=python@sha256:{'0' * 64}" for name in ("BUILD_BASE", "RUN_BASE")]
    run("make", "--no-print-directory", "images", f"DOCKER={docker}", "IMAGE=host/chipwatch:1", *bases, cwd=ROOT)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert [call.partition(" --file")[0] for call in calls] == [
        "build --platform linux/amd64", "push host/chipwatch:1-amd64", "build --platform linux/arm64", "push host/chipwatch:1-arm64",
        "manifest create host/chipwatch:1 host/chipwatch:1-amd64 host/chipwatch:1-arm64", "manifest push host/chipwatch:1",
    ]  # fmt: skip
    assert "--tag host/chipwatch:1-arm64" in calls[2]
    assert f"--build-arg REVISION={run('git', 'rev-parse', 'HEAD', cwd=ROOT).stdout.strip()}" in calls[0]


# -- slim.py ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slim():
    return runpy.run_path(str(FOLDER / "slim.py"))


def test_what_nothing_imports_is_cut_and_the_rest_stays(slim, tmp_path):
    stay = ["agent/chipwatch/contract/testing.py", "agent/chipwatch/py.typed", "rich/table.py", "botocore/data/partitions.json", "botocore/docs/it.py",
            "botocore/data/cloudwatch/2010-08-01/service-2.json.gz", "a.dist-info/METADATA", "a.dist-info/entry_points.txt"]  # fmt: skip
    go = ["bin/agent", "pygments/lexers/c_like.py", "psutil/tests/test_it.py", "msgspec/_core.pyi", "botocore/data/ec2/service-2.json.gz",
          "a.dist-info/RECORD"]  # fmt: skip
    for name in stay + go:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    slim["prune"](tmp_path)
    assert {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()} == set(stay)


WITHOUT = """
import importlib, pkgutil, sys
for name in sys.argv[1:]:
    sys.modules[name] = None
for package in ("chipwatch", "chipwatch_sinks"):
    for found in pkgutil.walk_packages(importlib.import_module(package).__path__, f"{package}."):
        try:
            importlib.import_module(found.name)
        except ImportError as problem:
            assert problem.name.partition(".")[0] not in sys.argv, (found.name, problem.name)
from chipwatch.commands.cli import main
main(["--once", "--collector", "cpu", "--format", "table"])
"""


def test_nothing_of_ours_imports_what_rich_needs_for_code_and_markdown(slim):
    assert "cpu" in run(sys.executable, "-c", WITHOUT, *slim["FOR_RICH"]).stdout
    assert all((Path(rich.__file__).parents[1] / name).is_dir() for name in slim["FOR_RICH"]), "rich needs it no more"


def test_a_probe_of_the_image_loads_nothing_of_the_command_and_a_no_is_the_commands(slim, tmp_path):
    slim["starter"](tmp_path / "bin")
    script = tmp_path / "bin/agent"
    assert script.read_text().startswith("#!/usr/bin/python3\n"), "no shell"
    assert stat.S_IMODE(script.stat().st_mode) == 0o755
    assert (tmp_path / "bin/chipwatch").read_text() == script.read_text()
    script.write_text(script.read_text().replace("/app/lib", str(ROOT / "agent")))
    env = {"STATE_DIRECTORY": str(tmp_path), "PYTHONPATH": f"{ROOT}/agent"}
    command = [sys.executable, "-X", "importtime", script, "status", "--health", "--ready"]
    heart, said = Heartbeat(tmp_path / "alive", 60), []
    for trouble in (None, "cloudwatch: no credentials"):
        heart.beat(trouble)
        done = run(*command, env=env, check=False)
        said.append((done.returncode, "chipwatch.commands" in done.stderr, str(trouble) in done.stdout + done.stderr))
    assert said == [(0, False, False), (1, True, True)]
    heart.close()


ENDPOINTS = Path(__file__).with_name("endpoints.txt").read_text()


def test_the_sink_finds_every_region_with_the_models_that_are_left(slim, tmp_path):
    """All regions of all partitions, and with the role of another account; some as by the whole botocore."""
    whole = Path(botocore.__file__).parent
    shutil.copytree(whole, tmp_path / "botocore", ignore=shutil.ignore_patterns("__pycache__"))
    slim["prune"](tmp_path)
    answers = []
    for path, regions in ((str(ROOT), 1), (os.pathsep.join([str(tmp_path), str(ROOT)]), 1000)):
        env = {
            "PYTHONPATH": path, "PARTITIONS": str(whole / "data/partitions.json"), "REGIONS": str(regions),
            "AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_ENDPOINT_URL_STS": "http://127.0.0.1:9", "AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "PATH": os.environ["PATH"],
        }  # fmt: skip
        answers.append(json.loads(run(sys.executable, "-c", ENDPOINTS, env=env).stdout))
    before, after = answers
    assert after["from"].startswith(str(tmp_path))
    assert set(after["services"]) == set(slim["MODELS"])
    assert len(before["services"]) > 300
    assert len(before["endpoints"]) > 8
    assert before["endpoints"].items() <= after["endpoints"].items()
    assert len(after["endpoints"]) > 40
    for asked, endpoint in after["endpoints"].items():
        region, fips, suffix = asked.split()
        if fips == "False":
            assert endpoint == f"https://monitoring.{region}.{suffix}"
