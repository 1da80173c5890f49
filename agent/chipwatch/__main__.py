"""`chipwatch`, `agent` and `python -m chipwatch`: the same program."""

from __future__ import annotations

import os
import sys
from typing import Final

INTERRUPTED: Final = 130
"""Exit code of a shell after Ctrl-C."""


def main() -> None:
    """Run the command line and exit."""
    if sys.platform == "win32":
        sys.exit("chipwatch: it runs on Linux and macOS; on Windows use WSL")
    if not os.path.isdir(os.path.dirname(__file__)):  # noqa: PTH112, PTH120  # pathlib may not be loaded yet
        sys.exit("chipwatch: it cannot run from a zip file: install the wheel, or take the one file (`make packages`)")
    try:
        from chipwatch.commands.deferred import defer_early  # noqa: PLC0415  # loading takes time, and may be interrupted

        defer_early()
        from chipwatch.commands.cli import main as run  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
