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

from chipwatch.collectors.tpu.runtime import CORE, LINKS, THROTTLE, RuntimeValues
from chipwatch.host.records import ChildReader, own_program, print_records

LIMIT: Final = 30
"""Seconds that all answers of one reading may take; then the process is ended, and started again later."""
KEYS: Final = {"tensorcore_util": CORE, "tpu_throttle_score": THROTTLE, "ici_link_health": LINKS}
"""Metrics that gRPC does not have: https://docs.cloud.google.com/tpu/docs/tpu-monitoring-library ."""
MOST: Final = 4096
"""Values of a metric that are taken."""


class Sdk(ChildReader[str, Mapping[Any, float]]):
    """The SDK in the user's libtpu; create it only where a TPU exists, since libtpu may abort without one."""

    name = "libtpu"

    def __init__(self, folder: Path, interval: float, clock: Callable[[], float]) -> None:
        """`folder` has the package libtpu; `interval`: seconds between two ticks."""
        command = [*own_program("chipwatch.collectors.tpu.sdk"), str(folder), str(max(1.0, interval)), *KEYS]
        super().__init__(command, interval, clock, timeout=LIMIT)

    def _take(self, values: Mapping[str, Any], problems: list[str]) -> RuntimeValues:
        readings: RuntimeValues = {}
        for name, texts in values.items():
            key = KEYS[name]
            if isinstance(texts, list):
                try:
                    readings[key] = values_of(key, texts[:MOST])
                except ValueError:
                    problems.append(f"libtpu: {name}: ValueError")
            elif key == CORE:  # older releases lack the others
                problems.append(f"libtpu: {name}: {texts}")
        return readings

    def __str__(self) -> str:
        return self.name


def values_of(key: str, texts: Sequence[str]) -> dict[Any, float]:
    """Return the values by the number of the device, or the name of the link; raise ValueError."""
    numbers: dict[Any, float] = {}
    for index, text in enumerate(texts):
        device, _, value = text.rpartition("-" if key == THROTTLE else ":")  # 1-10, tray1.chip3.ici0.int: 0
        if key == LINKS:
            numbers[device.strip()] = float(value)
        elif key == THROTTLE:
            numbers[int(device)] = float(value)
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
