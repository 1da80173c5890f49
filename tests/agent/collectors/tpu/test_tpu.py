import dataclasses
import importlib.util
import re
import signal
import struct
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.program import gone
from tests.ports import free_port
from tests.told import devices, processes, reading

from chipwatch.collectors.tpu import CHIPS, TpuCollector, fan_out, find_chips, readings
from chipwatch.collectors.tpu.metrics import MEMORY_TOTAL, MEMORY_USED, distributions, gauges, queued, totals
from chipwatch.collectors.tpu.metrics import OF_SDK as KEYS
from chipwatch.collectors.tpu.sdk import LIMIT
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import Device
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

AT = 1_800_000_000_000_000_000
GIB = 2**30
USAGE = "tpu.runtime.hbm.memory.usage.bytes"
TOTAL = "tpu.runtime.hbm.memory.total.bytes"
DUTY = "tpu.runtime.tensorcore.dutycycle.percent"
CAPTURE = (Path(__file__).parents[3] / "fixtures/tpu/tpu_info.txt").read_text()


def varint(value):
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def field(number, content):
    if isinstance(content, bytes):
        return varint(number << 3 | 2) + varint(len(content)) + content
    if isinstance(content, float):
        return varint(number << 3 | 1) + struct.pack("<d", content)
    return varint(number << 3) + varint(content)


def measured(index, value):
    """Return a Metric: attribute (key, value), timestamp (not needed), gauge."""
    number = field(1, index.encode()) if isinstance(index, str) else field(3, index)
    gauge = field(1, value) if isinstance(value, float) else field(2, value)
    attribute = field(1, b"device-id") + field(2, number)
    return field(1, attribute) + field(2, field(1, 1_753_354_859) + field(2, 5)) + field(3, gauge)


def response(values, name="tpu.x"):
    metrics = b"".join(field(3, measured(index, value)) for index, value in values)
    return field(1, field(1, name.encode()) + field(2, b"what it is") + metrics)


def test_a_response_has_a_value_for_each_device():
    assert gauges(response([(0, 5), (13, 2**40), (9, 0)])) == {0: 5, 13: 2**40, 9: 0}
    assert gauges(response([(0, 99.5), ("7", 0.0)])) == {0: 99.5, 7: 0.0}


def test_unknown_fields_are_skipped():
    new = field(99, 7) + field(98, b"new") + field(97, 1.5) + varint(96 << 3 | 5) + b"abcd"
    metric = measured(3, 4) + new
    assert gauges(new + field(1, new + field(3, metric) + new) + new) == {3: 4}


@pytest.mark.parametrize(
    "metric",
    [
        field(3, field(2, 5)),  # no device
        field(1, field(2, field(3, 1))),  # no value
        field(1, field(2, field(3, 2**64 - 1))) + field(3, field(2, 5)),  # a negative device
        field(1, field(2, field(1, b"x"))) + field(3, field(2, 5)),
        field(1, field(2, field(3, 1))) + field(3, field(2, 2**64 - 1)),  # a negative number of bytes
        field(1, field(2, field(3, 1))) + field(3, field(3, b"12")),  # a text
        field(1, field(2, field(3, 1))) + field(4, field(2, 5)),  # a counter
        field(1, 7) + field(3, 7),
    ],
)
def test_an_ambiguous_value_is_refused(metric):
    with pytest.raises(ValueError, match="the answer does not have exactly one value for each device"):
        gauges(field(1, field(3, metric)))
    with pytest.raises(ValueError, match="exactly one value for each device"):
        gauges(response([(1, 5), (1, 6)]))


def test_a_truncated_response_is_refused():
    whole = response([(0, 5), (1, 6.5)])
    for end in range(1, len(whole)):
        with pytest.raises(ValueError, match="the answer is not a protobuf message"):
            gauges(whole[:end])


@given(st.dictionaries(st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1) | st.floats(), max_size=8))
def test_encoded_values_are_decoded(values):
    assert repr(gauges(response(values.items()))) == repr(values)


def plug(sys_folder, address, vendor, device, subsystem=None):
    folder = sys_folder / "bus/pci/devices" / address
    folder.mkdir(parents=True)
    for name, text in (("vendor", vendor), ("device", device), ("subsystem_device", subsystem)):
        if text:
            (folder / name).write_text(f"{text}\n")


@pytest.fixture
def host(tmp_path):
    """A /sys with a virtual network card and a disk of the same vendor, and another device."""
    plug(tmp_path, "0000:00:03.0", "0x1ae0", "0x0042")
    plug(tmp_path, "0000:00:04.0", "0x1ae0", "0x001f")
    plug(tmp_path, "0000:00:05.0", "0x10de", "0x0063")
    return tmp_path


@pytest.mark.parametrize(("ids", "chip"), CHIPS.items())
def test_every_kind_of_chip_is_detected(host, ids, chip):
    plug(host, "0000:00:06.0", "0x1ae0", *ids)
    plug(host, "0000:00:07.0", "0x1AE0", *ids)
    assert find_chips(host / "bus/pci/devices") == (chip[0], 2, chip[1])


def test_network_cards_of_the_vendor_are_not_tpus(host):
    assert find_chips(host / "bus/pci/devices") is None
    with pytest.raises(Unavailable, match=r"no TPU: no such device of vendor 0x1ae0 in .*/bus/pci/devices"):
        TpuCollector(TpuCollector.Config(sys=host)).open(Given())


@pytest.mark.parametrize(
    ("duty", "devices", "per_chip", "expected"),
    [
        ({0: 50.0, 1: 60.0}, [0, 1], 1, {0: 50.0, 1: 60.0}),
        ({0: 50.0, 1: 60.0}, [0, 1, 2, 3], 2, {0: 50.0, 1: 50.0, 2: 60.0, 3: 60.0}),
        ({5: 60.0, 4: 50.0}, [8, 9, 12, 13], 2, {8: 50.0, 9: 50.0, 12: 60.0, 13: 60.0}),
        ({0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}, [0, 1, 2, 3], 2, {0: 1.0, 1: 2.0, 2: 3.0, 3: 4.0}),  # told by device already
        ({0: 1.0, 1: 2.0}, [8, 9], 1, {8: 1.0, 9: 2.0}),
        ({9: 2.0}, [8, 9], 1, {9: 2.0}),
        ({3: 2.0}, [], 1, {3: 2.0}),
        ({}, [0, 1], 2, {}),
    ],
)
def test_the_duty_cycle_of_a_chip_applies_to_its_devices(duty, devices, per_chip, expected):
    assert fan_out(duty, devices, per_chip) == expected


@pytest.mark.parametrize(
    ("duty", "devices", "per_chip"),
    [({0: 1.0}, [0, 1, 2, 3], 2), ({7: 1.0}, [8, 9], 1), ({0: 1.0, 1: 2.0}, [0], 2), ({0: 1.0}, [], 2), ({0: 1.0, 1: 1.0}, [0, 1, 2], 2)],
)  # fmt: skip
def test_a_wrong_number_of_duty_cycles_is_refused(duty, devices, per_chip):
    with pytest.raises(ValueError, match="expected a value for each chip"):
        fan_out(duty, devices, per_chip)


class Runtime:
    """A gRPC server on loopback that answers as the runtime in a training process."""

    def __init__(self):
        self.answers, self.server, self.asked = {}, None, []
        self.port = free_port()

    def start(self, answers=None):
        import grpc

        self.answers = self.answers if answers is None else answers

        def get(request, context):
            self.asked.append(request)
            for name, answer in self.answers.items():
                if request == field(1, name.encode()):
                    return answer() if callable(answer) else answer
            return context.abort(grpc.StatusCode.NOT_FOUND, "unsupported metric")

        handlers = {"GetRuntimeMetric": grpc.unary_unary_rpc_method_handler(get)}
        self.server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        self.server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler("tpu.monitoring.runtime.RuntimeMetricService", handlers)]
        )
        assert self.server.add_insecure_port(f"127.0.0.1:{self.port}") == self.port
        self.server.start()

    def stop(self):
        if self.server:
            self.server.stop(None).wait()
            self.server = None


@pytest.fixture
def service():
    pytest.importorskip("grpc", reason="grpcio is not installed (extra tpu)")
    made = Runtime()
    yield made
    made.stop()


@pytest.fixture
def v6e(host, service):
    """A collector on a host with four chips of v6e."""
    for n in range(4):
        plug(host, f"0000:00:1{n}.0", "0x1ae0", "0x006f")
    collector = TpuCollector(TpuCollector.Config(sys=host, port=service.port))
    yield collector
    collector.close()


@pytest.fixture
def begin(v6e, service):
    """Start the workload's service with these answers, and open the collector."""

    def begin(answers=None, level=Level.ALL):
        service.start(answers)
        v6e.open(Given(level=level))
        return v6e

    return begin


def tick(collector):
    (points, problems), found = reading(collector, AT), {}
    for point in points:
        assert point.at == AT
        found.setdefault(point.dims["tpu"], {})[point.metric.name] = point.value
    return found, problems


def captured(part):
    """Return used and total bytes and duty cycle by chip, from table `part` of tpu-info."""
    table = CAPTURE.split("TPU Runtime Utilization")[part].split("TensorCore Utilization")[0]
    rows = re.findall(r"\| (\d+) +\| +([\d.]+) GiB / ([\d.]+) GiB +\| +([\d.]+)% \|", table)
    return {
        int(chip): (int(float(used) * GIB), int(float(total) * GIB), float(duty)) for chip, used, total, duty in rows
    }


def answers(values):
    return {
        USAGE: response([(chip, used) for chip, (used, _, _) in values.items()]),
        TOTAL: response([(chip, total) for chip, (_, total, _) in values.items()]),
        DUTY: response([(chip, duty) for chip, (_, _, duty) in values.items()]),
    }


def expected(values):
    return {
        str(chip): {
            "tpu.memory.total": total,
            "tpu.memory.used": used,
            "tpu.memory.utilization": 100 * used / total,
            "tpu.duty_cycle": duty,
        }
        for chip, (used, total, duty) in values.items()
    }


@pytest.mark.parametrize(("part", "chips"), [(1, [0, 1, 2, 3]), (2, [8, 9, 12, 13])])
def test_values_of_a_workload_are_read_over_grpc(begin, v6e, service, part, chips):
    values = captured(part)
    assert list(values) == chips
    begin(answers(values))
    assert tick(v6e) == (expected(values), [])
    assert v6e.describe() == f"4 chips TPU v6e, 127.0.0.1:{service.port}, 4 devices"


def test_a_workload_may_start_and_end(v6e, service):
    values = captured(1)
    service.answers = answers(values)
    v6e.open(Given())
    assert tick(v6e) == ({}, [])
    assert v6e.describe() == f"4 chips TPU v6e, 127.0.0.1:{service.port}, no workload so far"
    for _ in range(2):
        service.start()
        assert tick(v6e) == (expected(values), [])
        service.stop()
        assert tick(v6e) == ({}, [])


def test_lists_may_be_empty_while_a_workload_starts(begin, v6e):
    begin(dict.fromkeys((USAGE, TOTAL, DUTY), b""))
    assert tick(v6e) == ({}, [])


def test_an_unsupported_metric_does_not_affect_the_others(begin, v6e, service):
    values = captured(1)
    service.answers = answers(values)
    del service.answers[TOTAL]
    begin()
    found, problems = tick(v6e)
    assert found["0"] == {"tpu.memory.used": values[0][0], "tpu.duty_cycle": 100.0}
    assert problems == [f"{TOTAL}: NOT_FOUND"]


NEWER = {
    "tpu.runtime.hbm.utilization.percent": (
        "tpu.memory.activity",
        [(0, 61.5), (1, 100.5), (2, float("nan")), (3, 0.0)],
    ),
    "tpu.runtime.tensorcore.idle_duration.seconds": ("tpu.tensorcore.idle", [(0, 1.25), (1, 4000.0), (2, -1.0)]),
}


def test_metrics_of_newer_runtimes_need_level_detailed(v6e, service):
    service.answers = answers(captured(1)) | {name: response(values) for name, (_, values) in NEWER.items()}
    service.start()
    told = {}
    for level in Level:
        v6e.open(Given(level=level))
        found, problems = tick(v6e)
        assert problems == []
        names = [metric for metric, _ in NEWER.values()]
        told[level] = {name: {chip: each[name] for chip, each in found.items() if name in each} for name in names}
    assert told[Level.BASIC] == {"tpu.memory.activity": {}, "tpu.tensorcore.idle": {}}
    assert told[Level.DETAILED] == {
        "tpu.memory.activity": {"0": 61.5, "3": 0.0},
        "tpu.tensorcore.idle": {"0": 1.25, "1": 4000.0},
    }


QUEUE = "hlo.queue.size.gauge"
TIMING = "hlo.execution.timing.distribution.microseconds"
SENT = "megascale.dcn_transfer_latencies.microsecond.cumulative.distribution"
RTT = "megascale.grpc_tcp_min_rtt.microsecond.cumulative.distribution"
DELIVERED = "megascale.grpc_tcp_delivery_rate.Mbps.cumulative.distribution"


def labelled(content, **labels):
    """Return a Metric with a list of labels; a number as an integer."""
    listed = b"".join(
        field(1, field(1, key.replace("_", "-" if key == "buffer_size" else "_").encode())
              + field(2, field(1, word.encode()) if isinstance(word, str) else field(3, word)))
        for key, word in labels.items()
    )  # fmt: skip
    return field(1, field(1, b"labels") + field(2, field(6, listed))) + content


def distribution(count, mean, *buckets, scale=1.0, growth=2.0):
    options = field(2, field(1, len(buckets)) + field(2, growth) + field(3, scale))
    packed = b"".join(map(varint, buckets))
    return field(5, field(1, count) + field(2, mean) + field(6, options) + field(7, packed))


def answer(*metrics):
    return field(1, b"".join(field(3, metric) for metric in metrics))


def test_the_queues_of_a_device_are_added_up():
    sizes = [
        labelled(field(3, field(2, size)), core_type=core, device_ordinal=device)
        for device, core, size in (("0", "TENSORCORE", 3), ("0", "SPARSECORE", 4), (1, "TENSORCORE", 0))
    ]
    assert queued(answer(*sizes)) == {0: 7, 1: 0}
    with pytest.raises(ValueError, match="size for each queue"):
        queued(answer(labelled(field(3, field(2, 3)), core_type="TENSORCORE")))


def test_distributions_of_one_label_are_added_up_and_empty_ones_are_absent():
    parts = [
        labelled(distribution(2, 10.0, 0, 1, 1), buffer_size="8MB+", peer="a"),
        labelled(distribution(6, 2.0, 0, 5, 1), buffer_size="8MB+", peer="b"),
        labelled(distribution(0, 0.0, 0, 0, 0), buffer_size="1MB+"),
        labelled(distribution(1, 5.0), kind="ALL_REDUCE"),
    ]
    found = distributions(answer(*parts), "buffer-size")
    assert {name: (part.number, part.mean, list(part.buckets)) for name, part in found.items()} == {
        "8MB+": (8, 4.0, [0, 6, 2]), "ALL_REDUCE": (1, 5.0, [])
    }  # fmt: skip


def test_a_quantile_lies_in_its_bucket_as_tpu_info_computes_it():
    (part,) = distributions(answer(labelled(distribution(100, 30.0, 0, 10, 40, 40, 10, scale=4.0))), "x").values()
    # tpu-info 0.14.2, _get_percentile(int(100 * share), 100, [0, 10, 40, 40, 10], 4.0, 2.0)
    assert [part.quantile(share) for share in (0.5, 0.9, 0.95)] == [16.0, 32.0, 48.0]
    assert distributions(answer(labelled(distribution(5, 3.0, 1, 1))), "x")[""].quantile(0.5) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data):
    for wrapped in (data, field(1, field(3, field(1, field(2, field(6, data))) + field(5, data)))):
        for read in (gauges, queued, lambda given: distributions(given, "buffer-size")):
            try:
                found = read(wrapped)
            except ValueError:
                continue
            for part in found.values():
                assert isinstance(part, int | float) or part.quantile(0.5) is None or part.quantile(0.5) >= 0


def test_what_a_workload_does_is_read_over_grpc_by_level(v6e, service):
    service.answers = answers(captured(1)) | {
        QUEUE: answer(labelled(field(3, field(2, 5)), device_ordinal="1", core_type="TENSORCORE")),
        TIMING: answer(labelled(distribution(100, 30.0, 0, 10, 40, 40, 10, scale=4.0), device_ordinal="1")),
        SENT: answer(labelled(distribution(4, 250.0, 0, 4), buffer_size="8MB+")),
        RTT: answer(labelled(distribution(10, 150.0), target="a"), labelled(distribution(30, 100.0), target="b")),
        DELIVERED: answer(labelled(distribution(10, 800.0), target="a")),
        "megascale.grpc_tcp_packets_sent.cumulative.count": answer(labelled(field(4, field(2, 900)), target="a"),
                                                                   labelled(field(4, field(2, 100)), target="b")),
        "megascale.grpc_tcp_packets_retransmitted.cumulative.count": answer(labelled(field(4, field(2, 7)))),
        "megascale.error_count": answer(labelled(field(3, field(2, 2)), error_type="x")),
        "tpu.runtime.uptime.seconds.gauge": answer(labelled(field(3, field(1, 61.5)))),
    }  # fmt: skip
    service.start()
    read = {}
    for level in Level:
        v6e.open(Given(level=level))
        read[level] = {
            (point.metric.name, *point.dims.values()): round(point.value, 9)
            for point in v6e.collect(AT)
            if not point.metric.name.startswith(("tpu.memory", "tpu.duty"))
        }
    assert read[Level.BASIC] == {}
    assert read[Level.DETAILED] == {
        ("tpu.program.queued", "1"): 5,
        ("tpu.multislice.operations", "send", "8MB+"): 4,
        ("tpu.multislice.time", "send", "8MB+"): 0.001,
        ("tpu.multislice.round_trip",): 112.5e-6,
        ("tpu.multislice.rate",): 0.8,
    }
    times = {"mean": 30e-6, "p50": 16e-6, "p90": 32e-6, "p95": 48e-6, "p99.9": 63.68e-6}
    more = {("tpu.program.time", name, "1"): value for name, value in times.items()}
    more |= {
        ("tpu.multislice.packets",): 0, ("tpu.multislice.retransmits",): 0, ("tpu.multislice.errors",): 0,
        ("tpu.runtime.uptime",): 61.5,
    }  # fmt: skip
    assert read[Level.ALL] == read[Level.DETAILED] | more


def test_the_packets_of_a_connection_that_ends_are_not_counted_again_with_the_next(v6e, service):
    name = "megascale.grpc_tcp_packets_sent.cumulative.count"
    v6e.open(Given())
    service.start()
    counted = []
    for at, connections in (
        (10, {"a": 900, "b": 100}),
        (20, {"a": 950, "b": 110}),
        (30, {"a": 960}),
        (40, {"a": 970, "b": 5}),
    ):
        packets = (labelled(field(4, field(2, number)), target=target) for target, number in connections.items())
        service.answers = {name: answer(*packets)}
        counted += [(p.value, p.start_time) for p in collected(v6e, at) if p.metric.name == "tpu.multislice.packets"]
    assert counted == [(0, 10), (60, 10), (70, 10), (80, 10)]


@pytest.mark.parametrize("content", [b"", field(5, field(1, 3)), field(3, field(3, b"text")), field(4, b"")])
def test_an_answer_without_a_number_has_no_total(content):
    assert totals(answer(labelled(content))) == {}


def test_a_total_of_zero_is_a_number_and_equal_labels_are_added_up():
    parts = [labelled(field(4, field(2, count)), target=target) for target, count in (("a", 0), ("b", 3), ("b", 4))]
    assert [*totals(answer(*parts)).values()] == [0, 7]


def test_the_counts_of_the_next_workload_begin_again(v6e, service):
    v6e.open(Given(level=Level.DETAILED))

    def read(count, at):
        service.answers = {SENT: answer(labelled(distribution(count, 100.0), buffer_size="8MB+"))}
        return [
            (point.value, point.start_time)
            for point in collected(v6e, at)
            if point.metric.name == "tpu.multislice.operations"
        ]

    service.start()
    assert read(1000, 10) == [(1000, 10)]
    assert read(1500, 20) == [(1500, 10)]
    service.stop()
    assert collected(v6e, 30) == []
    service.start()
    assert read(7, 40) == [(7, 40)]


def collected(collector, at):
    """Return the points of one reading that may lack metrics."""
    return reading(collector, at)[0]


def test_a_malformed_message_does_not_affect_the_others(begin, v6e):
    begin(answers(captured(1)) | {USAGE: b"\xff\xff"})
    found, problems = tick(v6e)
    assert found["3"] == {"tpu.memory.total": int(31.25 * GIB), "tpu.duty_cycle": 100.0}
    assert problems == [f"{USAGE}: the answer is not a protobuf message"]


def test_a_runtime_that_hangs_costs_one_timeout_each_reading(begin, v6e, service, monkeypatch):
    monkeypatch.setattr("chipwatch.collectors.tpu.CALL_TIMEOUT", 0.05)
    freed = threading.Event()
    begin(answers(captured(1)) | {USAGE: lambda: freed.wait(20) and b""})
    try:
        assert tick(v6e) == ({}, [f"{USAGE}: DEADLINE_EXCEEDED"])
        assert len(service.asked) <= 1
    finally:
        freed.set()


def test_no_proxy_is_used(begin, v6e, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("grpc_proxy", "http://127.0.0.1:9")
    begin(answers(captured(1)))
    assert len(tick(v6e)[0]) == 4


def test_a_chip_with_two_devices_shares_its_duty_cycle(host, service):
    for n in range(2):
        plug(host, f"0000:00:1{n}.0", "0x1ae0", "0x0027", "0x004f")
    service.answers = {USAGE: response([(n, 0) for n in range(4)]), DUTY: response([(0, 12.5), (1, 75.0)])}
    service.answers[TOTAL] = response([(n, 16 * GIB) for n in range(4)])
    service.start()
    collector = TpuCollector(TpuCollector.Config(sys=host, port=service.port))
    collector.open(Given())
    found, problems = tick(collector)
    collector.close()
    assert [found[str(n)]["tpu.duty_cycle"] for n in range(4)] == [12.5, 12.5, 75.0, 75.0]
    assert found["2"]["tpu.memory.utilization"] == 0.0
    assert problems == []


def test_impossible_values_are_absent(begin, v6e, service):
    service.answers = {
        USAGE: response([(0, 5), (1, float("nan")), (2, -1.0), (3, float("inf"))]),
        TOTAL: response([(0, 4), (1, 0), (2, float("inf")), (3, float("nan"))]),
        DUTY: response([(0, 100.5), (1, float("nan")), (2, -1.0), (3, 0.0)]),
    }
    begin()
    assert tick(v6e) == ({"0": {"tpu.memory.total": 4, "tpu.memory.used": 5}, "3": {"tpu.duty_cycle": 0.0}}, [])


def test_the_contract_is_kept(v6e, service):
    service.start(answers(captured(1)))
    assert len(check_collector(v6e)) == 48


SDK = """
DATA = {data!r}

class tpumonitoring:
    class Metric:
        def __init__(self, name):
            if name not in DATA:
                raise RuntimeError(name)
            self.name = name
        def data(self):
            return DATA[self.name]
    get_metric = Metric
"""
HANGS = """
import ctypes, os

class tpumonitoring:
    def get_metric(name):
        with open({pids!r}, "a") as file:
            file.write(f"{{os.getpid()}}\\n")
        ctypes.PyDLL(None).pause()  # never returns, and holds the interpreter's lock
"""


@pytest.fixture
def sdk(tmp_path, monkeypatch):
    """Create a libtpu that can be imported."""

    def make(data, error=""):
        folder = tmp_path / "site/libtpu"
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "sdk.py").write_text(error or SDK.format(data=data))
        monkeypatch.syspath_prepend(folder.parent)
        importlib.invalidate_caches()
        return folder.parent

    return make


@pytest.fixture
def with_sdk(v6e):
    """A collector that uses the SDK beside gRPC, without a workload."""
    collector = TpuCollector(dataclasses.replace(v6e._config, sdk=True))
    yield collector
    collector.close()


@pytest.fixture
def hangs(sdk, tmp_path):
    """Create a libtpu whose first question never returns; return the function that reads the pids of its processes."""
    pids = tmp_path / "pids"
    sdk({}, HANGS.format(pids=str(pids)))
    return lambda: [int(line) for line in pids.read_text().split()] if pids.exists() else []


@pytest.mark.parametrize(
    ("wanted", "level", "told"),
    [
        (True, Level.DETAILED, {"0": {"tpu.tensorcore.utilization": 13.6}}),
        (True, Level.BASIC, {}),
        (False, Level.ALL, {}),
    ],
)
def test_with_sdk_set_the_tensor_cores_are_read_beside_grpc(v6e, sdk, wanted, level, told):
    sdk({"tensorcore_util": ["13.60"]})
    collector = TpuCollector(dataclasses.replace(v6e._config, sdk=wanted, port=1))
    collector.open(Given(level=level))
    assert tick(collector) == (told, [])
    assert ("libtpu" in collector.describe()) == bool(told)
    assert "libtpu" not in sys.modules
    collector.close()


@pytest.mark.parametrize(("data", "error"), [({"tensorcore_util": ["N/A"]}, "ValueError"), ({}, "RuntimeError")])
def test_an_invalid_value_of_the_sdk_does_not_affect_the_others(with_sdk, sdk, data, error):
    sdk(data | {"tpu_throttle_score": ["0-1"]})
    with_sdk.open(Given(level=Level.DETAILED))
    assert tick(with_sdk) == ({"0": {"tpu.throttled": 10}}, [f"libtpu: tensorcore_util: {error}"])


def test_the_sdk_reports_throttling_and_links(with_sdk, sdk):
    sdk({name: [] for name in KEYS} | {
        "tpu_throttle_score": ["0-0", "1-1", "3-10", "4-11"],
        "ici_link_health": ["tray1.chip3.ici0.int: 0", "tray1.chip3.ici1.int: 10", "tray1.chip3.ici2.int: 11"],
    })  # fmt: skip
    with_sdk.open(Given(level=Level.DETAILED))
    assert sorted((point.metric.name, *point.dims.values(), point.value) for point in with_sdk.collect(AT)) == [
        ("tpu.link.fault", "tray1.chip3.ici0.int", 0),
        ("tpu.link.fault", "tray1.chip3.ici1.int", 10),
        ("tpu.throttled", "0", 0),
        ("tpu.throttled", "1", 10),
        ("tpu.throttled", "3", 100),
    ]


def test_a_libtpu_that_holds_the_interpreters_lock_costs_its_own_values(v6e, service, hangs, until):
    values = captured(1)
    service.start(answers(values))
    now = [1000.0]
    config = dataclasses.replace(v6e._config, sdk=True, interval=1.0)
    collector = TpuCollector(config, clock=lambda: now[0])
    collector.open(Given(level=Level.DETAILED))
    assert until(hangs)
    assert tick(collector)[0] == expected(values)
    assert until(lambda: tick(collector) == (expected(values), ["libtpu has printed nothing yet"]))
    now[0] += LIMIT + 1
    assert tick(collector) == (expected(values), ["libtpu prints nothing; it is started again later"])
    assert until(lambda: gone(hangs()[0]))
    now[0] += 400
    tick(collector)
    assert until(lambda: len(hangs()) == 2)
    collector.close()
    assert until(lambda: all(map(gone, hangs())))


def test_the_kernel_ends_a_child_without_its_agent_while_libtpu_hangs(hangs, tmp_path):
    code = "from chipwatch.collectors.tpu import sdk; sdk.LIMIT = -9; sdk.main()"
    words = [sys.executable, "-c", code, str(tmp_path / "site"), "1", "duty_cycle_pct"]
    child = subprocess.run(words, check=False, capture_output=True, timeout=60)
    assert child.returncode == -signal.SIGALRM
    assert len(hangs()) == 1


def test_an_sdk_that_cannot_be_loaded_is_unavailable(with_sdk, sdk):
    sdk({}, error="raise ImportError('libtpu.so: cannot open')")
    with pytest.raises(Unavailable, match=r"libtpu: libtpu.so: cannot open"):
        with_sdk.open(Given(level=Level.DETAILED))


def test_a_missing_sdk_is_unavailable_only_where_it_is_asked_for(v6e, with_sdk, monkeypatch):
    monkeypatch.setitem(sys.modules, "libtpu", None)
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "libtpu" else find_spec(name))
    with pytest.raises(Unavailable, match=r"libtpu is not installed; install it, or set collectors.tpu.sdk = false"):
        with_sdk.open(Given(level=Level.DETAILED))
    v6e.open(Given())
    assert tick(v6e) == ({}, [])


def test_without_grpcio_no_libtpu_is_loaded_and_the_message_says_what_to_install(v6e, sdk, monkeypatch):
    sdk({name: [] for name in KEYS})
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "grpc" else find_spec(name))
    with pytest.raises(Unavailable, match="grpcio is not installed: install chipwatch with the extra 'tpu'"):
        v6e.open(Given())


def test_libtpu_is_never_loaded_without_a_tpu(host, sdk):
    sdk({}, error="raise SystemExit('it aborts here')")
    with pytest.raises(Unavailable, match="no TPU"):
        TpuCollector(TpuCollector.Config(sys=host)).open(Given())


def test_the_utilization_of_a_full_memory_is_at_most_100():
    full = 449491064789.28864  # 100 * full / full is a little more than 100
    found = {name: {0: full} for name in (MEMORY_USED, MEMORY_TOTAL)}
    assert {m.name: v for m, _, v in readings(found, 1, [])}["tpu.memory.utilization"] == 100


def test_the_processes_that_have_a_chip_open_are_on_its_devices(host, tmp_path):
    proc = tmp_path / "proc"
    for pid, file in (1, "/dev/null"), (10, "/dev/accel1"), (11, "/dev/vfio/3"), (12, "/dev/accelerated"):
        (proc / f"{pid}/fd").mkdir(parents=True)
        (proc / f"{pid}/fd/5").symlink_to(file)
    for n in range(2):
        plug(host, f"0000:00:1{n}.0", "0x1ae0", "0x0027", "0x004f")
    collector = TpuCollector(TpuCollector.Config(sys=host, proc=proc))
    collector._chips, collector._dims = (
        find_chips(host / "bus/pci/devices"),
        {index: Dimensions(tpu=str(index)) for index in range(4)},
    )
    found = sorted((one.pid, one.dims["tpu"]) for one in processes(collector))
    assert found == [(10, "2"), (10, "3"), *((11, str(index)) for index in range(4))]
    assert Device(Dimensions(tpu="2"), ids=("tpu2",)) in devices(collector)
