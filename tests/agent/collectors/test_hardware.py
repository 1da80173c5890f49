import shutil
import sys

import pytest
from tests.doubles import sysfs

from chipwatch.collectors.hardware import HardwareCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files of Linux")
GPU, SWITCH = "0000:05:00.0", "devices/pci0000:00/0000:00:01.0"


@pytest.fixture
def hardware(tmp_path):
    """Make a collector that reads the captures, opened."""

    def made(*captures, level=Level.DETAILED):
        sysfs.build(tmp_path / "sys", *captures)
        collector = HardwareCollector(HardwareCollector.Config(proc=tmp_path, sys=tmp_path / "sys"))
        collector.open(Given(level=level))
        return collector

    return made


@pytest.fixture
def write(tmp_path):
    return lambda path, content: sysfs.write(tmp_path / "sys" / path, str(content))


def read(collector, at=7):
    points = collector.collect(at)
    return {" ".join([point.metric.name, *(w for _, w in sorted(point.dims.items()))]): point.value for point in points}


def test_temperatures_have_a_chip_that_outlives_a_restart(hardware):
    found = read(hardware("hwmon"))
    assert found["host.temperature platform_coretemp_0 Physical id 0 temp1"] == 55.0
    assert found["host.temperature platform_coretemp_1 Physical id 0 temp1"] == 55.0
    assert found["host.temperature hwmon4 foosensor temp1"] == 55.0
    assert found["host.temperature ieee80211_phy0_mt7996_phy0_1 temp1 temp1"] == 56.0  # one of three below a device
    assert found["host.fan.speed nct6779 fan2 fan2"] == 1098
    assert found["cpu.temperature"] == max(
        value for name, value in found.items() if name.startswith("host.temperature platform_coretemp")
    )


def test_the_basic_level_has_one_temperature_of_the_cpus(hardware):
    assert read(hardware("hwmon", level=Level.BASIC)) == {"cpu.temperature": 55.0}


def test_a_sensor_without_a_value_is_absent_and_frost_is_not(hardware, write):
    for path, content in {
        "name": "outdoor",
        "temp1_input": "-5500",
        "temp2_input": "EINVAL",
        "temp3_input": "N/A",
    }.items():
        write(f"class/hwmon/hwmon0/{path}", content)
    assert read(hardware()) == {"host.temperature outdoor temp1 temp1": -5.5}


def test_memory_errors_are_added_up_over_controllers_and_named_by_module(hardware, write):
    for controller, (corrected, label) in enumerate([(1, "CPU_SrcID#0_MC#0_Chan#0_DIMM#0"), (2, "")]):
        folder = f"devices/system/edac/mc/mc{controller}"
        write(f"{folder}/ce_count", corrected)
        write(f"{folder}/ue_count", 0)
        write(f"{folder}/dimm0/dimm_label", label)
    collector = hardware()
    assert {point.start_time for point in collector.collect(5)} == {5}
    for controller, corrected in enumerate([3, 4]):
        write(f"devices/system/edac/mc/mc{controller}/ce_count", corrected)
        write(f"devices/system/edac/mc/mc{controller}/dimm0/dimm_ce_count", corrected)
    assert read(collector) == {
        "memory.errors corrected": 4,
        "memory.errors uncorrected": 0,
        "memory.dimm.errors mc0 CPU_SrcID#0_MC#0_Chan#0_DIMM#0 corrected": 3,
        "memory.dimm.errors mc1 dimm0 corrected": 4,
    }


def test_the_energy_of_the_cpus_begins_at_zero_and_survives_a_wrap(hardware, write):
    collector = hardware("rapl")
    assert read(collector) == {"cpu.energy package-0": 0, "cpu.energy package-0-core": 0}
    write("class/powercap/intel-rapl:0/energy_uj", 240422366267 + 2_000_000)
    assert read(collector)["cpu.energy package-0"] == 2.0
    write("class/powercap/intel-rapl:0/energy_uj", 262143328850 - 262143328850 + 1_000_000)
    energy = read(collector, at=9)
    assert energy["cpu.energy package-0"] == pytest.approx((262143328850 - 240422366267) / 1e6 + 1)
    assert {point.start_time for point in collector.collect(at=10)} == {7}


@pytest.mark.parametrize(("most", "now", "joules"), [(262143328850, 5_000_000, 5), (0, 5_000_000, 5)])
def test_a_counter_of_energy_that_starts_again_is_not_taken_for_one_that_wrapped(hardware, write, most, now, joules):
    write("class/powercap/intel-rapl:0/name", "package-0")
    write("class/powercap/intel-rapl:0/max_energy_range_uj", most)
    write("class/powercap/intel-rapl:0/energy_uj", 60_000_000_000)
    collector = hardware()
    assert read(collector) == {"cpu.energy package-0": 0}
    write("class/powercap/intel-rapl:0/energy_uj", now)
    assert read(collector) == {"cpu.energy package-0": joules}


def test_a_label_in_odd_bytes_has_escapes(hardware, write, tmp_path):
    write("class/hwmon/hwmon0/name", "dell_smm")
    write("class/hwmon/hwmon0/temp1_input", 41000)
    (tmp_path / "sys/class/hwmon/hwmon0/temp1_label").write_bytes(b"CPU \xb0\n")
    assert read(hardware()) == {r"host.temperature dell_smm CPU \xb0 temp1": 41}


def test_a_sensor_is_found_again_under_another_number_and_never_taken_for_another_one(hardware, write, tmp_path):
    for number, name, millidegrees in (0, "coretemp", 41000), (1, "nvme", 30000):
        write(f"class/hwmon/hwmon{number}/name", name)
        write(f"class/hwmon/hwmon{number}/temp1_input", millidegrees)
    collector, folder = hardware(), tmp_path / "sys/class/hwmon"
    assert read(collector)["cpu.temperature"] == 41
    (folder / "hwmon0").rename(folder / "hwmon2")
    (folder / "hwmon1").rename(folder / "hwmon0")
    (folder / "hwmon7").symlink_to("gone")
    assert read(collector) == {
        "cpu.temperature": 41, "host.temperature coretemp temp1 temp1": 41, "host.temperature nvme temp1 temp1": 30,
    }  # fmt: skip
    shutil.rmtree(folder)
    assert read(collector) == {}


def test_an_impossible_temperature_is_absent(hardware, write):
    write("class/hwmon/hwmon0/name", "coretemp")
    for number, millidegrees in enumerate((41000, -12000, 4294967295000, -274000, 0), 1):
        write(f"class/hwmon/hwmon0/temp{number}_input", millidegrees)
    values = read(hardware())
    assert sorted(value for name, value in values.items() if name.startswith("host")) == [-12.0, 0, 41.0]
    assert values["cpu.temperature"] == 41


def test_throttling_is_counted_for_each_package(hardware, write, tmp_path):
    (tmp_path / "stat").write_text("btime 1700000000\n")
    for cpu, package, events, milliseconds in [(0, 0, 5, 1500), (1, 0, 5, 1500), (2, 1, 0, 0)]:
        folder = f"devices/system/cpu/cpu{cpu}"
        write(f"{folder}/topology/physical_package_id", package)
        write(f"{folder}/thermal_throttle/package_throttle_count", events)
        write(f"{folder}/thermal_throttle/package_throttle_total_time_ms", milliseconds)
    collector = hardware()
    assert read(collector) == {
        "cpu.throttle.events 0": 5, "cpu.throttled 0": 1.5, "cpu.throttle.events 1": 0, "cpu.throttled 1": 0,
    }  # fmt: skip
    assert {point.start_time for point in collector.collect(8)} == {1700000000 * 10**9}


@pytest.fixture
def device(write):
    """Write a PCIe device below a port that is 16 lanes wide."""

    def written(bdf, class_, *, width=16, most=16, correctable=0, fatal=0, vendor="0x10de"):
        folder = f"{SWITCH}/{bdf}"
        for name, content in {
            "class": class_, "vendor": vendor, "current_link_width": width, "max_link_width": most,
            "current_link_speed": "16.0 GT/s PCIe", "max_link_speed": "32.0 GT/s PCIe",
            "aer_dev_correctable": f"RxErr 1\nBadTLP 0\nTOTAL_ERR_COR {correctable}",
            "aer_dev_nonfatal": "Undefined 0\nTOTAL_ERR_NONFATAL 0",
            "aer_dev_fatal": f"Undefined 0\nDLP 1\nTOTAL_ERR_FATAL {fatal}",
        }.items():  # fmt: skip
            write(f"{folder}/{name}", content)
        write(f"bus/pci/devices/{bdf}", f"-> ../../../{folder}")

    write(f"{SWITCH}/max_link_width", 16)
    return written


def test_errors_and_links_of_gpus_and_cards_are_read(hardware, device):
    device(GPU, "0x030200", correctable=3, fatal=1)
    device("0000:06:00.0", "0x020700", width=8)
    device("0000:07:00.0", "0x060400", correctable=9)  # a bridge
    device("0000:08:00.0", "0x088000", most=32, vendor="0x1d0f")  # Trainium
    collector = hardware()
    assert [read(collector)[f"pcie.errors {kind}"] for kind in ("correctable", "fatal", "nonfatal")] == [0, 0, 0]
    device(GPU, "0x030200", correctable=5, fatal=1)
    found = read(collector)
    assert found["pcie.errors correctable"] == 2
    assert found["pcie.errors fatal"] == 0
    assert found[f"pcie.device.errors {GPU} fatal"] == 1
    assert found["pcie.links.degraded"] == 1
    assert found[f"pcie.device.errors {GPU} correctable"] == 5
    assert [found[f"pcie.link.width{end} 0000:06:00.0"] for end in ("", ".expected")] == [8, 16]
    assert found["pcie.link.width.expected 0000:08:00.0"] == 16  # the port has no more
    assert found[f"pcie.link.speed {GPU}"] == 16.0
    assert not any("0000:07:00.0" in name for name in found)


def test_the_basic_level_has_four_series_of_all_devices(hardware, device):
    device(GPU, "0x030200")
    device("0000:06:00.0", "0x020700")
    assert read(hardware(level=Level.BASIC)) == {
        "pcie.errors correctable": 0, "pcie.errors nonfatal": 0, "pcie.errors fatal": 0, "pcie.links.degraded": 0,
    }  # fmt: skip


def test_a_device_that_is_gone_or_asleep_has_no_link(hardware, device, write):
    device(GPU, "0x030200", width=63)
    device("0000:06:00.0", "0x030200", width=0)
    write(f"{SWITCH}/{GPU}/current_link_speed", "Unknown")
    found = read(hardware())
    assert "pcie.links.degraded" not in found
    assert f"pcie.link.speed {GPU}" not in found


def test_the_errors_of_all_devices_neither_fall_nor_jump_when_one_is_replaced(hardware, device, tmp_path):
    device(GPU, "0x030200", correctable=3)
    collector = hardware(level=Level.BASIC)
    assert read(collector)["pcie.errors correctable"] == 0
    device(GPU, "0x030200", correctable=7)
    assert read(collector)["pcie.errors correctable"] == 4
    (tmp_path / "sys/bus/pci/devices" / GPU).unlink()
    device("0000:06:00.0", "0x030200", correctable=100)
    assert read(collector)["pcie.errors correctable"] == 4
    device("0000:06:00.0", "0x030200", correctable=102)
    assert read(collector)["pcie.errors correctable"] == 6


def test_the_contract_is_kept_and_the_parts_are_named(hardware, device):
    device(GPU, "0x030200")
    collector = hardware("hwmon", "edac", "rapl")
    assert check_collector(collector, ticks=2)
    collector.open(Given())
    assert collector.describe() == "16 sensors, 1 memory controller, 1 PCIe device, 2 energy counters"


def test_a_host_without_sensors_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match="no sensor, memory controller or PCIe link in"):
        HardwareCollector(HardwareCollector.Config(proc=tmp_path, sys=tmp_path)).open(Given())
