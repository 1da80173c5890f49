"""`chipwatch top` for this machine or for recordings."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

from chipwatch.commands.configured import configured
from chipwatch.show.top import program


def main(given: SimpleNamespace) -> int:
    """Show the screen until the user quits; return the exit code."""
    config, recordings = configured(given), [*getattr(given, "replay", ()), *map(Path, given.hosts)]
    interval = config.interval if hasattr(given, "interval") else None
    return program.run(config, interval, getattr(given, "colors", None), recordings, os.environ)
