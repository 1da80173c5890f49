"""Plugins of other people, as they come: built into a wheel and installed beside chipwatch."""

import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path


def install(files: Mapping[str, str], project: Path, target: Path) -> Path:
    """Build a wheel of `files` in `project` and unpack it into `target`, as `pip install --target` does."""
    for name, text in files.items():
        (project / name).write_text(text)
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(project / "dist")],
        cwd=project, check=True, capture_output=True, timeout=60,
    )  # fmt: skip
    (wheel,) = (project / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    return target
