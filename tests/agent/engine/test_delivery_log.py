"""Messages about a sink's deliveries, with the test's clock."""

import logging

import pytest

from chipwatch.engine.delivery_log import DeliveryLog
from chipwatch.engine.spool.file import Ledger

HOUR, MINUTE = 3600.0, 60.0


class Bench:
    """A delivery log with its ledger and clock."""

    def __init__(self, caplog, *, kept=0, sent=0):
        caplog.set_level(logging.INFO)
        self.now, self._records = 1000.0, caplog.records
        self.ledger = Ledger(collected=kept + sent, sent=sent, spooled=kept)
        self.log = DeliveryLog("cloud", self.ledger, lambda: self.now)
        self.log.opened()

    def collect(self, points):
        self.ledger.collected += points
        self.ledger.spooled += points

    def deliver(self, points, where="the console"):
        self.ledger.sent += points
        self.ledger.spooled -= points
        self.log.delivered(lambda: where)
        if not self.ledger.spooled:
            self.log.drained()

    def fail(self, text="no answer", wait=1.0, **options):
        event = "bug" if options.pop("traceback", False) else "retried"
        self.log.failed(event, text, text, (wait, max(wait, 60.0)), **{"is_last": False} | options)

    def lines(self):
        """Return the new lines."""
        lines = [record.getMessage() for record in self._records]
        self._records.clear()
        return lines


@pytest.fixture
def bench(caplog):
    return lambda **counts: Bench(caplog, **counts)


def test_the_first_delivery_says_how_many_points_and_where_to_look(bench):
    b = bench(sent=7)
    b.collect(1113)
    b.deliver(1113)
    assert b.lines() == ["cloud: first 1,113 points accepted; see the console"]


def test_a_sink_that_cannot_say_where_says_how_many(bench):
    b = bench()
    b.collect(1)
    b.deliver(1, where="")
    assert b.lines() == ["cloud: first 1 point accepted"]


def test_a_sink_whose_points_everybody_sees_says_nothing(bench):
    b = bench()
    b.collect(1)
    b.deliver(1, where=None)
    assert b.lines() == []


def test_points_for_other_destinations_are_listed_separately(bench):
    b = bench(kept=1004)
    b.ledger.elsewhere = 1000
    b.fail(wait=30.0)
    b.deliver(1)
    assert b.lines()[:2] == [
        "cloud: cannot send, 4 points kept and 1,000 for other destinations, next try within 60 s: no answer",
        "cloud: sending again after 0.0 s; 4 points kept, 0 lost",
    ]


def test_steady_health_is_silent_and_so_is_a_single_failure_that_is_over_at_once(bench):
    b = bench()
    b.collect(1)
    b.deliver(1)
    b.lines()
    for _ in range(100):
        b.now += MINUTE
        b.collect(5)
        b.fail()
        b.deliver(5)
    assert b.lines() == []


@pytest.mark.parametrize("options", [{"wait": 60.0}, {"is_last": True}])
def test_a_failure_with_a_long_wait_or_no_next_try_is_logged_at_once(bench, options):
    b = bench()
    b.collect(3)
    b.fail(**options)
    what = " 3 points" if "is_last" in options else ", 3 points kept, next try within 60 s"
    assert b.lines() == [f"cloud: cannot send{what}: no answer"]


def test_trouble_is_logged_at_the_second_failure_and_then_once_an_hour(bench):
    b = bench()
    b.collect(113)
    for _ in range(3 * 60 + 1):
        b.fail()
        b.now += MINUTE
    assert b.lines() == [
        "cloud: cannot send for 1 min, 113 points kept, next try within 60 s: no answer",
        "cloud: cannot send for 1 h 1 min, 113 points kept, next try within 60 s: no answer",
        "cloud: cannot send for 2 h 1 min, 113 points kept, next try within 60 s: no answer",
    ]


def test_another_cause_is_logged_at_once(bench):
    b = bench()
    b.fail()
    b.fail()
    b.fail("access denied")
    assert [line.rpartition(": ")[2] for line in b.lines()] == ["no answer", "access denied"]


def test_an_outage_ends_with_how_long_it_was_and_how_many_points_were_kept_and_lost(bench):
    b = bench()
    b.collect(100)
    b.deliver(100)
    b.lines()
    b.fail()
    b.fail()
    assert len(b.lines()) == 1
    b.collect(2830)
    b.ledger.add({"dropped:too old": 5})
    b.ledger.spooled -= 5
    b.now += 25 * MINUTE
    b.deliver(1000)
    assert b.lines() == ["cloud: sending again after 25 min; 2,825 points kept, 5 lost"]
    b.now += 4.0
    b.deliver(1825)
    assert b.lines() == ["cloud: caught up: 2,825 points in 4.0 s"]
    b.fail()
    b.now += MINUTE
    b.fail()
    assert len(b.lines()) == 1, "the next long outage is said anew"


def test_a_sink_that_fails_and_recovers_again_and_again_is_logged_once_an_hour(bench):
    b = bench()
    b.collect(1)
    b.deliver(1)
    b.lines()
    for _ in range(3 * 3600):
        b.now += 1.0
        b.collect(1)
        b.fail(wait=60.0)
        b.deliver(1)
    assert [line.split(",")[0].split(";")[0] for line in b.lines()] == 3 * [
        "cloud: cannot send", "cloud: sending again after 0.0 s", "cloud: caught up: 1 point in 0.0 s"
    ]  # fmt: skip


def test_a_long_catching_up_tells_its_progress_less_and_less_often(bench):
    b = bench()
    b.collect(100_000)
    b.fail()
    b.fail()
    b.deliver(1000)
    b.lines()
    for _ in range(40):
        b.now += 10.0
        b.deliver(1000)
    assert b.lines() == [
        "cloud: catching up: 7,000 points sent, 93,000 points kept, about 13 min 17 s left",
        "cloud: catching up: 13,000 points sent, 87,000 points kept, about 13 min 23 s left",
        "cloud: catching up: 25,000 points sent, 75,000 points kept, about 12 min left",
    ]


def test_what_was_kept_over_a_restart_is_caught_up_with(bench):
    b = bench(kept=2000, sent=7)
    b.deliver(1000)
    b.now += 2.0
    b.deliver(1000)
    assert b.lines() == [
        "cloud: first 1,000 points accepted; see the console",
        "cloud: caught up: 2,000 points in 2.0 s",
    ]
