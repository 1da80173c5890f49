"""
Tables of gpu_metrics as the kernel writes them, of an MI300X and an MI355X.

The structs follow kgd_pp_interface.h, laid out by ctypes, not by the reader's own formats. Numbers of format 1.9
are of a virtual MI300X that computed at 705 W (tests/fixtures/SOURCES.amd.txt): its tables have 1150 bytes.
"""

import ctypes as c
import os
import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.told import devices, processes

from chipwatch.collectors.amd.chip import parse_table
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import PartlyCollected
from chipwatch.contract.plugin import Given

HELD = "below_power", "below_heat", "idle", "below"
CARD = "class/drm/card0/device"
NONE = {c.c_uint16: 0xFFFF, c.c_uint32: 0xFFFFFFFF, c.c_uint64: 2**64 - 1}
U16, U32, U64 = c.c_uint16, c.c_uint32, c.c_uint64
START = [
    ("size", U16), ("form", c.c_uint8), ("revision", c.c_uint8), ("hotspot", U16), ("mem", U16), ("vrsoc", U16),
    ("power", U16), ("gfx", U16), ("umc", U16),
]  # fmt: skip
LIMITS = [
    ("energy", U64), ("clock", U64), ("counter", U32), ("prochot", U32), ("ppt", U32), ("socket", U32), ("vr", U32),
    ("hbm", U32), ("lock", U32), ("pcie_width", U16), ("pcie_speed", U16), ("xgmi_width", U16), ("xgmi_speed", U16),
    ("gfx_acc", U32), ("mem_acc", U32), ("pcie_acc", U64), ("pcie_inst", U64), ("recoveries", U64), ("replays", U64),
    ("rollovers", U64), ("naks_sent", U32), ("naks_received", U32), ("read", U64 * 8), ("write", U64 * 8),
]  # fmt: skip
END = [
    ("timestamp", U64), ("gfxclk", U16 * 8), ("socclk", U16 * 4), ("vclk", U16 * 4), ("dclk", U16 * 4), ("uclk", U16),
    ("partitions", U16),
]  # fmt: skip


class Part16(c.Structure):
    _fields_ = [("busy", U32 * 8), ("jpeg", U16 * 32), ("vcn", U16 * 4), ("acc", U64 * 8)]


class Part18(c.Structure):
    _fields_ = [
        ("busy", U32 * 8), ("jpeg", U16 * 40), ("vcn", U16 * 4), ("acc", U64 * 8), ("below_power", U64 * 8),
        ("below_heat", U64 * 8), ("idle", U64 * 8), ("below", U64 * 8),
    ]  # fmt: skip


class Table16(c.Structure):
    _fields_ = [*START, *LIMITS, *END, ("parts", Part16 * 8), ("other_end", U32)]


class Table18(c.Structure):
    _fields_ = [
        *START, ("bandwidth", U64), *LIMITS, ("up", U16 * 8), ("padding", U16), *END, ("parts", Part18 * 8),
        ("other_end", U32),
    ]  # fmt: skip


def fixed(kind, revision, **values):
    """Return a table in which all that is not given is not available."""
    table = kind.from_buffer(bytearray(b"\xff" * c.sizeof(kind)))
    table.size, table.form, table.revision = c.sizeof(kind), 1, revision
    for name, value in values.items():
        if name == "parts":
            for part, fields in zip(table.parts, value, strict=False):
                for field, numbers in fields.items():
                    getattr(part, field)[: len(numbers)] = numbers
        elif isinstance(value, list):
            getattr(table, name)[: len(value)] = value
        else:
            setattr(table, name, value)
    return bytes(table)


SMU_13_0_6 = [(n, 2, 1) for n in range(6)] + [(n, 6, 1) for n in (6, 7, 8)] + [(n, 4, 1) for n in range(9, 16)]
SMU_13_0_6 += [(n, 2, 1) for n in range(16, 20)] + [(n, 4, 1) for n in (20, 21)] + [(n, 6, 1) for n in range(22, 27)]
SMU_13_0_6 += [(27, 4, 1), (28, 4, 1), (29, 6, 8), (30, 6, 8), (31, 2, 8), (32, 6, 1), (33, 2, 8), (34, 2, 4)]
SMU_13_0_6 += [(35, 2, 4), (36, 2, 4), (37, 2, 1), (39, 4, 1), (40, 4, 8), (41, 2, 40), (42, 2, 4)]
SMU_13_0_6 += [(n, 6, 8) for n in range(43, 48)]
"""Attribute, type and number of values, in the order of smu_v13_0_12_ppt.h: a virtual MI300X has these 47."""


def attributes(**values):
    """Return a table of format 1.9 with the values of some attributes by `aN`; the others are not available."""
    body = b""
    for number, kind, count in SMU_13_0_6:
        code = "BbHhIiQq"[kind]
        given = values.get(f"a{number}", [2 ** (8 * struct.calcsize(code)) - 1] * count)
        body += struct.pack(f"<Q{count}{code}", kind << 20 | number << 10 | count, *given)
    return struct.pack("<HBBi", 8 + len(body), 1, 9, len(SMU_13_0_6)) + body


def points(collector, at=7):
    found = {}
    for point in collector.collect(at):
        key = point.metric.name, *sorted(value for name, value in point.dims.items() if name != "gpu")
        assert key not in found, key
        found[key] = point.value
    return found


def opened(machine, level=Level.ALL, **files):
    machine.card(0, files)
    collector = machine.collector()
    collector.open(Given(level=level))
    return collector


def test_the_tables_are_as_long_as_in_real_chips():
    assert (len(attributes()), c.sizeof(Table16), c.sizeof(Table18)) == (1150, 1664, 3872)


def test_the_time_below_the_power_limit_is_the_share_of_the_cycles_of_an_mi300x_under_load(machine):
    collector = opened(machine, gpu_metrics=attributes(a9=[55257356], a10=[0], a11=[749905], a12=[0], a13=[0], a14=[0]))
    assert points(collector)["gpu.throttled", "power"] == 0
    machine.put(f"{CARD}/gpu_metrics", attributes(a9=[55262364], a10=[0], a11=[754247], a12=[0], a13=[0], a14=[0]))
    machine.now += 10_000_000_000
    values = points(collector)
    assert values["gpu.throttled", "power"] == pytest.approx(10 * 4342 / 5008)
    assert values["gpu.clock.reduced", "power"] == 1
    assert {key[1]: value for key, value in values.items() if key[0] == "gpu.throttled"} == pytest.approx(
        {"power": 8.67, "prochot": 0, "thermal": 0, "thermal_regulator": 0, "thermal_memory": 0}, rel=1e-3
    )
    machine.now += 10_000_000_000
    assert points(collector)["gpu.clock.reduced", "power"] == 0


def test_a_reason_that_counts_every_cycle_of_an_idle_chip_is_absent(machine):
    """An MI300X with driver 6.10.5: three residencies equal the counter, 10657785."""
    every = dict.fromkeys(("counter", "ppt", "socket", "hbm"), 10657785)
    values = points(opened(machine, gpu_metrics=fixed(Table16, 6, **every, prochot=0, vr=0)))
    assert {key[1] for key in values if key[0] == "gpu.throttled"} == {"prochot", "thermal_regulator"}


def test_counts_that_fall_or_outrun_the_cycles_add_nothing(machine):
    collector = opened(machine, gpu_metrics=attributes(a9=[1000], a11=[100], a10=[5]))
    points(collector)
    for cycles, power in ((2000, 50), (3000, 5000), (10, 7)):
        machine.put(f"{CARD}/gpu_metrics", attributes(a9=[cycles], a11=[power], a10=[6]))
        machine.now += 10_000_000_000
        values = points(collector)
        assert values["gpu.throttled", "power"] == 0
    assert values["gpu.throttled", "prochot"] == pytest.approx(10 / 1000)


def test_a_partition_has_its_own_utilization_and_its_own_limits_and_the_card_none(machine):
    """An MI355X in DPX and NPS2: of the two halves, each is there."""

    def halves(counter, *held):
        parts = [
            {"busy": [busy, busy + 20], **{name: [count, count] for name in HELD}}
            for busy, count in zip((80, 0), held, strict=True)
        ]
        return fixed(Table18, 8, partitions=2, counter=counter, parts=parts)

    collector = opened(
        machine, current_compute_partition="DPX", current_memory_partition="NPS2", gpu_metrics=halves(1000, 10, 20)
    )
    values = points(collector)
    assert values["gpu.partitions", "DPX", "NPS2"] == 2
    assert {key: value for key, value in values.items() if key[0] == "gpu.utilization"} == {
        ("gpu.utilization", "0"): 90, ("gpu.utilization", "1"): 10,
    }  # fmt: skip
    machine.put(f"{CARD}/gpu_metrics", halves(2000, 510, 20))
    machine.now += 10_000_000_000
    values = points(collector)
    assert values["gpu.clock.below_limit", "0", "power"] == pytest.approx(5)
    assert values["gpu.clock.below_limit", "1", "total"] == 0


@pytest.mark.parametrize(("mode", "number"), [("SPX", 1), ("DPX", 2), ("QPX", 4), ("CPX", 8), ("", 1)])
def test_the_chiplets_of_a_table_without_partitions_belong_to_them_in_order(machine, mode, number):
    collector = opened(machine, Level.BASIC, current_compute_partition=mode, gpu_metrics=attributes(a40=[*range(8)]))
    shares = [value for (name, *_), value in points(collector).items() if name == "gpu.utilization"]
    each = 8 // number
    assert shares == ([sum(range(n * each, n * each + each)) / each for n in range(number)] if number > 1 else [91])


def test_a_card_that_is_divided_later_has_partitions_from_the_next_slow_reading(machine):
    collector = opened(machine, current_compute_partition="SPX", gpu_metrics=attributes(a40=[50] * 8))
    assert ("gpu.utilization",) in points(collector)
    machine.put(f"{CARD}/current_compute_partition", "CPX")
    machine.now += 10_000_000_000
    assert len([key for key in points(collector) if key[0] == "gpu.utilization"]) == 8


def test_links_of_xgmi_and_errors_of_pcie_are_counted(machine):
    errors = {"a24": [4], "a25": [5], "a26": [6], "a27": [7], "a28": [8]}
    collector = opened(machine, gpu_metrics=attributes(a31=[1] * 7 + [0], a29=[0] * 8, a30=[0] * 8, **errors))
    assert points(collector)["gpu.xgmi.sent",] == 0
    machine.put(f"{CARD}/gpu_metrics", attributes(a31=[1] * 7 + [0], a29=[3] * 7 + [0], a30=[2] * 8, **errors))
    machine.now += 10_000_000_000
    values = points(collector)
    assert values["gpu.links", "up", "xgmi"] == 7
    assert values["gpu.xgmi.received",] == 21 * 1024
    assert values["gpu.xgmi.sent",] == 16 * 1024
    assert values["gpu.pcie.replays",] == 5
    assert {key[1]: value for key, value in values.items() if key[0] == "gpu.link.errors"} == {
        "pcie_recovery": 4, "pcie_replay_rollover": 6, "pcie_nak_sent": 7, "pcie_nak_received": 8,
    }  # fmt: skip


def test_the_traffic_of_xgmi_does_not_leap_when_a_link_has_no_count_for_a_moment(machine):
    collector, sent = opened(machine, gpu_metrics=attributes(a31=[1] * 8, a30=[1000] * 8)), []
    for links in ([1000] * 8, [1001] * 8, [1002] * 7 + [2**64 - 1], [1003] * 8, [1004] * 8):
        machine.put(f"{CARD}/gpu_metrics", attributes(a31=[1] * 8, a30=links))
        machine.now += 10_000_000_000
        sent += [(p.value / 1024, p.start_time) for p in collector.collect(9) if p.metric.name == "gpu.xgmi.sent"]
    assert sent == [(0, 9), (8, 9), (15, 9), (22, 9), (30, 9)]


def test_a_card_without_xgmi_has_neither_links_nor_traffic(machine):
    values = points(opened(machine, gpu_metrics=attributes(a31=[0] * 8, a29=[0] * 8, a30=[0] * 8)))
    assert not [key for key in values if "xgmi" in str(key)]


def test_errors_are_counted_by_block_and_kind(machine):
    values = points(opened(machine, **{"ras/gfx_err_count": "ue: 1\nce: 2\nde: 3", "ras/xgmi_wafl_err_count": "ue: 4\nce: 0"},
                           gpu_metrics=attributes()))  # fmt: skip
    assert {key[1:]: value for key, value in values.items() if key[0] == "gpu.ras.errors"} == {
        ("gfx", "uncorrected"): 1, ("corrected", "gfx"): 2, ("deferred", "gfx"): 3, ("uncorrected", "xgmi_wafl"): 4,
        ("corrected", "xgmi_wafl"): 0, ("umc", "uncorrected"): 0, ("corrected", "umc"): 3,
    }  # fmt: skip


@pytest.mark.parametrize("level", Level)
def test_the_file_that_blocks_for_a_second_and_the_one_that_clears_its_errors_are_never_opened(machine, level):
    """A reader of a pipe without a writer waits for ever: https://docs.kernel.org/gpu/amdgpu/driver-misc.html ."""
    machine.card(0, {"gpu_metrics": attributes(a9=[1])})
    for name in ("pcie_bw", "xgmi_error"):
        os.mkfifo(machine.sys / CARD / name)
    collector = machine.collector()
    collector.open(Given(level=level))
    for _ in range(3):
        machine.now += 10_000_000_000
        assert points(collector)


@pytest.mark.parametrize("whole", [attributes(a9=[1], a40=[1] * 8), fixed(Table18, 8, counter=1, partitions=1)])
def test_a_table_that_ends_anywhere_costs_only_its_own_values(machine, whole):
    machine.card(0, {"current_compute_partition": "CPX"})
    for length in range(0, len(whole), 61):
        machine.put(f"{CARD}/gpu_metrics", whole[:length])
        collector = machine.collector()
        collector.open(Given())
        try:
            assert points(collector)["gpu.utilization",] == 91
        except PartlyCollected as partly:
            pytest.fail(str(partly))
        collector.close()


@given(data=st.binary(max_size=400), revision=st.integers(0, 10), whole=st.sampled_from([attributes(), b""]))
def test_any_bytes_are_a_table_or_end_early(data, revision, whole):
    with suppress(struct.error):
        table = parse_table(struct.pack("<HBB", len(data), 1, revision) + data + whole)
        assert {type(value) for values in table.values() for value in values} <= {int, type(None)}


def test_the_processes_of_a_partition_have_its_number_and_pods_find_it_by_its_device(machine):
    collector = opened(machine, current_compute_partition="DPX", gpu_metrics=attributes(a40=[1] * 8))
    for node, number in ((1, 4711), (2, 4712)):
        folder = f"class/kfd/kfd/topology/nodes/{node}"
        machine.put(f"{folder}/gpu_id", number)
        machine.put(f"{folder}/properties", f"location_id {node - 1 << 28}\ndomain 0\ndrm_render_minor {127 + node}")
    machine.put("class/kfd/kfd/proc/10/vram_4711", 5 * 2**20)
    machine.put("class/kfd/kfd/proc/11/vram_4712", 7 * 2**20)
    (machine.sys / "devices/platform/amdgpu_xcp_1").mkdir(parents=True)
    (machine.sys / "class/drm/renderD129").mkdir()
    (machine.sys / "class/drm/renderD129/device").symlink_to("../../../devices/platform/amdgpu_xcp_1")
    points(collector)
    assert [(p.dims["mig"], p.pid, p.memory) for p in processes(collector)] == [
        ("0", 10, 5 * 2**20), ("1", 11, 7 * 2**20),
    ]  # fmt: skip
    assert [(d.dims.get("mig"), d.ids) for d in devices(collector)] == [
        (None, ("0000:00:00.0", "card0", "0")), ("1", ("amdgpu_xcp_1",)),
    ]  # fmt: skip
