"""The event that costs little is an event all the same."""

from __future__ import annotations

import signal
import threading
import time

from chipwatch.pipeline.reading_thread import Wakeup

LONG = 60.0


def test_a_wait_ends_with_its_time_or_once_it_is_set():
    event = Wakeup()
    assert not event.wait(0.01)
    event.set()
    event.set()
    assert event.is_set()
    assert event.wait()
    assert event.wait(LONG)


def test_another_thread_ends_the_wait():
    event, began = Wakeup(), time.monotonic()
    thread = threading.Thread(target=event.set)
    thread.start()
    assert event.wait(LONG)
    assert time.monotonic() - began < LONG
    thread.join()


def test_a_signal_handler_ends_the_wait():
    event = Wakeup()
    before = signal.signal(signal.SIGALRM, lambda *_: event.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert event.wait(LONG)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_handler_that_outlasts_the_wait_does_not_make_it_endless():
    event, began = Wakeup(), time.monotonic()
    before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.3))
    guard = threading.Timer(LONG, event.set)
    guard.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert not event.wait(0.1)
        assert time.monotonic() - began < LONG
    finally:
        guard.cancel()
        signal.signal(signal.SIGALRM, before)


def test_what_is_set_between_a_wait_and_its_clear_is_seen_by_who_looks_after_the_clear():
    event, work, done = Wakeup(), [], []

    def take():
        while len(done) < 2000:
            if not work:
                event.wait(LONG)
                event.clear()
            while work:
                done.append(work.pop())

    thread = threading.Thread(target=take)
    thread.start()
    for n in range(2000):
        work.append(n)
        event.set()
    thread.join(LONG)
    assert len(done) == 2000


def test_a_thread_that_never_waits_leaves_one_token():
    event = Wakeup()
    for _ in range(1000):
        event.set()
    assert event.wait()
    event.clear()
    event.wait()  # a token that was left ends one wait early, and no other
    assert not event.wait(0.01)
