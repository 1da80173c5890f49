import logging

import pytest

from chipwatch.base.throttled import MAX_CAUSES, REPEAT_AFTER, ThrottledLogger


@pytest.fixture
def now():
    """The time of the clock (s), in a list so that a test can move it."""
    return [0.0]


@pytest.fixture
def logger(now, caplog):
    caplog.set_level(logging.DEBUG)
    return ThrottledLogger(logging.getLogger("test.throttled"), "sink x", lambda: now[0])


def test_trouble_is_logged_under_the_name_of_its_part(logger, caplog):
    logger.log(logging.WARNING, "wire", "no answer")
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "sink x: no answer")
    assert not record.exc_info


def test_each_cause_is_logged_once_whatever_the_words(logger, caplog):
    for n in range(10):
        logger.log(logging.WARNING, "wire", f"no answer {n}")
        logger.log(logging.ERROR, "role", f"forbidden {n}")
    assert caplog.messages == ["sink x: no answer 0", "sink x: forbidden 0"]


def test_trouble_that_lasts_is_logged_again_after_an_hour(logger, caplog, now):
    for now[0] in (0.0, REPEAT_AFTER - 1, REPEAT_AFTER, REPEAT_AFTER + 1, 2 * REPEAT_AFTER):
        logger.log(logging.WARNING, "wire", f"at {now[0]:.0f}")
    assert caplog.messages == ["sink x: at 0", "sink x: at 3600", "sink x: at 7200"]


def test_the_end_of_trouble_is_logged_once_after_it_and_without_words_not_at_all(logger, caplog):
    logger.resolved("wire", "works")
    logger.log(logging.WARNING, "wire", "fails")
    logger.resolved("wire", "works again")
    logger.resolved("wire", "works again")
    logger.log(logging.WARNING, "wire", "fails again")
    logger.resolved("wire")
    assert caplog.messages == ["sink x: fails", "sink x: works again", "sink x: fails again"]


def test_a_traceback_goes_along_where_it_is_asked_for(logger, caplog):
    try:
        {}["x"]
    except KeyError:
        logger.log(logging.ERROR, "bug", "failed", traceback=True)
    assert caplog.records[0].exc_info[0] is KeyError


def test_causes_without_end_take_no_memory_without_end(logger):
    for n in range(10 * MAX_CAUSES):
        logger.log(logging.WARNING, f"cause {n}", "x")
    assert len(logger._logged_at) <= MAX_CAUSES
