"""
The heavier real parts of `make proof`: installs each into a separate environment in .proof, pinned by hash, and locates it.

`make proof` runs this file. No part is required: where one cannot be installed, its tests are skipped with the reason.
To add one: requirements/proof-NAME.in, its name in PARTS, `make constraints`, and a test that calls `python(NAME)`.
"""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from tests.deploy.tools import ROOT, check, environment, install_parts

FOLDER = ROOT / ".proof"
PARTS = ("wandb", "mlflow", "otlp", "grafana", "notebook", "site")
SOURCE = "MOCK_NVML_SOURCE"
"""Variable with a clone of NVIDIA/k8s-test-infra, which no index of packages has."""
GO = "mocknvml"
MOCK = FOLDER / "mocknvml-source/pkg/gpu/mocknvml"
"""Where NVIDIA's stand-in for NVML is built, with its profiles in `configs`."""


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
    return next(file for file in folder.glob(f"usr/**/{package}") if file.is_file() and os.access(file, os.X_OK))


def mock() -> Path:
    """Return the folder of NVIDIA's stand-in for NVML, built here or named by MOCK_NVML; skip the test without it."""
    import pytest

    folder = Path(os.environ.get("MOCK_NVML") or MOCK)
    if not (folder / "libnvidia-ml.so.1").exists():
        why = "no index has its source: " if SOURCE not in os.environ else f"see {FOLDER / 'mock.log'}; "
        pytest.skip(
            f"NVIDIA's mock of NVML is not built; {why}{SOURCE}=CLONE-OF-NVIDIA/k8s-test-infra `make proof` builds it"
        )
    return folder


def build_mock(run: Callable[..., None]) -> None:
    """Build NVIDIA's stand-in for NVML from the source that SOURCE names: three minutes."""
    source = FOLDER / "mocknvml-source"
    shutil.rmtree(source, ignore_errors=True)
    run("git", "clone", "--quiet", os.environ[SOURCE], source)
    path = f"PATH={FOLDER / GO / 'bin'}:{os.environ['PATH']}"
    run("env", path, "GOFLAGS=-mod=vendor", "GOTOOLCHAIN=local", "make", "NO_PADDING=1", cwd=MOCK)


def install() -> list[str]:
    """Install each part that is not there as pinned; print which cannot be, and return their names."""
    pins, names = ROOT / "requirements", [*PARTS, *([GO] if SOURCE in os.environ else [])]
    made = [environment(name, FOLDER, pins / f"constraints-proof-{name}.txt") for name in names]
    if SOURCE in os.environ:
        made.append(("mock", str((MOCK / "libnvidia-ml.so.1").relative_to(FOLDER)), os.environ[SOURCE], build_mock))
    return install_parts(FOLDER, made)


if __name__ == "__main__":
    check(install(), parts=len(PARTS))
