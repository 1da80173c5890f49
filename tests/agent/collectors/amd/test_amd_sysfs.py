"""Cards in sysfs, and their use by a watched tree."""

import errno
import shutil
import struct
from functools import partial

import pytest
from tests.doubles.sysfs import FailingFile
from tests.told import devices, processes

from chipwatch.collectors.amd import AmdCollector, card
from chipwatch.contract.datapoint import Dimensions, Level, counter
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import DeviceFacts, names_of
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.host.rows import FileRow
from chipwatch.jobs.device_key import device_of
from chipwatch.jobs.evidence import from_points

FDINFO = (
    "pos:\t0\ndrm-driver:\tamdgpu\ndrm-client-id:\t{client}\ndrm-pdev:\t0000:01:00.0\n"
    "drm-memory-vram:\t{kib} KiB\ndrm-engine-gfx:\t{gfx} ns\ndrm-engine-compute:\t{compute} ns\n"
)


def opened(collector, level=Level.ALL):
    collector.open(Given(level=level))
    return collector


def test_every_reading_of_a_card_has_the_unit_of_the_catalogue(machine, read):
    machine.card(1)
    values, problems = read(opened(machine.collector()))
    assert not problems
    assert values == pytest.approx(
        {
            ("gpu.utilization", "1"): 91,
            ("gpu.memory.activity", "1"): 66,
            ("gpu.memory.total", "1"): 12868124672,
            ("gpu.memory.used", "1"): 1564491776,
            ("gpu.memory.utilization", "1"): 100 * 1564491776 / 12868124672,
            ("gpu.power", "1"): 41,
            ("gpu.power.limit", "1"): 300,
            ("gpu.power.utilization", "1"): 100 * 41 / 300,
            ("gpu.temperature", "1"): 45,
            ("gpu.hotspot.temperature", "1"): 47,
            ("gpu.memory.temperature", "1"): 46,
            ("gpu.clock.graphics", "1"): 500,
            ("gpu.clock.memory", "1"): 96,
            ("gpu.fan.utilization", "1"): 20,
            ("gpu.energy", "1"): 6122129286992 * 15.259e-6,
            ("gpu.ecc.corrected", "1"): 3,
            ("gpu.ecc.uncorrected", "1"): 0,
            ("gpu.ras.errors", "1"): 3,
            ("gpu.state", "1"): 1,
        }
    )


def test_a_new_counter_takes_one_row_and_one_line_of_a_fixture(machine, monkeypatch):
    """The file is read, scaled and counted, and absent where a card has no such file."""
    slips = counter("gpu.slips", "s", "Time in which the chip slipped.", dims=("gpu",))
    monkeypatch.setattr(card, "ROWS", (*card.ROWS, FileRow(slips, "device/slips_ms", 1e-3)))
    machine.card(1, {"slips_ms": 2500})
    machine.card(2)
    collector = opened(machine.collector())
    seen = [point for at in (7, 8) for point in collector.collect(at) if point.metric is slips]
    assert [(point.dims["gpu"], point.value, point.start_time) for point in seen] == [("1", 2.5, 7), ("1", 2.5, 7)]
    assert {row.metric for row in (*card.ROWS[:-1], *card.RARE_ROWS)} <= {*AmdCollector.metrics}


def test_the_contract_is_kept_at_every_level(machine):
    machine.card(0)
    machine.card(1)
    for level in Level:
        assert check_collector(machine.collector(), given=Given(level=level))


def test_the_id_of_a_card_that_rocm_prints_is_a_dimension_if_configured(machine):
    machine.card(0, {"unique_id": "0d5ac2a8d1f4b7e6"})
    machine.card(1)
    assert check_collector(machine.collector(dimensions=("uuid",)))
    collector = opened(machine.collector(dimensions=("uuid",)), Level.BASIC)
    dims = {point.dims for point in collector.collect(7)}
    assert {(each["gpu"], each["uuid"]) for each in dims} == {("0", "GPU-0d5ac2a8d1f4b7e6"), ("1", "0000:01:00.0")}


def test_the_activity_of_a_card_has_its_id_so_metrics_of_jobs_have_it_too(machine):
    machine.card(0, {"unique_id": "0d5ac2a8d1f4b7e6"})
    names = names_of(devices(opened(machine.collector(dimensions=("uuid",)))))
    dims = names["card0"]
    (activity,) = from_points(DeviceFacts(1, [], names, []), {device_of(dims): {"gpu.utilization": 91.0}})
    assert activity.dims is dims


def test_a_card_of_another_vendor_and_a_connector_are_left_out(machine, read):
    machine.card(0, {"vendor": "0x1a03"})
    machine.card(2)
    machine.put("class/drm/card2-DP-1/status", "connected")
    machine.put("class/drm/renderD128/device/vendor", "0x1002")
    assert {gpu for _, gpu in read(opened(machine.collector()))[0]} == {"2"}


def test_a_card_that_sleeps_is_not_read_and_wakes_by_itself(machine, read):
    machine.card(0, {"power/runtime_status": "suspended"})
    collector = opened(machine.collector())
    for path, file in collector._cards["0"]._opened.items():
        if "power" not in path:
            file.close()  # to read it would be a problem
    assert read(collector) == ({}, [])
    assert "1 asleep" in collector.describe()
    machine.put("class/drm/card0/device/power/runtime_status", "active")
    collector = opened(machine.collector())
    assert read(collector)[0]["gpu.state", "0"] == 1


def test_an_mi300_has_no_edge_and_another_name_of_its_power(machine, read):
    machine.card(0, temp1_label=None, power1_average=None, power1_input=612000000)
    values, _ = read(opened(machine.collector()))
    assert (values["gpu.temperature", "0"], values["gpu.power", "0"]) == (47, 612)


APU = {
    "power1_average": None, "power1_cap": None, "pwm1": None, "freq2_input": None, "temp2_label": None, "temp2_input": None,
    "temp3_label": None, "temp3_input": None, "in0_label": "vddgfx", "in1_label": "vddnb", "power1_input": 12000000,
}  # fmt: skip
CARVED = {
    "mem_info_vram_total": 512 << 20, "mem_info_vram_used": 300 << 20, "mem_info_gtt_total": 15 << 30, "mem_info_gtt_used": 4 << 30,
    "pp_dpm_sclk": "0: 200Mhz \n1: 1100Mhz *\n2: 2200Mhz ", "pp_dpm_mclk": "0: 400Mhz\n1: 1600Mhz *",
    "gpu_metrics": struct.pack("<HBB116x", 120, 2, 2), "mem_busy_percent": None, "ras/umc_err_count": None,
}  # fmt: skip


@pytest.mark.parametrize("sign", ["label", "table", "both"])
def test_the_memory_of_an_apu_is_the_sum_of_vram_and_gtt(machine, read, sign):
    files = CARVED | ({"gpu_metrics": None} if sign == "label" else {})
    machine.card(0, files, **APU | ({"in1_label": None} if sign == "table" else {}))
    values, problems = read(opened(machine.collector()))
    assert not problems
    used, total = (300 << 20) + (4 << 30), (512 << 20) + (15 << 30)
    assert {name: value for (name, _), value in values.items()} == pytest.approx(
        {
            "gpu.utilization": 91, "gpu.memory.used": used, "gpu.memory.total": total, "gpu.unified_memory": 1,
            "gpu.memory.utilization": 100 * used / total, "gpu.power": 12, "gpu.temperature": 45,
            "gpu.clock.graphics": 500, "gpu.clock.memory": 1600, "gpu.state": 1,
        }
    )  # fmt: skip


def test_the_memory_of_a_card_with_separate_vram_excludes_gtt(machine, read):
    machine.card(0, {"mem_info_gtt_total": 100 << 30, "mem_info_gtt_used": 1 << 30})
    assert read(opened(machine.collector()))[0]["gpu.memory.total", "0"] == 12868124672


@pytest.mark.parametrize(
    "name", ["mem_info_gtt_used", "mem_info_gtt_total", "mem_info_vram_used", "mem_info_vram_total"]
)
def test_half_of_the_memory_of_an_apu_is_not_reported_as_all_of_it(machine, read, name):
    machine.card(0, CARVED, **APU)
    collector = opened(machine.collector(), Level.BASIC)
    machine.put(f"class/drm/card0/device/{name}", "N/A")
    values, _ = read(collector)
    assert ("gpu.memory.utilization", "0") not in values
    assert ("gpu.memory." + name.rpartition("_")[2], "0") not in values


def test_the_metrics_table_of_a_card_that_sleeps_is_not_read(machine):
    machine.card(0, CARVED | {"power/runtime_status": "suspended"}, in1_label=None)
    collector = opened(machine.collector())
    assert not collector._cards["0"].is_apu


@pytest.mark.parametrize(
    ("table", "clock"),
    [
        ("0: 200Mhz\n1: 700Mhz *\n", 700), ("S: 19Mhz *\n0: 615Mhz\n1: 800Mhz\n", 19), ("1: 0Mhz *", 0),
        ("0: 200Mhz\n1: 700Mhz", None), ("0: 70000Mhz *", None), ("0: *", None), ("", None), ("1: -5Mhz *", None),
    ],
)  # fmt: skip
def test_a_clock_that_hwmon_lacks_is_read_from_the_marked_line_of_its_table(machine, read, table, clock):
    machine.card(0, {"pp_dpm_sclk": table, "pp_dpm_mclk": "0: 96Mhz *\n"}, freq1_input=None)
    values, problems = read(opened(machine.collector()))
    assert (values.get(("gpu.clock.graphics", "0")), values["gpu.clock.memory", "0"]) == (clock, 96)
    assert not problems


def test_the_memory_of_the_tree_on_an_apu_includes_gtt(machine, read):
    machine.card(1, CARVED, **APU)
    machine.process(10, 1, FDINFO.format(client=1, kib=1024, gfx=0, compute=0) + "drm-memory-gtt:\t2048 KiB\n")
    values, _ = read(opened(machine.collector(pid=10)))
    assert values["gpu.process.memory.used", "1"] == 3 << 20


@pytest.mark.parametrize(("name", "content"), [("gpu_busy_percent", 101), ("gpu_busy_percent", 65535), ("gpu_busy_percent", -1),
    ("mem_busy_percent", 150), ("hwmon/hwmon0/temp1_input", -1000), ("hwmon/hwmon0/temp2_input", 255000),
    ("hwmon/hwmon0/freq1_input", -1), ("hwmon/hwmon0/power1_average", -5), ("hwmon/hwmon0/pwm1", 256),
    ("mem_info_vram_used", -1)])  # fmt: skip
def test_impossible_values_of_a_card_are_absent(machine, read, name, content):
    machine.card(0)
    whole, _ = read(opened(machine.collector()))
    machine.put(f"class/drm/card0/device/{name}", content)
    values, _ = read(opened(machine.collector()))
    assert values.keys() < whole.keys()
    assert all(values[key] == whole[key] for key in values)


@pytest.mark.parametrize(
    ("content", "size", "offset"),
    [
        (1, 96, 24), (2, 104, 24), (3, 120, 24), (4, 288, 24), (5, 360, 88), (6, 312, 16), (6, 1664, 16),
        (7, 2208, 24), (8, 3872, 24), (0, 88, None), (6, 384, None), (10, 4000, None),
    ],
)  # fmt: skip
def test_the_energy_is_read_at_the_offset_of_its_revision(machine, read, content, size, offset):
    table = bytearray(b"\xff" * size)
    struct.pack_into("<HBB", table, 0, size, 1, content)
    if offset:
        struct.pack_into("<Q", table, offset, 65536)
    machine.card(0, {"gpu_metrics": bytes(table)})
    assert read(opened(machine.collector()))[0].get(("gpu.energy", "0")) == (
        pytest.approx(1.0, rel=1e-4) if offset else None
    )


@pytest.mark.parametrize("energy", [0, 2**64 - 1])
def test_an_energy_that_means_no_value_is_absent(machine, read, energy):
    machine.card(0, {"gpu_metrics": struct.pack("<HBB20xQ", 120, 1, 3, energy)})
    assert ("gpu.energy", "0") not in read(opened(machine.collector()))[0]


def test_a_zero_of_a_counter_is_ignored_and_a_second_one_restarts_it(machine):
    machine.card(0)
    collector = opened(machine.collector())

    def corrected(at):
        machine.now += 10_000_000_000
        return [(p.value, p.start_time) for p in collector.collect(at) if p.metric.name == "gpu.ecc.corrected"]

    assert corrected(1) == [(3, 1)]
    machine.put("class/drm/card0/device/ras/umc_err_count", "ue: 0\nce: 0")
    assert corrected(2) == []
    assert corrected(3) == [(0, 2)]


def test_the_message_names_the_folder_if_there_is_no_card(machine):
    with pytest.raises(Unavailable, match=r"no card of AMD's in .*class/drm"):
        machine.collector().open(Given())


def test_the_tree_has_the_sum_of_the_memory_and_the_busier_engine(machine, read):
    machine.card(1)
    machine.process(10, 1, FDINFO.format(client=5, kib=1024, gfx=0, compute=1000))
    machine.process(
        11,
        10,
        FDINFO.format(client=5, kib=1024, gfx=0, compute=1000),
        FDINFO.format(client=6, kib=2048, gfx=0, compute=0),
    )
    machine.process(99, 1, FDINFO.format(client=9, kib=4096, gfx=0, compute=0))
    collector = opened(machine.collector(pid=10))
    collector._share.clock = lambda: machine.now
    values, _ = read(collector)
    assert values["gpu.process.memory.used", "1"] == 3 * 2**20
    assert values["gpu.process.memory.utilization", "1"] == pytest.approx(100 * 3 * 2**20 / 12868124672)
    assert ("gpu.process.utilization", "1") not in values, "a share needs two readings"
    machine.now += 10_000_000_000
    for pid in (10, 11):
        (machine.proc / f"{pid}/fdinfo/3").write_text(
            FDINFO.format(client=5, kib=1024, gfx=10**9, compute=1000 + 4 * 10**9)
        )
    assert read(collector)[0]["gpu.process.utilization", "1"] == pytest.approx(40)
    machine.now += 10_000_000_000
    for pid in (10, 11):
        (machine.proc / f"{pid}/fdinfo/3").write_text(FDINFO.format(client=5, kib=1024, gfx=0, compute=0))
    assert read(collector)[0]["gpu.process.utilization", "1"] == 0


def test_the_compute_driver_provides_the_memory_and_makes_utilization_unknown(machine, read):
    machine.card(1)
    machine.put("class/kfd/kfd/topology/nodes/1/gpu_id", 4711)
    machine.put("class/kfd/kfd/topology/nodes/1/properties", "location_id 256\ndomain 0\ndrm_render_minor 128")
    machine.put("class/kfd/kfd/proc/10/vram_4711", 5 * 2**20)
    machine.process(10, 1, FDINFO.format(client=5, kib=1024, gfx=0, compute=0))
    collector = opened(machine.collector(pid=10))
    for _ in range(2):
        values, _ = read(collector)
        machine.now += 10_000_000_000
    assert values["gpu.process.memory.used", "1"] == 5 * 2**20
    assert ("gpu.process.utilization", "1") not in values


def test_a_tree_that_uses_no_card_has_no_share(machine, read):
    machine.card(1)
    machine.process(10, 1, "pos: 0\n", "drm-driver: i915\n", FDINFO.format(client="x", kib=1, gfx=0, compute=0))
    values, problems = read(opened(machine.collector(pid=10)))
    assert not problems
    assert not [name for name, _ in values if name.startswith("gpu.process")]


@pytest.mark.parametrize(
    ("code", "state"), [(errno.ENODEV, 0), (errno.EBUSY, None), (errno.EPERM, None), (errno.EIO, None)]
)
def test_a_card_without_readings_is_lost_only_if_the_kernel_reports_it(machine, read, code, state):
    machine.card(0)
    machine.card(1)
    collector = opened(machine.collector())
    card = collector._cards["0"]
    card._opened |= dict.fromkeys({row.path for row in card._rows}, FailingFile(code))
    values, problems = read(collector)
    assert {key: value for key, value in values.items() if key[1] == "0"} == (
        {} if state is None else {("gpu.state", "0"): 0}
    )
    assert values["gpu.utilization", "1"] == 91
    assert len(problems) == (code not in (errno.EBUSY, errno.EPERM))
    machine.now += 301_000_000_000
    if state == 0:
        assert read(collector)[0]["gpu.state", "0"] == 1, "it came back"


def test_the_processes_that_compute_are_listed_by_kfd(machine):
    for index in 1, 2:
        machine.card(index)
    for node, number, location in (1, 4711, 1 << 8), (2, 4712, 2 << 8):
        machine.put(f"class/kfd/kfd/topology/nodes/{node}/gpu_id", number)
        machine.put(f"class/kfd/kfd/topology/nodes/{node}/properties", f"location_id {location}\ndomain 0")
    machine.put("class/kfd/kfd/topology/nodes/0/gpu_id", 0)
    machine.put("class/kfd/kfd/topology/nodes/3/gpu_id", 4713)  # its properties cannot be read
    machine.put("class/kfd/kfd/proc/10/vram_4711", 5 * 2**20)
    machine.put("class/kfd/kfd/proc/10/vram_4712", 0)
    machine.put("class/kfd/kfd/proc/11/vram_4712", 7 * 2**20)
    collector = machine.collector()
    collector.open(Given())
    found = {(one.pid, one.dims, one.memory) for one in processes(collector)}
    assert found == {(10, Dimensions(gpu="1"), 5 * 2**20), (11, Dimensions(gpu="2"), 7 * 2**20)}
    assert {name: device.dims["gpu"] for device in devices(collector) for name in device.ids} == {
        "0000:01:00.0": "1", "card1": "1", "0": "1", "0000:02:00.0": "2", "card2": "2", "1": "2"
    }  # fmt: skip


def test_the_compute_units_of_processes_that_share_a_card_are_read(machine):
    machine.card(1)
    machine.put("class/kfd/kfd/topology/nodes/1/gpu_id", 4711)
    machine.put("class/kfd/kfd/topology/nodes/1/properties", "location_id 256\ndomain 0")
    machine.put("class/kfd/kfd/proc/10/vram_4711", 5 * 2**20)
    machine.put("class/kfd/kfd/proc/10/stats_4711/cu_occupancy", 70)
    collector = machine.collector()
    collector.open(Given())
    assert [one.occupancy for one in processes(collector)] == [None]  # the only one has all
    machine.put("class/kfd/kfd/proc/11/vram_4711", 7 * 2**20)
    machine.put("class/kfd/kfd/proc/11/stats_4711/cu_occupancy", 30)
    machine.put("class/kfd/kfd/proc/12/vram_4711", 7 * 2**20)
    assert {one.pid: one.occupancy for one in processes(collector)} == {10: 70, 11: 30, 12: None}


def test_without_kfd_no_process_is_known(machine):
    machine.card(1)
    collector = machine.collector()
    collector.open(Given())
    assert processes(collector) is None


def lost(card, _):
    card.problems["lost"] = "gpu 0: the card is lost"


def test_a_card_that_comes_back_under_another_number_is_no_longer_lost(machine, read):
    machine.card(0)
    collector = machine.collector()
    collector.open(Given())
    read(collector)
    collector._cards["0"].text = partial(lost, collector._cards["0"])
    assert read(collector) == ({("gpu.state", "0"): 0}, ["gpu 0: the card is lost"])
    shutil.rmtree(machine.sys / "class/drm/card0")
    machine.card(1, {"uevent": "DRIVER=amdgpu\nPCI_SLOT_NAME=0000:00:00.0"})
    machine.now += 301_000_000_000
    values, problems = read(collector)
    assert problems == []
    assert {index for _, index in values} == {"1"}
    assert [device.dims["gpu"] for device in devices(collector)] == ["1"]
