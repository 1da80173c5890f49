"""`chipwatch completion`: prints a script with which a shell completes the command line."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import shtab

from chipwatch.commands.cli_options import OPTIONS, OWN
from chipwatch.commands.output import show
from chipwatch.commands.parser import drawn, parser
from chipwatch.config import plugins
from chipwatch.config.identity.names import WORDS
from chipwatch.config.naming.profiles import PROFILES


def main(given: SimpleNamespace) -> int:
    """Print the script."""
    return show(completion(given.shell))


def completion(shell: str) -> str:
    """Return the script for `shell` (bash, zsh or fish); it completes commands, options and their values."""
    collectors, sinks = [*plugins.installed(plugins.COLLECTORS)], [*plugins.installed(plugins.SINKS)]
    families = [*plugins.FAMILIES, *collectors]
    choices = {
        "sink": sinks, "cloud": drawn(), "collector": families, "no_collector": families, "families": families,
        "stdin": collectors, "name": sorted({*collectors, *sinks}), "common_dims": WORDS, "names": [*PROFILES],
        "level": ("basic", "detailed", "all"), "log_level": ("debug", "info", "warning", "error"),
        "log_format": ("text", "json"),
    }  # fmt: skip
    top = parser((*OPTIONS, *OWN["run"]), slice(None))  # without a command, the options of `run` apply
    for command in (top, *top.commands.values()):
        actions: list[Any] = command._actions  # noqa: SLF001  # argparse has no public way to them
        for action in actions:
            if action.nargs != 0:
                action.choices = action.choices or choices.get(action.dest)
            if action.metavar in ("FILE", "DIR"):
                action.complete = shtab.FILE if action.metavar == "FILE" else shtab.DIRECTORY
            if isinstance(action.metavar, str):
                action.metavar = action.metavar.replace("[HOST:]", "")  # to zsh, a colon ends the text
    text = str(shtab.complete(top, shell))
    if shell == "fish":
        return f"{text}\ncomplete -c agent -w chipwatch"
    for place in ("#compdef chipwatch", "compdef _shtab_chipwatch -N chipwatch", "-F _shtab_chipwatch chipwatch"):
        text = text.replace(place, f"{place} agent")
    return text
