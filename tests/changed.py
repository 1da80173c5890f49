"""
Finds what changed, for the Makefile.

Without words it prints the tests of the files that changed since the last commit, for `make check`: agent/chipwatch/engine/spool/sqlite.py
has tests/agent/engine/spool/test_sqlite*.py. With `--deploy-files` it ends with 0 if a file that `make test-deploy-files` reads
changed since the branch began, else with 1.
"""

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS_OF = {"agent/chipwatch/": "tests/agent/", "sinks/chipwatch_sinks/": "tests/sinks/"}
"""Package -> the folder of its tests."""
DEPLOY_FILES = (
    "ecs-sidecar/", "helm/", "install.sh", "requirements/", "slurm/", "terraform/", "tests/deploy/", "tests/doubles/", "tools/", "pyproject.toml",
)  # fmt: skip


def paths_for(name: str) -> list[Path]:
    """Return the tests of one file: itself, the tests of its name, or the tests of the package's folder."""
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


def git(*words: str, root: Path = ROOT) -> list[str]:
    """Return the lines that git prints; none where it fails, as in a folder that is not a checkout, or is not there."""
    if not shutil.which("git"):
        return []
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
    return [] if done.returncode else done.stdout.splitlines()


def changed(since: str = "HEAD", root: Path = ROOT) -> list[str]:
    """Return the files that changed since a commit, and the new ones; none where this is not a checkout of git."""
    return git("diff", "--name-only", since, root=root) + git("ls-files", "--others", "--exclude-standard", root=root)


def beginning(root: Path = ROOT) -> str:
    """Return the commit at which this branch left the one that it will go to, or the last commit."""
    for other in ("@{upstream}", "origin/HEAD", "main"):
        if commits := git("merge-base", "HEAD", other, root=root):
            return commits[0]
    return "HEAD"


def deploy_files_changed(root: Path = ROOT) -> bool:
    """Return True if a file that `make test-deploy-files` reads has changed on this branch or is not committed."""
    return any(name.startswith(DEPLOY_FILES) for name in changed(beginning(root), root))


if __name__ == "__main__":
    if "--deploy-files" in sys.argv[1:]:
        sys.exit(not deploy_files_changed())
    print(*sorted({str(test) for name in changed() for test in paths_for(name)}))  # noqa: T201  # a command
