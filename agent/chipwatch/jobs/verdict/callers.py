"""The programs that call `chipwatch verdict`, and the exit codes that each expects."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

from chipwatch.base.text import similar

STARTED: Final = time.monotonic()
"""Start of this program (monotonic seconds): this module is one of the first that it loads."""


class Codes(NamedTuple):
    """Exit codes of one caller. Wrong usage counts as unknown; unknown never has the code of `not_fit`."""

    fit: int
    degraded: int
    not_fit: int
    unknown: int


CALLERS: Final = {
    "person": Codes(0, 0, 1, 2),
    "slurm": Codes(0, 0, 1, 0),  # Prolog: any other code than 0 drains the node
    # node-problem-detector: pkg/custompluginmonitor/types (OK, NonOK, Unknown); a controller is called as that is
    **dict.fromkeys(("npd", "kubernetes"), Codes(0, 0, 1, 2)),
    "nagios": Codes(0, 1, 2, 3),  # OK, WARNING, CRITICAL, UNKNOWN of the plugin guidelines
}
FIT, DEGRADED, NOT_FIT, UNKNOWN = VERDICTS = ("fit", "degraded", "not fit", "unknown")


def code_of(verdict: str, caller: str) -> int:
    """Return the exit code of a verdict for a caller."""
    return CALLERS[caller][VERDICTS.index(verdict)]


def code_of_failure(argv: Sequence[str]) -> int | None:
    """
    Return the exit code if no verdict was reached: None for other commands, 0 for an invalid caller.

    If any word names a caller, return that caller's code for an unknown verdict, also if --for or verdict is misspelt.
    """
    words = [word.lower() for word in takewhile(lambda word: word != "--", argv)]
    options = [word.partition("=")[0] for word in words if word.startswith("-")]
    given = [following for word, following in pairwise(words) if word == "--for"]
    parts = [part for word in words for part in re.split(r"^--?for|\W+", word)]  # --for:npd, --fornpd, --npd
    named = [word for word in (*given[::-1], *parts) if word in CALLERS]
    if words[:1] != ["verdict"] and not (named and any(similar(word, ["verdict"]) for word in words)):
        return None
    if named:
        return code_of(UNKNOWN, named[0])
    is_for = any(word.startswith(("--fo", "-fo")) or similar(word, ["--for"]) for word in options)
    return 0 if is_for else code_of(UNKNOWN, "person")
