"""The records that a collector reads from standard input, which name the instance that they are about."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from agent.identity.names import known_by
from agent.identity.source import Answer, Source


class Records(Source):
    """Knows nothing by itself: what readings tell is offered to the identity. Here so that it is waited for."""

    name: ClassVar[str] = "records"
    words: ClassVar[Collection[str]] = known_by(name)

    def is_here(self) -> bool:
        """Say yes: records are to come."""
        return True

    def ask(self, wanted: Collection[str]) -> Answer:
        """Say that no record has told yet."""
        del wanted
        return Answer(trouble="no record has named the instance yet", retry=True)
