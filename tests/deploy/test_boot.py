"""
The service under a real systemd, put there by a real cloud-init that executes the user-data, offline: `make test-deploy`.

A copy of a small Debian 12 boots in systemd-nspawn with a loopback and no other network; moto's server stands in that
network. Linux, root, and Debian's debootstrap and systemd-container are needed, and for the wheels an index for pip.
Limits of memory and CPU are accepted here, and not enforced.
"""

import os
import re

import pytest
from tests.deploy import boot
from tests.deploy.boot_machine import MOTO, settings
from tests.load import idle_seconds

from chipwatch.base.version import __version__

pytestmark = [pytest.mark.deploy, pytest.mark.usefixtures("as_root")]
LIMIT = 40.0
"""Seconds from the boot, not only from the user-data, to the first datapoint, on a machine with nothing else to do."""
CONFIG = f'endpoint_url = "{MOTO}"\ncollector = ["cpu", "memory", "disk", "network", "pressure"]\n'
OF_THE_BOOT = re.compile(
    r"(dev|proc|run|sys|tmp|root|home|var/(log|cache|tmp|lib/(cloud|systemd|private))"
    r"|var/\.updated|etc/(\.updated|machine-id|hostname|ssh|apt|sudoers(\.d)?|resolv\.conf|default/locale|\.pwd\.lock|(sub)?[ug]id-|(g?shadow|passwd|group)-))(/|$)"
)


def as_cloud_init(given):
    """Return the cloud-init file with the lines changed that a person would change."""
    text = boot.CLOUD_INIT.read_text()
    configuration = f'sink = ["cloudwatch"]\ncommon_dims = ["{given["common_dims"]}"]\nregion = "{given["region"]}"\n'
    configuration += f'namespace = "{given["namespace"]}"\n{given["config"]}'
    mine = "".join(f"  {line}\n" for line in configuration.splitlines())
    text = re.sub(r"(?m)^  sink = .*\n  common_dims = .*\n", lambda _: mine, text, count=1)
    return text.replace("s3://BUCKET/PREFIX", given["wheelhouse"]).replace("SHA256 OF SHA256SUMS", given["sums_sha256"])


def paths(root):
    """Return what stands in the machine, but for what systemd and cloud-init write at any boot."""
    found = {str(path.relative_to(root)) for path in root.rglob("*")}
    return {path for path in found if not OF_THE_BOOT.match(path)}


def first_datapoint(running):
    """Start moto beside the machine; return the seconds from the boot to the first datapoint in it, and what it is."""
    running.serve_moto()
    at, name, dimensions = running.first_metric(MOTO)
    assert at, "no datapoint came"
    return at - running.begun, name, dimensions


def tell(what, seconds, name):
    print(f"\n    {what}: {seconds:.1f} s ({name}; load {os.getloadavg()[0]:.1f})")  # noqa: T201  # the figures are what this is run for


def done_with_cloud_init(running):
    """Return what user-data printed, once cloud-init is done with it and has no error."""
    status, output = running.cloud_init()
    assert status == "done", output
    return output


def journal(running):
    return running.inside("journalctl", "--unit", "chipwatch", "--no-pager", "--output", "cat").stdout


def test_user_data_installs_offline_sends_within_a_minute_survives_a_second_run_and_is_gone_afterwards(machine, dist):
    made = machine(boot.user_data(**settings(dist, CONFIG)))
    before = paths(made.root)
    with made as running:
        after, name, dimensions = first_datapoint(running)
        output = done_with_cloud_init(running)
        tell("from the boot to the first datapoint in moto", after, name)
        assert 0 < idle_seconds(after) <= LIMIT
        assert "node1" in dimensions
        assert f"chipwatch: {__version__} runs" in output
        assert "dummy" not in output

        unit = "/etc/systemd/system/chipwatch.service"
        assert running.inside("cat", unit).stdout == boot.UNIT.read_text()
        pid = running.inside("systemctl", "show", "--value", "--property", "MainPID", "chipwatch").stdout.strip()
        status = dict(
            line.split(":\t", 1)
            for line in running.inside("cat", f"/proc/{pid}/status").stdout.splitlines()
            if ":\t" in line
        )
        assert int(status["Uid"].split()[0]) >= 61184
        assert int(status["CapEff"], 16) == int(status["CapBnd"], 16) == 0
        assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
        assert running.inside(
            "/opt/chipwatch/current/bin/agent", "status", "--health", "--ready", "--spool", "/var/lib/chipwatch"
        )
        assert not re.search(r"Traceback|ermission denied|not permitted|FAILED", journal(running)), journal(running)

        again = running.inside("bash", "/var/lib/cloud/instance/scripts/part-001")
        assert "installing" not in again.stdout
        assert running.inside("systemctl", "is-active", "chipwatch").stdout == "active\n"
        assert len(running.inside("sh", "-c", "ls -d /opt/chipwatch/*-*").stdout.split()) == 1

        running.inside("/opt/chipwatch/uninstall.sh")
        assert running.inside("systemctl", "status", "chipwatch", check=False).returncode == 4
        left = running.inside("find", "/", "-xdev", "-name", "*chipwatch*", "-not", "-path", "/opt/wheels/*").stdout
        assert left == ""
        assert sorted(paths(running.root) - before) == []


def test_the_cloud_init_file_does_the_same_with_its_lines_changed(machine, dist):
    with machine(as_cloud_init(settings(dist, CONFIG))) as running:
        after, name, _ = first_datapoint(running)
        done_with_cloud_init(running)
        tell("the same by the cloud-init file", after, name)
        assert 0 < idle_seconds(after) <= LIMIT


def test_every_collector_works_in_the_sandbox_and_a_wrong_configuration_is_in_the_journal(machine, dist):
    given = settings(dist, 'endpoint_url = "http://127.0.0.1:9"\n')
    with machine(boot.user_data(**given)) as running:
        done_with_cloud_init(running)
        output = journal(running)
        assert re.search(r"absent here: .*\bnvidia\b", output), output  # which does not keep it from starting
        assert not re.search(r"Traceback|collector .*FAILED", output), output
        assert running.inside("systemctl", "is-active", "chipwatch").stdout == "active\n"

        running.inside("sed", "-i", "s/^common_dims/common_dimz/", "/etc/chipwatch/chipwatch.toml")
        assert running.inside("systemctl", "restart", "chipwatch", check=False).returncode
        assert "chipwatch: " in journal(running)
        assert "common_dimz" in journal(running)

        wrong = boot.user_data(**given | {"config": 'window = "long"\n'})
        (running.root / "var/tmp/wrong.sh").write_text(wrong)
        refused = running.inside("bash", "/var/tmp/wrong.sh", check=False)
        assert refused.returncode == 1
        assert "window" in refused.stderr
        assert "nothing was changed" in refused.stderr
        assert "common_dimz" in running.inside("cat", "/etc/chipwatch/chipwatch.toml").stdout
