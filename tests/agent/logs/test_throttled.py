from __future__ import annotations

import logging

import pytest

from agent.logs.throttled import AGAIN, MOST, ThrottledLogger


class Hands:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def hands():
    return Hands()


@pytest.fixture
def sayer(hands, caplog):
    caplog.set_level(logging.DEBUG)
    return ThrottledLogger(logging.getLogger("test.say"), "sink x", hands)


def test_trouble_is_said_under_the_name_of_who_has_it(sayer, caplog):
    sayer.say(logging.WARNING, "wire", "no answer")
    (record,) = caplog.records
    assert (record.levelname, record.getMessage()) == ("WARNING", "sink x: no answer")
    assert not record.exc_info


def test_the_same_cause_is_said_once_whatever_the_words(sayer, caplog):
    for n in range(10):
        sayer.say(logging.WARNING, "wire", f"no answer {n}")
    assert caplog.messages == ["sink x: no answer 0"]


def test_another_cause_is_said_too(sayer, caplog):
    sayer.say(logging.WARNING, "wire", "no answer")
    sayer.say(logging.ERROR, "role", "forbidden")
    assert caplog.messages == ["sink x: no answer", "sink x: forbidden"]


def test_what_lasts_is_said_again_after_an_hour(sayer, caplog, hands):
    for now in (0.0, AGAIN - 1, AGAIN, AGAIN + 1, 2 * AGAIN):
        hands.now = now
        sayer.say(logging.WARNING, "wire", f"at {now:.0f}")
    assert caplog.messages == ["sink x: at 0", "sink x: at 3600", "sink x: at 7200"]


def test_the_end_of_trouble_is_said_once_and_only_if_the_trouble_was(sayer, caplog):
    sayer.over("wire", "works")
    sayer.say(logging.WARNING, "wire", "fails")
    sayer.over("wire", "works again")
    sayer.over("wire", "works again")
    sayer.say(logging.WARNING, "wire", "fails anew")
    assert caplog.messages == ["sink x: fails", "sink x: works again", "sink x: fails anew"]


def test_an_end_without_words_is_silent(sayer, caplog):
    sayer.say(logging.WARNING, "wire", "fails")
    sayer.over("wire")
    assert caplog.messages == ["sink x: fails"]


def test_a_traceback_goes_along_where_it_is_asked_for(sayer, caplog):
    try:
        {}["x"]
    except KeyError:
        sayer.say(logging.ERROR, "bug", "failed", traceback=True)
    assert caplog.records[0].exc_info[0] is KeyError


def test_causes_without_end_take_no_memory_without_end(sayer):
    for n in range(10 * MOST):
        sayer.say(logging.WARNING, f"cause {n}", "x")
    assert len(sayer._said) <= MOST
