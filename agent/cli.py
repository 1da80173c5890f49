"""The command line; the only place that prints for people and that exits."""

from __future__ import annotations

import argparse
import difflib
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from agent import identity
from agent.assemble import NotLoaded
from agent.config import Config, ConfigError, load
from agent.run import run
from agent.version import __version__
from agent.watched import NotStarted

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
COMMANDS: Final = ("run", "check", "list", "sample-config", "version")


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, with the nearest right word, and exits with 2."""

    commands: Mapping[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        if found := re.fullmatch(r"unrecognized arguments: (\S+).*", message):
            word = found[1].partition("=")[0]
            near = difflib.get_close_matches(word, self._option_string_actions, n=2)
            message = f"no such option {word}{f'; did you mean {near[0]}?' if near else ''}"
        self.exit(USAGE, f"agent: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    """Return the parser of the whole command line, but for what follows `--`."""
    top = Parser(
        prog="agent",
        description="Watches every chip of this machine and tells the clouds about it.",
        epilog="`run` is the default command. Every flag is also a key of the configuration file and an environment "
        "variable: --common-dims is common_dims and CHIPWATCH_COMMON_DIMS. See `agent sample-config`.",
        allow_abbrev=False,
    )
    commands = top.add_subparsers(dest="command", metavar="{" + ",".join(COMMANDS) + "}")
    top.commands = commands.choices
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    _add_options(options)
    run = _add(commands, "run", "collect and send, until stopped; `-- COMMAND` runs and watches a command", options)
    run.add_argument("--once", action="store_true", help="one reading of everything, then end")
    run.add_argument("--duration", type=float, metavar="S", help="end after S seconds")
    _add(commands, "check", "say what each collector and sink finds, or what is missing", options)
    listing = _add(commands, "list", "print the catalogue of metrics", None)
    listing.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    _add(commands, "sample-config", "print a configuration file with every option", None)
    _add(commands, "version", "print the version", None)
    return top


def _add(commands: Any, name: str, text: str, options: Parser | None) -> Parser:
    parents = [options] if options else []
    made: Parser = commands.add_parser(name, help=text, description=text, parents=parents, allow_abbrev=False)
    return made


def _add_options(to: Parser) -> None:
    to.add_argument("--sink", action="append", metavar="NAME", help="where to send; may be repeated (stdout)")
    to.add_argument(
        "--collector", action="append", metavar="NAME", help="what to read; may be repeated (all that find something)"
    )
    to.add_argument("--no-collector", action="append", metavar="NAME", help="what not to read; may be repeated")
    to.add_argument("--config", type=Path, metavar="FILE", help="configuration file, TOML")
    to.add_argument("--interval", type=float, metavar="S", help="seconds between readings (5)")
    to.add_argument("--window", type=float, metavar="S", help="seconds that become one point (the sink's)")
    to.add_argument("--flush", type=float, metavar="S", help="seconds between sendings (the sink's)")
    to.add_argument("--level", help="how much: basic, detailed or all (basic)")
    to.add_argument("--common-dims", metavar="WORDS", help="what this machine is, in words separated by commas")
    to.add_argument("--dim", action="append", metavar="K=V", help="a further dimension; may be repeated")
    to.add_argument("-n", "--namespace", metavar="NS", help="CloudWatch namespace")
    to.add_argument("--high-resolution-metrics", action="store_true", help="one point a second")
    to.add_argument("--pid", type=int, metavar="N", help="watch the tree of process N")
    to.add_argument("--format", metavar="FORM", help="of the standard output: json, table or emf")
    to.add_argument("--names", metavar="PROFILE", help="naming profile: native, wandb, mlflow")
    to.add_argument("--spool", type=Path, metavar="DIR", help="folder for what is owed to durable sinks")
    to.add_argument("--health", metavar="[HOST:]PORT", help="serve /healthz and /readyz (not served)")
    to.add_argument("--proc", type=Path, metavar="DIR", help="where the host's /proc is mounted")
    to.add_argument("--sys", type=Path, metavar="DIR", help="where the host's /sys is mounted")
    to.add_argument("--root", type=Path, metavar="DIR", help="where the host's / is mounted")
    to.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (info)")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the parsed arguments and the command after `--`; exits with 2 and a line on wrong usage."""
    words, command = list(argv), []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
        if not command:
            parser().error("no command after --")
    if words[:1] == ["--version"]:
        words[0] = "version"
    elif not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "run")
    top = parser()
    given, rest = top.parse_known_args(words)
    if rest:
        top.commands[given.command].error(f"unrecognized arguments: {rest[0]}")
    if command and given.command != "run":
        parser().error(f"{given.command} takes no command after --")
    return given, command


def flags(given: argparse.Namespace) -> dict[str, Any]:
    """Return the flags as a layer of configuration; raise ConfigError."""
    layer = dict(vars(given))
    for key in ("command", "config", "once", "duration"):
        layer.pop(key, None)
    if "common_dims" in layer:
        layer["common_dims"] = [word.strip() for word in layer["common_dims"].split(",") if word.strip()]
    pairs = layer.pop("dim", [])
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise ConfigError(f"--dim: expected KEY=VALUE, got {pair!r}")
        layer.setdefault("dims", {})[key] = value
    return {key: str(value) if isinstance(value, Path) else value for key, value in layer.items()}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit."""
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
        sys.stdout.flush()
    except BrokenPipeError:  # of what this module prints; the sink has its own way
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = OK
    sys.exit(code)


def _main(argv: Sequence[str]) -> int:
    given, command = parse(argv)
    try:
        if given.command in ("version", "list", "sample-config"):
            print(_text(given))
            return OK
        config = load(getattr(given, "config", None), flags(given))
        _log_to_stderr(config.log_level)
        if given.command == "check":
            return _check(config)
        return run(config, command, once=given.once, duration=given.duration)
    except ConfigError as problem:
        return _say(problem, USAGE)
    except (NotLoaded, identity.UnknownIdentity) as problem:
        return _say(problem, FAILED)
    except NotStarted as problem:
        return _say(problem, problem.code)


def _say(problem: Exception, code: int) -> int:
    print(f"agent: {problem}", file=sys.stderr)
    return code


def _text(given: argparse.Namespace) -> str:
    if given.command == "version":
        return f"chipwatch {__version__}"
    from agent import report  # noqa: PLC0415  # only what is asked for is loaded

    return report.listing(given.format) if given.command == "list" else report.sample_config()


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )


def _check(config: Config) -> int:
    from agent import report  # noqa: PLC0415  # only what is asked for is loaded

    logging.disable(logging.WARNING)
    fit = True
    for good, line in report.check(config):
        fit &= good
        print(line, flush=True)
    try:
        common = identity.resolve(config.common_dims, config.dims)
        print(f"identity   {', '.join(f'{k}={v}' for k, v in common.items()) or 'no common dimensions asked for'}")
    except identity.UnknownIdentity as problem:
        print(f"identity   FAILED   {problem}")
        fit = False
    return OK if fit else FAILED
