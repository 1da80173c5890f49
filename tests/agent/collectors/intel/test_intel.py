"""Intel cards in sysfs, their use by a watched tree, and xpu-smi."""

import errno
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.doubles.sysfs import FailingFile
from tests.told import devices, processes, reading

from chipwatch.collectors.intel import IntelCard, IntelCollector
from chipwatch.collectors.intel.xpu_smi import parse_discovery, parse_dump
from chipwatch.contract.datapoint import Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import Device
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

FIXTURES = Path(__file__).parents[3] / "fixtures/intel"
SECOND = 1_000_000_000
DISCOVERY = '{"device_list": [{"device_id": 0, "pci_bdf_address": "0000:03:00.0"}]}'
I915 = "drm-driver:\ti915\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-resident-local0:\t1024 KiB\ndrm-engine-render:\t{render} ns\ndrm-engine-video:\t99999999999 ns\n"
XE = "drm-driver:\txe\ndrm-client-id:\t7\ndrm-pdev:\t0000:03:00.0\ndrm-resident-vram0:\t2 MiB\ndrm-cycles-ccs:\t{cycles}\ndrm-total-cycles-ccs:\t{total}\ndrm-engine-capacity-ccs:\t2\n"


class Machine:
    def __init__(self, root):
        self.root, self.sys, self.proc, self.bin = root, root / "sys", root / "proc", root / "bin"
        for folder in (self.sys / "class/drm", self.proc, self.bin):
            folder.mkdir(parents=True)
        self.now = SECOND

    def put(self, path, value):
        path = self.sys / "class/drm" / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{value}\n")

    def card(self, index, **files):
        self.put(f"card{index}/device/vendor", "0x8086")
        self.put(f"card{index}/device/uevent", f"DRIVER=xe\nPCI_SLOT_NAME=0000:0{index}:00.0")
        self.put(f"card{index}/device/power/runtime_status", "active")
        for name, value in files.items():
            self.put(f"card{index}/device/hwmon/hwmon1/{name}", value)

    def xe(self, index):
        self.card(
            index,
            energy1_input=5_000_000,
            power1_max=190_000_000,
            temp2_label="pkg",
            temp2_input=41000,
            temp3_label="vram",
            temp3_input=50000,
        )
        self.put(f"card{index}/device/tile0/gt0/freq0/act_freq", 2050)
        for gt, name in (0, "gt0-rc"), (1, "gt1-mc"):
            self.put(f"card{index}/device/tile0/gt{gt}/gtidle/name", name)
            self.put(f"card{index}/device/tile0/gt{gt}/gtidle/idle_residency_ms", 1000)

    def process(self, pid, fdinfo):
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        (folder / "fdinfo").mkdir(exist_ok=True)
        (folder / "stat").write_text(f"{pid} (train) S 1 " + " ".join(["0"] * 45) + "\n")
        if not (folder / "fd/3").is_symlink():
            (folder / "fd/3").symlink_to("/dev/dri/renderD128")
        (folder / "fdinfo/3").write_text(fdinfo)

    def tool(self, script):
        path = self.bin / "xpu-smi"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def collector(self, level=Level.ALL, **more):
        collector = IntelCollector(IntelCollector.Config(sys=self.sys, proc=self.proc, path=str(self.bin), **more))
        collector._clock = lambda: self.now
        collector.open(Given(level=level))
        return collector


@pytest.fixture
def bare(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def machine(bare):
    """A machine whose card 3 is one of xe."""
    bare.xe(3)
    return bare


def read(collector, at=7):
    points, problems = reading(collector, at)
    return {(point.metric.name, point.dims["gpu"]): point.value for point in points}, problems


def test_a_card_of_xe_has_power_from_energy_and_utilization_from_idle_time(machine):
    collector = machine.collector(dimensions=("uuid",))
    assert {point.dims["uuid"] for point in collector.collect(at=7)} == {"0000:03:00.0"}
    collector = machine.collector()
    values, problems = read(collector)
    assert not problems
    assert values == {
        ("gpu.clock.graphics", "3"): 2050,
        ("gpu.energy", "3"): 5,
        ("gpu.power.limit", "3"): 190,
        ("gpu.temperature", "3"): 41,
        ("gpu.memory.temperature", "3"): 50,
    }
    machine.now += 2 * SECOND
    machine.put("card3/device/hwmon/hwmon1/energy1_input", 105_000_000)
    machine.put("card3/device/tile0/gt0/gtidle/idle_residency_ms", 1500)
    values, _ = read(collector)
    assert values["gpu.power", "3"] == 50
    assert values["gpu.power.utilization", "3"] == pytest.approx(100 * 50 / 190)
    assert values["gpu.utilization", "3"] == 75
    machine.now += 2 * SECOND
    assert read(collector)[0]["gpu.power", "3"] == 0


def test_the_time_in_which_a_card_slept_is_neither_busy_nor_a_draw_of_power(machine):
    """The counters stand still while the card has no power."""
    collector = machine.collector()
    read(collector)
    machine.put("card3/device/power/runtime_status", "suspended")
    machine.now += 3600 * SECOND
    assert read(collector)[0] == {}
    machine.put("card3/device/power/runtime_status", "active")
    machine.now += 2 * SECOND
    values, _ = read(collector)
    assert ("gpu.utilization", "3") not in values
    machine.put("card3/device/tile0/gt0/gtidle/idle_residency_ms", 3000)
    machine.now += 2 * SECOND
    assert read(collector)[0]["gpu.utilization", "3"] == 0


def test_a_card_of_i915_has_no_utilization_and_its_counter_may_restart(bare):
    bare.card(0, energy1_input=5_000_000)
    bare.put("card0/gt/gt0/rps_act_freq_mhz", 0)
    collector = bare.collector()
    assert read(collector, at=1)[0] == {("gpu.clock.graphics", "0"): 0, ("gpu.energy", "0"): 5}
    bare.now += SECOND
    bare.put("card0/device/hwmon/hwmon1/energy1_input", 1_000_000)
    points = list(collector.collect(SECOND))
    assert [(p.metric.name, p.start_time) for p in points if p.metric.name != "gpu.clock.graphics"] == [
        ("gpu.energy", 1 + 10**6)
    ]


def test_the_contract_is_kept_at_every_level(machine):
    for level in Level:
        collector = machine.collector(level)
        assert level < Level.DETAILED or check_collector(collector, given=Given(level=level))
        check_collector(collector, given=Given(level=level))


def test_a_card_that_sleeps_is_neither_read_nor_woken_by_xpu_smi(machine):
    machine.put("card3/device/power/runtime_status", "suspended")
    machine.tool(f"touch {machine.root}/ran")
    collector = machine.collector()
    for file in list(next(iter(collector._cards.values()))._opened.values())[1:]:
        file.close()
    assert read(collector) == ({}, [])
    assert collector._xpu._oneshot._process is None


def test_a_card_without_sensors_or_of_another_vendor_is_ignored(bare):
    bare.card(0)
    bare.put("card1/device/vendor", "0x10de")
    with pytest.raises(Unavailable, match="class/drm"):
        bare.collector()


def test_a_lost_card_that_is_back_and_a_new_card_are_read(machine):
    collector = machine.collector()
    collector._cards["3"]._opened["device/hwmon/hwmon1/temp2_input"] = FailingFile(errno.ENODEV)
    values, problems = read(collector)
    assert ("gpu.temperature", "3") not in values
    assert problems == ["gpu 3: the card is lost"]
    machine.xe(4)
    machine.now += 301 * SECOND
    values, problems = read(collector)
    assert (values["gpu.temperature", "3"], values["gpu.temperature", "4"], problems) == (41, 41, [])
    collector.close()


def test_the_tree_has_its_share_of_the_compute_engines_of_i915(machine):
    machine.process(10, I915.format(render=0))
    collector = machine.collector(pid=10)
    collector._share.clock = lambda: machine.now
    values, _ = read(collector)
    assert values["gpu.process.memory.used", "3"] == 2**20
    assert ("gpu.process.utilization", "3") not in values
    machine.now += 10 * SECOND
    machine.process(10, I915.format(render=3 * SECOND))
    assert read(collector)[0]["gpu.process.utilization", "3"] == pytest.approx(30)
    machine.now += 10 * SECOND
    machine.process(10, I915.format(render=0))
    assert ("gpu.process.utilization", "3") not in read(collector)[0]


def test_the_tree_has_its_share_of_the_cycles_of_all_compute_engines_of_xe(machine):
    machine.process(10, XE.format(cycles=100, total=1000))
    collector = machine.collector(pid=10)
    assert read(collector)[0]["gpu.process.memory.used", "3"] == 2 * 2**20
    machine.now += 10 * SECOND
    machine.process(10, XE.format(cycles=1100, total=3000))
    assert read(collector)[0]["gpu.process.utilization", "3"] == pytest.approx(25)


def test_a_captured_dump_is_read_by_its_header():
    found = parse_dump((FIXTURES / "xpu_smi_v1_dump.csv").read_bytes())
    assert {n: {m.name: v for m, v in readings.items()} for n, readings in found.items()} == {
        0: {"gpu.utilization": 0, "gpu.power": 14.61, "gpu.clock.graphics": 0}
    }


def test_a_dump_that_is_cut_anywhere_has_no_wrong_value():
    data = (FIXTURES / "xpu_smi_v1_dump.csv").read_bytes()
    true = {("gpu.utilization", 0), ("gpu.power", 14.61), ("gpu.power", 14.59), ("gpu.clock.graphics", 0)}
    for end in range(len(data)):
        for readings in parse_dump(data[:end]).values():
            assert {(metric.name, value) for metric, value in readings.items()} <= true


def test_columns_may_be_in_any_order_or_empty():
    data = b"Warning: old\nGPU Memory Used (MiB), DeviceId, Xe Link Throughput (kB/s), GPU Power (W)\n24, 1, , N/A\n , 2, 5, 7.5\nhalf"
    assert {n: {m.name: v for m, v in r.items()} for n, r in parse_dump(data).items()} == {
        1: {"gpu.memory.used": 24 * 2**20},
        2: {"gpu.power": 7.5},
    }


@given(st.binary(max_size=200))
def test_any_output_is_parsed_or_ignored(data):
    assert isinstance(parse_dump(b"DeviceId, GPU Power (W)\n" + data), dict)
    assert isinstance(parse_discovery(b"{" + data), dict)


@pytest.mark.parametrize(
    "data",
    [
        b'{"device_list": [{"device_id": 1e999, "pci_bdf_address": "0000:03:00.0"}]}',
        b'{"device_list": ' + b"[" * 100_000,
        b'DeviceId, GPU Power (W)\n0, "' + b"x" * 200_000,
    ],
)
def test_oversized_output_is_ignored(data):
    assert (parse_dump(data), parse_discovery(data)) == ({}, {})


def test_xpu_smi_fills_what_sysfs_lacks_by_pci_address(machine, until):
    dump = "Timestamp, DeviceId, GPU Utilization (%), GPU Power (W), GPU Memory Used (MiB)\\n06:14:46.000, 0, 12.00, 14.61, 24\\n"
    machine.tool(f"[ $1 = discovery ] && echo 'warning' && echo '{DISCOVERY}' && exit; printf %b '{dump}'")
    collector = machine.collector()
    collector._clock = time.monotonic_ns

    def ready():
        values, problems = read(collector)
        assert not problems
        return values if ("gpu.memory.used", "3") in values else None

    values = until(ready)
    assert values["gpu.memory.used", "3"] == 24 * 2**20
    assert values.get(("gpu.power", "3")) != 14.61, "sysfs has a counter of energy for that"
    collector.close()


def test_a_card_without_sensors_has_what_xpu_smi_says(bare, until):
    bare.card(3)
    with pytest.raises(Unavailable, match=r"no Intel card with sensors in .*, and no xpu-smi"):
        bare.collector()
    dump = "DeviceId, GPU Utilization (%), GPU Power (W)\\n0, 12.00, 14.61\\n"
    bare.tool(f"[ $1 = discovery ] && echo '{DISCOVERY}' && exit; printf %b '{dump}'")
    collector = bare.collector()
    collector._clock = time.monotonic_ns
    values = until(lambda: read(collector)[0])
    assert values == {("gpu.utilization", "3"): 12, ("gpu.power", "3"): 14.61}
    assert collector.describe().startswith("1 GPUs")
    collector.close()


def test_the_cards_are_listed_again_when_others_answer(bare, until):
    bare.card(3)
    page = bare.bin / "page"

    def answer(*watts):
        rows = "".join(f"{n}, {power}\n" for n, power in enumerate(watts))
        page.with_suffix(".new").write_text(f"DeviceId, GPU Power (W)\n{rows}")
        page.with_suffix(".new").replace(page)  # the tool may be reading

    answer(12.5)
    bare.tool(f"[ $1 = discovery ] && echo '{DISCOVERY}' && exit; cat {page}")
    collector = bare.collector(tool_interval=0)
    collector._clock = time.monotonic_ns
    until(lambda: read(collector)[0])
    answer(12.5, 13.5)
    assert until(lambda: read(collector)[1]) == ["xpu-smi reported other GPUs than it listed before"]
    answer(14.5)
    until(lambda: read(collector)[0].get(("gpu.power", "3")) == 14.5)
    collector.close()


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("exec sleep 60", "xpu-smi gave no answer in 0.3 s"),
        ("echo Error: no device", "reported no GPU: 'Error: no device'"),
        ("exec cat /dev/zero", "printed too much"),
    ],
)
def test_a_failing_xpu_smi_delays_no_tick_and_costs_no_other_value(machine, until, script, message):
    machine.tool(script)
    collector = machine.collector(tool_timeout=0.3 if "sleep" in script else 20)
    collector._clock = time.monotonic_ns
    problems_seen = []

    def ready():
        begun = time.thread_time()
        values, problems = read(collector)
        assert time.thread_time() - begun < 1
        assert values["gpu.temperature", "3"] == 41
        problems_seen.extend(problems)
        return problems_seen

    until(ready)
    assert message in problems_seen[0]
    collector.close()


@pytest.mark.parametrize("cell", ["100.01", "150", "200", "65535", "99999999999999999999"])
def test_impossible_values_of_xpu_smi_are_absent(machine, cell):
    card = IntelCard("3", machine.sys / "class/drm/card3")
    heads = "DeviceId, GPU Utilization (%), GPU Memory Utilization (%), GPU Power (W), GPU Core Temperature (C)"
    readings = parse_dump(f"{heads}\n0, {cell}, {cell}, 65535, 255\n".encode())[0]
    assert len(readings) == (4 if float(cell) < 2**63 else 2)  # no tool's number is as large
    assert list(card.points.make(7, dict(readings))) == []
    card.close()


def test_the_processes_that_have_a_card_open_are_listed_with_their_memory(machine):
    machine.process(1, "pos: 0\n")
    machine.process(10, I915.format(render=0))
    machine.process(11, I915.format(render=0))  # inherited the client: it counts once
    collector = machine.collector()
    assert [(one.dims["gpu"], one.memory) for one in processes(collector)] == [("3", 2**20)]
    dims = Dimensions(gpu="3")
    assert devices(collector) == [Device(dims, ids=("0000:03:00.0", "card3", "0"))]


def test_each_process_has_its_share_of_a_card_since_the_last_list(machine):
    machine.process(1, "pos: 0\n")
    clients = {10: I915, 11: I915.replace("drm-client-id:\t", "drm-client-id:\t9")}
    for pid, client in clients.items():
        machine.process(pid, client.format(render=0))
    collector, now = machine.collector(), [SECOND]
    collector._clock = lambda: now[0]
    assert [one.utilization for one in processes(collector)] == [None, None]
    now[0] += 5 * SECOND
    for (pid, client), busy in zip(clients.items(), (3 * SECOND, SECOND), strict=True):
        machine.process(pid, client.format(render=busy))
    assert {one.pid: one.utilization for one in processes(collector)} == {10: 60.0, 11: 20.0}


def test_without_the_right_to_see_the_files_of_others_no_process_is_known(machine):
    assert processes(machine.collector()) is None


def test_the_reasons_of_a_low_clock_are_listed_from_the_first_time_on(bare):
    """Files and names of xe_gt_throttle.c; of two tiles, one is enough."""
    bare.xe(0)
    for tile in (0, 1):
        for name in ("status", "reason_pl1", "reason_pl2", "reason_thermal", "reason_vr_tdc"):
            bare.put(f"card0/device/tile{tile}/gt0/freq0/throttle/{name}", 0)
    collector = bare.collector()

    def reasons():
        points = list(collector.collect(7))
        return {p.dims["reason"]: p.value for p in points if p.metric.name == "gpu.clock.reduced"}

    assert reasons() == {}
    bare.put("card0/device/tile1/gt0/freq0/throttle/reason_pl2", 1)
    bare.put("card0/device/tile0/gt0/freq0/throttle/reason_vr_tdc", 1)
    assert reasons() == {"power": 1, "current": 1}
    bare.put("card0/device/tile1/gt0/freq0/throttle/reason_pl2", 0)
    assert reasons() == {"power": 0, "current": 1}
    collector.close()
    assert "gpu.clock.reduced" not in {p.metric.name for p in bare.collector(Level.DETAILED).collect(8)}


def test_a_battlemage_that_counts_the_energy_of_its_package_only_has_power(bare):
    bare.card(0, energy2_input=5_000_000, power2_max=120_000_000)
    collector = bare.collector()
    list(collector.collect(7))
    bare.now += 2 * SECOND
    bare.put("card0/device/hwmon/hwmon1/energy2_input", 105_000_000)
    values = {p.metric.name: p.value for p in collector.collect(8)}
    assert (values["gpu.power"], values["gpu.power.limit"]) == (50, 120)
    collector.close()
