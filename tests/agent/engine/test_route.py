import pytest
from tests.doubles.frame import MemorySink

from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.engine.delivery import Worker
from chipwatch.engine.route import MetricFilter, Route
from chipwatch.engine.spool.queue import Spool
from chipwatch.engine.window import Window

S = 10**9
LOAD = gauge("cpu.load", "1", "The load.")
IDLE = gauge("cpu.idle", "%", "Idle.", Level.DETAILED)
SENT = counter("net.sent", "By", "Bytes sent.")
EVERY = gauge("net.every", "1", "Everything.", Level.ALL)
HERE = Dimensions(host="h")


class Woken(Worker):
    """A worker that does nothing but count how often it was woken."""

    def __init__(self, spool):
        super().__init__("mem", MemorySink(), spool)
        self.woken = 0

    def wake(self):
        self.woken += 1


def route(seconds=0, chosen=None, common=lambda: HERE):
    spool = Spool("mem")
    return Route(chosen or MetricFilter(Level.ALL), Window(seconds, born=0), spool, Woken(spool), common)


def owed(out):
    points, under = (*out.spool.take(1000), ([], None))[0]
    return [(p.metric.name, p.value) for p in points], under


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [
        (MetricFilter(Level.BASIC), ["cpu.load", "net.sent"]),
        (MetricFilter(Level.DETAILED), ["cpu.load", "cpu.idle", "net.sent"]),
        (MetricFilter(Level.ALL), ["cpu.load", "cpu.idle", "net.sent", "net.every"]),
        (MetricFilter(Level.ALL, include=["cpu.*"]), ["cpu.load", "cpu.idle"]),
        (MetricFilter(Level.BASIC, include=["cpu.*"]), ["cpu.load"]),
        (MetricFilter(Level.ALL, exclude=["*.s*", "cpu.idle"]), ["cpu.load", "net.every"]),
        (MetricFilter(Level.ALL, include=["cpu.*", "net.sent"], exclude=["cpu.load"]), ["cpu.idle", "net.sent"]),
        (MetricFilter(Level.ALL, include=["nothing"]), []),
    ],
)
def test_a_filter_wants_up_to_its_level_what_is_included_and_not_excluded(chosen, wanted):
    metrics = [LOAD, IDLE, SENT, EVERY]
    for _ in range(2):  # asked twice, the second answer comes from memory
        assert [m.name for m in metrics if chosen.wants(m)] == wanted


def test_two_metrics_of_one_name_and_two_levels_are_kept_separate():
    chosen = MetricFilter(Level.BASIC)
    assert chosen.wants(gauge("a.b", "1", "A."))
    assert not chosen.wants(gauge("a.b", "1", "A.", Level.ALL))


def test_samples_are_spooled_under_the_dimensions_of_the_machine_and_the_worker_is_woken():
    out = route()
    out.take([LOAD.point(S, 1.0)], S)
    assert out.worker.woken == 1
    assert owed(out) == ([("cpu.load", 1.0)], HERE)


def test_what_is_not_wanted_is_neither_spooled_nor_counted():
    out = route(chosen=MetricFilter(Level.BASIC))
    out.take([EVERY.point(S, 1.0)], S)
    assert out.worker.woken == 0
    assert out.spool.ledger.collected == 0


def test_a_window_in_progress_is_not_spooled_and_wakes_nobody_until_it_is_closed():
    out = route(seconds=60)
    out.take([LOAD.point(60 * S, 1.0)], 60 * S)
    out.take([LOAD.point(61 * S, 3.0)], 61 * S)
    assert (out.worker.woken, out.spool.ledger.collected) == (0, 0)
    out.close_window()
    assert out.worker.woken == 1
    assert owed(out)[0] == [("cpu.load", 2.0)]
    out.close_window()
    assert out.worker.woken == 1


def test_dimensions_that_are_not_known_yet_are_asked_for_again_each_time():
    known = [None, HERE]
    out = route(common=lambda: known.pop(0))
    out.take([LOAD.point(S, 1.0)], S)
    out.take([LOAD.point(2 * S, 2.0)], 2 * S)
    assert [([p.value for p in points], under) for points, under in out.spool.take(10)] == [
        ([1.0], None),
        ([2.0], HERE),
    ]


@pytest.mark.parametrize("seconds", [0, 60])
def test_priming_gives_counters_a_base_and_hands_nothing_out(seconds):
    out = route(seconds=seconds)
    out.prime([SENT.point(60 * S, 100, start_time=-S), LOAD.point(60 * S, 1.0)], 60 * S)
    assert (out.worker.woken, out.spool.ledger.collected) == (0, 0)
    out.take([SENT.point(61 * S, 107, start_time=-S), LOAD.point(61 * S, 3.0)], 61 * S)
    out.close_window()
    ((points, _),) = out.spool.take(10)
    assert {p.metric.name: (p.value, p.increase) for p in points} == {"cpu.load": (3.0, None), "net.sent": (107, 7)}


def test_what_a_stop_leaves_too_near_to_the_last_window_is_spooled_under_the_next_moment_allowed():
    spool = Spool("mem")
    out = Route(MetricFilter(Level.ALL), Window(60, born=0, spacing=10), spool, Woken(spool), lambda: HERE)
    for second in (55, 59, 63):
        out.take([LOAD.point(second * S, 1.0), SENT.point(second * S, second, start_time=0)], second * S)
    out.close_window()

    assert (spool.ledger.collected, spool.ledger.spooled) == (4, 4)
    ((points, _),) = spool.take(10)
    assert [(p.metric.name, p.at, p.value) for p in points] == [
        ("cpu.load", 59 * S, 1.0), ("net.sent", 59 * S, 59), ("cpu.load", 69 * S, 1.0), ("net.sent", 69 * S, 63),
    ]  # fmt: skip
    assert points[-1].increase == 4


def test_what_a_stop_leaves_far_enough_from_the_last_window_is_sent():
    spool = Spool("mem")
    out = Route(MetricFilter(Level.ALL), Window(60, born=0, spacing=10), spool, Woken(spool), lambda: HERE)
    for second in (55, 59, 70):
        out.take([LOAD.point(second * S, 1.0)], second * S)
    out.close_window()

    assert (spool.ledger.collected, spool.ledger.dropped.total()) == (2, 0)


def test_a_series_that_comes_twice_in_a_reading_is_logged_once(caplog):
    out = route(60)
    for at in (60 * S, 65 * S):
        out.take([LOAD.point(at, 1.0, HERE), LOAD.point(at, 2.0, HERE), SENT.point(at, 1, HERE, start_time=0)], at)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "cpu.load {'host': 'h'} more than once" in record.getMessage()
    out.close_window()
    assert ("cpu.load", 1.0) in owed(out)[0]
