"""
The metrics of TPUs: a table with a row for each name of the runtime or of libtpu's SDK.

The functions before the table encode and decode the runtime's gRPC messages, as far as they are needed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from chipwatch.contract.datapoint import Datapoint, Dimensions, Level, Metric, counter, gauge
from chipwatch.host.counters import Counters
from chipwatch.net.protobuf import FIXED64, LENGTH, VARINT, fields, messages, text_in, varints, wired

DOUBLE = struct.Struct("<d")
ValuesByDevice = dict[int, float]
"""Number of a device or chip -> value."""
LONGEST = 64
"""Most characters of a label."""
ORDINAL = "device_ordinal"
"""Label with the number of the device, if there are several labels."""


class Distribution(NamedTuple):
    """A histogram: the first bucket ends at `scale`, and each further bound is `growth` times the one before."""

    number: int
    mean: float
    scale: float = 0
    growth: float = 0
    buckets: Sequence[int] = ()

    def quantile(self, share: float) -> float | None:
        """Return the quantile `share` (0 to 1), interpolated within its bucket; None if unknown."""
        if self.growth <= 1 or self.scale <= 0 or sum(self.buckets) != self.number:
            return None
        rank, below = share * self.number, 0
        for index, inside in enumerate(self.buckets):
            if inside and below + inside >= rank:
                with suppress(OverflowError):
                    low = self.scale * self.growth ** (index - 1) if index else 0
                    high = self.scale * self.growth**index
                    return low + (high - low) * (rank - below) / inside
            below += inside
        return None


def encode(name: str) -> bytes:
    """Encode a MetricRequest; `name` must be shorter than 128 bytes."""
    return b"\x0a" + bytes([len(name)]) + name.encode()


def gauges(data: bytes) -> ValuesByDevice:
    """Decode a MetricResponse with one value for each device; raise ValueError if it is malformed."""
    values: ValuesByDevice = {}
    for labels, metric in _labelled(data):
        index, value = next((int(text) for text in labels.values() if is_number(text)), None), _gauge(metric)
        if index is None or value is None or index in values:
            raise ValueError("the answer does not have exactly one value for each device")
        values[index] = value
    return values


def _gauge(metric: bytes, kind: int = 3) -> float | None:
    """Return Metric.gauge, or the field `kind`, such as Metric.counter, as a number; None if absent."""
    for content in messages(metric, kind):
        for number, wire, value in wired(content):
            if number == 1 and wire == FIXED64 and isinstance(value, bytes):
                return float(*DOUBLE.unpack(value))
            if number == 2 and isinstance(value, int) and value < 1 << 63:  # larger values are negative
                return value
    return None


def queued(data: bytes) -> ValuesByDevice:
    """Decode a MetricResponse with sizes of queues; add them up for each device. Raise ValueError if malformed."""
    sizes: ValuesByDevice = {}
    for labels, metric in _labelled(data):
        device, size = labels.get(ORDINAL, ""), _gauge(metric)
        if not is_number(device) or size is None:
            raise ValueError("the answer does not have a size for each queue")
        sizes[int(device)] = sizes.get(int(device), 0) + size
    return sizes


def totals(data: bytes) -> dict[str, float]:
    """Decode a MetricResponse to labels -> number; equal labels are added up. Raise ValueError if malformed."""
    numbers: dict[str, float] = {}
    for labels, metric in _labelled(data):
        for kind in (3, 4):
            if (value := _gauge(metric, kind)) is not None:
                numbers[repr(labels)] = numbers.get(repr(labels), 0) + value
    return numbers


def distributions(data: bytes, label: str) -> dict[str, Distribution]:
    """
    Decode a MetricResponse; return each value of the label `label` with its histogram. Raise ValueError if malformed.

    Histograms with the same value are merged. A metric without the label is found by its first label, as in tpu-info.
    """
    by_label: dict[str, list[Distribution]] = {}
    for labels, metric in _labelled(data):
        name = (labels.get(label) or next(iter(labels.values()), ""))[:LONGEST]
        by_label.setdefault(name, []).extend(_distribution(content) for content in messages(metric, 5))
    return {name: merged(parts) for name, parts in by_label.items() if any(part.number for part in parts)}


def merged(parts: Sequence[Distribution]) -> Distribution:
    """Merge histograms, which must not all be empty; the result has no buckets if their bounds differ."""
    count = sum(part.number for part in parts)
    mean = sum(part.mean * part.number for part in parts) / count
    first = parts[0]
    if any(part[2:4] != first[2:4] or len(part.buckets) != len(first.buckets) for part in parts):
        return Distribution(count, mean)
    return Distribution(
        count, mean, first.scale, first.growth, [*map(sum, zip(*(p.buckets for p in parts), strict=True))]
    )


def _labelled(data: bytes) -> Iterator[tuple[dict[str, str], bytes]]:
    """Yield each Metric of a MetricResponse with its labels."""
    for metrics in messages(data, 1):  # TPUMetric
        for metric in messages(metrics, 3):
            lists = [part for one in messages(metric, 1) for part in messages(one, 2)]
            listed = [attribute for part in lists for labels in messages(part, 6) for attribute in messages(labels, 1)]
            yield {key: text for one in (*messages(metric, 1), *listed) for key, text in _labels(one)}, metric


def _labels(attribute: bytes) -> Iterator[tuple[str, str]]:
    """Yield the key and value of an Attribute, if the value is a text or a number."""
    for value in messages(attribute, 2):
        for number, content in fields(value):
            if number == 1 and isinstance(content, bytes):
                yield text_in(attribute, 1), content.decode("utf-8", "replace")
            elif number == 3 and isinstance(content, int):
                yield text_in(attribute, 1), str(content)


def _distribution(data: bytes) -> Distribution:
    count, mean, buckets = 0, 0.0, list[int]()
    scale = growth = 0.0
    for number, wire, value in wired(data):
        if (number, wire) == (1, VARINT) and isinstance(value, int) and value < 1 << 63:
            count = value
        elif (number, wire) == (2, FIXED64) and isinstance(value, bytes):
            (mean,) = DOUBLE.unpack(value)
        elif (number, wire) == (6, LENGTH) and isinstance(value, bytes):
            for exponential in messages(value, 2):
                parts = {key: content for key, content in fields(exponential) if isinstance(content, bytes)}
                growth, scale = (
                    DOUBLE.unpack(part)[0] if len(part := parts.get(key, b"")) == 8 else 0.0 for key in (2, 3)
                )
        elif number == 7:
            buckets += varints(value) if isinstance(value, bytes) else [value]
    return Distribution(count, mean, scale, growth, buckets)


def is_number(text: str) -> bool:
    """Return True if a text is the number of a device."""
    return text.isascii() and text.isdigit() and len(text) <= 10 and int(text) < 1 << 31


DEVICE: Final = ("tpu",)
# fmt: off
DUTY_CYCLE: Final = gauge("tpu.duty_cycle", "%", "Share of time in which the chip worked.", dims=DEVICE)
MEMORY_USED: Final = gauge("tpu.memory.used", "By", "High-bandwidth memory in use.", dims=DEVICE)
MEMORY_TOTAL: Final = gauge("tpu.memory.total", "By", "High-bandwidth memory of the device.", dims=DEVICE)
MEMORY_UTILIZATION: Final = gauge("tpu.memory.utilization", "%", "Share of the memory in use.", dims=DEVICE)
TENSORCORE: Final = gauge(
    "tpu.tensorcore.utilization", "%", "Operations of the tensor core, of its maximum.", Level.DETAILED, DEVICE)
THROTTLED: Final = gauge(
    "tpu.throttled", "%", "Reduction of the device's speed by throttling, in steps of 10 %.", Level.DETAILED, DEVICE)
LINK_FAULT: Final = gauge(
    "tpu.link.fault", "1", "Fault of a link between chips: 0 none, 1 to 5 transient, 6 to 9 minor, 10 unusable.",
    Level.DETAILED, ("link",))
OPERATIONS: Final = counter(
    "tpu.multislice.operations", "{operation}", "Transfers between slices, collectives, and their steps on the host.",
    Level.DETAILED, ("operation", "size"))
OPERATION_TIME: Final = counter(
    "tpu.multislice.time", "s", "Time of all of these operations.", Level.DETAILED, ("operation", "size"))
# fmt: on
QUANTILES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99.9": 0.999}
MICROSECOND: Final = 1e-6
MEGABIT: Final = 1e-3
"""Gbit in a Mbit."""
MAX_MEAN: Final = 1e15
MOST: Final = 64
"""Most sizes of one operation, and most devices."""


class RuntimeRow(NamedTuple):
    """A metric of the runtime, and how its answer becomes points."""

    metric: Metric
    decode: Callable[[bytes], Mapping[Any, Any]]
    """Decodes an answer to values by device or by labels; raises ValueError."""
    points: Callable[[RuntimeRow, int, Any, Counters], Iterator[Datapoint]] | None = None
    """Yields the points of an answer at a time (ns since the epoch); None if it has one value for each device."""
    unit: float = 1
    """Factor from the runtime's unit to the metric's unit."""
    operation: str = ""


def _mean(row: RuntimeRow, at: int, parts: Mapping[str, Distribution], _: Counters) -> Iterator[Datapoint]:
    """Yield the mean over all connections."""
    if parts and 0 <= (mean := merged([*parts.values()]).mean) < MAX_MEAN:
        yield row.metric.point(at, mean * row.unit)


def _quantiles(row: RuntimeRow, at: int, parts: Mapping[str, Distribution], _: Counters) -> Iterator[Datapoint]:
    """Yield the mean and the quantiles of each device."""
    for device, part in [*parts.items()][:MOST]:
        if is_number(device) and 0 <= part.mean < MAX_MEAN:
            quantiles = {name: part.quantile(share) for name, share in QUANTILES.items()}
            for name, value in {"mean": part.mean, **quantiles}.items():
                if value is not None:
                    yield row.metric.point(at, value * row.unit, Dimensions(tpu=device, statistic=name))


def _operations(row: RuntimeRow, at: int, parts: Mapping[str, Distribution], counters: Counters) -> Iterator[Datapoint]:
    """Yield the number of operations and their time, by size; they never decrease while the job runs."""
    for size, part in [*parts.items()][:MOST]:
        if 0 <= part.mean < MAX_MEAN:
            dims = Dimensions(operation=row.operation, size=size or "all")
            yield counters.point(OPERATIONS, at, part.number, dims)
            yield counters.point(OPERATION_TIME, at, part.mean * part.number * row.unit, dims)


def _sum(row: RuntimeRow, at: int, totals: Mapping[str, float], counters: Counters) -> Iterator[Datapoint]:
    """Yield the sum of a counter over all labels."""
    if numbers := {labels: value for labels, value in totals.items() if 0 <= value < MAX_MEAN}:
        yield counters.total(row.metric, at, numbers)


def _largest(row: RuntimeRow, at: int, totals: Mapping[str, float], _: Counters) -> Iterator[Datapoint]:
    if numbers := [value for value in totals.values() if 0 <= value < MAX_MEAN]:
        yield row.metric.point(at, max(numbers))


_by_size: Final = partial(distributions, label="buffer-size")


def _operation(word: str) -> RuntimeRow:
    return RuntimeRow(OPERATIONS, _by_size, _operations, MICROSECOND, word)


# fmt: off
ROWS: Final = {
    "tpu.runtime.hbm.memory.usage.bytes": RuntimeRow(MEMORY_USED, gauges),
    "tpu.runtime.hbm.memory.total.bytes": RuntimeRow(MEMORY_TOTAL, gauges),
    "tpu.runtime.tensorcore.dutycycle.percent": RuntimeRow(DUTY_CYCLE, gauges),
    "tpu.runtime.hbm.utilization.percent": RuntimeRow(gauge(
        "tpu.memory.activity", "%", "Share of the memory's bandwidth in use.", Level.DETAILED, DEVICE), gauges),
    "tpu.runtime.tensorcore.idle_duration.seconds": RuntimeRow(gauge(
        "tpu.tensorcore.idle", "s", "Time for which the tensor core has been idle.", Level.DETAILED, DEVICE), gauges),
    "hlo.queue.size.gauge": RuntimeRow(gauge(
        "tpu.program.queued", "{program}", "Compiled programs (HLO) that wait for the device.", Level.DETAILED, DEVICE),
        queued),
    "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution": RuntimeRow(gauge(
        "tpu.multislice.round_trip", "s",
        "Least round-trip time of a connection to another slice, mean since the start.", Level.DETAILED),
        _by_size, _mean, MICROSECOND),
    "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution": RuntimeRow(gauge(
        "tpu.multislice.rate", "Gbit/s", "Rate of delivery to other slices, mean since the start of the job.",
        Level.DETAILED), _by_size, _mean, MEGABIT),
    "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution": _operation("send"),
    "megascale.dcn_inbound_transfer_latencies.microsecond.cumulative.distribution": _operation("receive"),
    "megascale.host_to_device_transfer_latencies.microsecond.cumulative.distribution": _operation("host_to_device"),
    "megascale.device_to_host_transfer_latencies.microsecond.cumulative.distribution": _operation("device_to_host"),
    "megascale.collective_end_to_end_latencies.microsecond.cumulative.distribution": _operation("collective"),
    "megascale.mxla_compute_latencies.microsecond.cumulative.distribution": _operation("host_compute"),
    "hlo.execution.timing.distribution.microseconds": RuntimeRow(gauge(
        "tpu.program.time", "s", "Time from queueing a compiled program (HLO) to its start.", Level.ALL,
        ("tpu", "statistic")), partial(distributions, label=ORDINAL), _quantiles, MICROSECOND),
    "megascale.grpc_tcp_packets_sent.cumulative.count": RuntimeRow(counter(
        "tpu.multislice.packets", "{packet}", "TCP packets that were sent to other slices.", Level.ALL), totals, _sum),
    "megascale.grpc_tcp_packets_retransmitted.cumulative.count": RuntimeRow(counter(
        "tpu.multislice.retransmits", "{packet}", "TCP packets that were sent again to other slices.", Level.ALL),
        totals, _sum),
    "megascale.error_count": RuntimeRow(counter(
        "tpu.multislice.errors", "{error}", "Errors of the runtime between slices.", Level.ALL), totals, _sum),
    "tpu.runtime.uptime.seconds.gauge": RuntimeRow(gauge(
        "tpu.runtime.uptime", "s", "Time since the workload's runtime started.", Level.ALL), totals, _largest),
}
"""
The runtime's name -> row. All runtimes have the first three; only jobs on several slices have megascale's names.

The names are from tpu-info 0.14.2; the last four are from libtpu 0.0.52.
"""
# fmt: on
OF_SDK: Final = {"tensorcore_util": TENSORCORE, "tpu_throttle_score": THROTTLED, "ici_link_health": LINK_FAULT}
"""Name in libtpu's SDK -> metric that gRPC lacks: https://docs.cloud.google.com/tpu/docs/tpu-monitoring-library ."""
METRICS: Final = tuple(dict.fromkeys((
    *(row.metric for row in ROWS.values()), OPERATION_TIME, MEMORY_UTILIZATION, *OF_SDK.values(),
)))  # fmt: skip
DeviceValues = dict[Metric, Mapping[Any, float]]
"""Metric -> its values by number of the device or chip, or by name of the link."""
