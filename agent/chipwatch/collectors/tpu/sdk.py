"""
Values of libtpu's SDK, asked by a child process of ours: python -c "from libtpu.sdk import tpumonitoring".

Each question holds the interpreter's lock until libtpu answers, and libtpu asks Google's metadata service first: where
that refuses, libtpu 0.0.52 repeats each of its questions 30 times. The texts are as `description()` of each metric
says in libtpu 0.0.52.
"""

from __future__ import annotations

import importlib
import json
import re
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from chipwatch.collectors.tpu.runtime import CORE, DUTY, LINKS, QUEUE, THROTTLE, TOTAL, USED, RuntimeValues
from chipwatch.host.records import ChildReader, own_program

LIMIT: Final = 30
"""Seconds that all answers of one reading may take; then the process is ended, and started again later."""
NAMES: Final = {
    USED: "hbm_capacity_usage", TOTAL: "hbm_capacity_total", DUTY: "duty_cycle_pct", CORE: "tensorcore_util",
    THROTTLE: "tpu_throttle_score", LINKS: "ici_link_health", QUEUE: "hlo_queue_size",
}  # fmt: skip
"""https://docs.cloud.google.com/tpu/docs/tpu-monitoring-library ."""
NEWER: Final = frozenset({THROTTLE, LINKS, QUEUE})
"""Metrics that older releases lack."""
ONLY_HERE: Final = CORE, THROTTLE, LINKS
"""Metrics that the runtime's gRPC service does not have."""
MOST: Final = 4096
"""Values of a metric that are taken."""


class Sdk(ChildReader[str, Mapping[Any, float]]):
    """The SDK in the user's libtpu; create it only where a TPU exists, since libtpu may abort without one."""

    name = "libtpu"

    def __init__(self, folder: Path, keys: Sequence[str], interval: float, clock: Callable[[], float]) -> None:
        """`folder` has the package libtpu; `keys` of NAMES are read; `interval`: seconds between two ticks."""
        self._keys = {NAMES[key]: key for key in keys}
        period = str(max(1.0, interval))
        command = [*own_program("chipwatch.collectors.tpu.sdk"), str(folder), period, *self._keys]
        super().__init__(command, interval, clock, timeout=LIMIT)

    def _take(self, values: Mapping[str, Any], problems: list[str]) -> RuntimeValues:
        readings: RuntimeValues = {}
        for name, texts in values.items():
            key = self._keys[name]
            if isinstance(texts, list):
                try:
                    readings[key] = values_of(key, texts[:MOST])
                except ValueError:
                    problems.append(f"libtpu: {name}: ValueError")
            elif key not in NEWER:
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
        elif key == QUEUE:  # 1-TENSORCORE: 10; in the description tensorcore_1: 10
            if not (number := re.search(r"\d+", device)):
                raise ValueError(text)
            numbers[int(number[0])] = numbers.get(int(number[0]), 0) + float(value)
        else:
            numbers[index] = float(text)
    return numbers


def main() -> None:
    """Print records for the agent: the folder that has the package libtpu, the period (s), the names of metrics."""
    folder, period, *names = sys.argv[1:]
    sys.path.append(folder)
    with suppress(OSError):  # the agent no longer reads
        for record in records(float(period), names):
            sys.stdout.write(json.dumps(record) + "\n")
            sys.stdout.flush()


def records(period: float, names: Sequence[str]) -> Iterator[dict[str, object]]:
    """Yield a record once libtpu is loaded, and then one each period (s); a metric without values has its error."""
    try:
        monitoring = importlib.import_module("libtpu.sdk").tpumonitoring
    except ImportError as problem:
        yield {"unavailable": f"{problem}; install chipwatch with the extra 'tpu'"}
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
