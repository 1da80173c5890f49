"""The base of collectors whose reading never waits."""

from __future__ import annotations

from chipwatch.contract.collector import Collector


class PromptCollector(Collector):
    """A collector that reads what the kernel answers from its memory, or asks on another thread."""

    def waits(self) -> bool:
        return False
