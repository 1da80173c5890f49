"""The command line: its commands, their options, and what is wrong with what was typed."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from agent.commands.arguments import pair, price, seconds, whole, words
from agent.commands.verdict.callers import CALLERS
from agent.errors import ConfigError
from agent.identity.names import WORDS
from agent.logs.text import is_utf8, similar

COMMANDS: Final = {
    "run": "collect and send until stopped (the default); `-- COMMAND` runs a command and prints a summary of it",
    "check": "test each collector and sink, and print what is missing",
    "plan": "estimate what would be sent, and what it costs",
    "dashboard": "print a cloud's dashboard, or alarms, for what would be sent, as JSON",
    "top": "show this machine, or a recording, on a full screen",
    "health": "check the running agent: exits with 0 (healthy) or 1",
    "status": "print what the running agent collects and delivers",
    "verdict": "print whether this machine is fit for work, why not, and what to do",
    "jobs": "print which job holds which accelerator, and what it did with it, by the running agent",
    "list": "print the metrics of all collectors",
    "sample-config": "print a configuration file with every option",
    "completion": "print a script with which a shell completes commands and options",
    "version": "print the version (also -V, --version)",
    "help": "print this text, or the options of a command",
}
Row = tuple[str, str, str] | tuple[str, str, str, Mapping[str, Any]]
"""Flags, the value (none: a switch; NAME,...: a list, which may be repeated), help, and what argparse is to know."""
EVERYDAY: Final[Sequence[Row]] = (
    ("--sink", "NAME,...", "where to send (stdout; none with -- COMMAND)"),
    ("--collector", "NAME,...", "what to read: collectors, or the families host and gpu (all that find something)"),
    ("--no-collector", "NAME,...", "what not to read"),
    ("-d --common-dims", "NAME,...", "dimensions of this machine: instance_id,instance_type; `agent help run` has all"),
    ("--dim", "K=V", "another dimension; may be repeated", {"action": "append"}),
    ("--level", "LEVEL", "which metrics: basic, detailed or all (basic)"),
    ("--interval", "TIME", "time between readings, such as 5, 500ms, 5s or 1m (5s)"),
    ("--window", "TIME", "time whose readings make one point (the sink's)"),
    ("-r --region", "REGION", "cloud region (the environment's, else the instance's own)"),
    ("--format", "FORM", "format of standard output: json, table or emf"),
    ("--config", "FILE", "configuration file, TOML"),
)
RUN: Final[Sequence[Row]] = (
    ("--once", "", "read everything once, then end"),
    ("--duration", "TIME", "end after this time", {"type": seconds}),
    ("-v --verbose", "", "say in a script, too, what goes well: as --log-level info",
     {"action": "store_const", "const": "info", "dest": "log_level"}),
)  # fmt: skip
OPTIONS: Final[Sequence[Row]] = (
    *EVERYDAY,
    ("--processor", "NAME,...", "what to derive (all)"),
    ("--no-processor", "NAME,...", "what not to derive"),
    ("--flush", "TIME", "time between deliveries (the sink's)"),
    ("-n --namespace", "NAME", "CloudWatch namespace"),
    ("--project", "NAME", "Google Cloud project (the environment's, else the machine's own)"),
    ("--endpoint-url", "URL", "another address of the service (the region's own)"),
    ("--high-resolution-metrics", "", "one point a second"),
    ("--stdin", "NAME", "read this collector's records from standard input: neuron"),
    ("--pid", "N", "read process N and its descendants"),
    ("--names", "PROFILE", "names: native, wandb, wandb-docs, mlflow, cwagent, neuron-prometheus, dcgm, node or otel"),
    ("--spool", "DIR", "folder for points that are not sent yet"),
    ("--drop-other-destinations", "", "drop what the spool holds for another destination"),
    ("--health", "[HOST:]PORT", "serve /healthz and /readyz (not served)"),
    ("--proc", "DIR", "where the host's /proc is mounted"),
    ("--sys", "DIR", "where the host's /sys is mounted"),
    ("--root", "DIR", "where the host's / is mounted"),
    ("--quiet", "", "print no summary when the command after -- has ended"),
    ("--log-level", "LEVEL", "debug, info, warning or error (info; warning in scripts)"),
    ("--log-format", "FORM", "form of the log: text or json (text)"),
)
"""Options of the configuration: `load` converts them, and names them in its errors."""
MACHINES: Final[Sequence[Row]] = (
    ("--for", "NAME,...", "for machines with these: host, gpu, names of collectors, or all (this machine)",
     {"dest": "families", "type": words, "action": "store"}),
    ("--devices", "N", "accelerators of such a machine (8)", {"type": whole(86_400)}),
)  # fmt: skip
SPOOL: Final[Row] = ("--spool", "DIR", "the agent's own --spool")
CONFIG: Final[Row] = ("--config", "FILE", "the agent's own configuration file")
OWN: Final[Mapping[str, Sequence[Row]]] = {
    "run": RUN,
    "check": (
        ("--send", "", "send one test point, agent.check, through each sink"),
        ("--bundle", "FILE", "pack a report for a ticket, without secrets"),
    ),
    "plan": (
        *MACHINES,
        ("--hosts", "N", "hosts like this one (1)", {"type": whole(1_000_000), "default": 1}),
        ("--price-per-metric", "USD", "dollars a month (the list's, in tiers)", {"type": price, "default": None}),
        ("--price-per-1000-requests", "USD", "dollars (the list's)", {"type": price, "default": None}),
        ("--price-per-gb", "USD", "dollars for a GB of points, where these are charged (the list's)",
         {"type": price, "default": None}),
        ("--free-tier", "", "subtract an account's free tier", {"default": False}),
        ("--format", "FORM", "text or json; emf: text, about standard output in CloudWatch's embedded metric format",
         {"choices": ("text", "json", "emf")}),
    ),
    "dashboard": (
        ("--cloud", "SINK", "sink whose dashboard is printed; grafana: what is scraped", {"required": True}),
        ("--alarms", "", "print the alarms instead"),
        *MACHINES,
        ("--prefix", "NAME", "name of the dashboard, and start of the names of alarms (chipwatch)"),
        ("--period", "S", "seconds of one dot (the sink's window, at least 60)", {"type": whole(86_400)}),
        ("--dims-as", "TEXT", "write this for the common dimensions: a variable of a template"),
        ("--notify", "WHOM", "topic or channel for alarms; may be repeated", {"action": "append"}),
        ("--hosts", "N", "machines that should send, for the alarm agent-silent", {"type": whole(86_400)}),
        ("--autoscaling-group", "NAME", "a group whose instances in service should send; may be repeated",
         {"dest": "groups", "action": "append"}),
        ("--resource-type", "TYPE", "monitored resource that sends, for alarms; may be repeated (the sink's)",
         {"dest": "resources", "action": "append"}),
        ("--threshold", "ALARM=N", "threshold of an alarm, such as gpu-idle=10; may be repeated",
         {"dest": "thresholds", "type": pair, "action": "append"}),
        ("--minutes", "ALARM=N", "minutes before an alarm, such as gpu-idle=30; may be repeated",
         {"type": pair, "action": "append"}),
    ),
    "top": (
        ("--replay", "FILE", "show this recording: JSON lines of the agent, also gzipped", {"type": Path}),
        ("--colors", "NAME", "dark, light, color-blind or none (the terminal's)",
         {"choices": ("dark", "light", "color-blind", "none")}),
        ("--ascii", "", "draw with ASCII characters only"),
    ),
    "health": (
        ("--ready", "", "check whether it sends too, not only whether its clock ticks"),
        ("--url", "URL", "ask this server (http://HOST:PORT), as `--health` made it"),
        SPOOL,
        ("--health", "[HOST:]PORT", "the agent's own --health"),
        CONFIG,
    ),
    "status": (("--json", "", "print one JSON object"), SPOOL, CONFIG),
    "verdict": (
        ("--for", "CALLER", "whose exit codes and form: person, slurm, npd or nagios (person)",
         {"dest": "caller", "choices": tuple(CALLERS), "default": "person"}),
        ("--expect", "THING=N,...", "what there should be: gpus=8,rdma=8x400,neuron=16,tpus=4,nvme=8",
         {"action": "store"}),
        ("--expect-from", "WORD", "expect what a machine of this type has: instance_type",
         {"choices": ("instance_type",)}),
        ("--json", "", "print one JSON object"),
        ("--timeout", "TIME", "end after this time, as unknown where something does not answer (2s)",
         {"type": seconds}),
        SPOOL, CONFIG,
        ("--proc", "DIR", "where the host's /proc is mounted"),
        ("--sys", "DIR", "where the host's /sys is mounted"),
        ("--root", "DIR", "where the host's / is mounted"),
    ),
    "jobs": (("--json", "", "print one JSON object"), SPOOL, CONFIG),
    "list": (
        ("word", "WORD", "only metrics and collectors whose name has this word, or of this family", {"nargs": "?"}),
        ("--here", "", "only metrics that this machine has now"),
        ("--level", "LEVEL", "only metrics of this level and below", {"choices": ("basic", "detailed", "all")}),
        ("--format", "FORM", "text, markdown or json (text)", {"choices": ("text", "markdown", "json")}),
    ),
    "sample-config": (("name", "NAME", "only the options of this collector, processor or sink", {"nargs": "?"}),),
    "completion": (("shell", "SHELL", "bash or zsh", {"choices": ("bash", "zsh")}),),
    "help": (("about", "COMMAND", "the command", {"nargs": "?", "choices": tuple(COMMANDS)}),),
}  # fmt: skip
CONFIGURED: Final = ("run", "check", "plan", "dashboard", "top")
"""Commands that take every option of the configuration."""


class HelpAsked(Exception):
    """Help was asked for; the message is its text."""


class Help(argparse.HelpFormatter):
    """Help with room for the longest options."""

    width = 80

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32, width=self.width)


class Parser(argparse.ArgumentParser):
    """Raises ConfigError in our words, with the closest valid word, and HelpAsked."""

    commands: Mapping[str, Parser] = {}

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError."""
        text = self._reworded(message)
        raise ConfigError(
            text if re.search("; (did you mean|choose from)", text) else f"{text}; see {self.prog} --help"
        )

    def print_help(self, file: Any = None) -> NoReturn:
        """Raise HelpAsked, with text as wide as the terminal."""
        del file
        from shutil import get_terminal_size  # noqa: PLC0415  # 0.6 MB; argparse would load it for each option

        Help.width = get_terminal_size().columns - 2
        raise HelpAsked(self.format_help().rstrip("\n"))

    def _reworded(self, message: str) -> str:
        """Return argparse's message in our words, since its own differ between Python versions."""
        if found := re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL):
            return self._unknown(found[1].partition("=")[0] if found[1].startswith("-") else found[1])
        if found := re.fullmatch(r"the following arguments are required: (.*)", message):
            return f"{found[1]} is missing"
        if not (found := re.fullmatch(r"argument (.*?): (.*)", message, re.DOTALL)):
            return message
        name, fault = found[1].rpartition("/")[2], found[2]
        if word := re.match(r"invalid choice: ['\"](.*?)['\"](?: \(|, )", fault, re.DOTALL):
            if name == "COMMAND":
                return f"{word[1]}: no such command{_nearest(word[1], COMMANDS)}"
            choices = next(one.choices for one in self._actions if name in (one.metavar, *one.option_strings)) or ()
            return f"{name} {word[1]}: no such choice; choose from: {', '.join(choices)}"
        plain = {"expected one argument": ": needs a value", "ignored explicit argument": ": takes no value"}
        return name + next((ours for theirs, ours in plain.items() if fault.startswith(theirs)), f" {fault}")

    def _unknown(self, word: str) -> str:
        if word.startswith("-"):
            near = similar(word, self._option_string_actions, 1)
            return f"{word}: no such option{f'; did you mean {near[0]}?' if near else ''}"
        if word in COMMANDS:
            return f"{word}: a command must come first: agent {word} ..."
        return f"{word}: neither an option nor a command; write a command to wrap after --"


def _nearest(word: str, known: Iterable[str]) -> str:
    near = similar(word, known, 1)
    return f"; did you mean {near[0]}?" if near else f"; choose from: {', '.join(known)}"


def parser(at_top: Sequence[Row] = (*EVERYDAY, *RUN)) -> Parser:
    """Return the parser of the command line up to `--`; `at_top` are the options of `run` that its help shows."""
    top = Parser(
        prog="agent",
        usage="agent [run] [OPTION ...] [-- COMMAND ...]\n       agent COMMAND [OPTION ...]",
        description="Collects metrics of this machine and its accelerators, and sends them to cloud monitoring.",
        epilog="Every option is also a key of the configuration file and an environment variable: --common-dims is"
        " common_dims and CHIPWATCH_COMMON_DIMS. `agent help COMMAND` lists the options of a command.",
        allow_abbrev=False,
        add_help=False,
        formatter_class=Help,
    )
    commands = top.add_subparsers(dest="command", title="commands", metavar="COMMAND", prog="agent")
    top.commands = commands.choices
    for name, text in COMMANDS.items():
        made = commands.add_parser(
            name, help=text, description=text, allow_abbrev=False, conflict_handler="resolve", formatter_class=Help
        )
        if name in CONFIGURED:
            made.usage, made.epilog = f"agent {name} [OPTION ...]", f"Names of --common-dims: {', '.join(WORDS)}."
            _add(made, OPTIONS)
        _add(made, OWN.get(name, ()))
    shown = top.add_argument_group("everyday options of `run`")
    _add(shown, (*at_top, ("-h --help", "", "print this text", {"action": "help"})))
    _add(shown, [("-V --version", "", "print the version")])
    return top


def _add(to: Any, rows: Iterable[Row]) -> None:
    for flags, value, text, *more in rows:
        options: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS}
        if not value:
            options["action"] = "store_true"
        else:
            options |= {"metavar": value, "action": "append" if value.endswith(",...") else "store"}
        to.add_argument(*flags.split(), **options | dict(*more))


def _check_values(given: Sequence[str]) -> None:
    """Raise ConfigError for `--option=--`, which argparse would take for the end of the options."""
    if odd := next((word for word in given if word.startswith("--") and word.endswith("=--")), None):
        raise ConfigError(f"{odd[:-3]}: -- is no value of an option")


def parse(argv: Sequence[str]) -> tuple[argparse.Namespace, list[str]]:
    """Return the parsed arguments and the command after `--`; raise ConfigError."""
    given, command = list(argv), []
    if wrong := next((word for word in given if not is_utf8(word)), None):
        raise ConfigError(f"argument {wrong!a}: expected UTF-8")
    if "--" in given:
        at = given.index("--")
        given, command = given[:at], given[at + 1 :]
        if not command:
            raise ConfigError("--: no command follows; write agent [OPTION ...] -- COMMAND")
    _check_values(given)
    first = given[0] if given else "run"
    if first in ("-V", "--version"):
        given = ["version"]
    elif first == "help":
        given = [*given[1:], "--help"]
    elif not given or (first.startswith("-") and first not in ("-h", "--help")):
        given.insert(0, "run")
    top = parser()
    try:
        found, unknown = top.parse_known_args(given)
        if unknown:
            top.commands[found.command].error(f"unrecognized arguments: {unknown[0]}")
    except HelpAsked as asked:
        return argparse.Namespace(command="help", text=str(asked)), []
    if command and found.command != "run":
        raise ConfigError(f"{found.command}: takes no command after --; only run does")
    return found, command


def flags(given: argparse.Namespace) -> dict[str, Any]:
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
