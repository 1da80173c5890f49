"""A small Debian under a real systemd and a real cloud-init, without a separate network; a context manager starts and ends it."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from tests.deploy import tools

ROOT = Path(__file__).parents[2]
LONG = 600.0
BOOT = 60.0
MOTO = "http://127.0.0.1:5000"
"""moto's server in the network of a machine."""
PYTHON = "3.11"
"""Of Debian 12."""
ASK = """
import sys, time, botocore.session
url, namespace, authority = sys.argv[1:]
client = botocore.session.get_session().create_client("cloudwatch", "us-east-1", endpoint_url=url,
    aws_access_key_id="dummy", aws_secret_access_key="dummy", verify=authority or None)
deadline = time.monotonic() + 200
while time.monotonic() < deadline:
    try:
        found = client.list_metrics(Namespace=namespace)["Metrics"]
    except Exception:
        found = ()
    if found:
        print(time.time(), found[0]["MetricName"], found[0]["Dimensions"])
        break
    time.sleep(0.1)
"""
SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,udev,python3,python3-venv,ca-certificates,procps,iproute2,locales"
LATER = "cloud-init openssh-server"
"""By apt, since debootstrap leaves a dependency of cloud-init unconfigured; which ends in an error without sshd."""
VENV = "python3.11-venv python3-pip-whl python3-setuptools-whl"
"""Contents of `python3-venv`."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
SIGRTMIN = int(signal.SIGRTMIN)


def run(*words, check=True, limit=LONG, **options):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL, **options
    )  # fmt: skip
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def settings(dist, config):
    """Return the variables of user-data that installs offline from the wheels in a machine."""
    sums = hashlib.sha256((dist / "SHA256SUMS").read_bytes()).hexdigest()
    return {"wheelhouse": "/opt/wheels", "sums_sha256": sums, "region": "us-east-1", "namespace": "Boot",
            "common_dims": "hostname", "config": config}  # fmt: skip


def debian():
    """Return the folder of a small Debian 12 with systemd and cloud-init."""
    return kept(SUITE, _debootstrap)


BARE = {"bookworm": (), "trixie": (), "noble": ("http://archive.ubuntu.com/ubuntu", "main,universe")}
"""Debian 12 and 13, Ubuntu 24.04: where each comes from, and its components."""
DEBS = {**BARE, "jammy": BARE["noble"]}
"""Systems of the tests of a deb: also Ubuntu 22.04, whose Python is too old for a wheel."""


def bare(suite):
    """Return the folder of a small distribution with systemd and Python, and nothing else that an installation needs."""
    return kept(f"{suite}-bare", lambda fresh: _bare(suite, fresh))


def _bare(suite, fresh):
    mirror, components = DEBS[suite] or (None, "main")
    packages = "systemd,systemd-sysv,dbus,udev,python3,ca-certificates,procps,iproute2"
    words = [tools.debootstrap(), "--variant=minbase", f"--components={components}", f"--include={packages}"]
    key = Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg")
    if mirror:  # a debootstrap of another distribution may not know the suite: all of Ubuntu's have one script
        words += [f"--keyring={key}" if key.exists() else "--no-check-gpg"]
    return run(*words, suite, fresh, *([mirror, "/usr/share/debootstrap/scripts/gutsy"] if mirror else []), check=False)


def without_venv():
    """Return the same without python3-venv, which apt finds in a repository inside; and with the AWS CLI."""
    return kept(f"{SUITE}-without-venv", _take_venv)


def kept(name, make):
    """Return a Debian that `make` makes once in a folder that is only ours; skip the test where that fails."""
    cache = Path(tempfile.gettempdir()) / f"chipwatch-boot-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.is_symlink() or cache.stat().st_uid != os.getuid() or cache.stat().st_mode & 0o077:
        pytest.skip(f"{cache} is not ours alone")
    if not (cache / f"{name}.complete").exists():
        if f" {cache / name}/" in Path("/proc/mounts").read_text():
            pytest.skip(
                f"{cache / name} has mounts of an attempt that was killed; umount them, since a deletion would enter them"
            )
        shutil.rmtree(cache / name, ignore_errors=True)
        done = make(cache / name)
        if done.returncode:
            pytest.skip(f"{name} cannot be made here: {(done.stdout + done.stderr).strip()[-300:]}")
        (cache / f"{name}.complete").touch()
    return cache / name


def _debootstrap(fresh):
    done = run(tools.debootstrap(), "--variant=minbase", f"--include={PACKAGES}", SUITE, fresh, check=False)
    return done if done.returncode else in_chroot(fresh, f"apt-get install -y -q --no-install-recommends {LATER}")


def _take_venv(fresh):
    run("cp", "-a", "--reflink=auto", debian(), fresh)
    (fresh / "opt/packages").mkdir()
    script = f"cd /opt/packages && apt-get download {VENV} && apt-get install -y -q --no-install-recommends awscli && dpkg --purge python3-venv {VENV}"
    done = in_chroot(fresh, script)
    if done.returncode == 0:
        index_packages(fresh / "opt/packages")
        (fresh / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/opt/packages ./\n")
    return done


def in_chroot(fresh, script):
    """Run a script after `apt-get update` in a Debian that does not run; no package starts anything."""
    quiet = fresh / "usr/sbin/policy-rc.d"
    quiet.write_text("#!/bin/sh\nexit 101\n")
    quiet.chmod(0o755)
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/tmp"}  # a proxy counts there, too
    done = run("chroot", fresh, "sh", "-c", f"apt-get update -q && {script} && apt-get clean", check=False, env=env)
    quiet.unlink()
    shutil.rmtree(fresh / "var/lib/apt/lists")
    return done


def index_packages(folder):
    """Write the index of a folder of packages, from which apt then installs."""
    entries = []
    for package in sorted(folder.glob("*.deb")):
        control = run("dpkg-deb", "--field", package).stdout.rstrip()
        sha = hashlib.sha256(package.read_bytes()).hexdigest()
        entries.append(f"{control}\nFilename: ./{package.name}\nSize: {package.stat().st_size}\nSHA256: {sha}\n")
    (folder / "Packages").write_text("\n".join(entries))


class Machine:
    """A copy of a Debian in `folder`, with user-data to be executed at its boot, if there is any."""

    def __init__(self, debian, folder, user_data):
        self.root = folder / "root"
        self._log = folder / "console.txt"
        self._others = []
        self.lead = 0
        run("cp", "-a", "--reflink=auto", debian, self.root)
        if not user_data:
            return
        self.write("var/lib/cloud/seed/nocloud-net/user-data", user_data)
        self.write("var/lib/cloud/seed/nocloud-net/meta-data", "instance-id: i-1\nlocal-hostname: node1\n")
        self.write(
            "etc/cloud/cloud.cfg.d/99-test.cfg",
            "datasource_list: [NoCloud]\nnetwork: {config: disabled}\nlocale: C.UTF-8\n",
        )

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def __enter__(self):
        nspawn = shutil.which("systemd-nspawn") or pytest.skip(
            "systemd-nspawn is not on PATH: `apt-get install systemd-container`"
        )
        with self._log.open("wb") as log:
            self._nspawn = subprocess.Popen(
                [nspawn, "--quiet", f"--directory={self.root}", "--register=no", "--keep-unit", "--private-network",
                 "--boot", "--console=read-only", "systemd.unit=multi-user.target"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        self.begun = time.time()
        try:
            self.lead = self.until(self._leader, "no systemd comes up")
        except BaseException:
            self._nspawn.kill()
            raise
        return self

    def _leader(self):
        assert self._nspawn.poll() is None, self._log.read_text(errors="replace")
        children = Path(f"/proc/{self._nspawn.pid}/task/{self._nspawn.pid}/children").read_text().split()
        return next((int(pid) for pid in children if Path(f"/proc/{pid}/comm").read_text() == "systemd\n"), None)

    def __exit__(self, *_):
        """Power off: to kill nspawn hard would leave what is in it behind."""
        for other in self._others:
            other.kill()
            other.wait(BOOT)
        os.kill(self.lead, SIGRTMIN + 4)
        try:
            self._nspawn.wait(BOOT)
        except subprocess.TimeoutExpired:
            os.kill(self.lead, signal.SIGKILL)
            self._nspawn.wait(BOOT)
        shutil.rmtree(self.root)  # pytest would keep it, and its like, of three runs

    def until(self, what, complaint, limit=BOOT):
        deadline = time.monotonic() + limit
        while not (found := what()):
            assert time.monotonic() < deadline, f"{complaint}: {self._log.read_text(errors='replace')[-3000:]}"
            time.sleep(0.05)
        return found

    def until_up(self):
        asked = ("systemctl", "is-system-running")
        self.until(lambda: self.inside(*asked, check=False).stdout.strip() in ("running", "degraded"), "no boot")

    def inside(self, *words, **options):
        """Run a command in the machine, with nothing of our environment."""
        return run(
            "nsenter", "-t", self.lead, "-m", "-u", "-i", "-n", "-p", "-C", "--", *words, env=ENVIRONMENT, **options
        )

    def beside(self, *words):
        """Run our own Python in the machine's network, which is a loopback and nothing else."""
        return run("nsenter", "-t", self.lead, "-n", "--", sys.executable, *words)

    def serve_moto(self, *words, port=5000):
        """Start moto's server in the machine's network; it ends with the machine."""
        inside = ["nsenter", "-t", str(self.lead), "-n", "--"]
        run(*inside, "ip", "link", "set", "lo", "up")
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port), *map(str, words)]
        nothing = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._others.append(subprocess.Popen([*inside, *command], **nothing))

    def first_metric(self, url, namespace="Boot", authority=""):
        """Wait for a metric in a server; return when it was there (s since the epoch), its name and its dimensions."""
        at, name, dimensions = self.beside("-c", ASK, url, namespace, authority).stdout.split(maxsplit=2) or (0, "", "")
        return float(at), name, dimensions

    def cloud_init(self):
        """Return cloud-init's status once it is done, and what user-data printed."""
        status = self.inside("cloud-init", "status", "--wait", check=False, limit=LONG).stdout
        return status.split()[-1], self.output()

    def output(self):
        """Return what user-data has printed up to now."""
        log = self.root / "var/log/cloud-init-output.log"
        return log.read_text() if log.exists() else ""
