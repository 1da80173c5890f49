"""The exceptions that plugins raise. Each is named after the side at fault; the agent decides what to do."""

from __future__ import annotations

import contextlib
import errno
import re
import socket
import sys
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
"""Plain words for errors of the operating system."""
NAME_WORDS: Final[Mapping[int, str]] = {
    socket.EAI_NONAME: "no such host name", socket.EAI_AGAIN: "the name server does not answer",
}  # fmt: skip
"""Plain words for errors of name resolution."""
ERRNO: Final = re.compile(r"\[Errno (\d+)\] ([^:]*)")
"""An OSError in a message, as `str` writes it."""


def os_text(problem: BaseException) -> str:
    """Return an OSError in plain words, with the system's own words in brackets; raise nothing."""
    own = getattr(problem, "strerror", None) or text_of(problem)
    number: int | None = getattr(problem, "errno", None)
    words = (NAME_WORDS if type(problem).__name__ == "gaierror" else OS_WORDS).get(number or 0)
    return f"{words} ({own})" if words else own


def text_of(problem: BaseException) -> str:
    """Return the message of `problem` with errors of the system in plain words; if it is empty, its type."""
    with contextlib.suppress(BaseException):
        return ERRNO.sub(lambda its: os_text(OSError(int(its[1]), its[2])), str(problem)) or type(problem).__name__
    return "its __str__ raises"


def get_extra(extra: str) -> str:
    """Return how to get the libraries of an extra; the packages that bring their own Python lack Google's alone."""
    of_package = "the package chipwatch-google of the same version"
    return f"install {of_package}" if hasattr(sys, "frozen") else f"install chipwatch with the extra '{extra}'"


class CommandError(Exception):
    """The command cannot do what the user asks. The message says why, and what to do; `code` is the exit code."""

    code = 1


class ConfigError(CommandError):
    """An option, variable or file is wrong. The message is one line with its name, its value, and what is expected."""

    code = 2


class Unavailable(Exception):
    """
    This host does not have the source. The message says what is missing, and where the collector looked.

    A collector's `open` raises it. The agent logs it once, and calls `open` again every few minutes. Set `is_counted`
    if the driver answered, and has no device; without it, a device may be there and out of reach. Set `is_silent` if a
    driver is there and does not answer.
    """

    def __init__(self, message: str = "", *, is_counted: bool = False, is_silent: bool = False) -> None:
        """Take the message, and what the driver answered."""
        super().__init__(message)
        self.is_counted, self.is_silent = is_counted, is_silent


class PartlyCollected(Exception):
    """
    Some devices could not be read. Raised by `collect` after its last yield.

    The agent keeps the points that were yielded, counts each problem, and logs it once an hour.
    """

    def __init__(self, problems: Sequence[str]) -> None:
        """Take a sentence for each thing that could not be read."""
        super().__init__("; ".join(problems))
        self.problems = problems


class Retryable(Exception):
    """The network or the service failed. The agent sends the batch again, after `after` seconds if that is set."""

    after: float | None = None

    def __init__(self, message: str, *, after: float | None = None) -> None:
        """Take what failed, and the seconds that the service asked to wait, if it did."""
        super().__init__(message)
        self.after = after


class Refused(Exception):
    """The set-up is at fault (a role, a name, a quota), not the data. The agent keeps the data, and logs the error."""


class BadBatch(Exception):
    """A point of the batch is at fault, and the answer does not say which. The agent halves the batch to find it."""


class SinkClosed(Exception):
    """The reader has gone for good, such as the end of a pipe. The agent then ends this sink without an error."""


class InputEnded(Exception):
    """
    The collector's input has ended for good. Raised by `collect` after its last yield.

    `clean` is True if the input ended between two records; otherwise the message says what was cut off. `problems` are
    as in PartlyCollected.
    """

    def __init__(self, message: str, *, clean: bool, problems: Sequence[str] = ()) -> None:
        """Take how the input ended, and the problems in its last bytes."""
        super().__init__(message)
        self.clean = clean
        self.problems = problems
