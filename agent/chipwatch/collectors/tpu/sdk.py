"""
Reads values of libtpu's SDK (libtpu.sdk.tpumonitoring) in a child process.

A call holds the interpreter's lock until libtpu answers. libtpu first asks Google's metadata service; if that
refuses, libtpu 0.0.52 repeats each request 30 times. The format of values is that of `description()` in 0.0.52.
"""

from __future__ import annotations

import importlib
import json
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from chipwatch.collectors.tpu.metrics import LINK_FAULT, OF_SDK, TENSORCORE, THROTTLED, DeviceValues
from chipwatch.contract.datapoint import Metric
from chipwatch.contract.errors import Unavailable
from chipwatch.host.records import RecordSource, parse_record
from chipwatch.host.supervised_process import STARTUP

LIMIT: Final = 30
"""Seconds for all answers of one reading; after that, the process is ended and started again later."""
MOST: Final = 4096
"""Most values of a metric."""
RUN: Final = "import sys; sys.path.insert(0, sys.argv.pop(1)); from chipwatch.collectors.tpu.sdk import main; main()"
PACKAGES: Final = str(Path(__file__).parents[3])


class Sdk(RecordSource[Metric, Mapping[Any, float]]):
    """The SDK in the user's libtpu. Create it only if a TPU exists: without one, libtpu may abort."""

    name = "libtpu"
    complete_after = 2  # the first record says only that libtpu is loaded

    def __init__(self, folder: Path, interval: float, clock: Callable[[], float]) -> None:
        """`folder`: has the package libtpu; `interval`: seconds between two ticks."""
        isolated = sys.executable, "-I", "-c", RUN, PACKAGES  # without PYTHONPATH and the working directory
        super().__init__([*isolated, str(folder), str(max(1.0, interval)), *OF_SDK], interval, clock, timeout=LIMIT)
        self._early: Sequence[str] = ()

    def open(self) -> None:
        """Start the program and wait for its first record, at most STARTUP seconds; raise Unavailable."""
        super().open()
        deadline, problems = time.monotonic() + STARTUP, list[str]()
        self._early = problems
        while not self.description:
            self._listen(problems)
            if self._process.failures or time.monotonic() >= deadline:
                raise Unavailable("; ".join(problems) or f"{self.name} gives no answer in {STARTUP:g} s")
            time.sleep(0.01)
        self.wait_for_values(self.period)

    def read(self, problems: list[str]) -> DeviceValues:
        """Return the values, as RecordSource does; the first call also adds the problems while it was opened."""
        problems += self._early
        self._early = ()
        return super().read(problems)

    def _parse(self, line: bytes, problems: list[str]) -> DeviceValues:
        record = parse_record(self.name, line)
        if "unavailable" in record:
            raise (ValueError if self.description else Unavailable)(str(record["unavailable"]))
        self.description = self.name
        readings: DeviceValues = {}
        for name, texts in record.get("values", {}).items():
            metric = OF_SDK[name]
            if isinstance(texts, list):
                try:
                    readings[metric] = values_of(metric, texts[:MOST])
                except ValueError:
                    problems.append(f"libtpu: {name}: ValueError")
            elif metric is TENSORCORE:  # older releases lack the other metrics
                problems.append(f"libtpu: {name}: {texts}")
        return readings

    def __str__(self) -> str:
        return self.name


def values_of(metric: Metric, texts: Sequence[str]) -> dict[Any, float]:
    """Parse texts; return the number of each device, or the name of each link, with its value. Raise ValueError."""
    numbers: dict[Any, float] = {}
    for index, text in enumerate(texts):
        device, _, value = text.rpartition("-" if metric is THROTTLED else ":")  # 1-10, tray1.chip3.ici0.int: 0
        if metric is LINK_FAULT:
            numbers[device.strip()] = float(value)
        elif metric is THROTTLED:
            numbers[int(device)] = 10 * float(value)
        else:
            numbers[index] = float(text)
    return numbers


def main() -> None:
    """Print records for the agent. Arguments: the folder with libtpu, the period (s), the names of metrics."""
    folder, period, *names = sys.argv[1:]
    sys.path.append(folder)
    with suppress(OSError):  # the agent no longer reads
        for record in records(float(period), names):
            sys.stdout.write(f"{json.dumps(record)}\n")
            sys.stdout.flush()


def records(period: float, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield a record once libtpu is loaded, then one every `period` seconds; a failed metric has its error's name."""
    try:
        monitoring = importlib.import_module("libtpu.sdk").tpumonitoring
    except ImportError as problem:
        yield {"unavailable": f"libtpu: {problem}"}
        return
    yield {}
    while True:
        signal.alarm(LIMIT + 10)  # the kernel ends this process if libtpu hangs, even after the agent was killed
        values: dict[str, object] = {}
        for name in names:
            try:
                values[name] = [str(value) for value in monitoring.get_metric(name).data()]
            except (RuntimeError, ValueError, TypeError) as problem:
                values[name] = type(problem).__name__
        signal.alarm(0)
        yield {"values": values}
        time.sleep(period)
