"""`make bench` finds a collector that spins, sleeps or wakes up often: each is put into a real agent beside one without."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.bench import kept
from tests.bench.beside import compared
from tests.bench.figure import Effort
from tests.bench.ticking import whole_tick
from tests.peers.programs import BY_NAME
from tests.peers.running import rounds

SHORT = Effort(rounds=1, tick_seconds=4, steady_seconds=1, growth_ticks=1, starts=1)
BAD = """
    import threading, time
    from dataclasses import dataclass
    from chipwatch.contract.collector import Collector
    from chipwatch.contract.datapoint import gauge

    LOAD = gauge("bad.load", "%", "A load.")

    class Bad(Collector):
        metrics = (LOAD,)

        @dataclass(frozen=True)
        class Config:
            pass

        def __init__(self, config):
            pass

        def open(self, given):
            threading.Thread(target=self.wake, daemon=True).start()

        def wake(self):
            while True:
                time.sleep(0.01)

        def collect(self, at):
            end = time.thread_time() + 0.03
            while time.thread_time() < end:
                pass
            time.sleep(0.1)
            yield LOAD.point(at, 1.0)
"""


def measured():
    reference = kept.reference()
    with ThreadPoolExecutor() as threads:
        ticks = threads.submit(whole_tick, SHORT)
        results, absent = rounds([BY_NAME["psutil"], BY_NAME["stdout"]], 1, 4.0, 2.0)
    assert not absent
    return kept.with_reference([*compared(results, ""), *ticks.result()], reference)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_collector_that_spins_sleeps_and_wakes_up_is_found(tmp_path, plugins_folder, monkeypatch):
    kept.keep(measured(), tmp_path / "kept.json")
    before = kept.load(tmp_path / "kept.json")
    plugins_folder.add("bad", BAD, collectors=[("bad", "Bad")])
    monkeypatch.setenv("PYTHONPATH", str(plugins_folder.folder))
    figures = kept.compare(measured(), before)
    worse = {figure.name: figure.median for figure in figures if figure.verdict == "WORSE"}
    assert {
        "CPU of stdout / psutil",  # it spins
        "whole tick, wall",  # it sleeps
        "context switches",  # it wakes up
    } <= worse.keys(), [(figure.name, figure.median, before.get(figure.name)) for figure in figures]
    assert worse["whole tick, wall"] > 100  # ms, more than it spins
    assert worse["context switches"] > before["context switches"] + 50  # more than a reading that sleeps causes
