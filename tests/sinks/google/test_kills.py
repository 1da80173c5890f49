"""Agents killed between any two steps: a point that Cloud Monitoring did not store never counts as sent."""

import time
from collections import Counter
from contextlib import closing

import pytest
from tests.doubles.monitoring import answers as service
from tests.sinks.google.conftest import HEAT, SENT, S

from chipwatch.contract.datapoint import NO_DIMENSIONS, Datapoint, Dimensions
from chipwatch.engine.delivery import Worker
from chipwatch.engine.spool.file import SpoolFile
from chipwatch.engine.spool.queue import Spool

VM = Dimensions({"@instance_id": "4520031799277581759", "@gcp_zone": "us-central1-a"})
BEGUN = time.time_ns() // S * S - 3600 * S
BOOT = BEGUN - 1000 * S


class Lives:
    """Agents over one spool, each killed as soon as it has done its work; times in seconds after BEGUN."""

    def __init__(self, double, make_sink, path, monkeypatch):
        self.double, self._make_sink, self._path = double, make_sink, path
        monkeypatch.setattr(SpoolFile, "remember", lambda *_: None)  # killed as soon as the end of points is written

    def live(self, born, window=None, boot=0, attempts=1):
        """Begin at `born`; spool a window that ends at `window`, whose counter began `boot`; try to send."""
        now = BEGUN + int(born * S)
        with closing(Spool("google", self._path, clock=lambda: now)) as spool:
            worker = Worker("google", self._make_sink(opened=False, clock=lambda: now), spool, common=lambda: VM)
            if window is not None:
                at = BEGUN + int(window * S)
                counter = Datapoint(SENT, 10.0 + window, NO_DIMENSIONS, at, BOOT + boot * S, at - 10 * S)
                spool.append([HEAT.point(at, window), counter], VM)
            for _ in range(attempts):
                worker.turn()
            return {entry: n for entry, n in spool.ledger.ended().items() if entry != "collected"}

    def stored(self):
        """Return the ends of the stored points, of the gauge and of the counter, and the counter's starts."""
        gauges, counters = ([*self.double.points(ending)] for ending in ("temperature", "sent"))
        ends = [[(point.end - BEGUN) / S for point in points] for points in (gauges, counters)]
        return *ends, {(point.start - BOOT) / S for point in counters}


@pytest.fixture
def lives(double, make_sink, tmp_path, monkeypatch):
    return Lives(double, make_sink, tmp_path / "google.db", monkeypatch)


def test_an_end_that_was_moved_just_before_a_kill_is_known_to_the_next_agent(lives):
    lives.live(1, 0)
    lives.live(2, 9.2)  # 10 s after the last one for Google
    lives.live(15, 19.3, attempts=0)
    assert lives.live(30)["sent"] == 6
    assert lives.stored() == ([0, 10, 20], [0, 10, 20], {0})


@pytest.mark.parametrize("answers", [[], [service.LOST], [service.AWAY]])
def test_a_start_that_was_sent_just_before_a_kill_stays_the_start(lives, answers):
    lives.live(1, 0)
    for answer in answers:
        lives.double.answer_next(answer)
    lives.live(5, 20, boot=1, attempts=2)  # the boot seems to be a second later
    assert lives.live(30)["sent"] == 4
    assert lives.stored() == ([0, 20], [0, 20], {0})


def test_a_point_that_was_stored_before_a_kill_counts_as_sent(lives):
    lives.live(1, 0)
    lives.double.answer_next(service.LOST)
    lives.live(5, 20, boot=1)
    assert lives.live(30) == {"sent": 4}
    assert lives.stored() == ([0, 20], [0, 20], {0})


@pytest.mark.parametrize("answer", [None, service.LOST])
def test_a_point_that_comes_too_soon_after_another_writers_counts_as_rejected(lives, make_sink, answer):
    make_sink().write([HEAT.point(BEGUN, 1.0, VM)])
    lives.live(1, 5, attempts=0)
    if answer:
        lives.double.answer_next(answer)
    ended = Counter(lives.live(30, attempts=2))
    assert ended == {"sent": 1, "rejected:too frequent: another writer of the same series": 1}
    assert lives.stored()[:2] == ([0], [5])
