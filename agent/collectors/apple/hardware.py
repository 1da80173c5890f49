"""
The GPU of Apple silicon, asked without a tool: what IOReport, the registry of devices and the SMC say of it.

None of the three is documented by Apple, and this has never run on a Mac: it was written from what other open programs
do, and is tested with a fake of the functions that it calls.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from agent.collectors.apple.foundation import Foundation, Libraries
from agent.collectors.apple.metrics import Values, readings
from agent.collectors.apple.registry import Registry
from agent.collectors.apple.report import STATES, Report, Stretch
from agent.collectors.apple.smc import Smc
from agent.errors import Unavailable
from agent.host.gpu_metrics import CLOCK_GRAPHICS, MEMORY_USED, POWER, TEMPERATURE, UTILIZATION

BUSY: Final = "Device Utilization %"
MEMORY: Final = "In use system memory"


class Hardware:
    """Asks each of the three for what it knows; what one of them does not have is absent."""

    def __init__(self, libraries: Libraries, clock: Callable[[], float]) -> None:
        """Take where macOS has its functions, and a clock (s); raise Unavailable where there is no GPU to read."""
        self._report: Report | None = None
        self._smc: Smc | None = None
        with ExitStack() as undo:
            foundation = Foundation(libraries)
            undo.callback(foundation.close)
            self._registry = Registry(foundation, libraries)
            if self._registry.in_virtual_machine():
                raise Unavailable("no Apple GPU: this is a virtual machine")
            try:
                self._report = Report(foundation, libraries, self._registry.clocks(), clock)
                undo.callback(self._report.close)
            except Unavailable as problem:
                if self._registry.statistics(BUSY, MEMORY) == [None, None]:
                    raise Unavailable(f"no Apple GPU: {problem}, and no IOAccelerator has statistics") from problem
            try:
                self._smc = Smc(self._registry)
                undo.callback(self._smc.close)
            except Unavailable:  # there is no temperature
                pass
            self._undo = undo.pop_all()

    def read(self, problems: list[str]) -> Values:
        """Return what is known now."""
        stretch = self._report.read(problems) if self._report else Stretch()
        busy, memory = self._registry.statistics(BUSY, MEMORY)
        if self._report and STATES[-1] in self._report.names:  # one source for all readings, the better one
            utilization = stretch.busy
        else:
            utilization = busy if busy is not None and busy <= 100 else None
        read = [
            (UTILIZATION, utilization),
            (MEMORY_USED, memory),
            (TEMPERATURE, self._smc.temperature() if self._smc else None),
            (POWER, stretch.power),
            (CLOCK_GRAPHICS, None if stretch.clock is None else stretch.clock / 1e6),
        ]
        try:
            return readings("macOS", read)
        except ValueError as problem:
            problems.append(str(problem))
            return []

    def close(self) -> None:
        """Release everything; safe to call twice."""
        self._undo.close()

    def __str__(self) -> str:
        """Say who is asked."""
        parts = ["IOReport" if self._report else "", "IOAccelerator", str(self._smc) if self._smc else ""]
        return f"{', '.join(filter(None, parts))}; no macmon"
