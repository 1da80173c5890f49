"""A call in a child process: its answer, its end without one, and a child that is left behind."""

import os
import time

import pytest

from chipwatch.host.child_call import ask_child


def test_the_answer_is_what_the_call_returns_also_if_it_is_longer_than_a_pipe_holds():
    long = {"series": ["x" * 100] * 5000, "none": None}
    assert ask_child(lambda: long, 60.0) == long


def test_a_child_that_ends_without_an_answer_says_how():
    with pytest.raises(ChildProcessError, match=r"^ with 7$"):
        ask_child(lambda: os._exit(7), 60.0)


def test_a_child_that_does_not_answer_is_left_behind():
    begun = time.monotonic()
    with pytest.raises(TimeoutError):
        ask_child(lambda: time.sleep(60), 0.1)
    assert time.monotonic() - begun < 50
