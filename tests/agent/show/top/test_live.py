import threading

from chipwatch.config.options import Config
from chipwatch.contract.collector import Collector
from chipwatch.show.top import live


class Hanging(Collector):
    metrics = ()

    def __init__(self):
        self.begun, self.goes_on, self.closed = threading.Event(), threading.Event(), threading.Event()

    def collect(self, at):
        self.begun.set()
        self.goes_on.wait(60)
        return ()

    def close(self):
        self.closed.set()


def test_closing_ends_the_readings_at_once_and_a_collector_that_hangs_is_closed_when_it_returns(monkeypatch):
    collector = Hanging()
    monkeypatch.setattr(live, "build_collectors", lambda _: {"hanging": collector})
    monkeypatch.setattr(live, "build_processors", lambda _: {})
    source = live.Live(Config(), 90.0, lambda: None)
    source.start()
    assert collector.begun.wait(60)
    readings = next(thread for thread in threading.enumerate() if thread.name == "top")
    source.close()
    readings.join(30)
    assert not readings.is_alive()
    assert not collector.closed.is_set()
    collector.goes_on.set()
    assert collector.closed.wait(60)
