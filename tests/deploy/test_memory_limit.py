"""
The unit's limit of memory under cgroup v2, in a virtual machine with Debian's kernel: `make test-deploy`.

QEMU emulates the processor, so that neither KVM nor a cgroup v2 of this machine is needed. Linux on x86-64, root, debootstrap,
qemu-system-x86 and e2fsprogs are needed, and Debian's archive.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from tests.deploy import boot, boot_machine
from tests.deploy.boot_machine import PYTHON, run

pytestmark = [pytest.mark.deploy, pytest.mark.usefixtures("as_root")]
LONG = 1500.0
"""Seconds for the machine from its start to its end: 100 where nothing else runs."""
MB = 1 << 20
TOML = 'sink = ["otlp"]\nendpoint_url = "http://127.0.0.1:4318"\nlevel = "all"\ninterval = 1\n'
AGENT = """#!/bin/sh
if [ "$1" = run ] && [ -e /opt/eat ]; then exec python3 -c 'import time; x = [bytearray(b"x" * (1 << 20)) for _ in range(900)]; time.sleep(999)'; fi
PYTHONPATH=/opt/chipwatch/lib exec python3 -m chipwatch "$@"
"""
"""The program of the unit; while a file is there, one that takes 900 MB."""
REPORT = Path(__file__).with_name("report.sh").read_text()
SERVICE = Path(__file__).with_name("report.service").read_text()


def with_kernel(fresh):
    run("cp", "-a", "--reflink=auto", boot_machine.bare("bookworm"), fresh)
    return boot_machine.in_chroot(
        fresh, "apt-get install -y -q --no-install-recommends linux-image-cloud-amd64 initramfs-tools"
    )


def test_the_agent_stays_below_the_limit_and_a_program_above_it_is_killed_and_started_again(dist, tmp_path):
    if os.uname().machine != "x86_64" or not (qemu := shutil.which("qemu-system-x86_64")):
        pytest.skip("no qemu-system-x86_64 on PATH, or another processor")
    root = tmp_path / "root"
    run("cp", "-a", "--reflink=auto", boot_machine.kept("bookworm-kernel", with_kernel), root)
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--only-binary", ":all:", "--python-version", PYTHON,
        "--find-links", dist, "--find-links", dist / "wheelhouse", "--target", root / "opt/chipwatch/lib", "chipwatch")  # fmt: skip
    for path, text in {
        "etc/fstab": "/dev/vda / ext4 defaults 0 1\n", "etc/chipwatch/chipwatch.toml": TOML, "opt/report.sh": REPORT,
        "etc/systemd/system/report.service": SERVICE, "etc/systemd/system/chipwatch.service": boot.UNIT.read_text(),
        "opt/chipwatch/current/bin/agent": AGENT,
    }.items():  # fmt: skip
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    (root / "opt/chipwatch/current/bin/agent").chmod(0o755)
    run("chroot", root, "systemctl", "enable", "chipwatch", "report")
    run("mkfs.ext4", "-q", "-F", "-d", root, tmp_path / "disk", "2G")
    (kernel,), (initrd,) = root.glob("boot/vmlinuz-*"), root.glob("boot/initrd.img-*")
    done = run(
        qemu, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "1500", "-nographic", "-no-reboot", "-nic", "none",
        "-kernel", kernel, "-initrd", initrd, "-append", "root=/dev/vda rw console=ttyS0 systemd.show_status=0 quiet",
        "-drive", f"file={tmp_path}/disk,if=virtio,format=raw", limit=LONG,
    )  # fmt: skip
    shutil.rmtree(root)
    (tmp_path / "disk").unlink()
    said = dict(re.findall(r"REPORT (\w+) (.*?)\r?$", done.stdout, re.MULTILINE))
    print(f"\n    {said}")  # noqa: T201  # the figures are what this is run for
    assert (said["kind"], int(said["limit"]), said["kills"]) == ("cgroup2fs", 512 * MB, "0"), done.stdout[-3000:]
    assert 10 * MB < int(said["peak"]) < 256 * MB
    assert (said["result"], said["state"], said["restarts"]) == ("oom-kill", "active", "1")
    assert "-m chipwatch run " in said["command"]
