"""Errors, named after the side at fault: a plugin raises one, the frame decides what to do."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Mapping, Sequence
from typing import Final

OS_WORDS: Final[Mapping[int, str]] = {
    errno.ECONNREFUSED: "nothing listens there",
    errno.ECONNRESET: "the other side has ended the connection",
    errno.EHOSTUNREACH: "no host answers at this address",
    errno.ENETUNREACH: "this machine has no network to it",
    errno.EADDRNOTAVAIL: "this machine has no such address",
    errno.EADDRINUSE: "another program uses it",
    errno.ENOSPC: "the disk is full",
    errno.EFBIG: "the file would be larger than this user may write (`ulimit -f`)",
    errno.EMFILE: "too many files are open (`ulimit -n`)",
}
"""Errors of the system that need other words than its own."""
NAME_WORDS: Final[Mapping[str, str]] = {"NONAME": "no such host name", "AGAIN": "the name server does not answer"}
"""The same for the EAI_ errors of names of hosts."""


def os_text(problem: BaseException) -> str:
    """Return an error of the system in plain words, with the system's own in brackets; never raise."""
    own = getattr(problem, "strerror", None) or text_of(problem)
    number = getattr(problem, "errno", None)
    words = OS_WORDS.get(number) if isinstance(number, int) else None
    if type(problem).__name__ == "gaierror":
        words = next((text for name, text in NAME_WORDS.items() if number == getattr(socket, f"EAI_{name}", 0)), None)
    return f"{words} ({own})" if words else own


def file_of(problem: BaseException) -> str | None:
    """Return the file that an error of the system is about, None if it names none."""
    return getattr(problem, "filename", None)


def text_of(problem: BaseException) -> str:
    """Return the message of `problem`, or its type if the message is empty; never raise."""
    with contextlib.suppress(BaseException):
        return str(problem) or type(problem).__name__
    return "its __str__ raises"


class CommandError(Exception):
    """The command cannot do what is asked: the message says what is wrong and what to do; `code` is the exit code."""

    code = 1


class ConfigError(CommandError):
    """An option, variable or file is wrong: one line that names it, the value, and what would be right."""

    code = 2


class Unavailable(Exception):
    """
    The host has no such thing; say what is missing and where you looked.

    Raised by a collector's `open`. One INFO line, and `open` is tried again every few minutes. `is_counted`: the
    driver answered, and has none; else it may only be out of reach. `is_silent`: a driver is there, and does not
    answer.
    """

    def __init__(self, message: str = "", *, is_counted: bool = False, is_silent: bool = False) -> None:
        """Take what is missing, whether that is the driver's own count, and whether a driver does not answer."""
        super().__init__(message)
        self.is_counted, self.is_silent = is_counted, is_silent


class PartlyCollected(Exception):
    """
    Some devices could not be read; raised by `collect` after its last yield.

    The points that it yielded stand; each problem is counted, and logged once.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        """Take one sentence for each thing that could not be read."""
        super().__init__("; ".join(problems))
        self.problems = problems


class Retryable(Exception):
    """The wire or the service failed: the same batch may succeed after a back-off, or in `after` seconds."""

    after: float | None = None

    def __init__(self, message: str, *, after: float | None = None) -> None:
        """Take what failed and, if the far side named it, the delay in seconds."""
        super().__init__(message)
        self.after = after


class Refused(Exception):
    """The set-up is at fault (role, name, quota), the data is fine: it is kept, and the error is logged."""


class BadBatch(Exception):
    """Something in the batch is at fault, and the answer does not say what: the frame halves the batch."""


class SinkClosed(Exception):
    """The far side has left for good and wants no more: the frame ends this sink without complaint."""


class InputEnded(Exception):
    """
    A collector's input has ended for good; raised by `collect` after its last yield.

    `clean`: the input ended between two records; else the message says what was cut. `problems` as in PartlyCollected.
    """

    def __init__(self, message: str, *, clean: bool, problems: Sequence[str] = ()) -> None:
        """Take the kind of the end, and the problems in the last bytes."""
        super().__init__(message)
        self.clean = clean
        self.problems = problems
