"""Words about a wait, on a terminal only."""

import os
import select
import threading

import pytest

from chipwatch.commands import output
from chipwatch.commands.output import say_if_slow

LONG = 60.0


@pytest.fixture
def terminal():
    """A terminal: the end that reads, and the end that programs write to."""
    ends = os.openpty()
    yield ends
    for end in ends:
        os.close(end)


def test_a_wait_on_a_terminal_is_explained(terminal, monkeypatch):
    monkeypatch.setattr(output, "SLOW", 0.01)
    ours, theirs = terminal
    with say_if_slow("waiting for node-7", theirs):
        assert select.select([ours], [], [], LONG)[0]
    assert os.read(ours, 100) == b"chipwatch: waiting for node-7\r\n"


def test_what_is_quick_needs_no_words(terminal, monkeypatch):
    ours, theirs = terminal
    timers = []
    monkeypatch.setattr(output, "Timer", lambda *args: timers.append(threading.Timer(*args)) or timers[0])
    with say_if_slow("waiting for node-7", theirs):
        pass
    timers[0].join(LONG)
    assert not timers[0].is_alive()
    assert not select.select([ours], [], [], 0)[0]


def test_a_script_gets_no_words_about_a_wait(monkeypatch):
    monkeypatch.setattr(output, "Timer", None)
    null = os.open(os.devnull, os.O_WRONLY)
    with say_if_slow("waiting for node-7", null):
        os.close(null)
    with say_if_slow("waiting for node-7", null):
        pass
