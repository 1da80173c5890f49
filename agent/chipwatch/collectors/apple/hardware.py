"""
A program that reads the GPU of Apple silicon from IOReport, the device registry and the SMC, and prints records.

It is a separate process, because a wrong call into these libraries crashes the process. Apple documents none of the
three sources. The code follows other open programs; it was tested with fakes of the functions, but never on a Mac.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from itertools import chain, repeat
from typing import Final

from chipwatch.collectors.apple.foundation import Foundation, Libraries
from chipwatch.collectors.apple.registry import Registry, Smc
from chipwatch.collectors.apple.report import STATES, Report
from chipwatch.collectors.apple.source import FIRST_PERIOD, ValuesByMetric, valid
from chipwatch.contract.errors import Unavailable
from chipwatch.host.gpu_metrics import MEMORY_USED, TEMPERATURE, UTILIZATION
from chipwatch.host.records import print_records

STATISTICS: Final = "Device Utilization %", "In use system memory"


class AppleHardware:
    """Reads the three sources; a value that none of them has is left out."""

    def __init__(self, libraries: Libraries, clock: Callable[[], float]) -> None:
        """Open the libraries; `clock` returns monotonic seconds. Raise Unavailable without a GPU."""
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
                if self._registry.statistics(*STATISTICS) == [None, None]:
                    raise Unavailable(f"no Apple GPU: {problem}, and no IOAccelerator has statistics") from problem
            with suppress(Unavailable):  # then the temperature is absent
                self._smc = Smc(self._registry)
                undo.callback(self._smc.close)
            self._undo = undo.pop_all()

    def read(self, problems: list[str]) -> ValuesByMetric:
        """Return values, some as means since the last call; append sentences to `problems`."""
        values = self._report.read(problems) if self._report else {}
        busy, memory = self._registry.statistics(*STATISTICS)
        values |= {MEMORY_USED: memory, TEMPERATURE: self._smc.temperature() if self._smc else None}
        if not self._report or STATES[-1] not in self._report.names:  # utilization must always have the same source
            values[UTILIZATION] = busy
        try:
            return valid("macOS", values)
        except ValueError as problem:
            problems.append(str(problem))
            return {}

    def close(self) -> None:
        """Release everything; safe to call twice."""
        self._undo.close()

    def __str__(self) -> str:
        return f"{'IOReport, ' if self._report else ''}IOAccelerator{f', {self._smc}' if self._smc else ''}"


def main(*paths: str) -> None:
    """Print records for the agent; the program's last argument is the period (s)."""
    print_records(records(Libraries(*paths), float(sys.argv[-1])))


def records(libraries: Libraries, period: float) -> Iterator[dict[str, object]]:
    """Yield a record now, one after half a second, then one every `period` seconds."""
    try:
        hardware = AppleHardware(libraries, time.monotonic)
    except Unavailable as error:
        yield {"unavailable": str(error)}
        return
    with closing(hardware):
        for pause in chain([0.0, FIRST_PERIOD], repeat(period)):
            time.sleep(pause)
            problems: list[str] = []
            values = {metric.name: value for metric, value in hardware.read(problems).items()}
            yield {"source": str(hardware), "values": values, "problems": problems}
