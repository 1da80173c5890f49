"""Events: the content of a recording beside samples."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

LATEST: Final = 2**63 - 1
Moment = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
"""Nanoseconds since the epoch, until the year 2262."""


WHY: Final = "why"
"""Cause of an event that says why a job is slow; it begins no incident."""


class Event(msgspec.Struct):
    """An event at a moment (ns since the epoch): a cause in a word, a sentence, dimensions such as the job."""

    at: Moment
    cause: str
    text: str = ""
    dims: dict[str, str] = {}
