"""Entry point of the command line: runs the function of a command, and exits with its code."""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import SimpleNamespace
from typing import Final

from chipwatch.commands.cli_options import TABLES
from chipwatch.commands.command_line import parse
from chipwatch.commands.output import FAILED, OK, NotPrinted, close_standard_error, open_standard_streams, report, show
from chipwatch.contract.errors import CommandError, text_of
from chipwatch.jobs.verdict.callers import code_of_failure

INTERRUPTED: Final = 130
"""Exit code after Ctrl-C, as shells use it."""
FUNCTIONS: Final[Mapping[str, str]] = TABLES["functions"]
"""Command -> module and function. A module is loaded when needed: `status --health` runs often and must be fast."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command of `argv` and exit."""
    open_standard_streams()
    argv = sys.argv[1:] if argv is None else argv
    failed = code_of_failure(argv)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        given = parse(argv)
        if given.command != "run" or given.wrapped:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
        code = _run(given)
    except BaseException as problem:
        code = _ended_by(problem, for_good=failed is not None)
        code = code if failed is None else failed
    close_standard_error()
    sys.exit(code)


def _run(given: SimpleNamespace) -> int:
    if given.command == "help":
        return show(given.text)
    module, _, function = FUNCTIONS[given.command].partition(".")
    return int(getattr(import_module(f"chipwatch.commands.{module}"), function)(given))


def _ended_by(problem: BaseException, *, for_good: bool) -> int:
    """
    Print why the command ended, and return its exit code; raise the exception again if it is a bug.

    `for_good`: do not raise a bug either, because the interpreter would exit with 1, which means a verdict.
    """
    match problem:
        case CommandError():
            return report(problem, problem.code)
        case KeyboardInterrupt():  # outside of a run, which handles the signal itself
            return INTERRUPTED
        case NotPrinted():
            return report(f"standard output: {problem}", FAILED) if problem.args else OK
        case MemoryError() | ImportError():
            return report(f"{str(problem) or 'out of memory'}; raise the limit of memory (`ulimit -v`)", FAILED)
        case RuntimeError() if "new thread" in str(problem):
            return report(f"{problem}; raise the limit of memory or processes (`ulimit -v`, `ulimit -u`)", FAILED)
        case Exception() if for_good:
            return report(f"no verdict: {type(problem).__name__}: {text_of(problem)}", FAILED)
    raise problem
