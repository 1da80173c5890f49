"""Records on a collector's standard input, which name the instance that they describe."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

from agent.identity.source import Answer, Source


class Records(Source):
    """Makes the identity wait for values from records; the collector passes them to `Identity.offer`."""

    name: ClassVar[str] = "records"
    words: ClassVar[Collection[str]] = ("instance_id", "instance_type", "ami_id", "availability_zone", "region")

    def is_here(self) -> bool:
        """Return True: records are expected."""
        return True

    def ask(self, wanted: Collection[str]) -> Answer:
        """Return that no record has named the instance yet."""
        del wanted
        return Answer(trouble="no record has named the instance yet", retry=True)
