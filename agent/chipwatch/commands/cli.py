"""The command line; the only module that prints and exits."""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, TextIO

from chipwatch.commands.command_line import flags, parse
from chipwatch.contract.errors import CommandError, os_text, text_of
from chipwatch.contract.redaction import one_line
from chipwatch.contract.text import line_width
from chipwatch.contract.version import build
from chipwatch.verdict.callers import code_of_failure

if TYPE_CHECKING:
    from chipwatch.config.options import Config

OK: Final = 0
FAILED: Final = 1
RECORDINGS: Final = (".chipwatch", ".jsonl", ".jsonl.gz")
"""Ends of the names of recordings."""
INTERRUPTED: Final = 130
"""Exit code of a shell after Ctrl-C."""


class NotPrinted(Exception):
    """Standard output cannot be written; the message says why, and is empty if the reader has closed it."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the program and exit."""
    _open_standard_streams()
    argv = sys.argv[1:] if argv is None else argv
    failed = code_of_failure(argv)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        given, command = parse(argv)
        if given.command != "run" or command:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        code = COMMANDS[given.command](given) if given.command in COMMANDS else _with_config(given, command)
    except BaseException as problem:
        code = _ended_by(problem, for_good=failed is not None)
        code = code if failed is None else failed
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:
            _redirect_to_null(sys.stderr)
    sys.exit(code)


def _ended_by(problem: BaseException, *, for_good: bool) -> int:
    """
    Print why the command ended, and return its exit code; raise a bug again unless `for_good`.

    The interpreter would end with 1 after a bug, which is the exit code of a verdict.
    """
    match problem:
        case CommandError():
            return _report(problem, problem.code)
        case KeyboardInterrupt():  # outside of a run, which handles the signal itself
            return INTERRUPTED
        case NotPrinted():
            return _report(f"standard output: {problem}", FAILED) if problem.args else OK
        case MemoryError() | ImportError():
            return _report(f"{str(problem) or 'out of memory'}; raise the limit of memory (`ulimit -v`)", FAILED)
        case RuntimeError() if "new thread" in str(problem):
            return _report(f"{problem}; raise the limit of memory or processes (`ulimit -v`, `ulimit -u`)", FAILED)
        case Exception() if for_good:
            return _report(f"no verdict: {type(problem).__name__}: {text_of(problem)}", FAILED)
    raise problem


# -- standard streams -----------------------------------------------------------------------------------------------


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


def _print(text: str) -> int:
    """Print on standard output if it exists, and return OK; raise NotPrinted."""
    try:
        print(text, flush=sys.stdout is not None)
    except OSError as problem:
        _redirect_to_null(sys.stdout)
        raise NotPrinted(*([] if isinstance(problem, BrokenPipeError) else [os_text(problem)])) from problem
    return OK


def _report(problem: Exception | str, code: int) -> int:
    _tell(f"chipwatch: {one_line(str(problem))}")
    return code


def _tell(line: str) -> None:
    """Print a line on standard error, if it exists."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr)


# -- commands; each loads what it needs, since `chipwatch health` runs every few seconds ------------------------------


def _health(given: SimpleNamespace) -> int:
    from chipwatch.commands import health  # noqa: PLC0415

    good, line = health.probe(given)
    _print(one_line(line))
    return OK if good else FAILED


def _answer(given: SimpleNamespace) -> int:
    """Print the running agent's answer to `chipwatch status`, `chipwatch jobs` or `chipwatch why`."""
    import json  # noqa: PLC0415

    from chipwatch.commands import answers, health  # noqa: PLC0415

    if any(hasattr(given, name) for name in ("since", "job", "format", "prometheus")):
        from chipwatch.commands.ended_jobs import listing  # noqa: PLC0415

        return _print(listing(given))
    answer = health.question(given, "jobs" if given.command == "why" else given.command)
    if given.command == "why":
        if not hasattr(given, "json"):
            return _print(answers.why_text(answer, given.name))
        answer = {"jobs": answers.chosen(answer, given.name)}
    elif given.command == "jobs":
        from chipwatch.report.devices import groups  # noqa: PLC0415

        answer = {**answer, "groups": groups(answer)}
    if hasattr(given, "json"):
        return _print(json.dumps(answer, indent=1))
    if given.command == "jobs":
        return _print(answers.jobs_text(answer))
    return _print(answers.status_text(answer, verbose=hasattr(given, "verbose")))


def _verdict(given: SimpleNamespace) -> int:
    from chipwatch.commands import verdict  # noqa: PLC0415

    logging.disable(logging.ERROR)  # the verdict says what is wrong
    text, code = verdict.run(given)
    _print(text)
    return code


def _list(given: SimpleNamespace) -> int:
    from chipwatch.advisor import catalogue  # noqa: PLC0415
    from chipwatch.logs import formats  # noqa: PLC0415

    formats.to_stderr("warning")
    asked = {key: value for key, value in vars(given).items() if key != "command"}
    return _print(catalogue.listing(**asked, width=line_width(sys.maxsize)))


def _module(name: str) -> Any:
    """Return a module that only a few commands need."""
    return import_module(f"chipwatch.{name}")


TEXTS: Final[Mapping[str, Callable[[SimpleNamespace], str | Iterable[str]]]] = {
    "report": lambda given: _module("report.page.build").write(given.files, given.output, given.price, given.grid),
    "fleet": lambda given: _module("commands.fleet").printed(given),
    "incidents": lambda given: _module("commands.recordings").listing(given),
    "export": lambda given: _module("commands.recordings").export(given),
    "sample-config": lambda given: _module("commands.sample").sample_config(given.name),
    "completion": lambda given: _module("commands.completion").completion(given.shell),
    "version": lambda _: f"chipwatch {build()}",
    "help": lambda given: given.text,
}
"""Command -> function that returns what to print."""


def _text(given: SimpleNamespace) -> int:
    """Print the text of a command, or its parts as they come."""
    text = TEXTS[given.command](given)
    for part in (text,) if isinstance(text, str) else text:
        _print(part)
    return OK


COMMANDS: Final[Mapping[str, Callable[[SimpleNamespace], int]]] = {
    "health": _health,
    "verdict": _verdict,
    "list": _list,
    **dict.fromkeys(("status", "jobs", "why"), _answer),
    **dict.fromkeys(TEXTS, _text),
}


def _with_config(given: SimpleNamespace, command: Sequence[str]) -> int:
    """Run a command that takes the options of the configuration."""
    from chipwatch.config.load import load  # noqa: PLC0415
    from chipwatch.logs import formats  # noqa: PLC0415

    _ignore_timers()
    formats.to_stderr("warning")
    read = partial(load, getattr(given, "config", None), flags(given), wraps=bool(command) or given.command == "record")
    config = read()
    formats.to_stderr(config.log_level or "warning", config.log_format)
    if any(hasattr(given, name) for name in ("seal", "job", "code")):
        from chipwatch.commands.recordings import seal  # noqa: PLC0415

        return _print(seal(config, given))
    if given.command in ("run", "record"):
        from chipwatch.commands import run  # noqa: PLC0415

        if given.command == "record":
            from chipwatch.commands import recordings  # noqa: PLC0415

            config, given.record = recordings.to_record(config, getattr(given, "file", None))
        options: dict[str, Any] = {name: getattr(given, name, None) for name in ("duration", "record")}
        options["beside"] = getattr(given, "summary", None), getattr(given, "parent", None)
        again = partial(read, again=True)
        return run.run(config, command, once=hasattr(given, "once"), tell=_tell, load=again, **options)
    return {"check": _check, "plan": _plan, "dashboard": _dashboard, "top": _top}[given.command](config, given)


def _ignore_timers() -> None:
    """Let timers that a plugin sets end nobody; a program that the agent starts has the system's behaviour again."""
    for number in (signal.SIGALRM, signal.SIGVTALRM, signal.SIGPROF):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda *_: None)
            atexit.register(signal.signal, number, signal.SIG_IGN)  # Python's exit restores SIG_DFL


def _top(config: Config, given: SimpleNamespace) -> int:
    from chipwatch.top import program  # noqa: PLC0415

    asked = {key: getattr(given, key) for key in ("colors", "replay") if hasattr(given, key)}
    if hasattr(given, "interval") and config.interval:
        asked["interval"] = config.interval
    if any(word.endswith(RECORDINGS) or Path(word).is_file() for word in given.hosts):
        asked["replay"] = [*asked.get("replay", ()), *map(Path, given.hosts)]
    elif given.hosts or hasattr(given, "prometheus"):
        from chipwatch.commands import fleet  # noqa: PLC0415

        return fleet.top(given, program.TopOptions(**asked))
    return program.run(config, program.TopOptions(**asked))


def _plan(config: Config, given: SimpleNamespace) -> int:
    from chipwatch.advisor.plan import estimate, text  # noqa: PLC0415
    from chipwatch.contract.advice import Terms  # noqa: PLC0415

    logging.disable(logging.WARNING)
    terms = Terms(**{key: getattr(given, key) for key in Terms._fields})
    machine = {key: getattr(given, key) for key in ("families", "devices") if hasattr(given, key)}
    plan = estimate.make(config, given.hosts, terms, **machine)
    _print(text.as_json(plan) if getattr(given, "format", None) == "json" else text.as_text(plan))
    return FAILED if plan.failed or any(sink.rejected for sink in plan.sinks) else OK


def _dashboard(config: Config, given: SimpleNamespace) -> int:
    from chipwatch.advisor.dashboard import make, options  # noqa: PLC0415

    logging.disable(logging.WARNING)
    dashboard = make.make(config, options.options(given))
    for note in dashboard.notes:
        _report(note, OK)
    return _print(dashboard.text)


def _check(config: Config, given: SimpleNamespace) -> int:
    from chipwatch.commands import bundle, capture, check  # noqa: PLC0415

    logging.disable(logging.ERROR)  # each line of the report says what is wrong
    for option in ("bundle", "capture"):
        if hasattr(given, option):
            bundle.check_new(Path(getattr(given, option)), f"--{option}")
    recorded = capture.Capture(config) if hasattr(given, "capture") else None
    lines, faults, missing, machine = [], [], [], dict[str, str]()
    for good, line in check.check(config, machine, send=hasattr(given, "send")):
        lines.append(one_line(line))
        if not good:
            faults.append(lines[-1])
        elif (name := check.name_if_absent(lines[-1])) and not hasattr(given, "verbose"):
            missing.append(name)
        else:
            _print(lines[-1])
    if missing:
        _print(f"absent here: {', '.join(missing)} (-v says why)")
    _print("\n".join((*faults, check.summary(lines, len(faults)))))
    if hasattr(given, "bundle"):
        bundle.pack(Path(given.bundle), config, lines, machine)
        _print(f"bundle     {given.bundle}: read it before you send it; names, addresses and secrets are replaced")
    if recorded:
        recorded.write(Path(given.capture))
        _print(f"capture    {given.capture}: read it before you send it; identifiers are replaced")
    return FAILED if faults else OK
