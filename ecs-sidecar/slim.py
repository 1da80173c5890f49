# ruff: noqa: INP001  # a step of the image's build, no module

"""
Makes a folder of installed packages into what an image needs: no tests, no tools, compiled, and of AWS's models few.

Runs while the image is built: slim.py FOLDER, with the packages in FOLDER/lib; what starts the agent goes to
FOLDER/bin.
"""

from __future__ import annotations

import compileall
import shutil
import sys
from pathlib import Path
from py_compile import PycInvalidationMode

START = """\
#!/usr/bin/python3
import os
import sys

if sys.argv[1:3] == ["status", "--health"] and sys.argv[3:] in ([], ["--ready"]):  # a yes needs little
    sys.path.insert(0, "/app/lib/chipwatch/service")
    from probe import NoHeartbeat, judge

    try:
        good, line = judge(os.environ.get("STATE_DIRECTORY", "") + "/alive", ready=len(sys.argv) > 3)
    except NoHeartbeat:
        good = False
    if good:
        sys.exit(print(line))
    del sys.path[0]
from chipwatch.commands.cli import main

sys.exit(main())
"""
MODELS = frozenset({"cloudwatch", "sts", "sso", "sso-oidc", "signin"})
"""
Of botocore's 400 services: the one that the sink speaks to, and those that its credential providers ask. Partitions
and regions stand in files beside them, and stay.
"""
FOR_RICH = ("pygments", "markdown_it", "mdurl")
"""Packages that rich imports for code and Markdown, which the agent does not print: 9 MB, compiled."""
NEVER_RUN = (*FOR_RICH, "bin", "*/test", "*/tests", "*.dist-info/RECORD", "**/*.pyi", "**/*.c", "**/*.h")
"""Files that nothing imports."""


def prune(lib: Path) -> None:
    """Remove what is not used."""
    models = [path for path in lib.glob("botocore/data/*") if path.is_dir() and path.name not in MODELS]
    for path in [*models, *(path for pattern in NEVER_RUN for path in [*lib.glob(pattern)])]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()


def starter(folder: Path) -> None:
    """Write what starts the agent with the image's own Python, without a shell."""
    folder.mkdir()
    script = folder / "agent"
    script.write_text(START)
    script.chmod(0o755)
    (folder / "chipwatch").symlink_to("agent")


if __name__ == "__main__":
    root = Path(sys.argv[1])
    prune(root / "lib")
    starter(root / "bin")
    # The file system is read-only at run time, and nothing there ever changes: no source need be looked at.
    # One process: what a compiled file is depends on those before it, and each build is to give the same bytes.
    whole = compileall.compile_dir(
        root / "lib",
        quiet=1,
        stripdir=root,
        prependdir="/app",
        invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
    )
    sys.exit(not whole)
