"""
A program that reads the GPU of Apple silicon from IOReport, the registry of devices and the SMC, and prints records.

It is a process of its own, since a wrong call into these libraries ends the process. Apple documents none of the
three, and this has never run on a Mac: it was written from what other open programs do, and is tested with a fake of
the functions that it calls.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import chain, repeat
from typing import Final

from agent.collectors.apple.foundation import LIBRARIES, Foundation, Libraries
from agent.collectors.apple.metrics import Values, readings
from agent.collectors.apple.registry import Registry
from agent.collectors.apple.report import STATES, Report, Stretch
from agent.collectors.apple.smc import Smc
from agent.errors import Unavailable
from agent.host.gpu_metrics import CLOCK_GRAPHICS, MEMORY_USED, POWER, TEMPERATURE, UTILIZATION

FIRST_PERIOD: Final = 0.5
"""Seconds over which the first means are taken."""
BUSY: Final = "Device Utilization %"
MEMORY: Final = "In use system memory"


class Hardware:
    """Reads the three sources; what one of them lacks is absent."""

    def __init__(self, libraries: Libraries, clock: Callable[[], float]) -> None:
        """Take the paths of macOS's libraries and a clock (s); raise Unavailable where there is no GPU to read."""
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
        """Return the values, means over the time since the last call; add to `problems`."""
        stretch = self._report.read(problems) if self._report else Stretch()
        busy, memory = self._registry.statistics(BUSY, MEMORY)
        if self._report and STATES[-1] in self._report.names:  # never both sources in turn
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
        """Say which sources there are."""
        parts = ["IOReport" if self._report else "", "IOAccelerator", str(self._smc) if self._smc else ""]
        return ", ".join(filter(None, parts))


def main(libraries: Libraries = LIBRARIES) -> None:
    """Print a record now, one after half a second, and then one each period, which is the last argument (s)."""
    period = float(sys.argv[-1])
    try:
        hardware = Hardware(libraries, time.monotonic)
    except Unavailable as error:
        _print({"unavailable": str(error)})
        return
    with closing(hardware):
        for pause in chain([0.0, FIRST_PERIOD], repeat(period)):
            time.sleep(pause)
            problems: list[str] = []
            values = {metric.name: value for metric, value in hardware.read(problems)}
            if not _print({"source": str(hardware), "values": values, "problems": problems}):
                return


def _print(record: object) -> bool:
    """Print a line; tell whether the agent still reads."""
    try:
        sys.stdout.write(json.dumps(record) + "\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True
