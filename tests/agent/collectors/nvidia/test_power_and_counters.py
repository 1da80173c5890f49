"""Counters of the driver: energy, from which power is computed, errors, bytes, time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.agent.collectors.nvidia.conftest import START, key

from chipwatch.collectors.nvidia.metrics import THROTTLES
from chipwatch.contract.datapoint import Level
from chipwatch.engine.window import Window

POWER = "gpu.power{gpu=0}"
ENERGY = "gpu.energy{gpu=0}"
ECC = "gpu.ecc.uncorrected{gpu=0}"


@pytest.fixture
def gpu(driver, watch):
    """A GPU whose fields the test sets: `gpu(level, 83=...)`."""
    fake = driver("h100")

    def start(level=Level.ALL):
        made = watch(level)

        def read(seconds=1.0, **fields):
            fake.gpus[0]["field"] |= {name.removeprefix("f"): value for name, value in fields.items()}
            return made.read(seconds)

        made.after = read
        made.driver = fake
        return made

    return start


def start_time(watched, name):
    return next(point.start_time for point in watched.points if key(point) == name)


def test_power_is_the_energy_since_the_last_tick_divided_by_the_time(gpu):
    watched = gpu(Level.BASIC)
    assert watched.after(f83=1_000_000)[POWER] == 631.95  # the sensor's, since too little time has passed
    read = watched.after(5, f83=3_500_000)  # 2500 J in 5 s
    assert read[POWER] == 500
    assert read["gpu.power.utilization{gpu=0}"] == 100 * 500 / 700
    assert ENERGY not in read  # asked for, but fake from level detailed on
    assert watched.after(2, f83=3_700_000)[POWER] == 100


def test_over_a_short_time_the_power_is_that_of_the_sensor(gpu):
    watched = gpu(Level.BASIC)
    watched.after(f83=1_000_000)
    assert watched.after(0.3, f83=1_300_000)[POWER] == 631.95
    assert watched.after(0.3, f83=1_300_000)[POWER] == pytest.approx(300 / 0.6)


@pytest.mark.parametrize("energy", [None, 0])
def test_without_an_energy_counter_that_moves_the_power_is_that_of_the_sensor(gpu, energy):
    watched = gpu()
    for _ in range(3):
        read = watched.after(5, f83=energy)
        assert read[POWER] == 631.95
        assert read.get(ENERGY) == energy
    assert watched.problems == []


@pytest.mark.parametrize(
    ("answers", "power", "share"),
    [({"limit": None}, 631.95, None), ({"power": 720_000}, 720, 100), ({"power": 4294967295}, None, None)],
)
def test_power_has_a_share_of_the_limit_up_to_100_percent(gpu, answers, power, share):
    watched = gpu(Level.BASIC)
    watched.driver.gpus[0] |= answers
    read = watched.after()
    assert (read.get(POWER), read.get("gpu.power.utilization{gpu=0}")) == (power, share)


NO_ENERGY = [2**64 - 4096, 2**63, 2**63 + 5_000_000, 9_200_000_000_000_000_000, 5_000_000 + 2 * 1_400_001 * 2]


@pytest.mark.parametrize("garbage", NO_ENERGY)
def test_power_that_no_gpu_can_draw_is_not_derived_from_the_energy(gpu, garbage):
    watched = gpu()
    watched.after(2, f83=5_000_000)
    assert watched.after(2, f83=garbage)[POWER] == 631.95
    read = watched.after(2, f83=6_400_000 if garbage > 2**60 else garbage + 1_400_000)
    assert read[POWER] == (350 if garbage > 2**60 else 700)
    assert read[ENERGY] == (6_400 if garbage > 2**60 else (garbage + 1_400_000) / 1e3)


def charged(watched, *energies):
    """Return the joules of each reading of a counter (mJ), one each two seconds."""
    for energy in energies:
        watched.after(2, f83=energy)
        (activity,) = watched.collector._gpus.activity()
        yield activity.energy


def test_energy_is_charged_once_where_the_counter_grows_in_steps_and_by_power_where_it_stands_still(gpu):
    joules = [*charged(gpu(Level.BASIC), 5_000_000, 5_000_000, 7_000_000, 7_000_000, 7_000_000, 7_000_000)]
    assert joules == pytest.approx([0, 0, 2000, 0, 0, 6 * 631.95])


def test_energy_that_no_gpu_can_use_is_not_charged_to_a_job(gpu):
    joules = [*charged(gpu(Level.BASIC), 5_000_000, 6_000_000, 2**63, 7_500_000, 8_000_000)]
    assert joules[1] == 1000
    assert joules[2] > 0
    assert max(joules) <= 2000
    assert joules[4] == 500


def test_an_energy_counter_that_jumps_starts_again_and_gives_no_power(gpu):
    watched = gpu()
    watched.after(f83=5_000_000)
    assert ENERGY not in watched.after(f83=10**15)
    read = watched.after(f83=10**15 + 500_000)
    assert (read[ENERGY], read[POWER]) == (10**12 + 500, 631.95)
    assert start_time(watched, ENERGY) == watched.at
    assert watched.after(f83=10**15 + 1_100_000)[POWER] == 600


def test_a_counter_that_the_driver_does_not_have_is_absent(gpu):
    assert "gpu.pcie.sent{gpu=0}" not in gpu().after(f197=2**64 - 4096)


def test_a_single_zero_is_ignored_and_causes_no_jump(gpu):
    watched = gpu()
    watched.after(10, f83=5_000_000, f4=3)
    read = watched.after(10, f83=0, f4=0)
    assert ENERGY not in read
    assert ECC not in read
    assert read[POWER] == 631.95
    read = watched.after(10, f83=11_000_000, f4=3)
    assert read[ENERGY] == 11_000
    assert read[POWER] == 300  # over both ticks
    assert read[ECC] == 3
    assert start_time(watched, ENERGY) == start_time(watched, ECC) == watched.at - 20_000_000_000


def test_counters_of_a_reloaded_driver_have_a_new_start_time(gpu):
    watched = gpu()
    for _ in range(2):
        watched.after(f83=5_000_000)
    last = watched.at
    read = watched.after(f83=2_000)
    assert read[ENERGY] == 2
    assert start_time(watched, ENERGY) == last
    assert read[POWER] == 631.95
    assert watched.after(f83=302_000)[POWER] == 300


def test_throttled_time_is_in_seconds_by_reason(gpu):
    watched = gpu()
    read = watched.after(**{f"f{number}": n * 1_500_000_000 for n, number in enumerate(THROTTLES)})
    assert [read[f"gpu.throttled{{gpu=0,reason={reason}}}"] for reason in THROTTLES.values()] == [
        1.5 * n for n in range(6)
    ]


def test_remapped_rows_are_counted_by_cause(gpu):
    read = gpu().after(f142="5u", f143="2u")
    assert read["gpu.rows.remapped{cause=correctable,gpu=0}"] == 5
    assert read["gpu.rows.remapped{cause=uncorrectable,gpu=0}"] == 2


@given(
    st.lists(st.integers(0, 1000), min_size=1, max_size=30).map(
        lambda steps: [sum(steps[: n + 1]) for n in range(len(steps))]
    ),
    st.sets(st.integers(0, 29)),
)
def test_single_zeros_do_not_change_the_increases_of_a_window(values, faults):
    from chipwatch.contract.datapoint import counter
    from chipwatch.host.counters import Life

    metric = counter("x", "By", "X.")

    def increases(readings):
        life, window, total = Life(), Window(0, born=0), 0.0
        for n, value in enumerate(readings):
            at = START + n
            points = [metric.point(at, value, start_time=life.start_time)] if life.take(value, at) else []
            total += sum(point.increase or 0 for point in window.add(points, at))
        return total

    # A single zero between two readings, never two in a row, and never at the end, where it cannot be known for one.
    spoilt = []
    for n, value in enumerate(values):
        spoilt += [value, 0] if n in faults and 0 < n < len(values) - 1 and value else [value]
    assert increases(values) == values[-1] - values[0]
    assert increases(spoilt) == values[-1] - values[0]
