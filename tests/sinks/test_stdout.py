import contextlib
import errno
import fcntl
import io
import json
import logging
import math
import os
import pty
import re
import struct
import sys
import termios
import threading
import time
from collections import Counter
from pathlib import Path
from unittest import mock

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions, Summary, counter, gauge
from chipwatch.contract.errors import Refused, Retryable, SinkClosed
from chipwatch_sinks.stdout import StdoutSink, jsonl, table

AT = 1_795_168_805 * 10**9  # 2026-11-20T10:00:05Z
SECOND = 10**9
CPU = gauge("cpu.utilization", "%", "Busy share of all cores.")
CORE = gauge("cpu.core.utilization", "%", "Busy share of a core.", dims=("cpu",))
READ = counter("disk.read", "By", "Bytes read.")
LATENCY = gauge("neuron.execution.latency", "s", "Latency.", dims=("percentile",))


OPEN = []


@pytest.fixture(autouse=True)
def _eighty_columns_and_closed_sinks(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    yield
    while OPEN:
        OPEN.pop().close()


def sink_on(stream, **config):
    sink = StdoutSink(StdoutSink.Config(**config), stream)
    OPEN.append(sink)
    sink.open()
    return sink


def written(batch, **config):
    """Return what is written for `batch`, and what is rejected."""
    stream = io.BytesIO()
    rejected = sink_on(stream, **config).write(batch)
    return stream.getvalue().decode(), list(rejected)


# -- json

NUMBERS = st.just(0) | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
TEXTS = st.text(max_size=8)


@settings(max_examples=examples(100), deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([CPU, READ, gauge(CPU.name, "1", "Another unit."), counter('a"b', "ü", "Odd.")]),
            NUMBERS, st.dictionaries(TEXTS, TEXTS, max_size=2), st.none() | st.integers(0, AT), st.none() | NUMBERS,
        ), max_size=12,
    )
)  # fmt: skip
def test_a_line_of_cached_parts_is_the_line_that_json_writes(drawn):
    points = [Datapoint(metric, value, Dimensions(dims), AT, start, AT - SECOND, None, increase)
              for metric, value, dims, start, increase in drawn]  # fmt: skip
    text, rejected = written(points, format="json")
    expected = []
    for point in points:
        record = {"time": jsonl.utc(AT), "name": point.metric.name, "kind": point.metric.kind,
                  "unit": point.metric.unit, "value": point.value, "dims": dict(point.dims)}  # fmt: skip
        if point.increase is not None:
            record["increase"] = point.increase
        if point.start_time is not None:
            record["start_time"] = jsonl.utc(point.start_time)
        if point.increase is not None:
            record["window_start"] = jsonl.utc(AT - SECOND)
        expected.append(json.dumps(record) + "\n")
    assert (text, rejected) == ("".join(expected), [])


def test_the_cache_of_series_is_bounded(monkeypatch):
    monkeypatch.setattr(jsonl, "_known", {})
    monkeypatch.setattr(jsonl, "SERIES", 10)
    written([CORE.point(AT, 1, Dimensions(cpu=str(n))) for n in range(95)], format="json")
    assert len(jsonl._known) <= 10


SEVERAL = (-1e22, -1.0, 1e-7, 0.1 + 0.2, 3, 2**62)


@pytest.mark.parametrize(
    "summary",
    [
        *(Summary(6, math.fsum(SEVERAL), -1e22, 2**62, SEVERAL, (1,) * 6, last) for last in (None, 3, -0.0)),
        *(Summary(1, value, value, value, (value,), (1,), value) for value in (0.1 + 0.2, -1e22, 3)),
        Summary(1, 2.0, 2.0, 2.0, (2.0,), (1,), None),
        Summary(2, 4.0, 2.0, 2.0, (2.0,), (2,), 2.0),
    ],
)
def test_json_writes_the_numbers_of_a_summary_as_the_standard_library_does(summary):
    point = Datapoint(CPU, 1.0, NO_DIMENSIONS, AT, None, AT - SECOND, summary)
    line = written([point], format="json")[0]
    assert line.endswith(f', "summary": {json.dumps(summary._asdict())}}}\n')


@pytest.mark.parametrize(
    ("at", "time"),
    [
        (AT + 250_000_000, "2026-11-20T10:00:05.250Z"),
        (AT + 999_999_999, "2026-11-20T10:00:05.999Z"),
        (AT + 999_999, "2026-11-20T10:00:05Z"),
        (0, "1970-01-01T00:00:00Z"),
    ],
)
def test_json_cuts_times_to_milliseconds_and_omits_a_fraction_of_zero(at, time):
    assert json.loads(written([CPU.point(at, 1.0)], format="json")[0])["time"] == time


def test_json_rejects_a_time_that_no_calendar_has():
    good, bad = CPU.point(AT, 1.0), Datapoint(READ, 1.0, NO_DIMENSIONS, AT, 10**30)
    text, rejected = written([bad, good], format="json")
    assert [(r.point, r.reason) for r in rejected] == [(bad, "time out of range")]
    assert text.count("\n") == 1


# -- every format


def test_a_file_gets_the_lines_and_keeps_what_it_had(tmp_path):
    path = tmp_path / "metrics.jsonl"
    for _ in range(2):
        sink = StdoutSink(StdoutSink.Config(path=path))
        sink.open()
        assert str(path) in sink.describe()
        sink.write([gauge("a.b", "1", "Help.").point(0, 1.0)])
        sink.close()
    assert [json.loads(line)["value"] for line in path.read_text().splitlines()] == [1.0, 1.0]


def test_a_pipe_that_no_process_reads_is_tried_again_and_nobody_waits_for_a_reader(tmp_path):
    path = tmp_path / "metrics.fifo"
    os.mkfifo(path)
    sink, raised = StdoutSink(StdoutSink.Config(path=path)), []

    def begin():
        try:
            sink.open()
        except Retryable as problem:
            raised.append(str(problem))

    opener = threading.Thread(target=begin, daemon=True)
    opener.start()
    opener.join(10)
    assert raised == [f"{path}: no process reads this pipe"]
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as reader:
        sink.open()
        sink.write([CORE.point(AT, 1.0)])
        assert json.loads(reader.read(1000))["value"] == 1.0
    with pytest.raises(SinkClosed):
        sink.write([CORE.point(AT, 2.0)])
    sink.close()


def test_a_file_that_cannot_be_opened_is_refused_by_name(tmp_path):
    sink = StdoutSink(StdoutSink.Config(path=tmp_path / "absent" / "metrics.jsonl"))
    with pytest.raises(Refused, match=r"metrics\.jsonl: No such file"):
        sink.open()


@pytest.mark.parametrize("format_", ["json", "table"])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_rejected_and_never_printed(format_, number):
    bad = [
        CPU.point(AT, number),
        Datapoint(READ, 1.0, NO_DIMENSIONS, AT, AT - SECOND, AT - SECOND, None, number),
        Datapoint(CPU, 1.0, NO_DIMENSIONS, AT, None, AT, Summary(2, 2.0, 1.0, 1.0, (1.0, number), (1, 1))),
    ]
    text, rejected = written([*bad, CORE.point(AT, 7.0, Dimensions(cpu="0"))], format=format_)
    assert [(r.point, r.reason) for r in rejected] == [(point, "not finite") for point in bad]
    assert "nan" not in text.lower()
    assert "inf" not in text.lower()
    assert "7" in text


class Calls(io.RawIOBase):
    """A stream that counts the calls, and takes at most `room` bytes before it fails with `failure`."""

    def __init__(self, room=10**9, failure=None):
        self.calls, self.room, self.failure, self.data = 0, room, failure, b""

    def writable(self):
        return True

    def write(self, data):
        self.calls += 1
        if not self.room:
            if self.failure is None:
                return None
            raise self.failure
        taken = bytes(data[: self.room])
        self.data += taken
        self.room -= len(taken)
        return len(taken)


@pytest.mark.parametrize("format_", ["json", "table"])
def test_a_batch_is_one_call(format_):
    stream = Calls()
    sink_on(stream, format=format_).write([CORE.point(AT + n, 1.0, Dimensions(cpu=str(n))) for n in range(50)])
    assert stream.calls == 1


def test_a_text_stream_without_bytes_below_will_do():
    stream = io.StringIO()
    sink_on(stream, format="table").write([gauge("gpu.temperature", "Cel", "Heat.").point(AT, 45.0)])
    assert "45 °C" in stream.getvalue()


def test_building_touches_nothing_and_standard_output_is_found_when_opened(monkeypatch):
    monkeypatch.setattr(sys, "stdout", None)
    sink = StdoutSink(StdoutSink.Config())
    sink.close()
    with pytest.raises(Refused, match="closed"):
        sink.open()

    later = io.TextIOWrapper(io.BytesIO())
    monkeypatch.setattr(sys, "stdout", later)
    sink.open()
    sink.write([CPU.point(AT, 1.0)])
    sink.close()
    sink.close()

    assert later.buffer.getvalue().startswith(b'{"time"')
    assert sink.describe() == "standard output, json"


def test_a_closed_stream_is_refused_at_the_start_and_gone_later():
    stream = io.BytesIO()
    sink = sink_on(stream)
    stream.close()
    with pytest.raises(SinkClosed, match="the reader of standard output has closed it"):
        sink.write([CPU.point(AT, 1.0)])
    with pytest.raises(Refused):
        sink_on(stream)


# -- trouble on the wire


@pytest.mark.parametrize("room", [1, 40, 96, 97, 150, 250])
@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), None], ids=["full", "would block"])
def test_no_line_is_torn_by_a_write_that_fails_halfway(room, failure):
    batch = [CORE.point(AT, 1.0, Dimensions(cpu=str(n))) for n in range(3)]
    stream = Calls(room, failure)
    sink = sink_on(stream)

    with pytest.raises(Retryable):
        sink.write(batch)
    with pytest.raises(Retryable):
        sink.write(batch)
    stream.room = 3
    with pytest.raises(Retryable):
        sink.write(batch)
    stream.room = 10**9
    sink.write(batch)

    lines = [json.loads(line)["dims"]["cpu"] for line in stream.data.decode().splitlines()]
    assert lines == ["0", "1", "2"]
    assert stream.data.endswith(b"\n")


def test_a_reader_who_does_not_read_holds_one_write_up_for_a_second_and_gets_each_line_once(monkeypatch):
    monkeypatch.setattr("chipwatch_sinks.stdout.PATIENCE", 0.05)
    batches = [[CORE.point(AT + tick * 10**9, 1.0, Dimensions(cpu=str(n))) for n in range(500)] for tick in range(4)]
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb", buffering=0) as stream, os.fdopen(reader, "rb") as lines:
        sink, waiting, problems = sink_on(stream), [], []
        for batch in batches:
            waiting += batch
            begun = time.monotonic()
            try:
                assert sink.write(waiting) == []
                waiting = []
            except Retryable as problem:
                problems.append((str(problem), problem.after))
            assert time.monotonic() - begun < 10
        assert waiting
        assert {*problems} == {("standard output: the reader is too slow", 0.1)}
        text = threading.Thread(target=lambda: got.extend(json.loads(line) for line in lines))
        got = []
        text.start()
        deadline = time.monotonic() + 60
        while waiting and time.monotonic() < deadline:
            with contextlib.suppress(Retryable):
                sink.write(waiting)
                waiting = []
        sink.close()
        stream.close()
        text.join(60)
    assert [row["dims"]["cpu"] for row in got] == [str(n) for n in range(500)] * 4
    assert [*Counter(row["time"] for row in got).values()] == [500] * 4


def test_a_terminal_whose_other_end_does_not_read_holds_nobody_up(monkeypatch):
    monkeypatch.setattr("chipwatch_sinks.stdout.PATIENCE", 0.05)
    batch = [CORE.point(AT, 1.0, Dimensions(cpu=str(n))) for n in range(500)]
    main, terminal = os.openpty()
    with os.fdopen(main, "rb"), os.fdopen(terminal, "w") as stream:
        sink, problems = StdoutSink(StdoutSink.Config(format="json"), stream), []
        sink.open()

        def write():
            for _ in range(3):
                try:
                    sink.write(batch)
                except Retryable as problem:
                    problems.append(str(problem))

        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        writer.join(20)
        assert problems == ["standard output: the reader is too slow"] * 3
        assert os.get_blocking(terminal)  # for the other processes on it
        sink.close()


@pytest.mark.parametrize(
    ("terminal", "number", "error"),
    [
        (True, errno.EIO, SinkClosed),
        (False, errno.EIO, Retryable),
        (True, errno.ENOSPC, Retryable),
        (False, errno.EPIPE, SinkClosed),
    ],
)
def test_only_a_terminal_that_hung_up_or_a_pipe_without_a_reader_has_gone(terminal, number, error):
    class Failing(io.BytesIO):
        def isatty(self):
            return terminal

        def write(self, data):
            raise OSError(number, os.strerror(number))

    sink = StdoutSink(StdoutSink.Config(format="json"), Failing())
    sink.open()
    with pytest.raises(error) as caught:
        sink.write([CPU.point(AT, 1.0)])
    assert type(caught.value) is error


def test_a_reader_that_leaves_costs_no_word_of_the_interpreter_at_its_end(monkeypatch):
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:  # closed, it writes what waits in its buffer, as the interpreter does
        monkeypatch.setattr(sys, "stdout", stream)
        sink = StdoutSink(StdoutSink.Config(format="json"))
        sink.open()
        stream.write("something of another's that waits in the buffer")
        os.close(reader)
        with pytest.raises(SinkClosed, match="the reader of standard output has closed it"):
            sink.write([CPU.point(AT, 1.0)])
        sink.close()


# -- table


def reading(name, unit, value, **dims):
    return gauge(name, unit, "G.", dims=(*dims,)).point(AT, value, Dimensions(dims))


def rising(name, unit, increase, **dims):
    metric = counter(name, unit, "C.", dims=(*dims,))
    return Datapoint(metric, 10**12, Dimensions(dims), AT, 0, AT - SECOND, None, increase)


OF_EVERY_UNIT = [
    reading("memory.used", "By", 3.4 * 2**30),
    reading("cpu.utilization", "%", 12.5),
    rising("disk.read", "By", 1200),
    rising("disk.device.busy", "s", 0.25, device="nvme0n1"),
    reading("disk.available", "By", 0, path="/"),
    reading("disk.available", "By", 9.1 * 2**40, path="/var/lib/containers/storage/overlay/0f3c/merged"),
    reading("gpu.temperature", "Cel", 45.0, gpu="0"),
    reading("gpu.power", "W", 210.4, gpu="0"),
    rising("gpu.energy", "J", 210.0, gpu="0"),
    reading("gpu.clock.sm", "MHz", 1410, gpu="0"),
    rising("network.interface.errors", "{packet}", 2, interface="eth0"),
    reading("process.threads", "{thread}", 1234),
    reading("neuron.core.flops", "{flop}/s", 1.2e13, neuron_core="3"),
    reading("neuron.execution.latency", "s", 0.0012, percentile="p50"),
    reading("ipu.link.speed", "GT/s", 16.0, ipu="0"),
    reading("cpu.load", "1", 1.5, window="1m"),
]


def test_the_table_at_80_columns():
    assert written(OF_EVERY_UNIT, format="table")[0] == Path(__file__).with_name("table-80.txt").read_text()


def test_the_table_of_a_window_shows_minimum_and_maximum_in_the_unit_of_the_value():
    summary = Summary(2, 2.0 * 2**30, 0.5 * 2**30, 1.5 * 2**30, (0.5 * 2**30, 1.5 * 2**30), (1, 1))
    used = Datapoint(gauge("memory.used", "By", "M."), 2.0**30, NO_DIMENSIONS, AT, None, AT - 60 * SECOND, summary)
    read = Datapoint(READ, 10**12, NO_DIMENSIONS, AT, 0, AT - 60 * SECOND, None, 600)
    assert (
        written([used, read], format="table")[0]
        == """\
2026-11-20T10:00:05Z
memory     used     1 GiB  (0.5..1.5)
disk       read    10 B/s

"""
    )


def test_the_table_leaves_out_a_sum_of_bytes_that_begins_with_its_first_reading():
    first, later = Datapoint(READ, 0.0, NO_DIMENSIONS, AT, AT), Datapoint(READ, 0.0, NO_DIMENSIONS, AT, AT - SECOND)
    load = CPU.point(AT, 1.0)
    assert "disk" not in written([first, load], format="table")[0]
    assert "disk       read     0 B total" in written([later, load], format="table")[0]
    assert "disk       read     0 B total" in written([first], format="table")[0], "nothing else is there"


RECORDED = gauge("incident.recorded", "1", "I.", dims=("cause", "file")).point(
    AT, 1.0, Dimensions(cause="xid", file="20261123T104102Z-xid.chipwatch")
)
SAID = "incident 20261123T104102Z-xid.chipwatch is recorded: `chipwatch record list`"


def test_the_table_shows_incidents_as_a_count_and_says_once_which_file_a_new_one_has(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    incidents = counter("agent.incidents", "{incident}", "I.", dims=("cause",))
    stream = io.BytesIO()
    sink = sink_on(stream, format="table", agent_metrics=True)
    for n in range(3):
        count = Datapoint(incidents, 3.0, Dimensions(cause="xid"), AT + n * SECOND, 0, AT - 5 * SECOND, None, 1.0)
        sink.write([count, RECORDED._replace(at=AT + n * SECOND)])
    lines = stream.getvalue().decode().splitlines()
    assert [lines[0], lines.count(SAID)] == [SAID, 1]
    assert written([RECORDED], format="table")[0] == f"{SAID}\n", "alone it is its sentence"
    assert [line.split() for line in lines if "total" in line] == [["agent", "xid", "incidents", "3", "total"]] * 3
    assert not any("recorded     1" in line for line in lines)


def test_the_table_says_once_what_all_points_share(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    machine = {"instance_id": "i-0abc", "instance_type": "p5.48xlarge"}
    text, _ = written([CORE.point(AT, 1.0, Dimensions(machine, cpu="0"))], format="table")
    assert text.splitlines()[0] == "2026-11-20T10:00:05Z instance_id=i-0abc instance_type=p5.48xlarge"
    assert text.splitlines()[-2] == "cpu 0      core.utilization     1 %"


def test_the_table_lets_no_dimension_steer_the_terminal():
    text, _ = written([CORE.point(AT, 1.0, Dimensions(cpu="a\x1b[2J\n\u202eb\udcff"))], format="table")
    assert "cpu a\ufffd[2J\ufffd\ufffdb\ufffd" in text


def test_each_tick_of_a_batch_is_a_table_where_nothing_can_be_redrawn():
    text, _ = written([CPU.point(AT, 1.0), CPU.point(AT + SECOND, 2.0)], format="table")
    heads = [line for line in text.splitlines() if line.startswith("20")]
    assert heads == ["2026-11-20T10:00:05Z", "2026-11-20T10:00:06Z"]
    assert "\x1b" not in text


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (999.4, "W", "999 W"), (999.5, "W", "1 kW"), (999_499.0, "W", "999 kW"), (999.4, "{file}", "999"), (999.5, "{file}", "1,000"),
        (0.12345, "{file}", "0.123"), (1234567, "{file}", "1,234,567"), (1000, "By", "0.977 KiB"), (2.0**90, "By", "1,073,741,824 EiB"),
        (0, "s", "0 s"), (7200, "s", "7,200 s"), (0.0000015, "s", "1.5 µs"), (-3, "Cel", "-3 °C"), (3, "furlong", "3 furlong"), (0, "MHz", "0 Hz"),
    ],
)  # fmt: skip
def test_the_table_scales_units_for_people_to_three_digits(value, unit, shown):
    text, _ = written([gauge("a.utilization", unit, "A.").point(AT, value)], format="table")
    assert text.splitlines()[-2].split(maxsplit=1)[1] == shown


texts = st.text(st.characters(min_codepoint=32, max_codepoint=0x2FFFF), min_size=1, max_size=60)


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(st.tuples(texts, texts, texts), min_size=1, max_size=5), st.integers(80, 250))
def test_no_line_of_the_table_is_wider_than_the_terminal(rows, width):
    from rich.cells import cell_len

    points = [gauge(name, "{flop}/s", "A.", dims=(k,)).point(AT, 1e13, Dimensions({k: v})) for name, k, v in rows]
    with mock.patch.dict(os.environ, COLUMNS=str(width)):
        lines = table.Table(None, is_terminal=False, own=True).draw(points, []).splitlines()
    assert max(map(cell_len, lines)) <= width
    assert sum(line.count("10 Tflop/s") for line in lines) == len(points)


class Terminal:
    """A pseudo terminal of a given size; `sent` returns what was sent to it, up to the end of a table."""

    def __init__(self, columns, lines):
        self.primary, secondary = pty.openpty()
        fcntl.ioctl(secondary, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.stream = os.fdopen(secondary, "w")

    def sent(self, end="\r\n\r\n"):
        text = b""
        while not text.endswith(end.encode()):
            text += os.read(self.primary, 1 << 16)
        return text.decode().replace("\r\n", "\n")

    def close(self):
        self.stream.close()
        os.close(self.primary)


@pytest.fixture
def terminal(monkeypatch, at_the_end):
    monkeypatch.setenv("TERM", "xterm")
    return lambda columns, lines: at_the_end.enter_context(contextlib.closing(Terminal(columns, lines)))


def test_a_terminal_keeps_one_table_in_place_unless_something_was_logged_since(terminal, monkeypatch):
    emulator, screen = pyte.Screen(80, 24), terminal(80, 24)
    emulator.set_mode(pyte.modes.LNM)
    show, sink = pyte.Stream(emulator), sink_on(screen.stream)
    assert sink.describe() == "standard output, table"

    def rows(second):
        sink.write([CPU.point(AT + int(second * SECOND), float(second))])
        show.feed(screen.sent())
        return [line.rstrip() for line in emulator.display if line.strip()]

    first, second = rows(1), rows(2)
    assert re.fullmatch(r"\S+  \d+ CPUs?  \d\d:\d\d:06", first[0])
    assert first[1:] == ["cpu            1 %", table.NO_DEVICE]
    assert second[1:] == ["cpu            2 %", "Ctrl-C ends; `chipwatch top` for a full screen", table.NO_DEVICE]
    assert second[0].endswith(":07  every 1 s")
    logging.getLogger("chipwatch").warning("a line")
    show.feed("a line\n")
    third, fourth = rows(3), rows(4)
    assert [third[:-4], fourth[:-4]] == [[*second, "a line"]] * 2, "the fourth replaced the third"
    assert [third[-3], fourth[-3]] == ["cpu            3 %", "cpu            4 %"]
    assert rows(4.25)[-4].endswith(":09  every 1 s"), "the last reading comes early"
    below = sink_on(screen.stream)
    for second in 1, 2:
        below.write([CPU.point(AT + second * SECOND, 5.0, Dimensions(zone="日" * 70))])
        assert "\x1b" not in screen.sent(), "a line took two rows"
    monkeypatch.setenv("TERM", "dumb")
    sink.write([CPU.point(AT + 5 * SECOND, 5.0)])
    assert "\x1b" not in screen.sent()


def test_a_low_terminal_is_never_overrun_and_shows_all_at_the_end(terminal):
    screen = terminal(80, 10)
    sink = sink_on(screen.stream)
    sink.write([CORE.point(AT, float(n), Dimensions(cpu=f"{n:02}")) for n in range(20)])
    during = screen.sent()
    sink.close()
    after = screen.sent("19 %\r\n")
    sink.close()
    assert during.count("\n") == 9
    assert "… 15 more lines, shown at the end\n" in during
    assert (during + after).count("core.utilization") == 20


EVENTS = counter("kernel.events", "{event}", "K.", dims=("kind",))
ERRORS = counter("network.errors", "{packet}", "N.")


def on_screen(terminal, *batches, size=(80, 24)):
    """Return the last screen after these batches."""
    screen = terminal(*size)
    sink = sink_on(screen.stream)
    for batch in batches:
        sink.write(batch)
        text = screen.sent()
    return text.splitlines()[1:-1]


def rise(metric, increase, at=AT, **dims):
    return Datapoint(metric, 3 + increase, Dimensions(dims), at, 0, at - SECOND, None, increase)


def test_a_terminal_shows_the_host_then_accelerators_then_what_else_there_is(terminal):
    batch = [
        GPU_POWER.point(AT, 632.0, Dimensions(gpu="0")),
        gauge("container.cpu.limit", "1", "C.").point(AT, 3.0),
        *(gauge(f"memory.{name}", "By", "M.").point(AT, 2.0**30) for name in ("used", "available")),
        gauge("disk.utilization", "%", "D.", dims=("path",)).point(AT, 41.0, Dimensions(path="/")),
        CPU.point(AT, 12.5),
    ]
    assert on_screen(terminal, batch) == [
        "cpu         12.5 %",
        "memory     used     1 GiB   available     1 GiB",
        "disk /        41 %",
        "",
        "gpu  power",
        "         W",
        "0      632",
        "",
        "container  cpu.limit     3",
    ]


def test_the_header_of_a_screen_says_what_the_machine_is(terminal):
    memory = [gauge(f"memory.{name}", "By", "M.").point(AT, 2.0**40) for name in ("used", "available")]
    screen = terminal(80, 24)
    sink_on(screen.stream).write([*memory, *(GPU_POWER.point(AT, 1.0, Dimensions(gpu=str(n))) for n in range(8))])
    assert re.match(r"\S+  \d+ CPUs?  2 TiB  8 GPUs  \d\d:\d\d:05\n", screen.sent())


def test_events_that_have_not_happened_are_one_line_and_those_that_have_keep_their_place(terminal):
    quiet = [rise(EVENTS, 0, kind="oom"), rise(EVENTS, 0, kind="mce"), rise(ERRORS, 0)]
    happened = [rise(EVENTS, 2, AT + SECOND, kind="oom"), rise(ERRORS, 0, AT + SECOND)]
    after = [rise(EVENTS, 0, AT + 2 * SECOND, kind="oom")]
    nothing = "kernel log: nothing; none so far: network.errors"
    assert on_screen(terminal, [CPU.point(AT, 1.0), *quiet])[1:-1] == [nothing]
    for batches in ([quiet, happened], [quiet, happened, after]):
        row, line, *_ = on_screen(terminal, *batches)
        assert row.startswith("kernel oom  events")
        assert line == nothing


def test_a_series_that_is_not_read_at_each_tick_keeps_its_place_for_half_a_minute(terminal):
    batches = [[CPU.point(AT, 1.0), rise(READ, 5)], *([CPU.point(AT + n * SECOND, 1.0)] for n in (10, 30, 31))]
    rows = [[line.split()[0] for line in on_screen(terminal, *batches[:n])] for n in (1, 2, 3, 4)]
    ends = ["Ctrl-C", "no"]
    assert rows == [["cpu", "disk", "no"], ["cpu", "disk", *ends], ["cpu", "disk", *ends], ["cpu", *ends]]


@pytest.mark.parametrize("size", [(80, 24), (60, 20), (120, 40)])
def test_a_screen_has_every_accelerator_within_its_size(terminal, size):
    families = ("cpu", "memory", "disk", "network")
    host = [gauge(f"{family}.utilization", "%", "H.").point(AT, 50.0) for family in families]
    names = ("power", "memory.used", "state", "temperature", "utilization", "fan", "clock", "ecc")
    metrics = [gauge(f"gpu.{name}", "%", "G.", dims=("gpu",)) for name in names]
    gpus = [metric.point(AT, 90.0, Dimensions(gpu=str(n))) for n in range(8) for metric in metrics]
    batch = [*host, *gpus, *(rise(EVENTS, 0, kind=f"kind {n}") for n in range(30))]
    lines = on_screen(terminal, batch, [CPU.point(AT + SECOND, 1.0)], size=size)
    assert len(lines) <= size[1] - 2
    assert max(map(len, lines)) <= size[0]
    assert [line.split()[0] for line in lines if line[:1].isdigit()][:8] == [*"01234567"]
    assert lines[-1] == "Ctrl-C ends; `chipwatch top` for a full screen"


# -- table of accelerators


GPU_POWER = gauge("gpu.power", "W", "P.", dims=("gpu",))
GPU_MEMORY = gauge("gpu.memory.used", "By", "M.", dims=("gpu",))
THROTTLED = counter("gpu.throttled", "s", "T.", dims=("gpu", "reason"))


def test_accelerators_have_a_row_each_and_the_agent_comes_last_if_asked():
    points = [
        gauge("agent.cpu", "%", "A.").point(AT, 1.0),
        CPU.point(AT, 12.5),
        *(GPU_POWER.point(AT, 100.0 + n, Dimensions(gpu=str(n))) for n in (10, 9)),
        GPU_MEMORY.point(AT, 2.5 * 2**30, Dimensions(gpu="9")),
        GPU_MEMORY.point(AT, 512.0 * 2**20, Dimensions(gpu="10")),
        Datapoint(THROTTLED, 5.0, Dimensions(gpu="9", reason="power"), AT, 0, AT - SECOND, None, 0.25),
        THROTTLED.point(AT, 3.0, Dimensions(gpu="10", reason="power"), start_time=0),
    ]
    table_ = """\
2026-11-20T10:00:05Z
cpu         12.5 %

gpu  memory.used  power  throttled power  throttled power
             GiB      W                %          s total
9            2.5    109               25                -
10           0.5    110                -                3

"""
    assert written(points, format="table")[0] == table_
    with_own = written(points, format="table", agent_metrics=True)[0]
    assert with_own == f"{table_}agent      cpu     1 %\n\n"
    assert "agent      cpu" in written(points[:1], format="table")[0]


def test_columns_of_accelerators_without_room_follow_below():
    metrics = [gauge(f"gpu.figure.number.{n}", "%", "F.", dims=("gpu",)) for n in range(8)]
    text, _ = written([m.point(AT, 1.0, Dimensions(gpu=str(n))) for m in metrics for n in range(2)], format="table")
    assert max(map(len, text.splitlines())) <= 80
    assert [line.split()[0] for line in text.splitlines() if line[:1].isalnum()][1:] == ["gpu", "0", "1"] * 2
    assert text.count("figure.number.") == 8


def test_what_does_not_fit_beside_its_family_follows_below(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    metrics = [gauge(f"cpu.figure.{n}", "%", "F.") for n in range(5)]
    text, _ = written([metric.point(AT, 12.0) for metric in metrics], format="table")
    assert text.splitlines()[1:-1] == [
        "cpu        figure.0    12 %     figure.1    12 %",
        "           figure.2    12 %     figure.3    12 %",
        "           figure.4    12 %",
    ]
