"""`chipwatch top` for this machine or for recordings."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from chipwatch.commands.configured import configured
from chipwatch.config.options import Config
from chipwatch.show.top import program
from chipwatch.show.top.program import TopOptions


def main(given: SimpleNamespace) -> int:
    """Show the screen until the user quits; return the exit code."""
    config = configured(given)
    return program.run(config, options(given, config, given.hosts))


def options(given: SimpleNamespace, config: Config, files: list[str]) -> TopOptions:
    """Return the options of the screen; `files`: recordings to play."""
    asked: dict[str, Any] = {key: getattr(given, key) for key in ("colors", "replay") if hasattr(given, key)}
    if hasattr(given, "interval") and config.interval:
        asked["interval"] = config.interval
    if files:
        asked["replay"] = [*asked.get("replay", ()), *map(Path, files)]
    return TopOptions(**asked)
