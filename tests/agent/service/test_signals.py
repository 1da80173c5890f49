"""Signals that come where no thread can be started."""

import signal
import threading

import pytest

from chipwatch.service.signals import STOPPING, Signals


@pytest.fixture(autouse=True)
def _handlers():
    before = {number: signal.getsignal(number) for number in STOPPING}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_hang_up_without_a_thread_for_it_is_forgotten_and_the_next_one_reloads(monkeypatch, until):
    def full(*_):
        raise RuntimeError("can't start new thread")

    reloaded = []
    signals = Signals("old", lambda *runs: reloaded.append(runs))
    monkeypatch.setattr(signals, "_terminals", [])
    with monkeypatch.context() as scarce:
        scarce.setattr(threading.Thread, "start", full)
        signal.raise_signal(signal.SIGHUP)
    assert reloaded == []
    signal.raise_signal(signal.SIGHUP)
    until(lambda: reloaded)
    assert reloaded == [("old", None)]
