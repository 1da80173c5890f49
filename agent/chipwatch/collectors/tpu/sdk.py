"""
Values of libtpu's SDK, asked by a child process of ours: python -c "from libtpu.sdk import tpumonitoring".

Each question holds the interpreter's lock until libtpu answers, and libtpu asks Google's metadata service first: where
that refuses, libtpu 0.0.52 repeats each of its questions 30 times. The texts are as `description()` of each metric
says in libtpu 0.0.52.
"""

from __future__ import annotations

import importlib
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from chipwatch.collectors.tpu.metrics import LINK_FAULT, OF_SDK, TENSORCORE, THROTTLED, DeviceValues
from chipwatch.contract.datapoint import Metric
from chipwatch.host.records import ChildReader, own_program, print_records

LIMIT: Final = 30
"""Seconds that all answers of one reading may take; then the process is ended, and started again later."""
MOST: Final = 4096
"""Values of a metric that are taken."""


class Sdk(ChildReader[Metric, Mapping[Any, float]]):
    """The SDK in the user's libtpu; create it only where a TPU exists, since libtpu may abort without one."""

    name = "libtpu"

    def __init__(self, folder: Path, interval: float, clock: Callable[[], float]) -> None:
        """`folder` has the package libtpu; `interval`: seconds between two ticks."""
        command = [*own_program("chipwatch.collectors.tpu.sdk"), str(folder), str(max(1.0, interval)), *OF_SDK]
        super().__init__(command, interval, clock, timeout=LIMIT)

    def _take(self, values: Mapping[str, Any], problems: list[str]) -> DeviceValues:
        readings: DeviceValues = {}
        for name, texts in values.items():
            metric = OF_SDK[name]
            if isinstance(texts, list):
                try:
                    readings[metric] = values_of(metric, texts[:MOST])
                except ValueError:
                    problems.append(f"libtpu: {name}: ValueError")
            elif metric is TENSORCORE:  # older releases lack the others
                problems.append(f"libtpu: {name}: {texts}")
        return readings

    def __str__(self) -> str:
        return self.name


def values_of(metric: Metric, texts: Sequence[str]) -> dict[Any, float]:
    """Return the values by the number of the device, or the name of the link; raise ValueError."""
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
    """Print records for the agent: the folder that has the package libtpu, the period (s), the names of metrics."""
    folder, period, *names = sys.argv[1:]
    sys.path.append(folder)
    print_records(records(float(period), names))


def records(period: float, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield a record once libtpu is loaded, and then one each period (s); a metric without values has its error."""
    try:
        monitoring = importlib.import_module("libtpu.sdk").tpumonitoring
    except ImportError as problem:
        yield {"unavailable": f"libtpu: {problem}"}
        return
    yield {"source": "libtpu"}
    while True:
        signal.alarm(LIMIT + 10)  # the kernel ends this process if libtpu hangs, also where the agent was killed
        values: dict[str, object] = {}
        for name in names:
            try:
                values[name] = [str(value) for value in monitoring.get_metric(name).data()]
            except (RuntimeError, ValueError, TypeError) as problem:
                values[name] = type(problem).__name__
        signal.alarm(0)
        yield {"source": "libtpu", "values": values}
        time.sleep(period)
