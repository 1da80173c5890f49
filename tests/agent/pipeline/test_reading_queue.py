"""A wait for a reading ends in time, whatever signal handlers do meanwhile."""

from __future__ import annotations

import signal
import threading
import time

import pytest

from chipwatch.pipeline.reading_thread import ReadingQueue

LONG = 60.0


@pytest.fixture
def slow_handler():
    """A handler that takes longer than the waits here, called shortly after the start."""
    before = signal.signal(signal.SIGALRM, lambda *_: time.sleep(0.3))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    yield
    signal.signal(signal.SIGALRM, before)


def test_items_come_in_their_order_and_then_none():
    items = ReadingQueue()
    assert items.empty()
    for item in (1, 2, 3):
        items.put(item)
    assert [items.get(LONG), items.get(0.0), items.get(LONG)] == [1, 2, 3]
    assert items.empty()
    assert items.get(0.0) is None


def test_a_wait_takes_its_whole_time_though_an_earlier_item_was_there_without_a_wait():
    items = ReadingQueue()
    items.put(1)
    items.get(LONG)
    begun = time.monotonic()
    assert items.get(0.05) is None
    assert time.monotonic() - begun >= 0.05


def test_an_item_of_another_thread_ends_the_wait():
    items, begun = ReadingQueue(), time.monotonic()
    thread = threading.Timer(0.02, items.put, (1,))
    thread.start()
    assert items.get(LONG) == 1
    assert time.monotonic() - begun < LONG
    thread.join()


def test_a_handler_that_outlasts_the_wait_does_not_make_it_endless(slow_handler):
    items, begun = ReadingQueue(), time.monotonic()
    guard = threading.Timer(LONG, items.put, (None,))
    guard.start()
    assert items.get(0.1) is None
    guard.cancel()
    assert time.monotonic() - begun < LONG


def test_an_item_that_a_handler_puts_ends_the_wait():
    items = ReadingQueue()
    before = signal.signal(signal.SIGALRM, lambda *_: items.put(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        assert items.get(LONG) == 1
    finally:
        signal.signal(signal.SIGALRM, before)


def test_no_item_of_many_threads_is_lost():
    items, taken = ReadingQueue(), []
    threads = [threading.Thread(target=lambda n=n: [items.put((n, i)) for i in range(2000)]) for n in range(4)]
    for thread in threads:
        thread.start()
    while len(taken) < 8000:
        taken.append(items.get(LONG))
    for thread in threads:
        thread.join()
    assert sorted(taken) == [(n, i) for n in range(4) for i in range(2000)]
    assert items.empty()
