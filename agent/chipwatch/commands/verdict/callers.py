"""Who asks for a verdict, and the exit code by which each understands it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

STARTED: Final = time.monotonic()
"""When this program began to load its modules, one of the first of which this is (monotonic seconds)."""


class Codes(NamedTuple):
    """Exit codes; what could not be determined, wrong usage included, never has the code of `not_fit`."""

    fit: int
    degraded: int
    not_fit: int
    unknown: int


CALLERS: Final = {
    "person": Codes(0, 0, 1, 2),
    "slurm": Codes(0, 0, 1, 0),  # Prolog: any other code than 0 drains the node
    "npd": Codes(0, 0, 1, 2),  # node-problem-detector: pkg/custompluginmonitor/types (OK, NonOK, Unknown)
    "nagios": Codes(0, 1, 2, 3),  # OK, WARNING, CRITICAL, UNKNOWN of the plugin guidelines
}
FIT, DEGRADED, NOT_FIT, UNKNOWN = VERDICTS = ("fit", "degraded", "not fit", "unknown")


def code_of(verdict: str, caller: str) -> int:
    """Return the exit code of a verdict for a caller."""
    return CALLERS[caller][VERDICTS.index(verdict)]


def code_of_failure(argv: Sequence[str]) -> int | None:
    """Return the exit code where no verdict was reached: for another command None, for a misspelt caller 0."""
    if not argv or argv[0] != "verdict":
        return None
    caller = "person"
    for word, following in zip(argv, [*argv[1:], ""], strict=True):
        if word == "--for":
            caller = following
        elif word.startswith("--for="):
            caller = word.removeprefix("--for=")
    return code_of(UNKNOWN, caller) if caller in CALLERS else 0
