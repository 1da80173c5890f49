"""`chipwatch`, `agent` and `python -m chipwatch`: the same program."""

from __future__ import annotations

# `signal` takes longer to load than all that comes before Ctrl-C is answered
import _signal  # type: ignore[import-not-found]
import os
import sys


def main() -> None:
    """Run the command line and exit; Ctrl-C waits until that can answer, and SIGHUP until a run can reload."""
    if sys.platform == "win32":
        sys.exit("chipwatch: it runs on Linux and macOS; on Windows use WSL")
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT, _signal.SIGHUP))
    if not os.path.isdir(os.path.dirname(__file__)):  # noqa: PTH112, PTH120  # pathlib may not be loaded yet
        sys.exit("chipwatch: it cannot run from a zip file: install the wheel, or take the one file (`make packages`)")
    from chipwatch.commands.cli import main as run  # noqa: PLC0415  # loading takes time

    run()


if __name__ == "__main__":
    main()
