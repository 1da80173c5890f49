"""
Checks what is in dist/ before a release is tagged, as a machine without a network sees it; part of `make release-check`.

One version is everywhere; the one file is small and starts fast; each form sends a first datapoint; a file that was altered
is refused. It writes dist/SHA256SUMS again, with every file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SUMS = DIST / "SHA256SUMS"
LARGEST = 45_000_000
"""Bytes of the one file."""
SLOWEST = 0.6
"""Seconds of its `version`, the best of five."""
FIRST = 10.0
"""Seconds to a first datapoint."""


def main() -> None:
    """Print a line for each check; exit with 1 if one fails. `sums`: only write dist/SHA256SUMS."""
    write_sums()
    if sys.argv[1:] == ["sums"]:
        return
    version = re.search(r'(?m)^__version__ = "(.+)"', (ROOT / "agent/chipwatch/contract/version.py").read_text())[1]
    results = [*versions(version), *one_file(version), *deb(version), *altered()]
    for fine, text in results:
        print(f"{'fine' if fine else 'FAILED':7} {text}")
    sys.exit(not all(fine for fine, _ in results))


def versions(version: str) -> list[tuple[bool, str]]:
    """Return whether the chart and the changelog have the version."""
    chart = (ROOT / "helm/chipwatch/Chart.yaml").read_text()
    numbers = re.findall(r'(?m)^(?:version|appVersion): "?([^"\n]+)"?$', chart)
    changes = f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    return [
        (set(numbers) == {version}, f"the chart's versions are {version}: {', '.join(numbers)}"),
        (changes, f"CHANGELOG.md has a section {version} (rename `Unreleased` in the commit that is tagged)"),
    ]


def one_file(version: str) -> list[tuple[bool, str]]:
    """Return whether the one file is small, fast and works with nothing around it."""
    (path,) = (path for path in DIST.glob(f"chipwatch-{version}-linux-*") if path.suffix != ".gz")
    took = []
    for _ in range(5):
        begun = time.perf_counter()
        run(path, "version")
        took.append(time.perf_counter() - begun)
    return [
        ((size := path.stat().st_size) <= LARGEST, f"one file: {size / 1e6:.1f} MB ({LARGEST / 1e6:.0f})"),
        (min(took) <= SLOWEST, f"one file: {min(took):.2f} s to `version` ({SLOWEST:g})"),
        first_datapoint("one file", path),
    ]


def deb(version: str) -> list[tuple[bool, str]]:
    """Return whether the program of the deb works where it is unpacked."""
    (path,) = DIST.glob(f"chipwatch_{version}_*.deb")
    with tempfile.TemporaryDirectory() as folder:
        run("dpkg-deb", "--extract", path, folder)
        return [first_datapoint("deb", Path(folder, "opt/chipwatch/chipwatch"))]


def first_datapoint(form: str, program: Path) -> tuple[bool, str]:
    """Return whether a program prints datapoints with an empty environment and, where the kernel lets us, no network."""
    alone = ["unshare", "--map-root-user", "--net"]
    alone = alone if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode == 0 else []
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as state:
        printed = run(*alone, program, "--once", env={"STATE_DIRECTORY": state, "PATH": os.defpath})
    took = time.perf_counter() - begun
    where = "without a network" if alone else "with the network of this machine"
    fine = '"name": "cpu.' in printed and took <= FIRST
    return fine, f"{form}: {printed.count(chr(10))} datapoints in {took:.1f} s, {where} ({FIRST:g})"


def altered() -> list[tuple[bool, str]]:
    """Return whether `sha256sum --check`, as docs/install.md has it, refuses a file with one other byte."""
    with tempfile.TemporaryDirectory() as folder:
        (wheel,) = DIST.glob("*.whl")
        shutil.copy(SUMS, folder)
        data = bytearray(wheel.read_bytes())
        data[len(data) // 2] ^= 1
        Path(folder, wheel.name).write_bytes(data)
        command = ["sha256sum", "--check", "--ignore-missing", "SHA256SUMS"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        return [(done.returncode != 0 and f"{wheel.name}: FAILED" in done.stdout, "an altered wheel is refused")]


def write_sums() -> None:
    """Write the SHA-256 of every file in dist/."""
    files = sorted(path for path in DIST.rglob("*") if path.is_file() and path != SUMS)
    lines = (f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.relative_to(DIST)}\n" for path in files)
    SUMS.write_text("".join(lines))


def run(*words: object, env: dict[str, str] | None = None) -> str:
    """Return what a command prints; end with its error if it fails."""
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False, env=env, timeout=120)
    if done.returncode:
        sys.exit(f"{words[0]}: exit code {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
