"""Events: the content of a recording beside samples."""

from __future__ import annotations

import msgspec


class Event(msgspec.Struct):
    """An event at a moment (ns since the epoch): a cause in a word, a sentence, dimensions such as the job."""

    at: int
    cause: str
    text: str = ""
    dims: dict[str, str] = {}
