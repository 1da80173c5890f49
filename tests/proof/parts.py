"""
The heavier real parts of `make proof`: installs each into a separate environment in .proof, pinned by hash, and locates it.

`make proof` runs this file. No part is required: where one cannot be installed, its tests are skipped with the reason.
To add one: requirements/proof-NAME.in, its name in PARTS, `make constraints`, and a test that calls `python(NAME)`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.deploy.tools import ROOT, check, environment, install_parts

FOLDER = ROOT / ".proof"
PARTS = ("wandb", "mlflow", "otlp", "grafana", "notebook", "site")


def python(name: str) -> Path:
    """Return the Python that can import the part; skip the test where the part is not installed."""
    import pytest  # a test calls this, the installer does not

    if not (FOLDER / f"{name}.stamp").exists():
        pytest.skip(
            f"{name} is not installed: `make proof` installs it where an index can be reached; see {FOLDER / name}.log"
        )
    return FOLDER / name / "bin/python"


def debian(package: str, folder: Path) -> Path:
    """Return the program of this name: of this machine, else unpacked from Debian's package; skip without either."""
    import pytest

    if found := shutil.which(package):
        return Path(found)
    if not shutil.which("apt-get") or not shutil.which("dpkg"):
        pytest.skip(f"{package} is not on PATH, and there is no apt-get to download it: `apt-get install {package}`")
    command = ["apt-get", "download", package]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    packages = [*folder.glob(f"{package}_*.deb")]
    if done.returncode or not packages:
        pytest.skip(f"{package} cannot be downloaded: {done.stderr[-300:]}")
    subprocess.run(["dpkg", "-x", packages[0], folder], check=True)
    return folder / "usr/bin" / package


def install() -> list[str]:
    """Install each part that is not there as pinned; print which cannot be, and return their names."""
    pins = ROOT / "requirements"
    return install_parts(FOLDER, [environment(name, FOLDER, pins / f"constraints-proof-{name}.txt") for name in PARTS])


if __name__ == "__main__":
    check(install(), parts=len(PARTS))
