"""Parses the command line; a line with a mistake, or one that asks for help, goes to argparse."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from chipwatch.commands.cli_options import COMMANDS, CONFIGURED, OPTIONS, OWN, OptionRow
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.text import in_case_of, is_utf8


def parse(argv: Sequence[str]) -> tuple[SimpleNamespace, list[str]]:
    """Return the parsed arguments and the command after `--`; raise ConfigError."""
    given, command = list(argv), []
    if wrong := next((word for word in given if not is_utf8(word)), None):
        raise ConfigError(f"argument {wrong!a}: expected UTF-8")
    if "--" in given:
        at = given.index("--")
        given, command = given[:at], given[at + 1 :]
        if not command:
            raise ConfigError("--: no command follows; write chipwatch [OPTION ...] -- COMMAND")
    if odd := next((word for word in given if word.startswith("--") and word.endswith("=--")), None):
        raise ConfigError(f"{odd[:-3]}: -- is not a value of an option")  # argparse takes it for the end of the options
    given[:1] = [in_case_of(word, COMMANDS) for word in given[:1]]
    first = given[0] if given else "run"
    if first in ("-V", "--version"):
        given = ["version"]
    elif first == "help":
        given = [*(in_case_of(word, COMMANDS) for word in given[1:]), "--help"]
    elif not given or (first.startswith("-") and first not in ("-h", "--help")):
        given.insert(0, "run")
    parsed = _plain(given)
    if parsed is None:
        from chipwatch.commands.parser import explain  # noqa: PLC0415  # argparse and its texts: 0.6 MB

        parsed = explain(given)
    if command and parsed.command not in ("run", "record", "help"):
        raise ConfigError(f"{parsed.command}: takes no command after --; only run and record do")
    return parsed, command


def _by_flag(rows: Sequence[OptionRow]) -> dict[str, OptionRow] | None:
    """Return the options of a command by flag; None if it takes words that argparse has to parse."""
    options: dict[str, OptionRow] = {}
    for row in rows:
        is_option = row.flags[0].startswith("-")
        if "required" in row.settings or not (is_option or row.settings.get("nargs") == "*"):
            return None
        options |= dict.fromkeys(row.flags if is_option else (), row)
    return options


def _plain(given: Sequence[str]) -> SimpleNamespace | None:
    """Return the words of a command line that has only options of its command and their values; None for any other."""
    rows = (*(OPTIONS if given[0] in CONFIGURED else ()), *OWN.get(given[0], ()))
    if given[0] not in COMMANDS or (options := _by_flag(rows)) is None:
        return None
    defaults = {row.dest: row.settings["default"] for row in rows if "default" in row.settings}
    parsed = SimpleNamespace(command=given[0], **defaults)
    words = iter(given[1:])
    for word in words:
        name, has_value, value = word.partition("=")
        if name not in options or bool(has_value) > name.startswith("--"):
            return None
        row, settings = options[name], options[name].settings
        if not row.metavar:
            setattr(parsed, row.dest, settings.get("const", True))
            if has_value:
                return None
            continue
        value = in_case_of(value if has_value else next(words, ""), settings.get("choices", ()))
        is_odd = not value or "nargs" in settings or (value.startswith("-") and not has_value)
        if is_odd or value not in settings.get("choices", (value,)):
            return None
        try:
            converted = settings.get("type", str)(value)
        except ValueError:
            return None
        is_list = row.action == "append"
        setattr(parsed, row.dest, [*getattr(parsed, row.dest, ()), converted] if is_list else converted)
    return parsed


def flags(given: SimpleNamespace) -> dict[str, Any]:
    """Return the options of the configuration that were given, as texts, lists and true; raise ConfigError."""
    layer = {row.dest: getattr(given, row.dest) for row in OPTIONS if hasattr(given, row.dest)}
    layer.pop("config", None)
    if given.command == "plan" and layer.get("format") != "emf":  # the others are the plan's own
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
