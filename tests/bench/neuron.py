"""Cost of a record of neuron-monitor, from its bytes to datapoints."""

import os
import tempfile
from itertools import count
from pathlib import Path

from tests.bench.figure import CannotMeasure, Effort, Figure, cpu_ms
from tests.doubles.fake_neuron_monitor import line

from chipwatch.collectors.neuron import NeuronCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given

TICKS = 20
CORES = 32
SIZES = {450: (32, 23, 6.0), 50: (2, 38, 0.8)}
"""kB of a record: runtimes, models loaded in each, ms of CPU that it may cost. Both sizes were seen on trn1n.32xlarge."""


def neuron_records(effort: Effort) -> list[Figure]:
    """Feed records of both sizes through a pipe, and count the series of the larger one."""
    figures = []
    for size, (runtimes, models, asked) in SIZES.items():
        record = line(runtimes=runtimes, cores=CORES, models=models)
        if not 0.9 * size <= len(record) / 1000 <= 1.1 * size:
            raise CannotMeasure(f"the record has {len(record) / 1000:.0f} kB instead of {size}")
        for level in (Level.BASIC, Level.ALL):
            values, series = _ticks(record, level, effort.rounds)
            how = (
                f"CPU of one tick at level {level.name.lower()}: a record of {len(record) / 1000:.0f} kB, {runtimes} runtimes x"
                f" {CORES} cores, {models} models each, from a pipe to {series} datapoints; mean of {TICKS} ticks"
            )
            figures.append(Figure(f"neuron record of {size} kB, {level.name.lower()}", "ms", asked, values, how))
            if runtimes == CORES and level is Level.BASIC:
                merged = _utilizations(record)
                how = f"series of neuron.core.utilization of {runtimes} runtimes that each list {CORES} cores"
                figures.append(Figure("neuron utilization series", "", float(CORES), [float(merged)], how))
    return figures


class Fed:
    """A collector whose standard input is a pipe of ours; nothing else of this machine is read."""

    def __init__(self, level: Level, folder: str) -> None:
        reading, self._writing = os.pipe()
        config = NeuronCollector.Config(stdin=True, interval=1.0, proc=Path(folder), sys=Path(folder))
        self.collector = NeuronCollector(config, stdin=reading)
        self.collector.open(Given(level=level))  # makes the pipe hold a record
        self._ends = (reading, self._writing)
        os.set_blocking(self._writing, False)

    def write(self, record: bytes) -> None:
        if os.write(self._writing, record) < len(record):
            raise CannotMeasure("a pipe does not hold a whole record here (/proc/sys/fs/pipe-max-size)")

    def close(self) -> None:
        self.collector.close()
        for end in self._ends:
            os.close(end)


def _ticks(record: bytes, level: Level, rounds: int) -> tuple[list[float], int]:
    found = 0

    def tick(at: int) -> None:
        nonlocal found
        found = len(list(fed.collector.collect(at)))

    def one_round() -> float:
        spent = 0.0
        for _ in range(TICKS):
            fed.write(record)
            spent += cpu_ms(tick, 1, 0)
        return spent / TICKS

    with tempfile.TemporaryDirectory() as folder:
        fed = Fed(level, folder)
        try:
            one_round()
            return [one_round() for _ in range(rounds)], found
        finally:
            fed.close()


def _utilizations(record: bytes) -> int:
    with tempfile.TemporaryDirectory() as folder:
        fed = Fed(Level.BASIC, folder)
        try:
            fed.write(record)
            points = next(filter(None, (list(fed.collector.collect(at)) for at in count(1))))
            return len([point for point in points if point.metric.name == "neuron.core.utilization"])
        finally:
            fed.close()
