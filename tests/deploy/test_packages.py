"""The forms that bring their own Python: what a package says, and, with root, how it lives and goes."""

import importlib.util
import os
import re
import shutil
import sys
import time
from pathlib import Path

import pytest
from tests.deploy import tools
from tests.deploy.boot_machine import DEBS, Machine, bare, run

from chipwatch.base.version import __version__

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "deploy/packages"
FILES = pytest.mark.deploy_files
MACHINES = pytest.mark.deploy
LATER = "0.2.0"


def load(name):
    spec = importlib.util.spec_from_file_location(name, PACKAGES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def build():
    return load("build")


@pytest.fixture(scope="module")
def trees(build, tmp_path_factory):
    """The files of both packages around a program that is not ours but runs anywhere."""
    folder = tmp_path_factory.mktemp("frozen")
    for path in (
        "chipwatch",
        "_internal/libz.so.1",
        "_internal/grpc/cygrpc.so",
        "_internal/google_auth.dist-info/METADATA",
    ):
        (folder / "program" / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy("/bin/true", folder / "program" / path)
    (folder / "program/_internal/grpc/cygrpc.so").write_bytes(b"\x7fELF\0GLIBC_2.98\0GLIBC_2.99\0")
    tree = build.lay_out(folder / "program", folder / "tree")
    build.take_apart(tree, folder / "google")
    return tree, folder / "google"


def libraries(build, root):
    return sorted(path.name for path in (root / build.FOLDER / "_internal").iterdir())


@FILES
def test_a_deb_names_the_least_glibc_and_keeps_a_changed_configuration(build, trees, tmp_path):
    if not shutil.which("dpkg-deb"):
        pytest.skip("dpkg-deb is not on PATH")
    package, google = build.build_debs(*trees, LATER, tmp_path)
    fields = run("dpkg-deb", "--field", package).stdout
    assert f"Version: {LATER}\n" in fields
    assert re.search(r"\nDepends: libc6 \(>= 2\.\d+\), libgcc-s1\n", fields)
    run("dpkg-deb", "--raw-extract", package, tmp_path / "raw")
    assert (tmp_path / "raw/DEBIAN/conffiles").read_text() == "/etc/chipwatch/chipwatch.toml\n"
    unit = (tmp_path / "raw/usr/lib/systemd/system/chipwatch.service").read_text()
    assert set(re.findall(r"/\S+/chipwatch(?= )", unit)) == {build.PROGRAM}
    assert (tmp_path / "raw/usr/bin/chipwatch").readlink() == Path(build.PROGRAM)
    assert not (tmp_path / "raw/opt").exists()  # dpkg would take /opt away with its last file
    assert f"Depends: libc6 (>= 2.99), chipwatch (= {LATER}), libstdc++6\n" in run("dpkg-deb", "--field", google).stdout
    run("dpkg-deb", "--extract", google, tmp_path / "google")
    assert libraries(build, tmp_path / "raw") == ["libz.so.1"]
    assert libraries(build, tmp_path / "google") == ["google_auth.dist-info", "grpc"]
    for script in ("preinst", "postinst", "prerm", "postrm"):
        run(tools.shellcheck(), tmp_path / "raw/DEBIAN" / script)


@FILES
def test_an_rpm_keeps_a_changed_configuration_and_leaves_the_service_off(build, trees, tmp_path):
    if not shutil.which("rpmbuild"):
        pytest.skip("rpmbuild is not on PATH: `apt-get install rpm`")
    package, google = build.build_rpms(*trees, LATER, tmp_path)
    assert run("rpm", "--query", "--package", package, "--configfiles").stdout == "/etc/chipwatch/chipwatch.toml\n"
    assert f"glibc >= {build.glibc(trees[0])}\n" in run("rpm", "--query", "--package", package, "--requires").stdout
    assert "GLIBC" not in run("rpm", "--query", "--package", google, "--requires", "--provides").stdout
    scripts = run("rpm", "--query", "--package", package, "--scripts").stdout
    assert "enable" not in scripts
    assert scripts.count("systemctl try-restart") == 1
    (tmp_path / "root").mkdir()
    rpm = ("rpm", "--root", tmp_path / "root")
    run(*rpm, "--initdb")
    assert "chipwatch = " in run(*rpm, "--install", google, check=False).stderr
    for one, inside in ((package, ["libz.so.1"]), (google, ["google_auth.dist-info", "grpc", "libz.so.1"])):
        run(*rpm, "--install", "--nodeps", "--noscripts", one)
        assert libraries(build, tmp_path / "root") == inside
    run(*rpm, "--erase", "--noscripts", "chipwatch", "chipwatch-google")
    assert not (tmp_path / "root" / build.FOLDER).exists()


@FILES
@pytest.mark.parametrize("form", ["archive", "deb", "rpm"])
def test_the_same_files_give_the_same_bytes_at_another_time(build, trees, form, tmp_path, monkeypatch):
    if not shutil.which(tool := {"deb": "dpkg-deb", "rpm": "rpmbuild"}.get(form, "tar")):
        pytest.skip(f"{tool} is not on PATH")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    made = []
    for moment in (1_700_000_000, 1_750_000_000):
        out = tmp_path / str(moment)
        copies = [shutil.copytree(tree, out / str(number), symlinks=True) for number, tree in enumerate(trees)]
        for path in out.rglob("*"):
            os.utime(path, (moment, moment), follow_symlinks=False)
        words = (copies[0] / build.FOLDER, LATER, out) if form == "archive" else (*copies, LATER, out)
        made.append([package.read_bytes() for package in getattr(build, f"build_{form}s")(*words)])
    assert made[0] == made[1]


@FILES
@pytest.mark.parametrize(("before", "after"), [(None, "None"), ("/usr/local/cuda/lib64", "/usr/local/cuda/lib64")])
def test_what_the_program_starts_does_not_see_the_loaders_libraries(before, after):
    env = os.environ | {"LD_LIBRARY_PATH": "/tmp/_MEI1"} | ({"LD_LIBRARY_PATH_ORIG": before} if before else {})
    code = "import os, sys; print(os.environ.get('LD_LIBRARY_PATH'), *sys.argv)"
    done = run(sys.executable, PACKAGES / "program.py", "-I", "-c", code, "word", env=env)
    assert done.stdout == f"{after} -c word\n"


def test_the_message_of_the_one_file_has_its_size_and_its_places(build):
    old, new = build.NOT_LOADED, build.with_advice(b"\x7fELF" + build.NOT_LOADED + b"next\0")
    assert len(new) == 4 + len(old) + 5
    assert new[4:].split(b"\0")[0] % (b"/tmp/x", b"why") == b"Cannot load '/tmp/x' (noexec? set TMPDIR): why\n"
    assert new.endswith(b"\0next\0")
    for other in (b"", old + old):
        with pytest.raises(ValueError, match="PyInstaller"):
            build.with_advice(other)


@pytest.fixture(scope="module")
def made(as_root, tmp_path_factory):
    """The one file, both debs, and that of a later version, built once; a minute."""
    run("make", "packages", "FORMS=onefile deb", cwd=ROOT)
    ends = (f"-{__version__}-linux-x86_64", f"_{__version__}_amd64.deb", f"-google_{__version__}_amd64.deb")
    one, first, google = (ROOT / "dist" / f"chipwatch{end}" for end in ends)
    folder = tmp_path_factory.mktemp("later")
    run("dpkg-deb", "--raw-extract", first, folder / "raw")
    control = folder / "raw/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {__version__}", f"Version: {LATER}"))
    run("dpkg-deb", "-Znone", "--root-owner-group", "--build", folder / "raw", folder / "later.deb")
    return one, first, google, folder / "later.deb"


@MACHINES
def test_the_one_file_reads_this_machine_and_runs_a_command_as_it_is(made, tmp_path):
    env = {"PATH": os.defpath, "STATE_DIRECTORY": str(tmp_path / "state")}
    assert '"name": "cpu.' in run(made[0], "--once", env=env).stdout
    command = ("python3", "-c", "import os; print(os.environ.get('LD_LIBRARY_PATH')); raise SystemExit(7)")
    done = run(made[0], "--collector", "memory", "--", *command, env=env, check=False)
    assert done.stdout == "None\n"
    assert done.returncode == 7
    assert "no AWS credentials" in run(made[0], "--sink", "cloudwatch", "--region", "us-east-1", "--once", check=False,
                                       env=env | {"AWS_EC2_METADATA_DISABLED": "true"}).stderr  # fmt: skip


@MACHINES
def test_the_one_file_names_tmpdir_where_its_folder_may_not_execute(made, tmp_path):
    script = 'mount -t tmpfs -o noexec tmpfs "$1" && TMPDIR="$1" exec "$2" version'
    done = run("unshare", "--mount", "sh", "-c", script, "sh", tmp_path, made[0], check=False)
    assert done.returncode != 0
    assert re.search(r"Cannot load '.*/libpython3.*' \(noexec\? set TMPDIR\): ", done.stderr)


@MACHINES
@pytest.mark.parametrize("suite", DEBS)
def test_a_deb_is_installed_updated_taken_back_and_leaves_nothing(suite, made, tmp_path):
    """A machine without a network and, but for Python's name, with what dpkg needs alone."""
    with Machine(bare(suite), tmp_path, "") as machine:
        machine.until_up()
        for package in made[1:]:
            shutil.copy(package, machine.root / "srv")
        there = lambda: {str(path) for path in machine.root.rglob("*") if re.search("chipwatch|^opt$", path.name)}  # noqa: E731
        before = there()
        machine.inside("dpkg", "--install", f"/srv/{made[1].name}")
        assert machine.inside("chipwatch", "--version").stdout.startswith(f"chipwatch {__version__}")
        assert machine.inside("systemctl", "is-enabled", "chipwatch", check=False).stdout == "disabled\n"
        google = lambda: machine.inside("chipwatch", "check", "--sink", "google", check=False).stderr  # noqa: E731
        assert "cannot be loaded: No module named" in google()
        assert google().endswith("; install the package chipwatch-google of the same version\n")
        machine.inside("dpkg", "--install", f"/srv/{made[2].name}")
        assert "cannot be loaded" not in google()
        machine.inside("dpkg", "--purge", "chipwatch-google")
        machine.write("etc/chipwatch/chipwatch.toml", 'collector = ["memory"]\ninterval = 1\n')
        begun = time.monotonic()
        machine.inside("systemctl", "enable", "--now", "chipwatch")
        journal = ("journalctl", "--unit", "chipwatch", "--output", "cat")
        machine.until(lambda: '"name": "memory.' in machine.inside(*journal).stdout, "a first datapoint")
        print(f"\n    {suite}: first datapoint after {time.monotonic() - begun:.1f} s")  # noqa: T201  # the figures are what this is run for
        state = lambda: machine.inside("systemctl", "show", "-P", "MainPID,ActiveState", "chipwatch").stdout  # noqa: E731
        for version, package in ((LATER, "later.deb"), (__version__, made[1].name)):
            earlier = state()
            machine.inside("dpkg", "--install", f"/srv/{package}")
            machine.until(lambda: "active\n" in state() and state() != earlier, "the service starts again")  # noqa: B023
            assert machine.inside("dpkg-query", "--show", "--showformat=${Version}", "chipwatch").stdout == version
            assert 'collector = ["memory"]' in (machine.root / "etc/chipwatch/chipwatch.toml").read_text()
        machine.inside("dpkg", "--purge", "chipwatch")
        assert there() == before
        assert "chipwatch" not in machine.inside("getent", "passwd").stdout
