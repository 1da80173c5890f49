"""Parses a command line by argparse, and explains mistakes in it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, Final, NoReturn

from chipwatch.base.text import in_case_of, line_width, nearest, similar
from chipwatch.commands.cli_options import COMMANDS, CONFIGURED, EVERYDAY, FIRST, OPTIONS, OTHER_WORDS, OWN, OptionRow
from chipwatch.config.identity.names import WORDS
from chipwatch.contract.errors import ConfigError

COMPLETION: Final = "print a script with which a shell completes commands and options", "chipwatch completion bash"


class HelpAsked(Exception):
    """The user asked for help; the message is its text."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises: ConfigError, with the closest valid word, or HelpAsked."""

    commands: Mapping[str, Parser] = {}

    def __init__(self, *, example: str = "", **options: Any) -> None:
        """Take an example that comes before the help, and what argparse takes; help is as wide as the terminal."""
        width = line_width(80) - 2
        form = partial(argparse.HelpFormatter, max_help_position=32, width=width)
        super().__init__(allow_abbrev=False, formatter_class=form, conflict_handler="resolve", **options)
        self._example = f"example: {example}\n\n" if example else ""

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        text = self._reworded(message)
        raise ConfigError(text if re.search("; (did you|choose|it is)", text) else f"{text}; see {self.prog} --help")

    def print_help(self, file: Any = None) -> NoReturn:
        """Raise HelpAsked with the example, and the help as wide as the terminal."""
        raise HelpAsked(self._example + self.format_help().rstrip("\n"))

    def _reworded(self, message: str) -> str:
        """Reword a message of argparse, because its wording differs between Python versions."""
        if match := re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL):
            return self._unknown(match[1].partition("=")[0] if match[1].startswith("-") else match[1])
        if match := re.fullmatch(r"the following arguments are required: (.*)", message):
            missing = (act for act in self._actions if match[1] in (act.metavar, *act.option_strings))
            able = drawn() if match[1] == "--cloud" else [*(next(missing).choices or ())]
            return f"{match[1]} is missing" + (f"; choose from: {', '.join(able)}" if able else "")
        if not (match := re.fullmatch(r"argument (.*?): (.*)", message, re.DOTALL)):
            return message
        name, fault = match[1].rpartition("/")[2], match[2]
        if word := re.match(r"invalid choice: ['\"](.*?)['\"](?: \(|, )", fault, re.DOTALL):
            if name == "COMMAND":
                return f"there is no command {word[1]}{_nearest_command(word[1])}"
            choices = next(act.choices for act in self._actions if name in (act.metavar, *act.option_strings)) or ()
            return f"{name} {word[1]}: no such choice{nearest(word[1], choices)}"
        plain = dict.fromkeys(("expected one argument", "expected at least one argument"), ": needs a value")
        plain["ignored explicit argument"] = ": takes no value"
        return name + next((ours for theirs, ours in plain.items() if fault.startswith(theirs)), f" {fault}")

    def _unknown(self, word: str) -> str:
        if word.startswith("-"):
            return f"{word}: no such option{_nearest_option(word, self._option_string_actions)}"
        if word in COMMANDS:
            return f"{word}: a command must come first: chipwatch {word} ..."
        if self.prog != "chipwatch run":
            return f"{word}: neither an option nor a value of one"
        return f"{word}: neither an option nor a command; to run a program, write {self.prog} ... -- {word} ..."


def drawn() -> list[str]:
    """Return the choices of `chipwatch dashboard --cloud`."""
    from chipwatch.advisor.dashboard.make import drawn_by_all

    return [*drawn_by_all()]


def _nearest_command(word: str) -> str:
    """Return a hint on an unknown command: the command that it means, how to run a program, or the closest one."""
    if meant := OTHER_WORDS.get(word.lower()):
        return f"; it is `{meant}`"
    from shutil import which

    if word.endswith(".py") or (not similar(word, COMMANDS) and which(word)):
        return f"; to run a program, write chipwatch -- {'python ' * word.endswith('.py')}{word} ..."
    return nearest(word, [*COMMANDS])


def _nearest_option(word: str, flags: Iterable[str]) -> str:
    """Return a hint on an unknown option: the commands or plugins that have it, or the closest one of `flags`."""
    having = [name for name, rows in OWN.items() if any(word in row.flags for row in rows)]
    having += CONFIGURED if any(word in row.flags for row in OPTIONS) else ()
    if having:
        return f"; it is one of {', '.join(dict.fromkeys(having))}"
    key = word.lstrip("-")
    if near := similar(key, [flag.lstrip("-") for flag in flags]):
        return f"; did you mean --{near[0]}?"
    from chipwatch.config.load import place_of  # noqa: PLC0415  # only a mistake needs it

    return place_of(key.replace("-", "_"))


def parser(at_top: Sequence[OptionRow] = EVERYDAY, part: slice = FIRST, only: str | None = None) -> Parser:
    """
    Build the parser of the command line up to `--`.

    `at_top`: options of `run` that the main help shows. `part`: the commands that it explains. `only`: the one command
    whose options are added, to save time; None for all commands.
    """
    top = Parser(
        prog="chipwatch",
        usage="chipwatch [run] [OPTION ...] [-- COMMAND ...]\n       chipwatch COMMAND [OPTION ...]",
        description="Collects metrics of this machine and its accelerators, and sends them to cloud monitoring.",
        epilog="Every option is also a key of the configuration file and an environment variable: --common-dims is"
        " common_dims and CHIPWATCH_COMMON_DIMS. `chipwatch COMMAND --help` lists the options of a command;"
        " `chipwatch help --skill` prints a page for assistants.",
        add_help=False,
    )
    commands = top.add_subparsers(dest="command", title="commands", metavar="COMMAND", prog="chipwatch")
    top.commands = commands.choices
    every = {**COMMANDS, "completion": COMPLETION}
    for name, (text, example) in every.items():
        short: dict[str, Any] = {"help": text.partition(";")[0]} if name in [*every][part] else {}
        command = commands.add_parser(name, description=text, example=example, **short)
        if only not in (None, name):
            continue
        own = OWN.get(name, ())
        _add(command, own)
        if name in CONFIGURED:
            command.usage = f"chipwatch {name} [OPTION ...]"
            command.epilog = f"Names of --common-dims: {', '.join(WORDS)}."
            title = "options of the configuration" if own else "options"
            mine = {flag for row in own for flag in row.flags}
            _add(command.add_argument_group(title), [row for row in OPTIONS if mine.isdisjoint(row.flags)])
    if part == FIRST:
        commands.add_parser("more", help=", ".join([*COMMANDS][FIRST.stop :]))
    shown = top.add_argument_group("everyday options; `chipwatch run --help` has all")
    asking = OptionRow(["-h", "--help"], "", "print this text", {"action": "help"})
    _add(shown, (*at_top, asking, OptionRow(["-V", "--version"], "", "print the version")))
    return top


def _add(to: Any, rows: Iterable[OptionRow]) -> None:
    for row in rows:
        options = {"help": row.help, "default": argparse.SUPPRESS, "action": row.action, **row.settings}
        if row.metavar:
            options["metavar"] = row.metavar
        if choices := options.get("choices"):
            options["type"] = partial(in_case_of, words=choices)
        to.add_argument(*row.flags, **options)


def parsed_words(given: Sequence[str]) -> SimpleNamespace:
    """Parse words; the result may be a help text. Raise ConfigError, which explains a mistake."""
    if given[0] == "more":
        return SimpleNamespace(command="help", text=parser((), slice(FIRST.stop, None)).format_help().rstrip("\n"))
    top = parser(only=given[0] if given[0] in COMMANDS else None)
    parsed = SimpleNamespace()
    try:
        _, unknown = top.parse_known_args(given, parsed)
        if unknown:
            top.commands[parsed.command].error(f"unrecognized arguments: {unknown[0]}")
    except HelpAsked as asked:
        return SimpleNamespace(command="help", text=str(asked))
    return parsed
