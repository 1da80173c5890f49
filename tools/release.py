"""
Checks what is in dist/ before a release is tagged, as a machine without a network sees it; part of `make release-check`.

One version is everywhere; the one file is small and starts fast; each form sends a first datapoint; a file that was altered
is refused. It writes dist/SHA256SUMS again, with every file, and says what a person must still do. `sums` only writes that
file; `wheelhouse` packs wheels, installer and sums as one file, since the page of a release has no folders; `tag NAME` only
compares the name of a tag with the versions, and then nothing may be left to do.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
SUMS = DIST / "SHA256SUMS"
LARGEST = 45_000_000
"""Bytes of the one file."""
SLOWEST = 0.6
"""Seconds of CPU time of its `version`, the best of five: a machine that does much else takes longer."""
FIRST = 10.0
"""Seconds to a first datapoint."""


def main() -> None:
    """Print a line for each check; exit with 1 if one fails."""
    version = re.search(r'(?m)^__version__ = "(.+)"', (ROOT / "agent/chipwatch/base/version.py").read_text())[1]
    match sys.argv[1:]:
        case ["sums"]:
            write_sums()
            return
        case ["wheelhouse"]:
            pack(version)
            return
        case ["tag", tag]:
            steps, mark = left(version), "FAILED"
            results = [(tag == f"v{version}", f"the tag {tag} is of version {version}"), chart(version)]
        case _:
            write_sums()
            results = [chart(version), *one_file(version), *unpacked(version), wheel(version), *altered()]
            mark = "to do"
            steps = [*left(version), f"git tag --sign v{version} && git push origin v{version}"]
    for fine, text in results:
        print(f"{'fine' if fine else 'FAILED':7} {text}")
    for text in steps:
        print(f"{mark:7} {text}")
    sys.exit(not all(fine for fine, _ in results) or (mark == "FAILED" and bool(steps)))


def chart(version: str) -> tuple[bool, str]:
    """Return whether the chart has the version."""
    text = (ROOT / "helm/chipwatch/Chart.yaml").read_text()
    numbers = re.findall(r'(?m)^(?:version|appVersion): "?([^"\n]+)"?$', text)
    return set(numbers) == {version}, f"the chart's versions are {version}: {', '.join(numbers)}"


def left(version: str) -> list[str]:
    """Return what a person writes before the tag."""
    heads = re.findall(r"(?m)^## (.+)$", (ROOT / "CHANGELOG.md").read_text())
    if any(re.match(rf"\[?{re.escape(version)}\b", head) for head in heads):
        return []
    return [f"CHANGELOG.md: rename `Unreleased` to `{version} - {time.strftime('%Y-%m-%d', time.gmtime())}` and commit"]


def one_file(version: str) -> list[tuple[bool, str]]:
    """Return whether the one file is small, fast and works with nothing around it."""
    (path,) = (path for path in DIST.glob(f"chipwatch-{version}-linux-*") if path.suffix != ".gz")
    took = []
    for _ in range(5):
        begun = os.times()
        run(path, "--version")
        now = os.times()
        took.append(now.children_user + now.children_system - begun.children_user - begun.children_system)
    return [
        ((size := path.stat().st_size) <= LARGEST, f"one file: {size / 1e6:.1f} MB ({LARGEST / 1e6:.0f})"),
        (min(took) <= SLOWEST, f"one file: {min(took):.2f} s of CPU time to `version` ({SLOWEST:g})"),
        first_datapoint("one file", path),
    ]


def unpacked(version: str) -> list[tuple[bool, str]]:
    """Return whether the programs of the deb and of the archive work where they are unpacked."""
    results = []
    for pattern, command, program in (
        (f"chipwatch_{version}_*.deb", ("dpkg-deb", "--extract"), "usr/lib/chipwatch/chipwatch"),
        (f"chipwatch-{version}-linux-*.tar.gz", ("tar", "--strip-components=1", "-xf"), "bin/chipwatch"),
    ):
        (path,) = DIST.glob(pattern)
        with tempfile.TemporaryDirectory() as folder:
            run(*command, path, *(["-C"] if command[0] == "tar" else []), folder)
            results.append(first_datapoint(path.suffix.lstrip("."), Path(folder, program)))
    return results


def wheel(version: str) -> tuple[bool, str]:
    """Return whether the wheel can be installed from the packed wheelhouse alone, as docs/install.md has it, and works."""
    with tempfile.TemporaryDirectory() as folder:
        run("tar", "-xf", packed(version), "-C", folder)
        unpacked = Path(folder, f"chipwatch-{version}")
        run("sha256sum", "--check", "--quiet", "SHA256SUMS", cwd=unpacked)
        run(sys.executable, "-m", "venv", folder)
        pip = (Path(folder, "bin/pip"), "install", "--quiet", "--no-index", "--find-links", unpacked / "wheelhouse")
        (path,) = unpacked.glob("*.whl")
        run(*alone(), *pip, path, env={"PATH": os.defpath, "PIP_CONFIG_FILE": os.devnull})
        return first_datapoint("wheel", Path(folder, "bin/chipwatch"))


def alone() -> list[str]:
    """Return the words before a command that has no network, where the kernel lets us."""
    words = ["unshare", "--map-root-user", "--net"]
    return words if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0 else []


def first_datapoint(form: str, program: Path) -> tuple[bool, str]:
    """Return whether a program prints datapoints with an empty environment and, where the kernel lets us, no network."""
    begun = time.perf_counter()
    with tempfile.TemporaryDirectory() as state:
        printed = run(*(words := alone()), program, "--once", env={"STATE_DIRECTORY": state, "PATH": os.defpath})
    took = time.perf_counter() - begun
    where = "without a network" if words else "with the network of this machine"
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


def packed(version: str) -> Path:
    """Return the path of the packed wheelhouse."""
    return DIST / f"chipwatch-{version}-wheelhouse.tar"


def pack(version: str) -> None:
    """Pack what `make dist` made into one file; the same bytes for the same commit."""

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
        entry.mode = 0o644
        return entry

    packed(version).unlink(missing_ok=True)
    write_sums()
    files = sorted(path for path in DIST.rglob("*") if path.is_file())
    with tarfile.open(packed(version), "w") as archive:
        for path in files:
            archive.add(path, f"chipwatch-{version}/{path.relative_to(DIST)}", filter=plain)
    write_sums()


def run(*words: object, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    """Return what a command prints; end with its error if it fails."""
    done = subprocess.run(
        [*map(str, words)], capture_output=True, text=True, check=False, env=env, timeout=120, cwd=cwd
    )
    if done.returncode:
        sys.exit(f"{words[0]}: exit code {done.returncode}: {done.stderr or done.stdout}")
    return done.stdout


if __name__ == "__main__":
    main()
