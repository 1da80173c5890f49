"""`agent`, `chipwatch` and `python -m chipwatch`: one and the same program."""

from __future__ import annotations

import sys
from typing import Final

from chipwatch import claim_packages

INTERRUPTED: Final = 130
"""Exit code of a shell after Ctrl-C."""


def main() -> None:
    """Run the command line and exit."""
    try:
        claim_packages()
        from chipwatch.cli import main as run  # noqa: PLC0415  # only now is it certain that this `agent` is ours
    except KeyboardInterrupt:  # loading takes long enough on a busy machine to be interrupted
        sys.exit(INTERRUPTED)
    run()


if __name__ == "__main__":
    main()
