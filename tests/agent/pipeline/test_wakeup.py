"""No wake-up is lost, by any thread or handler, and a wait ends in time whatever signal handlers do meanwhile."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from chipwatch.pipeline.reading_thread import Wakeup

LONG = 60.0


@pytest.fixture
def alarm():
    """Call a function in a signal handler after so many seconds, and after each such pause if that is wanted."""
    before = signal.getsignal(signal.SIGALRM)

    def start(call, seconds, pause=0.0):
        signal.signal(signal.SIGALRM, lambda *_: call())
        signal.setitimer(signal.ITIMER_REAL, seconds, pause)

    yield start
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def test_a_wait_ends_with_its_time_or_with_a_set_before_it():
    wakeup = Wakeup()
    assert not wakeup.wait(0.01)
    assert not wakeup.wait(-1.0)
    wakeup.set()
    wakeup.set()
    assert wakeup.wait()
    assert not wakeup.wait(0.01)


def test_another_thread_ends_the_wait():
    wakeup = Wakeup()
    thread = threading.Thread(target=wakeup.set)
    thread.start()
    assert wakeup.wait(LONG)
    thread.join()


def test_a_signal_handler_ends_the_wait(alarm):
    wakeup = Wakeup()
    alarm(wakeup.set, 0.05)
    assert wakeup.wait(LONG)


def test_a_handler_that_outlasts_the_wait_does_not_make_it_endless(alarm):
    wakeup, began = Wakeup(), time.monotonic()
    guard = threading.Timer(LONG, wakeup.set)
    guard.start()
    alarm(lambda: time.sleep(0.3), 0.05)
    assert not wakeup.wait(0.1)
    assert time.monotonic() - began < LONG
    guard.cancel()


def test_a_handler_that_interrupts_a_set_loses_none(alarm):
    """The handler comes anywhere in the loop, also between the two halves of a `set` and within a wait."""
    wakeup, handled = Wakeup(), []

    def give():
        handled.append(1)
        wakeup.set()

    alarm(give, 0.0002, 0.0002)
    end = time.monotonic() + LONG
    while len(handled) < 200 and time.monotonic() < end:
        wakeup.set()
        assert wakeup.wait(LONG)
    signal.setitimer(signal.ITIMER_REAL, 0)
    assert len(handled) >= 200


def test_work_that_is_added_before_a_set_is_never_overlooked(alarm):
    """Two threads and a signal handler give work; the one that waits with the longest timeout gets all of it at once."""
    wakeup, work, done, by_signal = Wakeup(), [], 0, []

    def give(n=2000):
        for _ in range(n):
            work.append(1)
            wakeup.set()

    def give_by_signal():
        by_signal.append(1)
        give(1)

    alarm(give_by_signal, 0.001, 0.001)
    threads = [threading.Thread(target=give) for _ in range(2)]
    for thread in threads:
        thread.start()
    began = time.monotonic()
    while done < 4000 + len(by_signal) or len(by_signal) < 50:
        if not work:
            assert wakeup.wait(LONG), "a wake-up was lost"
        while work:
            work.pop()
            done += 1
    assert time.monotonic() - began < LONG
    for thread in threads:
        thread.join()
