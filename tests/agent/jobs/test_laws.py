"""The laws of GPU time: what jobs are charged is what devices were held, to the nanosecond a tick."""

import hypothesis.strategies as st
from hypothesis import given, settings
from tests.examples import examples

from chipwatch.jobs import accounting
from chipwatch.jobs.accounting import HELD_AFTER, SECOND, STATES, DeviceReading, Holding, allocated, charges, following

KEYS = [("slurm", "", str(n)) for n in range(5)]
INTERVAL = 5 * SECOND
ADA, BOB, EVE = KEYS[:3]

holdings = st.builds(
    Holding,
    since=st.integers(0, 10**13),
    present=st.booleans(),
    blind=st.booleans(),
    ran=st.none() | st.integers(0, 10**13),
    work=st.none() | st.floats(0, 1),
)
readings = st.builds(
    DeviceReading,
    moment=st.integers(0, 10**13),
    holders=st.dictionaries(st.sampled_from(KEYS), holdings),
    active=st.none() | st.floats(0, 1),
    idle=st.integers(0, 10**10),
    throttled=st.floats(0, 1),
    lost=st.booleans(),
    paused=st.booleans(),
)


@given(before=readings, after=readings, elapsed=st.integers(1, 10**13))
@settings(max_examples=examples(1000))
def test_the_sum_over_jobs_and_states_is_the_time_that_the_device_was_held(before, after, elapsed):
    after = following(before, after._replace(moment=before.moment + elapsed))
    charged = charges(before, after, INTERVAL)
    assert sum(sum(states.values()) for states in charged.values()) == allocated(before, after) <= elapsed
    assert all(time > 0 and state in STATES for states in charged.values() for state, time in states.items())


@given(
    st.dictionaries(st.sampled_from(KEYS), st.floats(0, 1).map(lambda work: round(work, 6)), min_size=1),
    st.integers(1, 10**13),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_jobs_that_share_a_device_are_charged_by_their_work_to_the_nanosecond(works, elapsed, active, throttled):
    before = DeviceReading(0, dict.fromkeys(works, Holding(0)))
    now = DeviceReading(elapsed, {key: Holding(0, work=work) for key, work in works.items()}, active, 0, throttled)
    charged = charges(before, now, elapsed)
    assert sum(sum(states.values()) for states in charged.values()) == elapsed
    total, worked = sum(works.values()), round(elapsed * active)
    for key, work in works.items():
        states = charged.get(key, {})
        share = work / total if total else 1 / len(works)
        ran = states.get("busy", 0) + states.get("throttled", 0)
        assert abs(ran - worked * share) <= 2
        assert abs(sum(states.values()) - ran - (elapsed - worked) / len(works)) <= 2


def test_a_job_that_ran_no_kernel_beside_another_holds_the_device_after_a_minute():
    last = DeviceReading(0, {ADA: Holding(0, ran=0), BOB: Holding(0, ran=0)})
    totals = {}
    for n in range(1, 25):
        holders = {ADA: Holding(0, work=1.0), BOB: Holding(0, work=0.0)}
        now = following(last, DeviceReading(n * INTERVAL, holders, 0.5))
        for key, time in seconds(charges(last, now, INTERVAL)).items():
            totals[key] = totals.get(key, 0) + time
        last = now
    assert totals == {("0", "busy"): 60.0, ("0", "stalled"): 30.0, ("1", "stalled"): 15.0, ("1", "held"): 15.0}


def reading(seconds, *keys, active=1.0, **more):
    return DeviceReading(
        seconds * SECOND, {key: more.pop("holding", Holding(0, ran=0)) for key in keys}, active, **more
    )


def seconds(charged):
    return {(key[2], state): time / SECOND for key, states in charged.items() for state, time in states.items()}


def test_a_job_that_came_counts_from_its_start_and_the_gap_is_unseen():
    before, now = reading(10, ADA), reading(15, BOB, holding=Holding(13 * SECOND))
    assert seconds(charges(before, now, INTERVAL)) == {("0", "unseen"): 3.0, ("1", "busy"): 2.0}


def test_a_job_that_left_a_device_free_counts_until_it_was_last_seen():
    assert charges(reading(10, ADA), reading(15), INTERVAL) == {}


def test_a_second_job_shares_the_time_from_its_start_only():
    now = DeviceReading(15 * SECOND, {ADA: Holding(0), BOB: Holding(11 * SECOND)}, 1.0)
    assert seconds(charges(reading(10, ADA), now, INTERVAL)) == {("0", "busy"): 3.0, ("1", "busy"): 2.0}


def test_a_device_that_was_free_counts_from_the_start_of_its_job():
    now = reading(15, ADA, holding=Holding(12 * SECOND))
    assert seconds(charges(reading(10), now, INTERVAL)) == {("0", "busy"): 3.0}


def test_time_beyond_two_intervals_is_unseen_unless_the_device_is_lost():
    assert seconds(charges(reading(0, ADA), reading(25, ADA), INTERVAL)) == {("0", "unseen"): 15.0, ("0", "busy"): 10.0}
    lost = reading(25, ADA, lost=True)
    assert seconds(charges(reading(0, ADA), lost, INTERVAL)) == {("0", "lost"): 25.0}


def test_time_in_which_nothing_was_read_is_unseen_also_of_a_device_that_is_lost_now():
    before = reading(0, ADA)._replace(paused=True)
    for lost in (False, True):
        assert seconds(charges(before, reading(8, ADA, lost=lost), INTERVAL)) == {("0", "unseen"): 8.0}


def test_a_pause_becomes_held_a_minute_after_the_last_kernel_also_within_a_tick():
    ran = Holding(0, ran=100 * SECOND - HELD_AFTER + 2 * SECOND)
    before, now = reading(100, ADA, holding=ran), reading(105, ADA, active=0.0, holding=ran)
    assert seconds(charges(before, now, INTERVAL)) == {("0", "stalled"): 2.0, ("0", "held"): 3.0}


def test_time_with_kernels_is_busy_or_throttled_and_never_held():
    now = reading(5, ADA, active=0.5, throttled=0.4)
    assert seconds(charges(reading(0, ADA), now, INTERVAL)) == {
        ("0", "throttled"): 1.0, ("0", "busy"): 1.5, ("0", "stalled"): 2.5,
    }  # fmt: skip


def test_a_job_without_a_process_holds_a_device_and_one_whose_processes_are_hidden_is_unknown():
    idle = {"active": 0.0}
    absent, hidden = Holding(0, present=False), Holding(0, present=False, blind=True)
    before = reading(0, ADA)
    assert seconds(charges(before, reading(5, ADA, holding=absent, **idle), INTERVAL)) == {("0", "held"): 5.0}
    assert seconds(charges(before, reading(5, ADA, holding=hidden, **idle), INTERVAL)) == {("0", "unknown"): 5.0}
    assert seconds(charges(before, reading(5, ADA, active=None), INTERVAL)) == {("0", "unknown"): 5.0}


def test_a_kernel_of_the_job_before_does_not_count_for_the_next_one():
    before = following(None, reading(0, ADA))
    now = following(before, reading(5, BOB, active=0.0, holding=Holding(0, present=False)))
    assert now.holders[BOB].ran is None
    assert accounting.following(now, reading(10, BOB, active=0.5)).holders[BOB].ran == 10 * SECOND
