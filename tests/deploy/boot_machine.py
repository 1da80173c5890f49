"""A small Debian under a real systemd and a real cloud-init, without a network of its own; a context manager starts and ends it."""

from __future__ import annotations

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

LONG = 600.0
BOOT = 60.0
SUITE = "bookworm"
PACKAGES = "systemd,systemd-sysv,dbus,udev,python3,python3-venv,ca-certificates,procps,iproute2,locales"
LATER = "cloud-init openssh-server"
"""By apt, since debootstrap leaves a dependency of cloud-init unconfigured; which ends in an error without sshd."""
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
SIGRTMIN = int(signal.SIGRTMIN)


def run(*words, check=True, limit=LONG, **options):
    done = subprocess.run(
        list(map(str, words)), capture_output=True, text=True, timeout=limit, check=False, stdin=subprocess.DEVNULL, **options
    )  # fmt: skip
    assert not check or done.returncode == 0, f"{words}: {done.stdout}{done.stderr}"
    return done


def debian():
    """Return the folder of a small Debian 12 with systemd and cloud-init: made once, kept in a folder that is only ours."""
    cache = Path(tempfile.gettempdir()) / f"chipwatch-boot-{os.getuid()}"
    cache.mkdir(mode=0o700, exist_ok=True)
    if cache.is_symlink() or cache.stat().st_uid != os.getuid() or cache.stat().st_mode & 0o077:
        pytest.skip(f"{cache} is not ours alone")
    if not (cache / f"{SUITE}.complete").exists():
        fresh = cache / SUITE
        shutil.rmtree(fresh, ignore_errors=True)
        done = run(tools.debootstrap(), "--variant=minbase", f"--include={PACKAGES}", SUITE, fresh, check=False)
        if done.returncode == 0:
            quiet = fresh / "usr/sbin/policy-rc.d"  # which tells packages to start nothing
            quiet.write_text("#!/bin/sh\nexit 101\n")
            quiet.chmod(0o755)
            script = f"apt-get update -q && apt-get install -y -q --no-install-recommends {LATER} && apt-get clean"
            env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "TMPDIR": "/tmp"}  # a proxy counts there, too
            done = run("chroot", fresh, "sh", "-c", script, check=False, env=env)
            quiet.unlink()
        if done.returncode:
            pytest.skip(f"debootstrap cannot make a Debian here: {(done.stdout + done.stderr).strip()[-300:]}")
        shutil.rmtree(fresh / "var/lib/apt/lists")
        (cache / f"{SUITE}.complete").touch()
    return cache / SUITE


class Machine:
    """A copy of a Debian in `folder`, with user-data to be executed at its boot."""

    def __init__(self, debian, folder, user_data):
        self.root = folder / "root"
        self._log = folder / "console.txt"
        self._others = []
        self.lead = 0
        run("cp", "-a", "--reflink=auto", debian, self.root)
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

    def inside(self, *words, **options):
        """Run a command in the machine, with nothing of our environment."""
        return run(
            "nsenter", "-t", self.lead, "-m", "-u", "-i", "-n", "-p", "-C", "--", *words, env=ENVIRONMENT, **options
        )

    def beside(self, *words):
        """Run our own Python in the machine's network, which is a loopback and nothing else."""
        return run("nsenter", "-t", self.lead, "-n", "--", sys.executable, *words)

    def serve(self, *words):
        """Start our own Python in the machine's network; it ends with the machine."""
        run("nsenter", "-t", self.lead, "-n", "--", "ip", "link", "set", "lo", "up")
        self._others.append(
            subprocess.Popen(
                ["nsenter", "-t", str(self.lead), "-n", "--", sys.executable, *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
        )  # fmt: skip
