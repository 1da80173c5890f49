"""Wheel and sdist: what is in them, that they work where only they are, and that they are the same bytes each time."""

import hashlib
import os
import re
import sys
import sysconfig
import tarfile
import tomllib
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from tests.deploy.boot_machine import run
from tools import release

from chipwatch.base.version import __version__
from chipwatch.base.version import build as build_of_this

ROOT = Path(__file__).parents[2]
NAME = f"chipwatch-{__version__}"
COMMIT = "chipwatch/base/commit"


def head():
    return run("git", "rev-parse", "HEAD", cwd=ROOT).stdout.strip()


def build(folder, epoch, of=ROOT):
    run(sys.executable, "-m", "hatchling", "build", "--directory", folder, cwd=of,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch), "PIP_NO_INDEX": "1"})  # fmt: skip
    return folder / f"{NAME}-py3-none-any.whl", folder / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("dist"), 1_700_000_000)


def sources():
    """Return the path of each source file below its source root: its name in the wheel."""
    return {
        str(path.relative_to(ROOT / top)): str(path.relative_to(ROOT))
        for top in ("agent", "sinks")
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_the_two_packages_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    info = f"{NAME}.dist-info"
    metadata = {name for name in names if name.startswith(info)}
    assert metadata == {
        *(f"{info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "entry_points.txt", "licenses/LICENSE")),
        f"{info}/licenses/agent/chipwatch/show/report/page/uplot/LICENSE",
    }
    assert names - metadata == {*sources(), COMMIT}
    assert "chipwatch/py.typed" in names
    assert {"chipwatch_sinks/common/cloudwatch_prices.toml", "chipwatch_sinks/google/prices.toml"} <= names
    assert {"chipwatch/contract/rules.json", "chipwatch/advisor/dashboard/panels.toml"} <= names


def test_the_sdist_holds_these_and_what_says_what_they_are(built):
    with tarfile.open(built[1]) as archive:
        names = {name.removeprefix(f"{NAME}/") for name in archive.getnames()}
    assert names - set(sources().values()) == {
        ".gitignore", "CHANGELOG.md", "LICENSE", "PKG-INFO", "README.md", "COMMIT", "hatch_build.py", "pyproject.toml",
    }  # fmt: skip
    assert set(sources().values()) <= names


def test_the_same_bytes_come_out_each_time_also_of_the_sdist(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    again = build(tmp_path, 1_700_000_000, of=tmp_path / NAME)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_the_wheel_works_where_there_is_no_source(built, tmp_path):
    """Installed alone, with the dependencies of this test."""
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-index", "--no-deps", "--quiet", built[0])
    own = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").stdout.strip())
    (own / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    env = {"PATH": os.environ["PATH"], "PYTHONNOUSERSITE": "1"}

    program = "import chipwatch, chipwatch_sinks; print(chipwatch.__file__, *chipwatch_sinks.__path__)"
    where = run(python, "-c", program, cwd=tmp_path, env=env)
    assert all(Path(path).is_relative_to(own) for path in where.stdout.split())
    for command in ("agent", "chipwatch"):
        said = run(tmp_path / "venv/bin" / command, "--version", cwd=tmp_path, env=env).stdout
        assert re.fullmatch(rf"chipwatch {__version__} \({head()}(\+changes)?\)\n", said)
    assert "cpu.utilization" in run(tmp_path / "venv/bin/agent", "list", cwd=tmp_path, env=env).stdout
    assert '"name": "memory.utilization"' in run(tmp_path / "venv/bin/agent", "--once", cwd=tmp_path, env=env).stdout


def test_git_gives_the_same_program(tmp_path):
    run(sys.executable, "-m", "pip", "install", "--no-index", "--no-deps", "--no-build-isolation", "--quiet",
        "--target", tmp_path, f"git+file://{ROOT}")  # fmt: skip
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert (
        run(tmp_path / "bin/agent", "--version", cwd=tmp_path, env=env).stdout
        == f"chipwatch {__version__} ({head()})\n"
    )


def test_a_build_without_git_names_the_commit_that_it_is_given_or_none(built, tmp_path):
    with tarfile.open(built[1]) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (tmp_path / NAME / "COMMIT").unlink()
    for given, named in (({"CHIPWATCH_COMMIT": "abc123"}, "abc123\n"), ({}, "unknown\n")):
        run(sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path, cwd=tmp_path / NAME,
            env={**os.environ, "GIT_DIR": "/nowhere", **given})  # fmt: skip
        assert zipfile.ZipFile(tmp_path / built[0].name).read(COMMIT).decode() == named


def test_a_checkout_says_that_it_is_one():
    assert build_of_this() == f"{__version__} (a checkout)"


# -- what it needs -----------------------------------------------------------------------------------------------


def pins(name):
    """Return the pinned packages of a file of requirements, and the text of each."""
    entries = re.split(r"(?m)^(?=\w)", (ROOT / f"requirements/{name}.txt").read_text())[1:]
    return {entry.split("==")[0]: entry for entry in entries}


EXTRAS = {*metadata.metadata("chipwatch").get_all("Provides-Extra")} - {"all", "dev"}


@pytest.mark.parametrize("name", ["base", *sorted(EXTRAS)])
def test_the_requirements_of_an_extra_are_its_own_pinned_as_all_are(name):
    own, everything = pins(name), pins("constraints")
    assert "pip" in own, "it installs the rest where the distribution's Python has none"
    assert {package: text for package, text in own.items() if package != "pip"}.items() <= everything.items()
    wanted = [
        re.split(r"[^\w.-]", line)[0]
        for line in metadata.requires("chipwatch")
        if "extra ==" not in line or f"'{name}'" in line
    ]
    assert set(wanted) - {"chipwatch"} <= own.keys()


def test_a_node_that_sends_to_cloudwatch_gets_13_wheels():
    assert len(pins("cloudwatch")) == 13
    assert len(pins("constraints")) == 40


def test_what_builds_this_folder_is_pinned_as_all_is():
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert set(asked) <= pins("build").keys()
    assert pins("build").items() <= pins("constraints").items()


def test_the_pythons_of_the_wheelhouse_are_what_the_page_says_and_the_installer_takes():
    minors = re.search(r"(?m)^PYTHONS \?= (.*)", (ROOT / "Makefile").read_text())[1].split()
    page, script = ((ROOT / name).read_text() for name in ("docs/install.md", "tools/install.sh"))
    assert f"for CPython {minors[0]} to {minors[-1]} on x86-64" in page
    assert f"a Python {minors[0]} to {minors[-1]}," in page
    assert f"for one in {' '.join(f'python{minor}' for minor in reversed(minors))} python3 " in script
    assert f"there is no Python {minors[0]} to {minors[-1]} with venv" in script


# -- where it is installed from ----------------------------------------------------------------------------------

INSTALLS = re.compile(r"\b(?:pip3?|pipx|uvx?|easy_install)\b.*\b(?:install|download|run|add|sync)\b.*\bchipwatch\b")
HELD = re.compile(r"--no-index|--require-hashes|\.whl\b|@ git\+https://")


def bare(text):
    """Return the commands of a text that take chipwatch by its name from an index."""
    lines = re.sub(r"\\\n", " ", text).splitlines()
    return [line.strip() for line in lines if INSTALLS.search(line) and not HELD.search(line)]


def test_nothing_that_is_shipped_installs_the_agent_by_a_name_that_anybody_may_take():
    assert bare("pip install --quiet \\\n  chipwatch==0.1.0")
    assert not bare("pip install --no-index --find-links dist/wheelhouse 'chipwatch[cloudwatch]'")
    listed = run("git", "ls-files", cwd=ROOT)
    shipped = [
        ROOT / name for name in listed.stdout.splitlines() if not name.startswith(("tests/", "tools/", "CHANGELOG"))
    ]
    assert ROOT / "terraform/aws/user-data.sh.tftpl" in shipped
    found = {str(path): bare(path.read_text(errors="replace")) for path in shipped if path.is_file()}
    assert {path: lines for path, lines in found.items() if lines} == {}


def test_the_wheelhouse_of_a_release_is_one_file_with_its_sums_and_the_same_bytes_each_time(tmp_path, monkeypatch):
    dist = tmp_path / "dist"
    (dist / "wheelhouse").mkdir(parents=True)
    names = {f"{NAME}-py3-none-any.whl", "install.sh", "wheelhouse/rich-15.0.0-py3-none-any.whl"}
    for name in names:
        (dist / name).write_text(name)
    monkeypatch.setattr(release, "DIST", dist)
    monkeypatch.setattr(release, "SUMS", dist / "SHA256SUMS")
    release.pack(__version__)
    packed = release.packed(__version__)
    first = packed.read_bytes()
    os.utime(dist / "install.sh", (1, 1))
    release.pack(__version__)
    assert packed.read_bytes() == first
    run("tar", "-xf", packed, cwd=tmp_path)
    unpacked = tmp_path / NAME
    assert {str(path.relative_to(unpacked)) for path in unpacked.rglob("*.*")} == names
    assert run("sha256sum", "--check", "SHA256SUMS", cwd=unpacked).stdout.count(": OK") == len(names)
    assert f"{hashlib.sha256(first).hexdigest()}  {packed.name}\n" in (dist / "SHA256SUMS").read_text()
