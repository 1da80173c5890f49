"""
Failures of a real boot: apt is in use, or the wheels do not match their hashes. See test_boot.py.

The image has the AWS CLI, and no python3-venv, as Ubuntu's; apt has its packages from a folder. AWS CLI's server is
moto's, which has the name of CloudWatch's and a certificate that only this machine trusts.
"""

import re
import time

import pytest
from tests.certificates import Authority
from tests.deploy import boot, boot_machine
from tests.deploy.boot_machine import MOTO, run, settings

from chipwatch.base.version import __version__

pytestmark = [pytest.mark.deploy, pytest.mark.usefixtures("as_root")]
CLOUDWATCH = "monitoring.us-east-1.amazonaws.com"
CONFIG = f'endpoint_url = "{MOTO}"\ncollector = ["cpu", "memory", "network"]\n'
HOLDS = 10.0
"""Seconds that each of two locks is held after user-data has said that it waits."""
LONG = 120.0
UPDATES = """
apt-get -o APT::Update::Pre-Invoke::="until [ -e /run/updated ]; do sleep 0.1; done" update
apt-get install -y -q updates
"""
"""Like apt-daily and unattended-upgrades: a slow `update` holds the lock of the lists, a slow package dpkg's locks."""
UNIT = "[Service]\nExecStart=/bin/sh -e /usr/local/sbin/updates\n"


class Host:
    """A machine without python3-venv whose AWS CLI talks to moto."""

    def __init__(self, machine, authority, config):
        self.made, self._authority = machine(boot.user_data(**config), boot_machine.without_venv), authority
        certificate, key = authority.sign("cloudwatch", hosts=[CLOUDWATCH])
        self._tls = ("-s", "-c", certificate, "-k", key)
        self.made.write("etc/hosts", f"127.0.0.1 localhost {CLOUDWATCH}\n")
        self.made.write("etc/cloudwatch.pem", authority.file.read_text())
        self.made.write("root/.aws/config", "[default]\nca_bundle = /etc/cloudwatch.pem\n")
        self.made.write("root/.aws/credentials", "[default]\naws_access_key_id = x\naws_secret_access_key = y\n")

    def update_slowly(self):
        """Let the distribution update itself at the boot, until /run/updated and /run/upgraded are there."""
        package = self.made.root / "tmp/updates"
        (package / "DEBIAN").mkdir(parents=True)
        (package / "DEBIAN/control").write_text(
            "Package: updates\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x>\nDescription: slow\n"
        )
        slow = package / "DEBIAN/postinst"
        slow.write_text("#!/bin/sh\nuntil [ -e /run/upgraded ]; do sleep 0.1; done\n")
        slow.chmod(0o755)
        packages = self.made.root / "opt/packages"
        run("dpkg-deb", "--build", package, packages / "updates_1_all.deb")
        boot_machine.index_packages(packages)
        self.made.write("usr/local/sbin/updates", UPDATES)
        self.made.write("etc/systemd/system/updates.service", UNIT)
        self.made.write("etc/systemd/system/multi-user.target.d/updates.conf", "[Unit]\nWants=updates.service\n")

    def reports(self, running):
        """Return what moto has of the namespace, by its dimensions."""
        return running.first_metric("https://127.0.0.1:443", authority=self._authority.file)[1:]

    def serve(self, running):
        """Start CloudWatch beside the machine."""
        running.serve_moto(*self._tls, port=443)


@pytest.fixture
def host(machine, dist, tmp_path):
    """Make a machine, and change it before it boots."""
    return lambda **given: Host(machine, Authority(tmp_path), settings(dist, CONFIG) | given)


def said_by_cloud_init(running):
    return running.inside("journalctl", "--unit", "cloud-final", "--no-pager", "--output", "cat").stdout


def nothing_is_installed(running):
    """Assert that neither program nor unit is there, and nothing runs."""
    assert not running.inside("find", "/opt/chipwatch", "-mindepth", "1", check=False).stdout
    assert not (running.root / "etc/systemd/system/chipwatch.service").exists()
    assert running.inside("systemctl", "is-active", "chipwatch", check=False).stdout == "inactive\n"
    assert running.inside("pgrep", "--full", "bin/agent", check=False).stdout == ""


def waits_for(running, lock):
    """Wait until user-data waits for a lock; return the process that it names."""
    line = rf"chipwatch: waiting for apt: Could not get lock {lock}\. It is held by process (\d+) \(apt-get\)\n"
    return int(running.until(lambda: re.search(line, running.output()), f"no word of {lock}", LONG)[1])


def test_while_the_distribution_updates_itself_the_installation_waits_and_says_for_which_process(host):
    one = host()
    one.update_slowly()
    with one.made as running:
        running.serve_moto()
        held = 0.0
        for lock, done in (("/var/lib/apt/lists/lock", "updated"), ("/var/lib/dpkg/lock-frontend", "upgraded")):
            process = waits_for(running, lock)
            (name,) = running.inside("cat", f"/proc/{process}/comm").stdout.split()
            assert name == "apt-get"
            begun = time.monotonic()
            time.sleep(HOLDS)
            assert f"{__version__} runs" not in running.output()
            running.inside("touch", f"/run/{done}")
            held += time.monotonic() - begun
        status, output = running.cloud_init()
        assert status == "done", output
        assert held >= 2 * HOLDS
        assert f"chipwatch: {__version__} runs" in output
        assert output.count("waiting for apt") == 2
        assert "waiting for apt: Could not get lock /var/lib/dpkg/lock-frontend" in said_by_cloud_init(running)
        assert running.first_metric(MOTO)[1]
        assert running.inside("systemctl", "is-active", "chipwatch").stdout == "active\n"


def test_a_lock_that_is_held_longer_than_the_limit_is_reported_and_the_next_attempt_installs(host):
    one = host()
    one.update_slowly()
    one.made.write("etc/systemd/system.conf.d/pause.conf", "[Manager]\nDefaultEnvironment=CHIPWATCH_PAUSE=1\n")
    one.made.write("etc/tmpfiles.d/updated.conf", "f /run/updated\n")
    with one.made as running:
        one.serve(running)
        status, output = running.cloud_init()
        assert status == "error", output
        told = r"chipwatch: apt is locked for too long: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process \d+ \(apt-get\)\n"
        assert re.search(told, output), output
        assert re.search(told, said_by_cloud_init(running))
        assert one.reports(running) == ("agent.install.failed", "[]\n")
        nothing_is_installed(running)

        running.inside("touch", "/run/upgraded")
        again = running.inside("bash", "/var/lib/cloud/instance/scripts/part-001", check=False)
        assert again.returncode == 0, again.stdout + again.stderr
        assert running.inside("systemctl", "is-active", "chipwatch").stdout == "active\n"


def alter(path):
    """Change one bit of one byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("altered", ["wheel", "sums"])
def test_wheels_that_are_not_what_the_hashes_say_are_refused_by_name_and_reported(host, altered):
    one = host()
    wheels = one.made.root / "opt/wheels"
    wheel = next((wheels / "wheelhouse").glob("botocore-*.whl"))
    if altered == "wheel":
        alter(wheel)
        told = f"chipwatch: wheelhouse: wheelhouse/{wheel.name} is not what SHA256SUMS says\n"
    else:
        sums = wheels / "SHA256SUMS"
        sums.write_text(sums.read_text().replace("a", "b", 1))
        told = "chipwatch: sums_sha256: not that of SHA256SUMS in /opt/wheels, which begins with "
    with one.made as running:
        one.serve(running)
        status, output = running.cloud_init()
        assert status == "error", output
        assert told in output
        assert told in said_by_cloud_init(running)
        assert one.reports(running) == ("agent.install.failed", "[]\n")
        nothing_is_installed(running)
