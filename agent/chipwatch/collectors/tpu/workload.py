"""Datapoints of a workload: the time of its programs, and its traffic between slices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from chipwatch.collectors.tpu.message import Distribution, is_number, merged
from chipwatch.collectors.tpu.runtime import DELIVERY, PROGRAMS, ROUND_TRIP
from chipwatch.datapoint import Datapoint, Dimensions, Level, counter, gauge
from chipwatch.host.counters import Counters

PROGRAM_TIME: Final = gauge(
    "tpu.program.time", "s", "Time from queueing a compiled program (HLO) to its start.", Level.ALL,
    ("tpu", "statistic"))  # fmt: skip
OPERATIONS: Final = counter(
    "tpu.multislice.operations", "{operation}", "Transfers between slices, collectives, and their steps on the host.",
    Level.DETAILED, ("operation", "size"))  # fmt: skip
OPERATION_TIME: Final = counter(
    "tpu.multislice.time", "s", "Time of all of these operations.", Level.DETAILED, ("operation", "size"))  # fmt: skip
RTT: Final = gauge(
    "tpu.multislice.round_trip", "s", "Least round-trip time of a connection to another slice, mean since the start.",
    Level.DETAILED)  # fmt: skip
RATE: Final = gauge(
    "tpu.multislice.rate", "Gbit/s", "Rate of delivery to other slices, mean since the start of the job.",
    Level.DETAILED)  # fmt: skip
METRICS: Final = PROGRAM_TIME, OPERATIONS, OPERATION_TIME, RTT, RATE
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99.9": 0.999}
MICROSECOND: Final = 1e-6
MEGABIT: Final = 1e-3
"""Gbit in a megabit."""
MAX_MEAN: Final = 1e15
MOST: Final = 64
"""Sizes of one operation, or devices."""


def points(at: int, distributions: Mapping[str, Mapping[str, Distribution]], counters: Counters) -> Iterator[Datapoint]:
    """Yield the points of distributions by metric and label; those named cumulative never fall while the job runs."""
    for key, parts in distributions.items():
        if key in (ROUND_TRIP, DELIVERY) and parts:  # labelled by connection
            mean = merged([*parts.values()]).mean
            if 0 <= mean < MAX_MEAN:
                yield RTT.point(at, mean * MICROSECOND) if key == ROUND_TRIP else RATE.point(at, mean * MEGABIT)
            continue
        for label, part in list(parts.items())[:MOST]:
            if not 0 <= part.mean < MAX_MEAN:
                continue
            if key == PROGRAMS and is_number(label):
                quantiles = {name: part.quantile(share) for name, share in QUANTILES.items()}
                for name, value in {"mean": part.mean, **quantiles}.items():
                    if value is not None:
                        dims = Dimensions(tpu=label, statistic=name)
                        yield PROGRAM_TIME.point(at, value * MICROSECOND, dims)
            elif key != PROGRAMS:
                dims = Dimensions(operation=key, size=label or "all")
                yield counters.point(OPERATIONS, at, part.number, dims)
                yield counters.point(OPERATION_TIME, at, part.mean * part.number * MICROSECOND, dims)
