"""The events in a recording: moments at which something happened, such as an incident."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

LATEST: Final = 2**63 - 1
Moment = Annotated[int, msgspec.Meta(ge=0, le=LATEST)]
"""Nanoseconds since the epoch; the last one is in the year 2262."""


WHY, ENDED = "why", "ended"
"""Causes of events that start no incident: why a job is slow, and that the command after `--` has ended well."""


class Event(msgspec.Struct):
    """Something that happened `at` a moment: its cause in a word, a sentence, and dimensions such as the job."""

    at: Moment
    cause: str
    text: str = ""
    dims: dict[str, str] = {}
