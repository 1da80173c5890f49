"""
install.sh on real root file systems of Debian 12 and 13 and Ubuntu 24.04 under a real systemd: `make test-rollout`.

Install, update, an update that breaks, a downgrade, the way back, removal: each machine boots in systemd-nspawn with a loopback and no other
network. Linux, root, debootstrap, systemd-container and the distributions' archives are needed. Limits of memory are not enforced there.
"""

import hashlib
import os
import re
import shutil
import time
import zipfile

import pytest
from tests.deploy import boot, boot_machine
from tests.deploy.boot_machine import ROOT, run
from tests.deploy.test_boot import paths
from tests.load import idle_seconds

from chipwatch.base.version import __version__

pytestmark = [pytest.mark.deploy, pytest.mark.usefixtures("as_root")]
TOML = 'sink = ["otlp"]\nendpoint_url = "http://127.0.0.1:4318"\ncollector = ["cpu", "memory"]\ninterval = 1\n'
BREAKS = {
    "at the start": "raise SystemExit(3)",
    "after 15 seconds": "import threading, os; threading.Timer(15, os._exit, [7]).start()",
}
"""Lines that a broken release has, which does what it should for `check` and `version`."""


@pytest.fixture(scope="module")
def dists(tmp_path_factory):
    """Return folders as `make dist` makes them: this release, a later one, and broken ones; with the SHA-256 of their sums."""
    begun = time.monotonic()
    run("make", "dist", cwd=ROOT)
    report("this machine", "make dist", seconds := time.monotonic() - begun)
    assert idle_seconds(seconds) <= 90
    first = tmp_path_factory.mktemp("dists") / __version__
    shutil.copytree(ROOT / "dist", first)
    made = {"this": first}
    for name, line in {"later": "", **BREAKS}.items():
        made[name] = first.with_name(name.replace(" ", "-"))
        shutil.copytree(first, made[name])
        (made[name] / f"chipwatch-{__version__}-py3-none-any.whl").unlink()
        (made[name] / f"chipwatch-{__version__}.tar.gz").unlink()
        altered(
            first / f"chipwatch-{__version__}-py3-none-any.whl", made[name] / "chipwatch-9.9.9-py3-none-any.whl", line
        )
    return {name: (folder, summed(folder)) for name, folder in made.items()}


def altered(wheel, to, line):
    """Write a wheel with another version, and a line that `run` executes first."""
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "chipwatch/__main__.py" and line:
                data = data.replace(
                    b'    """Run the command line and exit."""\n',
                    f'    """Run."""\n    if "run" in sys.argv[1:2]:\n        exec({line!r})\n'.encode(),
                )
            if name.endswith("METADATA"):
                data = data.replace(f"Version: {__version__}".encode(), b"Version: 9.9.9")
            if not name.endswith("RECORD"):
                new.writestr(name.replace(f"chipwatch-{__version__}.dist-info", "chipwatch-9.9.9.dist-info"), data)
        new.writestr("chipwatch-9.9.9.dist-info/RECORD", "")


def summed(folder):
    lines = [
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(folder)}\n"
        for path in sorted(folder.rglob("*.*"))
        if path.is_file() and path.name != "SHA256SUMS"
    ]
    (folder / "SHA256SUMS").write_text("".join(lines))
    return hashlib.sha256((folder / "SHA256SUMS").read_bytes()).hexdigest()


class Node:
    """A machine with install.sh and the folders in /srv."""

    def __init__(self, running, dists):
        self.running, self.dists = running, dists

    def install(self, name, *options, config=TOML):
        folder, digest = self.dists[name]
        version = __version__ if name == "this" else "9.9.9"
        (self.running.root / "srv/mine.toml").write_text(config)
        begun = time.monotonic()
        done = self.running.inside("sh", "/srv/install.sh", "--version", version, "--from", f"/srv/{folder.name}", "--sha256", digest,
                                   "--config", "/srv/mine.toml", *options, check=False)  # fmt: skip
        return done, time.monotonic() - begun

    def state(self):
        """Return what stands in the machine of it: link, configuration, unit, whether it runs, and since when it exists."""
        base = self.running.root / "opt/chipwatch"
        files = [
            (self.running.root / name).read_text()
            for name in ("etc/chipwatch/chipwatch.toml", "etc/systemd/system/chipwatch.service")
        ]
        active = self.running.inside("systemctl", "is-active", "chipwatch", check=False).stdout.strip()
        return str((base / "current").readlink()), files, active, sorted(path.name for path in base.glob("*-*"))


def report(suite, what, seconds):
    print(f"\n    {suite}: {what}: {seconds:.1f} s (load {os.getloadavg()[0]:.1f})")  # noqa: T201  # the figures are what this is run for


@pytest.mark.parametrize("suite", boot_machine.BARE)
def test_install_update_broken_update_downgrade_rollback_and_purge(suite, dists, tmp_path):
    made = boot_machine.Machine(boot_machine.bare(suite), tmp_path, "")
    for folder, _ in dists.values():
        shutil.copytree(folder, made.root / "srv" / folder.name)
    shutil.copy(boot.INSTALL, made.root / "srv/install.sh")
    before = paths(made.root)
    with made as running:
        running.until_up()
        node = Node(running, dists)

        done, seconds = node.install("this")
        assert done.returncode == 0, done.stdout + done.stderr
        report(suite, f"install with {re.search(r'with (.*)', done.stdout)[1]}", seconds)
        first = node.state()
        assert first[2] == "active"
        assert f"chipwatch {__version__} (" in running.inside("/usr/local/bin/chipwatch", "--version").stdout
        pid = running.inside("systemctl", "show", "--value", "--property", "MainPID", "chipwatch").stdout

        done, seconds = node.install("this")
        assert done.stdout == f"chipwatch: {__version__} runs already\n"
        assert running.inside("systemctl", "show", "--value", "--property", "MainPID", "chipwatch").stdout == pid
        report(suite, "the same again", seconds)

        for what in BREAKS:
            done, seconds = node.install(what, config=TOML.replace("interval = 1", "interval = 2"))
            assert done.returncode == 3, done.stdout + done.stderr
            assert idle_seconds(seconds) < 90
            assert node.state() == first
            report(suite, f"an update that breaks {what}: back after", seconds)

        done, seconds = node.install("later", config=TOML.replace("interval = 1", "interval = 2"))
        assert done.returncode == 0, done.stdout + done.stderr
        report(suite, "update, with its minute", seconds)
        second = node.state()
        assert len(second[3]) == 2

        done, seconds = node.install("this", "--watch", "5")
        assert done.returncode == 0, done.stdout + done.stderr
        assert node.state()[:3] == first[:3]
        report(suite, "downgrade, watched for 5 s", seconds)

        assert running.inside("sh", "/srv/install.sh", "--rollback", "--watch", "5").returncode == 0
        assert node.state()[:3] == second[:3]

        assert running.inside("sh", "/srv/install.sh", "--uninstall").returncode == 0
        assert running.inside("systemctl", "status", "chipwatch", check=False).returncode == 4
        left = {path for path in paths(running.root) - before if not path.startswith("srv")}
        assert sorted(left) == []
        assert running.inside("find", "/", "-xdev", "-name", "*chipwatch*", "-not", "-path", "/srv/*").stdout == ""


def test_a_package_with_its_python_runs_under_the_unit_where_there_is_none(tmp_path):
    made = boot_machine.Machine(boot_machine.bare("trixie"), tmp_path, "")
    for python in [*made.root.glob("usr/bin/python3*"), *made.root.glob("usr/bin/perl*")]:
        python.unlink()
    name = f"chipwatch-{__version__}-linux-{os.uname().machine}.tar.gz"
    if not (ROOT / "dist" / name).exists():
        run("make", "dist", cwd=ROOT)
        run("make", "packages", "FORMS=archive", cwd=ROOT)
    shutil.copytree(ROOT / "dist", made.root / "srv/dist")
    shutil.copy(boot.INSTALL, made.root / "srv/install.sh")
    (made.root / "srv/mine.toml").write_text(TOML)
    with made as running:
        running.until_up()
        begun = time.monotonic()
        options = ("--version", __version__, "--from", "/srv/dist", "--config", "/srv/mine.toml")
        done = running.inside("sh", "/srv/install.sh", *options, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert f"from {name}, which needs no Python" in done.stdout
        report("trixie without Python", "install", time.monotonic() - begun)
        running.inside("/opt/chipwatch/current/bin/agent", "status", "--health", "--spool", "/var/lib/chipwatch")
        assert running.inside("sh", "/srv/install.sh", "--uninstall").returncode == 0
