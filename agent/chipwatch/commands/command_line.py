"""Parses the command line into the command, the words after `--`, and the options of the configuration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from chipwatch.base.text import in_case_of, similar
from chipwatch.base.version import build
from chipwatch.commands.cli_options import COMMANDS, OPTIONS, TABLES
from chipwatch.commands.parser import parsed_words
from chipwatch.contract.datapoint import is_utf8
from chipwatch.contract.errors import ConfigError

RECORDINGS: Final = (".chipwatch", ".jsonl", ".jsonl.gz")
"""Endings of the names of recordings."""
KINDS: Final[Sequence[tuple[str, Sequence[str], str]]] = TABLES["kinds"]
"""Rows of a word, options, and the command that the word means with any of these options; the first match counts."""
NODES: Final = ("ssh", "remote", "token_file", "password_file", "ca_file")
"""Options that say how HOST is asked."""
FOREIGN: Final[Mapping[str, Sequence[str]]] = TABLES["foreign"]
"""Command -> options that only other commands of its word have."""
ALTERNATIVES: Final = (
    ("json", "csv"), ("token_file", "password_file"), ("hosts", "prometheus"), ("expect", "expect_from"),
    ("once", "duration"), ("csv", "by"),
)  # fmt: skip
"""Pairs of options of which a command takes only one; `hosts` are its words."""


def parse(argv: Sequence[str]) -> SimpleNamespace:
    """
    Parse the command line; raise ConfigError.

    In the result, `command` is a key of `cli.FUNCTIONS`, and `wrapped` has the words after `--`.
    """
    given, command = list(argv), list[str]()
    if wrong := next((word for word in given if not is_utf8(word)), None):
        raise ConfigError(f"argument {wrong!a}: expected UTF-8")
    if "--" in given:
        at = given.index("--")
        given, command = given[:at], given[at + 1 :]
        if not command:
            raise ConfigError("--: no command follows; write chipwatch [OPTION ...] -- COMMAND")
    if odd := next((word for word in given if word.startswith("--") and word.endswith("=--")), None):
        raise ConfigError(f"{odd[:-3]}: -- is not a value of an option")  # argparse would end the options there
    given[:1] = [in_case_of(word, (*COMMANDS, "completion")) for word in given[:1]]
    first = given[0] if given else "run"
    if first in ("-V", "--version"):
        return SimpleNamespace(command="help", text=f"chipwatch {build()}", wrapped=[])
    if given == ["help", "--skill"]:
        return SimpleNamespace(command="help", text=Path(__file__).with_name("SKILL.md").read_text("utf-8"), wrapped=[])
    if not given or (first.startswith("-") and first not in ("-h", "--help")):
        given.insert(0, "run")
    parsed = parsed_words(given)
    parsed.wrapped, parsed.command = command, _kind(parsed)
    _refuse_ignored(parsed)
    return parsed


def _refuse_ignored(given: SimpleNamespace) -> None:
    """Raise ConfigError for a word or an option that the command would ignore."""
    name, shown = given.command, {"hosts": "HOST"}
    if given.wrapped and name not in ("run", "record", "help"):
        raise ConfigError(f"{name}: takes no command after --; only run and record do")
    for option in FOREIGN.get(name, ()):
        if hasattr(given, option):
            where = " without HOST" if name == "top" or option in NODES else ""
            raise ConfigError(f"{name}: takes no --{option.replace('_', '-')}{where}")
    for pair in ALTERNATIVES:
        if all(getattr(given, option, None) for option in pair):
            both = (shown.get(option, f"--{option.replace('_', '-')}") for option in pair)
            raise ConfigError(f"{', '.join(both)}: give one of them")
    for word in given.words[:1] if name == "record" else ():
        if near := similar(word, ("list", "export")):
            raise ConfigError(f"record {word}: did you mean record {near[0]}? For a file of this name, write ./{word}")
    for word in given.hosts if name == "top --once" else ():
        if word.endswith(RECORDINGS):
            raise ConfigError(f"{name}: {word} is a recording; `chipwatch top {word}` plays it")


def _kind(given: SimpleNamespace) -> str:
    """Return the command, as `cli.FUNCTIONS` names it: with the option or word that changes its function."""
    name: str = given.command
    for command, options, kind in KINDS:
        if name == command and any(getattr(given, option, []) != [] for option in options):
            return kind
    if name == "top" and given.hosts:
        return name if any(word.endswith(RECORDINGS) or Path(word).is_file() for word in given.hosts) else "top HOST"
    return f"record {given.words[0]}" if name == "record" and given.words[:1] in (["list"], ["export"]) else name


def flags(given: SimpleNamespace) -> dict[str, Any]:
    """Return the options of the configuration that were given, not converted yet; raise ConfigError."""
    layer = {row.dest: getattr(given, row.dest) for row in OPTIONS if hasattr(given, row.dest)}
    layer.pop("config", None)
    if given.command == "plan":  # its formats are those that it prints itself
        layer.pop("format", None)
    for name, value in layer.items():
        if isinstance(value, list) and name != "dim":
            layer[name] = [word.strip() for text in value for word in text.split(",") if word.strip()]
            if not layer[name]:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} {','.join(value)!r}: this names nothing; name one, or leave it out")
    dims: dict[str, str] = {}
    for text in layer.pop("dim", ()):
        key, _, value = text.partition("=")
        if not (key and value):
            raise ConfigError(f"--dim {text}: expected KEY=VALUE")
        if key in dims:
            raise ConfigError(f"--dim {text}: {key} was given before as {dims[key]}; give it once")
        dims[key] = value
    return layer | ({"dims": dims} if dims else {})
