import fcntl
import os
import threading

import pytest

from chipwatch.collectors.neuron import monitor
from chipwatch.collectors.neuron.monitor import Input, RecordSplitter
from chipwatch.host import supervised_process as host


@pytest.fixture
def pipe():
    """The two ends of a pipe, and what reads from it."""
    reading, writing = os.pipe()
    ends = [reading, writing]
    problems = []
    yield Input(reading, problems.append), writing, problems, ends
    for fd in ends:
        os.close(fd)


def test_a_record_is_a_line():
    splitter = RecordSplitter([].append)
    assert [*splitter.split(b'{"a":1}\n{"b"')] == [b'{"a":1}']
    assert [*splitter.split(b':2}\n\n  \r\n{"c":3}\n')] == [b'{"b":2}', b'{"c":3}']
    assert splitter.take_rest() == b""


def test_a_record_may_be_pretty_printed():
    splitter = RecordSplitter([].append)
    text = b'{\n  "a": {\n    "b": 1\n  }\n}\n'
    assert [*splitter.split(text + b'{"c":1}\n' + text)] == [text[:-1], b'{"c":1}', text[:-1]]


def test_a_pretty_printed_record_that_was_cut_ends_where_the_next_begins():
    splitter = RecordSplitter([].append)
    assert [*splitter.split(b'{\n  "a": 1\n{"b":1}\n{\n{\n  "c": 1\n}\n')] == [
        b'{\n  "a": 1',
        b'{"b":1}',
        b"{",
        b'{\n  "c": 1\n}',
    ]


def test_an_unfinished_record_is_the_rest():
    splitter = RecordSplitter([].append)
    assert [*splitter.split(b'{"a":1}\n{\n "b": 1')] == [b'{"a":1}']
    assert splitter.take_rest() == b'{\n "b": 1'
    assert splitter.take_rest() == b""


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_a_record_that_is_too_long_is_skipped_to_its_end(size):
    problems = []
    splitter = RecordSplitter(problems.append, max_size=50)
    text = b"x" * 51 + b'\n{"a":1}\n' + b"y" * 50 + b"\n" + b"z" * 60 + b"\n{\n" + b'"a":1,\n' * 20 + b"}\n"
    found = []
    for n in range(0, len(text), size):
        found += splitter.split(text[n : n + size])
    assert found[:2] == [b'{"a":1}', b"y" * 50]
    assert problems == ["a record above 0 MiB was skipped"] * 3


def test_the_rest_of_a_record_that_is_too_long_is_an_opening_brace():
    splitter = RecordSplitter([].append, max_size=10)
    assert [*splitter.split(b"x" * 11)] == []
    assert splitter.take_rest() == b"{"


def test_memory_is_bounded_by_the_longest_record():
    problems = []
    splitter = RecordSplitter(problems.append, max_size=1 << 20)
    for _ in range(100):
        assert [*splitter.split(b"x" * (1 << 16))] == []
        assert sum(map(len, splitter._line)) <= 1 << 20


def test_reading_a_pipe_does_not_wait(pipe):
    reader, writing, _, _ = pipe
    assert [*reader.read(0.0)] == []
    os.write(writing, b'{"a":1}\n{"b"')
    assert [*reader.read(0.0)] == [b'{"a":1}']
    assert [*reader.read(0.0)] == []
    os.write(writing, b":2}\n")
    assert [*reader.read(0.0)] == [b'{"b":2}']
    assert reader._pipe.ended is None


def test_one_tick_reads_a_bounded_number_of_bytes(pipe, monkeypatch):
    monkeypatch.setattr(monitor, "MAX_READ", 4 * host.CHUNK)
    reader, writing, _, ends = pipe
    line = b'{"a":"' + b"x" * 99_991 + b'"}\n'

    def write():
        with os.fdopen(writing, "wb") as file:
            for _ in range(50):
                file.write(line)

    ends.remove(writing)
    writer = threading.Thread(target=write)
    writer.start()
    ticks = []
    while reader._pipe.ended is None:
        ticks.append([*reader.read(0.0)])
    writer.join()
    assert sum(map(len, ticks)) == 50
    assert all(sum(map(len, found)) <= monitor.MAX_READ + host.CHUNK + len(line) for found in ticks)
    assert len([found for found in ticks if found]) > 1


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="Linux only")
def test_a_record_larger_than_the_pipe_is_read_in_one_tick(pipe, until, monkeypatch):
    monkeypatch.setattr(monitor, "WAIT_MS", 10_000)  # however busy this machine is
    reader, writing, _, ends = pipe
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    line = b'{"a":"' + b"x" * 450_000 + b'"}\n'

    def write():
        with os.fdopen(writing, "wb") as file:
            file.write(line)

    ends.remove(writing)
    writer = threading.Thread(target=write)
    writer.start()
    until(reader._pipe.is_readable)
    assert [*reader.read(0.0)] == [line[:-1]]
    writer.join()


@pytest.mark.skipif(not hasattr(fcntl, "F_GETPIPE_SZ"), reason="Linux only")
def test_the_pipe_is_enlarged_to_hold_the_largest_known_record(pipe):
    _, writing, _, _ = pipe
    if fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ) < monitor.PIPE_SIZE:
        pytest.skip("this user may not enlarge pipes")
    assert os.write(writing, b"x" * 450_000) == 450_000


def test_the_pipe_stays_blocking_since_other_processes_share_it(pipe):
    reader, writing, _, ends = pipe
    os.write(writing, b"x")
    list(reader.read(0.0))
    assert os.get_blocking(ends[0])
