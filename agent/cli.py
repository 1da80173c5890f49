"""The command line; the only module that prints and exits."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TextIO

from agent.commands import arguments
from agent.commands import health as probe
from agent.commands.dashboard import flags as dashboards
from agent.logs.text import is_utf8, one_line
from agent.version import __version__

if TYPE_CHECKING:
    from agent.config.load import Config

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2
INTERRUPTED: Final = 130
"""Exit code of a shell after Ctrl-C."""
PLAN_OPTIONS: Final = ("hosts", "price_per_metric", "price_per_1000_requests", "free_tier")
COMMANDS: Final = ("run", "check", "plan", "dashboard", "health", "status", "list", "sample-config", "version")


class NotPrinted(Exception):
    """Standard output cannot be written; the message says why, and is empty if the reader has closed it."""


class Parser(argparse.ArgumentParser):
    """Prints an error in one line, with the closest valid word, and exits with 2."""

    commands: Mapping[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        self.exit(_report(f"{self._reworded(message)} (see {self.prog} --help)", USAGE))

    def print_help(self, file: Any = None) -> None:
        """Print the help; raise NotPrinted."""
        del file
        _print(self.format_help(), end="")

    def _reworded(self, message: str) -> str:
        """Return argparse's message in our words, since its own differ between Python versions."""
        if found := re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL):
            return self._unknown(found[1].partition("=")[0] if found[1].startswith("-") else found[1])
        if not (found := re.fullmatch(r"argument (.*?): (.*)", message, re.DOTALL)):
            return message
        name, fault = found.groups()
        if word := re.match(r"invalid choice: ['\"](.*?)['\"](?: \(|, )", fault, re.DOTALL):
            if name.startswith("{"):
                return f"no such command {word[1]!r}{_nearest(word[1], COMMANDS)}"
            choices = self._option_string_actions[name.partition("/")[0]].choices or ()
            return f"{name}: no such choice {word[1]!r}; choose from: {', '.join(choices)}"
        plain = {"expected one argument": " needs a value", "ignored explicit argument": " takes no value"}
        return name + next((ours for theirs, ours in plain.items() if fault.startswith(theirs)), f": {fault}")

    def _unknown(self, word: str) -> str:
        if word.startswith("-"):
            near = difflib.get_close_matches(word, self._option_string_actions, n=1)
            return f"no such option {word}{f'; did you mean {near[0]}?' if near else ''}"
        if word in COMMANDS:
            return f"{word} must come first: agent {word} ..."
        return f"{word!r} is not an option; write a command to wrap after --"


def _nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]}?" if near else f"; choose from: {', '.join(known)}"


def parser() -> Parser:
    """Return the parser of the command line up to `--`."""
    top = Parser(
        prog="agent",
        description="Collects metrics of this machine and its accelerators, and sends them to cloud monitoring.",
        epilog="`run` is the default command. Every flag is also a key of the configuration file and an environment "
        "variable: --common-dims is common_dims and CHIPWATCH_COMMON_DIMS. See `agent sample-config`.",
        allow_abbrev=False,
    )
    commands = top.add_subparsers(dest="command", metavar="{" + ",".join(COMMANDS) + "}")
    top.commands = commands.choices
    options = Parser(add_help=False, argument_default=argparse.SUPPRESS, allow_abbrev=False)
    _add_options(options)
    run = _add(
        commands, "run", "collect and send until stopped; `-- COMMAND` runs a command and reads its processes", options
    )
    run.add_argument("--once", action="store_true", help="read everything once, then end")
    run.add_argument("--duration", type=arguments.seconds, metavar="S", help="end after S seconds")
    check = _add(commands, "check", "test each collector and sink, and print what is missing", options)
    check.add_argument("--send", action="store_true", help="send one test point, agent.check, through each sink")
    check.add_argument("--bundle", type=Path, metavar="FILE", help="pack a report for a ticket, without secrets")
    plan = _add(commands, "plan", "estimate what would be sent and what it costs; --format text or json", options)
    _add_plan_options(plan)
    board = _add(
        commands, "dashboard", "print a cloud's dashboard, or alarms, for what would be sent, as JSON", options
    )
    dashboards.add_options(board)
    health = _add(commands, "health", "check the running agent: exits with 0 (healthy) or 1", None)
    probe.add_options(health)
    status = _add(commands, "status", "print what the running agent collects and delivers", None)
    status.add_argument("--json", dest="as_json", action="store_true", help="print one JSON object")
    status.add_argument("--spool", type=Path, metavar="DIR", help="the agent's own --spool")
    status.add_argument("--config", type=Path, metavar="FILE", help="the agent's own configuration file")
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
    to.add_argument("--processor", action="append", metavar="NAME", help="what to derive; may be repeated (all)")
    to.add_argument("--no-processor", action="append", metavar="NAME", help="what not to derive; may be repeated")
    to.add_argument("--config", type=Path, metavar="FILE", help="configuration file, TOML")
    to.add_argument("--interval", type=arguments.seconds, metavar="S", help="seconds between readings (5)")
    to.add_argument(
        "--window", type=arguments.seconds, metavar="S", help="seconds of readings in one point (the sink's)"
    )
    to.add_argument("--flush", type=arguments.seconds, metavar="S", help="seconds between deliveries (the sink's)")
    to.add_argument("--level", help="which metrics: basic, detailed or all (basic)")
    to.add_argument("-d", "--common-dims", metavar="NAMES", help="dimensions of this machine, separated by commas")
    to.add_argument("--dim", action="append", metavar="K=V", help="another dimension; may be repeated")
    to.add_argument("-n", "--namespace", metavar="NS", help="CloudWatch namespace")
    to.add_argument("-r", "--region", metavar="R", help="cloud region (the environment's, else the instance's own)")
    to.add_argument("--project", metavar="P", help="Google Cloud project (the environment's, else the machine's own)")
    to.add_argument("--endpoint-url", metavar="URL", help="another address of the service (the region's own)")
    to.add_argument("--high-resolution-metrics", action="store_true", help="one point a second")
    to.add_argument("--stdin", metavar="NAME", help="read this collector's records from standard input: neuron")
    to.add_argument("--pid", type=arguments.whole, metavar="N", help="read process N and its descendants")
    to.add_argument("--format", metavar="FORM", help="format of standard output: json, table or emf")
    to.add_argument(
        "--names",
        metavar="PROFILE",
        help="naming profile: native, wandb, wandb-docs, mlflow, cwagent, neuron-prometheus, dcgm, node",
    )
    to.add_argument("--spool", type=Path, metavar="DIR", help="folder for points that are not sent yet")
    to.add_argument(
        "--drop-other-destinations", action="store_true", help="drop what the spool holds for another destination"
    )
    to.add_argument("--health", metavar="[HOST:]PORT", help="serve /healthz and /readyz (not served)")
    to.add_argument("--proc", type=Path, metavar="DIR", help="where the host's /proc is mounted")
    to.add_argument("--sys", type=Path, metavar="DIR", help="where the host's /sys is mounted")
    to.add_argument("--root", type=Path, metavar="DIR", help="where the host's / is mounted")
    to.add_argument("--log-level", metavar="LEVEL", help="debug, info, warning or error (warning)")


def _add_plan_options(to: Parser) -> None:
    to.add_argument("--hosts", type=arguments.hosts, default=1, metavar="N", help="hosts like this one (1)")
    to.add_argument(
        "--price-per-metric", type=arguments.price, metavar="P", help="dollars a month (the list's, in tiers)"
    )
    to.add_argument("--price-per-1000-requests", type=arguments.price, metavar="P", help="dollars (the list's)")
    to.add_argument("--free-tier", action="store_true", help="subtract an account's free tier")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the parsed arguments and the command after `--`; on wrong usage, print a line and exit with 2."""
    words, command = list(argv), []
    if "--" in words:
        at = words.index("--")
        words, command = words[:at], words[at + 1 :]
        if not command:
            parser().error("there is no command after --")
    if words[:1] == ["--version"]:
        words[0] = "version"
    elif not words or (words[0].startswith("-") and words[0] not in ("-h", "--help")):
        words.insert(0, "run")
    top = parser()
    if odd := next((word for word in words if not is_utf8(word)), None):
        parser().error(f"{odd!a} is not UTF-8")
    given, rest = top.parse_known_args(words)
    if rest:
        top.commands[given.command].error(f"unrecognized arguments: {rest[0]}")
    if command and given.command != "run":
        parser().error(f"{given.command} takes no command after --")
    return given, command


def flags(given: argparse.Namespace) -> dict[str, Any]:
    """Return the flags as a layer of configuration; raise ConfigError."""
    from agent.config.convert import ConfigError  # noqa: PLC0415  # see `_work`

    layer = dict(vars(given))
    for key in ("command", "config", "once", "duration", "send", "bundle", *PLAN_OPTIONS, *dashboards.OPTIONS):
        layer.pop(key, None)
    if _is_form_of_plan(given):
        del layer["format"]
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
    _open_standard_streams()
    try:
        code = _main(sys.argv[1:] if argv is None else argv)
    except SystemExit as end:  # of the parser
        code = int(end.code or OK)
    except KeyboardInterrupt:  # outside of a run, which handles the signal itself
        code = INTERRUPTED
    except NotPrinted as problem:
        code = _report(f"standard output: {problem}", FAILED) if problem.args else OK
    except (MemoryError, ImportError) as problem:
        code = _report(f"{str(problem) or 'out of memory'}; is the memory limit (`ulimit -v`) too low?", FAILED)
    except RuntimeError as problem:
        if "new thread" not in str(problem):
            raise
        code = _report(f"{problem}: the limit of memory or processes is too low (`ulimit -v`, `ulimit -u`)", FAILED)
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:
            _redirect_to_null(sys.stderr)
    sys.exit(code)


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a broken stream to /dev/null, else the interpreter prints an error when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_standard_streams() -> None:
    """Open /dev/null for each closed standard stream, else one of our files gets its number and its output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def _print(text: str, end: str = "\n") -> None:
    """Print on standard output if it exists; raise NotPrinted."""
    try:
        print(text, end=end, flush=sys.stdout is not None)
    except OSError as problem:
        _redirect_to_null(sys.stdout)
        raise NotPrinted(*([] if isinstance(problem, BrokenPipeError) else [problem.strerror])) from problem


def _main(argv: Sequence[str]) -> int:
    given, command = parse(argv)
    light = {"health": _health, "status": _status}.get(given.command)
    return light(given) if light else _work(given, command)


def _work(given: argparse.Namespace, command: Sequence[str]) -> int:
    from agent.commands import run, wrapped  # noqa: PLC0415  # these take 50 ms, which `health` saves
    from agent.config import convert, instances  # noqa: PLC0415
    from agent.config import load as config  # noqa: PLC0415
    from agent.identity import resolver  # noqa: PLC0415
    from agent.logs import formats  # noqa: PLC0415

    try:
        if given.command in ("version", "list", "sample-config"):
            _print(_text(given))
            return OK
        formats.to_stderr("warning")
        loaded = config.load(getattr(given, "config", None), flags(given))
        formats.to_stderr(loaded.log_level)
        if given.command == "run":
            return run.run(loaded, command, once=given.once, duration=given.duration)
        return {"check": _check, "plan": _plan, "dashboard": _dashboard}[given.command](loaded, given)
    except convert.ConfigError as problem:
        return _report(problem, USAGE)
    except (instances.NotLoaded, resolver.UnknownIdentity) as problem:
        return _report(problem, FAILED)
    except wrapped.NotStarted as problem:
        return _report(problem, problem.code)


def _report(problem: Exception | str, code: int) -> int:
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"agent: {one_line(str(problem))}", file=sys.stderr)
    return code


def _health(given: argparse.Namespace) -> int:
    try:
        good, line = probe.probe(given)
    except probe.WrongUsage as problem:
        return _report(problem, USAGE)
    _print(one_line(line))
    return OK if good else FAILED


def _status(given: argparse.Namespace) -> int:
    from agent.commands import status  # noqa: PLC0415  # loaded on demand
    from agent.status.socket import NoAnswer  # noqa: PLC0415

    try:
        answer = probe.status(given)
    except probe.WrongUsage as problem:
        return _report(problem, USAGE)
    except NoAnswer as problem:
        return _report(problem, FAILED)
    _print(status.as_json(answer) if given.as_json else status.as_text(answer))
    return OK


def _text(given: argparse.Namespace) -> str:
    if given.command == "version":
        return f"chipwatch {__version__}"
    from agent.commands import check as report  # noqa: PLC0415  # loaded on demand

    return report.listing(given.format) if given.command == "list" else report.sample_config()


def _is_form_of_plan(given: argparse.Namespace) -> bool:
    """Return whether --format is the plan's own; other values are options of the stdout sink."""
    return given.command == "plan" and getattr(given, "format", None) in {"text", "json"}


def _plan(config: Config, given: argparse.Namespace) -> int:
    from agent.advice import Terms  # noqa: PLC0415  # loaded on demand
    from agent.commands.plan import estimate  # noqa: PLC0415  # loaded on demand
    from agent.commands.plan import text as plan_text  # noqa: PLC0415  # loaded on demand

    logging.disable(logging.WARNING)
    made = estimate.make(config, given.hosts, Terms(**{key: getattr(given, key) for key in Terms._fields}))
    as_json = _is_form_of_plan(given) and given.format == "json"
    _print(plan_text.as_json(made) if as_json else plan_text.as_text(made))
    return FAILED if made.failed or any(sink.rejected for sink in made.sinks) else OK


def _dashboard(config: Config, given: argparse.Namespace) -> int:
    from agent.commands.dashboard import make, options  # noqa: PLC0415  # loaded on demand

    logging.disable(logging.WARNING)
    made = make.make(config, options.options(given))
    for note in made.notes:
        _report(note, OK)
    _print(made.text)
    return OK


def _check(config: Config, given: argparse.Namespace) -> int:
    from agent.commands import bundle  # noqa: PLC0415  # loaded on demand
    from agent.commands import check as report  # noqa: PLC0415  # loaded on demand

    logging.disable(logging.ERROR)  # each line of the report says what is wrong
    fit, lines, machine = True, [], dict[str, str]()
    for good, line in report.check(config, machine, send=given.send):
        fit &= good
        lines.append(one_line(line))
        _print(lines[-1])
    if given.bundle:
        try:
            bundle.pack(given.bundle, config, lines, machine)
        except bundle.NotPacked as problem:
            return _report(problem, FAILED)
        _print(f"bundle     {given.bundle}: read it before you send it; names, addresses and secrets are replaced")
    return OK if fit else FAILED
