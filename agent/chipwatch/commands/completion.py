"""`agent completion`: the script with which bash or zsh completes commands, options and their values."""

from __future__ import annotations

from typing import Any

import shtab

from chipwatch.commands.cli_options import OPTIONS, RUN
from chipwatch.commands.parser import parser
from chipwatch.config import plugins
from chipwatch.identity.names import WORDS
from chipwatch.naming.profiles import PROFILES


def script(shell: str) -> str:
    """Return the script for `shell`, `bash` or `zsh`."""
    collectors, sinks = [*plugins.installed(plugins.COLLECTORS)], [*plugins.installed(plugins.SINKS)]
    families = [*plugins.FAMILIES, *collectors]
    choices = {
        "sink": sinks, "cloud": sinks, "collector": families, "no_collector": families, "families": families,
        "stdin": collectors, "name": sorted({*collectors, *sinks}), "common_dims": WORDS, "names": [*PROFILES],
        "level": ("basic", "detailed", "all"), "log_level": ("debug", "info", "warning", "error"),
        "log_format": ("text", "json"),
    }  # fmt: skip
    top = parser((*OPTIONS, *RUN))  # `run` may be left out
    for command in (top, *top.commands.values()):
        for action in command._actions:  # noqa: SLF001  # argparse has no public way to them
            _complete(action, choices)
    text = str(shtab.complete(top, shell))
    for place in ("#compdef agent", "compdef _shtab_agent -N agent", "-F _shtab_agent agent"):
        text = text.replace(place, f"{place} chipwatch")
    return text


def _complete(action: Any, choices: dict[str, Any]) -> None:
    """Set how the value of an option is completed: by its choices, as a file or as a folder."""
    if action.nargs != 0:
        action.choices = action.choices or choices.get(action.dest)
    if action.metavar in ("FILE", "DIR"):
        action.complete = shtab.FILE if action.metavar == "FILE" else shtab.DIRECTORY
    if isinstance(action.metavar, str):
        action.metavar = action.metavar.replace("[HOST:]", "")  # zsh takes a colon for the end of the text
