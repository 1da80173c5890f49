"""Debian's Prometheus for the tests of this folder."""

import shutil
import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """The folder of prometheus and promtool: of this machine, else unpacked from Debian's package."""
    if found := shutil.which("prometheus"):
        return Path(found).parent
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip("prometheus is not on PATH, and there is no apt-get to download it: `apt-get install prometheus`")
    folder = tmp_path_factory.mktemp("debian")
    done = subprocess.run(
        ["apt-get", "download", "prometheus"], cwd=folder, capture_output=True, text=True, check=False
    )
    packages = [*folder.glob("prometheus_*.deb")]
    if done.returncode or not packages:
        pytest.skip(f"prometheus cannot be downloaded: {done.stderr[-300:]}")
    subprocess.run(["dpkg", "-x", packages[0], folder], check=True)
    return folder / "usr/bin"
