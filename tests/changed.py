"""Prints the tests of changed files, for `make check`: agent/chipwatch/spool/disk.py has tests/agent/spool/test_disk*.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS_OF = {"agent/chipwatch/": "tests/agent/", "sinks/chipwatch_sinks/": "tests/sinks/"}
"""Package -> the folder of its tests."""


def paths_for(name: str) -> list[Path]:
    """Return the tests of one file: itself, those of its name, or, of a package in a folder of its own, that folder's."""
    path = Path(name)
    if path.suffix != ".py":
        return []
    if path.parts[0] == "tests":
        return [path] if path.name.startswith("test_") and (ROOT / path).exists() else []
    for package, tests in TESTS_OF.items():
        if name.startswith(package):
            folder = (ROOT / tests / name.removeprefix(package)).parent
            matches = [*folder.glob(f"test_{path.stem}.py"), *folder.glob(f"test_{path.stem}_*.py")]
            return [match.relative_to(ROOT) for match in matches]
    return []


def changed() -> list[str]:
    """Return the changed and the new files; none where this is no checkout of git."""
    commands = (("diff", "--name-only", "HEAD"), ("ls-files", "--others", "--exclude-standard"))
    done = [
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False) for words in commands
    ]
    return [line for one in done if not one.returncode for line in one.stdout.splitlines()]


if __name__ == "__main__":
    print(*sorted({str(test) for name in changed() for test in paths_for(name)}))  # noqa: T201  # a command
