"""Parses the command line; a line with a mistake, or one that asks for help, goes to argparse."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from chipwatch.commands.cli_options import COMMANDS, CONFIGURED, OPTIONS, OWN
from chipwatch.contract.errors import ConfigError
from chipwatch.contract.text import in_case_of, is_utf8


def _check_values(given: Sequence[str]) -> None:
    """Raise ConfigError for `--option=--`, which argparse would take for the end of the options."""
    if odd := next((word for word in given if word.startswith("--") and word.endswith("=--")), None):
        raise ConfigError(f"{odd[:-3]}: -- is not a value of an option")


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
    _check_values(given)
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


def _plain(given: Sequence[str]) -> SimpleNamespace | None:
    """Return the words of a command line that has only options of its command and their values; None for any other."""
    own = OWN.get(given[0], ())
    lists = [
        row for row in own if row[0][0] != "-" and dict(*row[3:]).get("nargs") == "*"
    ]  # argparse parses their words
    parsed = SimpleNamespace(command=given[0], **{row[0]: [] for row in lists})
    rows = [*(OPTIONS if given[0] in CONFIGURED else ()), *(row for row in own if row not in lists)]
    settings = [dict(*row[3:]) for row in rows]
    if (
        given[0] not in COMMANDS
        or any(row[0][0] != "-" for row in rows)
        or any("required" in more for more in settings)
    ):
        return None
    options: dict[str, tuple[str, str, dict[str, Any]]] = {}
    for (names, metavar, *_), more in zip(rows, settings, strict=True):
        dest = more.get("dest") or max(names.split(), key=len)[2:].replace("-", "_")
        options |= dict.fromkeys(names.split(), (dest, metavar, more))
        if "default" in more:
            setattr(parsed, dest, more["default"])
    words = iter(given[1:])
    for word in words:
        name, has_value, value = word.partition("=")
        if name not in options or bool(has_value) > name.startswith("--"):
            return None
        dest, metavar, more = options[name]
        if not metavar:
            setattr(parsed, dest, more.get("const", True))
            if has_value:
                return None
            continue
        value = in_case_of(value if has_value else next(words, ""), more.get("choices", ()))
        is_odd = not value or "nargs" in more or (value.startswith("-") and not has_value)
        if is_odd or value not in more.get("choices", (value,)):
            return None
        try:
            converted = more.get("type", str)(value)
        except ValueError:
            return None
        is_list = more.get("action", "append" if metavar.endswith(",...") else "store") == "append"
        setattr(parsed, dest, [*getattr(parsed, dest, ()), converted] if is_list else converted)
    return parsed


def flags(given: SimpleNamespace) -> dict[str, Any]:
    """Return the options of the configuration that were given, as texts, lists and true; raise ConfigError."""
    names = [max(row[0].split(), key=len)[2:].replace("-", "_") for row in OPTIONS]
    layer = {name: getattr(given, name) for name in names if hasattr(given, name)}
    layer.pop("config", None)
    if given.command == "plan" and layer.get("format") != "emf":  # the others are the plan's own
        layer.pop("format", None)
    for name, value in layer.items():
        if isinstance(value, list) and name != "dim":
            layer[name] = [word.strip() for text in value for word in text.split(",") if word.strip()]
    dims: dict[str, str] = {}
    for text in layer.pop("dim", ()):
        key, _, value = text.partition("=")
        if not (key and value):
            raise ConfigError(f"--dim {text}: expected KEY=VALUE")
        if key in dims:
            raise ConfigError(f"--dim {text}: {key} was given before as {dims[key]}; give it once")
        dims[key] = value
    return layer | ({"dims": dims} if dims else {})
