import io
import json
import logging
import os
import sys
import threading
import time
from contextlib import suppress

import pytest

from chipwatch.base.redaction import MAX_LENGTH
from chipwatch.base.throttled import ThrottledLogger
from chipwatch.service.log_formats import (
    BURST,
    HEAD,
    REFILL,
    TAIL,
    WIDTH,
    Formatter,
    Handler,
    LogStyle,
    Unblocked,
    style_of,
    to_stderr,
)


class Hands:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def logged(hands):
    """A logger, and the lines that its handler wrote."""
    stream = io.StringIO()
    logger = logging.Logger("library.part", logging.DEBUG)  # noqa: LOG001  # of this test alone
    logger.addHandler(Handler(stream, clock=hands))
    return logger, lambda: stream.getvalue().splitlines()


def test_a_record_is_one_line_whatever_its_text(logged):
    log, lines = logged
    log.warning("%s", "bad\n2026-01-01 00:00:00,000 ERROR forged\x1b[2J \u202e \ud800" + "x" * 9999)
    (line,) = lines()
    assert r"bad\n2026-01-01 00:00:00,000 ERROR forged\x1b[2J \u202e \ud800" in line
    assert len(line) < MAX_LENGTH + 50


@pytest.fixture
def record():
    try:
        fail(0)
    except ValueError:
        record = logging.LogRecord("agent", logging.ERROR, "", 0, "%s", ("x\ny",), sys.exc_info())
    record.who, record.created = "sink x", 1_795_340_107.25
    return record


def test_at_a_terminal_a_record_has_the_time_of_day(record, monkeypatch):
    monkeypatch.setenv("TZ", "UTC-3")
    time.tzset()
    try:
        head, *traceback = Formatter(LogStyle.TERMINAL).format(record).splitlines()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert head == "12:35:07 chipwatch: x\\ny"
    assert all(line.startswith("    ") for line in traceback)


def test_elsewhere_it_has_the_time_in_utc(record):
    assert (
        Formatter(LogStyle.PLAIN).format(record).startswith("2026-11-22T09:35:07.250Z chipwatch: x\\ny\n    Traceback")
    )


def test_under_journald_each_line_has_the_priority_and_no_time(record):
    head, *traceback = Formatter(LogStyle.JOURNALD).format(record).splitlines()
    assert head == "<3>chipwatch: x\\ny"
    assert all(line.startswith("<3>    ") for line in traceback)


def test_as_json_a_record_is_one_object(record):
    found = json.loads(Formatter(LogStyle.JSON).format(record))
    assert found.pop("traceback")[0] == "Traceback (most recent call last):"
    assert found == {"time": "2026-11-22T09:35:07.250Z", "level": "error", "message": "x\\ny"}


def test_journald_is_known_by_the_stream_that_it_names(tmp_path):
    with (tmp_path / "log").open("w") as stream:
        status = os.fstat(stream.fileno())
        named = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}
        assert style_of("text", stream, named) is LogStyle.JOURNALD
        assert style_of("text", stream, {"JOURNAL_STREAM": "1:2"}) is LogStyle.PLAIN
        assert style_of("json", stream, named) is LogStyle.JSON


def test_a_password_is_not_logged(logged):
    log, lines = logged
    log.warning("no answer of %s", "http://user:S3CRET@host/")
    assert lines()[0].endswith("Z chipwatch: no answer of http://...@host/")


def fail(depth):
    if depth:
        fail(depth - 1)
    raise ValueError("first\nsecond\x1b[2J http://user:S3CRET@host/" + "x" * 999)


def deep(depth):
    return deep(depth - 1) if depth % 2 else odd(depth)


def odd(depth):
    return deep(depth - 1) if depth else 1 / 0


def test_the_lines_of_a_traceback_are_indented_escaped_and_without_secrets(logged):
    log, lines = logged
    try:
        fail(1)
    except ValueError:
        ThrottledLogger(log, "sink x").log(logging.ERROR, "bug", "failed", traceback=True)
    head, *rest = lines()
    assert head.endswith("Z chipwatch: sink x: failed")
    assert all(line.startswith("    ") and line.isprintable() and len(line) < WIDTH + 20 for line in rest)
    assert "S3CRET" not in "".join(rest)
    assert any("ValueError: first" in line for line in rest)


def test_a_long_traceback_shows_its_beginning_and_its_end(logged):
    log, lines = logged
    try:
        deep(100)
    except ZeroDivisionError:
        ThrottledLogger(log, "sink x").log(logging.ERROR, "bug", "failed", traceback=True)
    assert len(lines()) == 1 + HEAD + 1 + TAIL
    assert lines()[-1].endswith("ZeroDivisionError: division by zero")


def test_the_traceback_of_a_library_is_left_out_since_it_may_hold_what_is_secret(logged):
    log, lines = logged
    try:
        fail(0)
    except ValueError:
        log.warning("refresh failed", exc_info=True)
    assert [line[25:] for line in lines()] == ["chipwatch: refresh failed (ValueError)"]


def test_new_texts_without_end_are_bounded_and_the_next_that_is_shown_tells_how_many_were_not(logged, hands):
    log, lines = logged
    logger = ThrottledLogger(log, "collector x", hands)
    for n in range(1000):
        logger.log(logging.WARNING, f"cause {n}", f"text {n}")
    assert len(lines()) == BURST
    hands.now = REFILL
    logger.log(logging.WARNING, "later", "later")
    assert lines()[BURST:] == [lines()[-1]]
    assert lines()[-1].endswith(
        f"chipwatch: collector x: later ({1000 - BURST} messages before this one were not shown)"
    )


def test_what_flaps_is_bounded_too(logged, hands):
    log, lines = logged
    logger = ThrottledLogger(log, "sink x", hands)
    for tick in range(3600):
        hands.now = float(tick)
        logger.log(logging.WARNING, "wire", "no answer")
        logger.resolved("wire", "delivers again")
    assert len(lines()) <= BURST + 3600 / REFILL


def test_one_who_speaks_too_much_takes_nothing_from_the_others(logged, hands):
    log, lines = logged
    loud, calm = ThrottledLogger(log, "collector loud", hands), ThrottledLogger(log, "collector calm", hands)
    for n in range(100):
        loud.log(logging.WARNING, f"{n}", "x")
    calm.log(logging.WARNING, "one", "a word")
    assert lines()[-1].endswith("collector calm: a word")


@pytest.fixture
def hooked(monkeypatch, capsys):
    """Put logging and hooks back when the test ends."""
    root, raising = logging.getLogger(), logging.raiseExceptions
    handlers, level = root.handlers[:], root.level
    for module, hook in ((sys, "excepthook"), (threading, "excepthook")):
        monkeypatch.setattr(module, hook, getattr(module, hook))
    yield capsys
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.raiseExceptions = raising


def test_the_end_of_a_thread_and_of_the_program_are_records_as_well(hooked):
    to_stderr("warning")
    thread = threading.Thread(target=fail, args=(0,), name="timer")
    thread.start()
    thread.join()
    try:
        fail(0)
    except ValueError as bug:
        sys.excepthook(ValueError, bug, bug.__traceback__)
    lines = hooked.readouterr().err.splitlines()
    heads = [line[25:] for line in lines if not line.startswith("    ")]
    assert heads == ["chipwatch: bug: thread timer has ended", "chipwatch: bug: the program ends"]
    assert "S3CRET" not in "".join(lines)


def test_libraries_are_heard_when_something_is_wrong_or_with_debug(hooked):
    for level, heard in (("info", ["ours", "odd"]), ("debug", ["ours", "found", "odd"])):
        to_stderr(level)
        logging.getLogger("chipwatch.part").info("ours")
        logging.getLogger("library.credentials").info("found")
        logging.getLogger("library.credentials").warning("odd")
        assert [line.split()[-1] for line in hooked.readouterr().err.splitlines()] == heard


def test_debugging_has_no_bound(logged):
    log, lines = logged
    for _ in range(5 * BURST):
        log.debug("x")
    assert len(lines()) == 5 * BURST


@pytest.fixture
def full_pipe():
    """The end of a pipe that takes no more, and what reads all that it holds."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with suppress(BlockingIOError):
        while os.write(writer, b"." * 4096):
            pass
    os.set_blocking(writer, True)
    os.set_blocking(reader, False)
    yield writer, lambda: os.read(reader, 1 << 20)
    os.close(reader)
    os.close(writer)


def test_records_that_nobody_reads_are_counted_and_nobody_waits(full_pipe):
    writer, read = full_pipe
    log = logging.Logger("agent.part")  # noqa: LOG001  # of this test alone
    log.addHandler(Handler(Unblocked(writer)))
    for _ in range(3):
        log.warning("unread")
    assert read().strip(b".") == b""
    log.warning("read")
    assert read().endswith(b" chipwatch: read (3 messages before this one were not shown)\n")


def test_of_a_record_that_fits_in_part_the_rest_comes_before_the_next(full_pipe):
    writer, read = full_pipe
    os.write(writer, b"." * (len(read()) - 4096))  # one page is free
    log = logging.Logger("agent.part")  # noqa: LOG001  # of this test alone
    log.addHandler(Handler(Unblocked(writer)))
    log.warning("%s", long := "\N{PANDA FACE}" * 1900)
    log.warning("not shown")
    begun = read()
    log.warning("end")
    first, last = (begun + read()).decode().strip(".").splitlines()
    assert first.endswith(f"chipwatch: {long}")
    assert last.endswith("chipwatch: end (1 messages before this one were not shown)")


def test_a_reader_that_has_closed_the_pipe_costs_nobody_anything():
    reader, writer = os.pipe()
    os.close(reader)
    log = logging.Logger("agent.part")  # noqa: LOG001  # of this test alone
    log.addHandler(Handler(Unblocked(writer)))
    log.warning("to nobody")
    os.close(writer)
    log.warning("to nobody")


def test_an_agent_whose_standard_error_nobody_reads_reads_on_and_stops(agent, full_pipe, until):
    words = ("--collector", "memory", "--interval", "0.1", "--log-level", "debug", "--format", "json")
    running = agent.start(*words, stderr=full_pipe[0])
    until(lambda: len(running.points()) > 9)
    assert running.stop()[0] == 0
