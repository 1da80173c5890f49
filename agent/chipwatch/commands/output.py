"""Prints texts on standard output, and lines on standard error: also what a slow command waits for."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import textwrap
from collections.abc import Iterator
from threading import Timer
from typing import Final, TextIO

from chipwatch.base.redaction import one_line
from chipwatch.contract.errors import os_text

OK: Final = 0
FAILED: Final = 1
SLOW: Final = 2.0
"""Seconds of silence that people take for a hang."""


class NotPrinted(Exception):
    """Standard output cannot be written. The message says why; it is empty if the reader has closed the pipe."""


def open_standard_streams() -> None:
    """Open /dev/null for each closed standard stream: otherwise the next file that is opened would get its output."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def close_standard_error() -> None:
    """Flush standard error before the exit."""
    if sys.stderr is not None:
        try:
            sys.stderr.flush()
        except OSError:
            _redirect_to_null(sys.stderr)


def _redirect_to_null(stream: TextIO) -> None:
    """Redirect a broken stream to /dev/null; otherwise the interpreter prints an error when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def show(text: str, *, may_be_closed: bool = False) -> int:
    """
    Print a text on standard output; return OK. Raise NotPrinted.

    `may_be_closed`: the exit code has the answer, too, so a closed standard output is not an error.
    """
    if sys.stdout is None and not may_be_closed:
        raise NotPrinted("it is closed")
    try:
        print(text, flush=sys.stdout is not None)
    except OSError as problem:
        _redirect_to_null(sys.stdout)
        raise NotPrinted(*([] if isinstance(problem, BrokenPipeError) else [os_text(problem)])) from problem
    return OK


def wrapped(head: str, text: str, width: int) -> list[str]:
    """Return `text` in lines of at most `width` characters: the first behind `head`, the others indented as much."""
    indent = " " * len(head)
    wrapper = textwrap.TextWrapper(width, head, indent, break_long_words=False, break_on_hyphens=False)
    return wrapper.wrap(text)


def report(problem: Exception | str, code: int) -> int:
    """Print a problem as one line on standard error; return `code`."""
    tell(f"chipwatch: {one_line(str(problem))}")
    return code


def tell(line: str) -> None:
    """Print a line on standard error, if it exists."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(line, file=sys.stderr)


@contextlib.contextmanager
def say_if_slow(text: str, descriptor: int = 2) -> Iterator[None]:
    """Print `text` if the block takes longer than SLOW seconds, on standard error if that is a terminal."""

    def say() -> None:
        with contextlib.suppress(OSError):
            os.write(descriptor, f"chipwatch: {text}\n".encode())

    if not os.isatty(descriptor):
        yield
        return
    timer = Timer(SLOW, say)
    timer.daemon = True
    with contextlib.suppress(RuntimeError):  # no thread can be started
        timer.start()
    try:
        yield
    finally:
        timer.cancel()
