import math
import struct
import subprocess
import sys
from contextlib import suppress

import pytest
from tests.doubles.apple.mac import CLOCKS, CannotBuild, Mac, build, table
from tests.doubles.program import Clock

from chipwatch.collectors.apple.foundation import Libraries, bind
from chipwatch.collectors.apple.hardware import AppleHardware
from chipwatch.collectors.apple.registry import frequencies
from chipwatch.collectors.apple.report import shares
from chipwatch.contract.errors import Unavailable

MHZ = 1_000_000


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    try:
        return build(tmp_path_factory.mktemp("apple"))
    except CannotBuild as reason:
        pytest.skip(str(reason))


@pytest.fixture
def mac(library):
    """A Mac; after each test, no call was wrong."""
    made = Mac(library)
    yield made
    assert made.trouble() == []


class Watch:
    """The reader in this process, where the fake Mac can be changed."""

    def __init__(self, mac):
        self.mac, self.clock, self.hardware = mac, Clock(), None

    def open(self, **told):
        """Open it on a Mac that tells something else."""
        if told:
            self.mac.tell(**told)
        self.hardware = AppleHardware(self.mac.libraries, self.clock)

    def close(self):
        if self.hardware:
            self.hardware.close()

    def read(self, seconds=0.0, watts=0.0, **busy):
        """Let time pass; return the values of a reading by name, and the problems."""
        if seconds:
            self.clock.now += seconds
            self.mac.pass_by(seconds, watts, **busy)
        problems = []
        return {metric.name: value for metric, value in self.hardware.read(problems).items()}, problems


@pytest.fixture
def watch(mac):
    made = Watch(mac)
    yield made
    made.close()
    assert mac.leaked == 0


@pytest.fixture
def opened(watch):
    watch.open()
    return watch


def test_all_of_the_gpu_is_read_over_the_time_between_two_readings(opened):
    found, problems = opened.read(4.0, watts=21.5, P1=0.25, P8=0.5)
    assert found == {
        "gpu.utilization": pytest.approx(75.0),
        "gpu.memory.used": 27_443_200,
        "gpu.temperature": pytest.approx(41.0),
        "gpu.power": pytest.approx(21.5),
        "gpu.clock.graphics": pytest.approx((444 * 0.25 + 1398 * 0.5) / 0.75),
    }
    assert problems == []
    assert str(opened.hardware) == "IOReport, IOAccelerator, 3 sensors of the SMC"


def test_a_reading_right_after_another_does_not_spoil_the_next_one(opened):
    opened.read(0.09, watts=900.0, P8=1.0)
    assert opened.read(0.91, watts=900.0)[0]["gpu.power"] == pytest.approx(900.0)


def test_an_idle_gpu_uses_nothing_and_has_no_clock(opened):
    found, problems = opened.read(1.0)
    assert (found["gpu.utilization"], found["gpu.power"]) == (0.0, 0.0)
    assert "gpu.clock.graphics" not in found
    assert problems == []


@pytest.mark.parametrize("unit", ["mJ", "uJ", "nJ"])
def test_the_energy_is_in_the_unit_of_its_channel(watch, unit):
    watch.open(energy={"GPU Energy": (unit, 7)})
    assert watch.read(2.0, watts=3.0)[0]["gpu.power"] == pytest.approx(3.0)


def test_an_energy_in_an_unknown_unit_is_absent_and_reported(watch):
    watch.open(energy={"GPU Energy": ("kWh", 7)})
    found, problems = watch.read(2.0, watts=3.0, P1=1.0)
    assert "gpu.power" not in found
    assert found["gpu.utilization"] == 100.0
    assert problems == ["IOReport counts the energy in kWh"]


def test_a_counter_that_fell_is_absent(opened, mac):
    mac.energy["GPU Energy"] = "nJ", 5
    opened.clock.now += 1
    mac.times["P3"] -= 10
    mac.tell()
    assert opened.read()[0].keys() == {"gpu.memory.used", "gpu.temperature"}
    assert opened.read(1.0, watts=2.0)[0]["gpu.power"] == pytest.approx(2.0)


def test_a_sensor_that_is_off_or_invalid_does_not_count(opened, mac):
    mac.tell(sensors=[("Tg04", "flt ", 5.1), ("Tg05", "flt ", 44.0), ("Tg5z", "flt ", math.nan)])
    assert opened.read()[0]["gpu.temperature"] == 44.0
    mac.tell(sensors=[("Tg04", "flt ", 0.0)])
    assert "gpu.temperature" not in opened.read()[0]


def test_sensors_are_found_in_a_table_that_is_not_sorted(watch):
    watch.open(sensors=[("Tg05", "flt ", 42.0), ("TB0p", "flt ", 50.0), ("FNum", "ui8 ", 0)])
    assert watch.read()[0]["gpu.temperature"] == 42.0


def test_few_keys_of_a_long_table_are_looked_at(mac, watch):
    many = sorted(f"{kind}{n:03}" for kind in "ABCPSV" for n in range(600))
    mac.tell(sensors=sorted([(key, "ui8 ", 0) for key in many] + [("Tg01", "flt ", 30.0)]))
    mac.fail(0)
    watch.open()
    assert watch.read()[0]["gpu.temperature"] == 30.0
    assert mac.calls < 150


def test_a_virtual_machine_has_no_gpu(mac, watch):
    mac.tell(vm=1)
    with pytest.raises(Unavailable, match="no Apple GPU: this is a virtual machine"):
        watch.open()
    assert mac.leaked == 0


def test_a_system_without_the_sign_of_a_virtual_machine_is_not_one(watch):
    watch.open(vm=None)
    assert watch.read(1.0, watts=1.0)[0]["gpu.power"] == pytest.approx(1.0)


def test_only_zeros_give_no_values(watch):
    statistics = {"Device Utilization %": 0, "In use system memory": 0}
    watch.open(statistics=statistics, sensors=[], energy={"GPU Energy": ("nJ", 0)})
    assert watch.read(1.0) == ({}, ["macOS reports only zeros, as in a virtual machine"])


def test_without_ioreport_utilization_comes_from_the_registry(watch):
    watch.open(energy={}, times=None)
    expected = {"gpu.utilization": 57, "gpu.memory.used": 27_443_200, "gpu.temperature": pytest.approx(41.0)}
    assert watch.read() == (expected, [])
    assert str(watch.hardware) == "IOAccelerator, 3 sensors of the SMC"


def test_without_the_energy_model_only_the_power_is_absent(mac, watch):
    watch.open(energy={"CPU Energy": ("mJ", 5)})
    mac.energy["GPU Energy"] = "nJ", 0
    found, problems = watch.read(1.0, P2=1.0)
    assert (found["gpu.utilization"], found["gpu.clock.graphics"]) == (100.0, 612.0)
    assert "gpu.power" not in found
    assert problems == []


def test_without_an_smc_there_is_no_temperature(watch):
    watch.open(smc=None)
    assert watch.read()[0] == {"gpu.memory.used": 27_443_200}
    assert str(watch.hardware) == "IOReport, IOAccelerator"


@pytest.mark.parametrize("clocks", [None, "", "00", table((0,)), table((444, 0, 612)), table((612, 444)), table((5,))])
def test_without_a_table_of_clocks_there_is_no_clock(watch, clocks):
    watch.open(clocks=clocks)
    found, _ = watch.read(1.0, P1=0.5)
    assert found["gpu.utilization"] == pytest.approx(50.0)
    assert "gpu.clock.graphics" not in found


@pytest.mark.parametrize(
    "statistics", [None, {}, "a string", {"Device Utilization %": "57", "In use system memory": "1"}]
)
def test_statistics_of_another_shape_are_absent(watch, statistics):
    watch.open(statistics=statistics)
    assert watch.read()[0].keys() == {"gpu.temperature"}


@pytest.mark.parametrize("busy", [101, -1])
def test_an_impossible_share_is_absent(watch, busy):
    watch.open(times=None, statistics={"Device Utilization %": busy, "In use system memory": 5})
    assert "gpu.utilization" not in watch.read()[0]


def test_without_all_sources_there_is_no_gpu(mac, watch):
    mac.tell(energy={}, times=None, statistics=None)
    reason = "no Apple GPU: IOReport has no channel of a GPU, and no IOAccelerator has statistics"
    with pytest.raises(Unavailable, match=reason):
        watch.open()
    assert mac.leaked == 0


@pytest.mark.parametrize("part", Libraries._fields)
def test_the_message_names_a_library_that_is_absent(mac, part):
    libraries = mac.libraries._replace(**{part: "/nowhere/lib.dylib"})
    if part == "report":
        AppleHardware(libraries, Clock()).close()  # the registry and the SMC still tell something
    else:
        with pytest.raises(Unavailable, match=r"/nowhere/lib\.dylib cannot be used"):
            AppleHardware(libraries, Clock())
    assert mac.leaked == 0


def test_the_message_names_a_function_that_is_absent(library):
    with pytest.raises(Unavailable, match=r"cannot be used: .*IOReportOfTomorrow"):
        bind(str(library), {"IOReportOfTomorrow": (None,)})


@pytest.mark.skipif(sys.platform == "darwin", reason="there they are")
def test_another_system_has_none_of_the_libraries():
    with pytest.raises(Unavailable, match="CoreFoundation cannot be used"):
        AppleHardware(Libraries(), Clock())


def test_a_thousand_readings_leak_nothing(opened, mac):
    opened.read(1.0, watts=1.0, P1=0.5)
    before = mac.alive
    for n in range(1000):
        found, problems = opened.read(1.0, watts=n, P1=0.5)
        assert (len(found), problems) == (5, [])
    assert mac.alive == before
    opened.close()
    assert mac.leaked == 0


def whole_life(watch):
    """Open, read four times, close; return how often it was read."""
    read = 0
    with suppress(Unavailable):
        watch.open()
        for _n in range(4):
            watch.read(1.0, watts=5.0, P1=0.25, P8=0.25)
            read += 1
    watch.close()
    return read


@pytest.mark.parametrize("for_ever", [False, True], ids=["once", "from then on"])
def test_no_failed_call_ends_the_agent_or_leaks_anything(watch, mac, for_ever):
    mac.fail(0)
    assert whole_life(watch) == 4
    many = mac.calls
    assert many > 300
    for nth in range(1, many + 1):
        mac.fail(nth, for_ever=for_ever)
        whole_life(watch)
        mac.fail(0)
        assert (mac.leaked, mac.trouble()) == (0, []), nth


def test_the_reading_after_a_failed_call_is_complete(opened, mac):
    opened.read(1.0)
    mac.fail(0)
    opened.read(1.0, P1=0.5)
    many = mac.calls
    messages = set()
    for nth in range(1, many + 1):
        mac.fail(nth)
        found, problems = opened.read(1.0, watts=6.0, P1=0.5)
        assert found.get("gpu.power", 6.0) == pytest.approx(6.0, rel=1e-3)
        messages.update(problems)
        mac.fail(0)
        found, problems = opened.read(1.0, watts=6.0, P1=0.5)
        assert (len(found), problems) == (5, []), nth
    assert messages == {
        "IOReport returned no sample",
        "IOReport returned no difference of two samples",
        "IOReport counts the energy in nothing",
    }


def test_the_reading_after_a_failed_sample_covers_the_time_of_both(opened, mac):
    mac.fail(1)
    assert "gpu.power" not in opened.read(1.0, watts=30.0)[0]
    mac.fail(0)
    assert opened.read(1.0, watts=10.0)[0]["gpu.power"] == pytest.approx(20.0)


def test_the_fake_records_calls_that_would_end_a_process_on_a_mac(library):
    """An empty list of troubles in the other tests has a meaning."""
    program = """
import ctypes, sys
from pathlib import Path
from chipwatch.collectors.apple.foundation import Foundation
from tests.doubles.apple.mac import Mac
mac = Mac(Path(sys.argv[1]))
cf = Foundation(mac.libraries)
string = cf.string("x")
for call in (lambda: cf._cf.CFArrayGetCount(None), lambda: cf._cf.CFArrayGetCount(string), lambda: cf.release(string),
             lambda: cf.release(string), lambda: cf._cf.CFStringCreateWithCString(7, b"x", 0)):
    call()
print(mac.leaked, *mac.trouble(), sep=chr(10))
"""
    done = subprocess.run([sys.executable, "-c", program, library], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "1",
        "CFArrayGetCount: NULL",
        "CFArrayGetCount: an object of another type",
        "CFRelease: a dead object",
        "CFStringCreateWithCString: !allocator",
        "CFStringCreateWithCString: encoding == 0x08000100",
    ]


@pytest.mark.parametrize("cut", range(1, 8))
def test_a_table_that_is_cut_has_its_complete_entries(cut):
    assert frequencies(bytes.fromhex(table(CLOCKS))[:-cut]) == [mhz * MHZ for mhz in CLOCKS[1:-1]]


@pytest.mark.parametrize("hz", [4_608_000, 99_999_999, 4_100_000_000, 3])
def test_a_table_with_impossible_clocks_is_ignored(hz):
    assert frequencies(struct.pack("<IIII", 0, 400, hz, 700)) == []


def test_the_clock_is_unknown_if_a_state_without_a_clock_was_used():
    assert shares([("OFF", 50), ("P1", 25), ("P2", 25), ("P3", 0)], [100, 300]) == (50.0, 200.0)
    assert shares([("OFF", 50), ("P1", 25), ("P2", 24), ("P3", 1)], [100, 300]) == (50.0, None)


@pytest.mark.parametrize("states", [[], [("OFF", 0), ("P1", 0)], [("OFF", 5), ("P1", -1)]])
def test_impossible_times_yield_no_values(states):
    assert shares(states, [100]) == (None, None)


@pytest.mark.parametrize("name", ["OFF", "IDLE", "DOWN"])
def test_states_without_work_are_known_by_name(name):
    assert shares([(name, 3), ("P1", 1)], [100]) == (25.0, 100.0)
