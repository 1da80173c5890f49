"""The cost of standard output: none."""

from __future__ import annotations

from collections.abc import Iterable

from chipwatch.contract.advice import Advisor, Cost, Load


class StdoutAdvisor(Advisor):
    """Says that nothing is charged."""

    def costs(self, load: Load) -> Iterable[Cost]:
        return ()
