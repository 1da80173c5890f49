"""Values that only newer drivers or chips have: cycles, context switches, links to the CPU, modules, NVLink 5 and 6."""

from pathlib import Path

import pytest

from chipwatch.collectors.nvidia import NvidiaCollector, events, health, metrics
from chipwatch.collectors.nvidia.fields import DRAIN, RECOVERY, RESET, DriverFields
from chipwatch.collectors.nvidia.gpm import CYCLES, ELAPSED, SWITCHES
from chipwatch.contract.datapoint import Level, counter

PAGE = Path(__file__).parents[4] / "docs/nvidia-fields.md"
WANTED = {
    5, 6, 29, 30, 31, 144, *range(161, 164), 165, 170, 171, *range(173, 184), *range(193, 197), *range(206, 216),
    *range(219, 223), RESET, DRAIN, RECOVERY, *range(231, 251), *range(289, 296), 297, *range(301, 308),
}  # fmt: skip
"""Fields of NVML with errors and states, from Ampere to Rubin."""
UNREAD = {215: "field 215", **dict.fromkeys(range(289, 294), "289 to 293")}
"""Fields that are not read, and the words of the page that says why."""
NEW = "gpu.pipe.active", "gpu.context_switch.active", "gpu.c2c.", "gpu.module.power", "gpu.tensor.stalled"


@pytest.fixture
def newest(driver):
    """A fake GPU with a driver of 2026."""
    fake = driver("h100")
    fake.machine["driver"] = "615.71.03"
    return fake


def test_a_share_is_exact_where_the_driver_counts_cycles(newest, watch):
    newest.gpus[0]["gpm"] |= {str(ELAPSED): "7@1000000", "2": 98, "249": "5@976543.21", "7": 12, "252": "1@119999"}
    gpu = watch()
    gpu.read()
    gpu.read(10)
    newest.let_pass(10)
    read = gpu.read(10)
    assert read["gpu.sm.active{gpu=0}"] == pytest.approx(97.654321, abs=1e-4)
    assert read["gpu.pipe.active{gpu=0,pipe=hmma}"] == pytest.approx(11.9999, abs=1e-4)


@pytest.mark.parametrize("cycles", ["5@300000", "5@1300000", "5", "!3"])
def test_the_drivers_own_share_stays_where_its_cycles_say_something_else(newest, watch, cycles):
    newest.gpus[0]["gpm"] |= {str(ELAPSED): "7@1000000", "2": 98, "249": cycles}
    gpu = watch()
    gpu.read()
    gpu.read(10)
    newest.let_pass(10)
    assert gpu.read(10)["gpu.sm.active{gpu=0}"] == 98


def test_the_price_of_time_slicing_is_that_of_the_engine_that_switches_most(newest, watch):
    newest.gpus[0]["gpm"] |= {"174": 0.25, "179": 3.5, "184": "!3"}
    gpu = watch(Level.DETAILED)
    gpu.read()
    assert gpu.read(1)["gpu.context_switch.active{gpu=0}"] == 3.5


def test_bytes_over_the_link_to_the_cpu_are_counted_between_samples(newest, watch):
    newest.gpus[0]["gpm"] |= {"102": 2.5, "103": 1000}
    gpu = watch(Level.DETAILED)
    gpu.read()
    began = gpu.at
    assert gpu.read(2)["gpu.c2c.sent{gpu=0}"] == 5 * 2**20
    assert gpu.read(0.05).keys().isdisjoint({"gpu.c2c.sent{gpu=0}"})  # too short for a sample
    read = gpu.read(3.95)
    assert [read[f"gpu.c2c.{way}{{gpu=0}}"] for way in ("sent", "received")] == [15 * 2**20, 6000 * 2**20]
    assert {point.start_time for point in gpu.points if point.metric.name.startswith("gpu.c2c")} == {began}


def test_garbage_of_gpm_is_absent(newest, watch):
    newest.gpus[0]["gpm"] |= {"102": -1, "103": "nan", "174": 250, "7": "nan", str(ELAPSED): "nan", "249": 3}
    gpu = watch()
    gpu.read()
    assert not [name for name in gpu.read(1) if name.startswith(NEW)]


def test_a_metric_that_the_gpu_lacks_is_asked_again_after_an_hour(newest, watch):
    gpu = watch(Level.DETAILED)
    gpu.read()
    gpu.read(1)
    newest.gpus[0]["gpm"]["174"] = 4
    assert "gpu.context_switch.active{gpu=0}" not in gpu.read(10)
    assert gpu.read(3600)["gpu.context_switch.active{gpu=0}"] == 4


@pytest.mark.parametrize(
    ("version", "has"), [("570.172", (0, 0)), ("575.51", (1, 0)), ("590.48.01", (1, 0)), ("595.45", (1, 1))]
)
def test_an_older_driver_is_not_asked_for_metrics_that_it_does_not_know(version, has):
    fields = DriverFields(version)
    assert {fields.has_metric(number) for number in (102, 103, *SWITCHES)} == {bool(has[0])}
    assert {fields.has_metric(number) for number in (ELAPSED, *CYCLES.values())} == {bool(has[1])}
    assert all(map(fields.has_metric, CYCLES))


def test_each_field_with_errors_or_states_is_read_or_the_page_says_why_not():
    read = {
        *metrics.FIELDS, *metrics.LINK_FIELDS, *metrics.C2C_FIELDS, *health.BIT_ERRORS, health.LINK_STATE,
        health.C2C_COUNT, health.C2C_STATUS, health.C2C_POWER,
    }  # fmt: skip
    for version in ("550.163.01", "615.71.03"):
        read |= {*DriverFields(version).recovery}
    assert WANTED - read == UNREAD.keys()
    page = PAGE.read_text(encoding="utf-8")
    for words in UNREAD.values():
        assert words in page
    assert {0x1000, 0x2000, 0x4000, 0x8000} <= {*events.EVENTS}


def test_a_new_field_is_one_row_and_one_line_of_the_fake_driver(fake, watch, monkeypatch):
    row = metrics.FieldRow(counter("gpu.new", "By", "New.", dims=("gpu",)), unit=1024, query="new")
    monkeypatch.setitem(metrics.SLOW, 999, row)
    monkeypatch.setitem(metrics.WHOLE, "gpu.new", row.metric)  # follows from the row where the module is loaded
    monkeypatch.setattr("chipwatch.collectors.nvidia.points.metrics_of", metrics.metrics_of.__wrapped__)
    fake.gpus[0]["field"]["999"] = 2048
    assert watch(Level.BASIC).read()["gpu.new{gpu=0}"] == 2


def test_each_row_is_a_metric_of_the_collector():
    tables = (metrics.SHARES, metrics.C2C, metrics.CLOCKS, metrics.FAST, metrics.SLOW, metrics.FIELDS)
    rows = [row for table in (*tables, metrics.LINK_FIELDS, metrics.C2C_FIELDS) for row in table.values()]
    assert {row.metric.name for row in rows} <= {metric.name for metric in NvidiaCollector.metrics}
    assert all(bool(row.value) == (len(row.metric.dims) > 1) for row in rows)


def test_power_of_the_module_is_a_metric_of_level_detailed(newest, watch):
    newest.gpus[0]["field"]["186.1"] = "912345u"
    assert watch(Level.DETAILED).read()["gpu.module.power{gpu=0}"] == 912.345
    assert "gpu.module.power{gpu=0}" not in watch(Level.BASIC).read()
    newest.gpus[0]["field"]["186.1"] = 0
    assert "gpu.module.power{gpu=0}" not in watch(Level.DETAILED).read()


def test_replacements_of_memory_and_stalls_of_the_newest_drivers_are_read(newest, watch):
    newest.gpus[0]["field"] |= {
        "297": "12u", "301": "1u", "302": "2u", "303": "3u", "304": "4u", "305": "5u", "306": "6u", "307": "1u",
    }  # fmt: skip
    gpu = watch()
    gpu.read()
    new = {
        name: value for name, value in gpu.seldom.items() if "stalled" in name or "banks" in name or "inactive" in name
    }
    assert {name: value for name, value in new.items() if not name.startswith("gpu.rows.banks")} == {
        "gpu.tensor.stalled{gpu=0}": 12,
        "gpu.rows.inactive{cause=correctable,gpu=0}": 1,
        "gpu.rows.inactive{cause=uncorrectable,gpu=0}": 2,
        "gpu.banks.remapped{gpu=0,state=active}": 3,
        "gpu.banks.remapped{gpu=0,state=inactive}": 4,
        "gpu.banks.groups{gpu=0,spare=max}": 5,
        "gpu.banks.groups{gpu=0,spare=none}": 6,
    }
    assert gpu.faults["gpu.fault{fault=rows_pending,gpu=0}"] == 1


def test_corrected_errors_and_blocks_are_summed_over_the_links(newest, watch):
    links = newest.gpus[0]["links"]
    newest.gpus[0]["field"] |= {"235.3": 100, "250.17": 1, "294.2": 1000, "295.2": 4}
    gpu = watch()
    gpu.read()
    newest.gpus[0]["field"] |= {"235.3": 160, "250.17": 3, "294.2": 1500, "295.2": 5}
    gpu.read(30), gpu.read(30)
    assert links == 18
    assert {
        name: value for name, value in gpu.seldom.items() if name.startswith(("gpu.nvlink.co", "gpu.nvlink.bl"))
    } == {
        "gpu.nvlink.corrected{bin=0,gpu=0}": 60,
        "gpu.nvlink.corrected{bin=15,gpu=0}": 2,
        "gpu.nvlink.blocks{gpu=0,kind=sent}": 500,
        "gpu.nvlink.blocks{gpu=0,kind=sent_again}": 1,
    }


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ({"virtual": 0}, {}),
        ({"virtual": 1, "licence": "1"}, {}),
        ({"virtual": 2, "licence": "10"}, {"gpu.licensed{gpu=0}": 1}),
        ({"virtual": 2, "licence": "00"}, {"gpu.licensed{gpu=0}": 0}),
        ({"virtual": 2, "licence": ""}, {}),
        ({"virtual": 2, "licence": "!3"}, {}),
        ({"virtual": 3, "vgpus": "101"}, {"gpu.vgpus{gpu=0,licence=valid}": 2, "gpu.vgpus{gpu=0,licence=none}": 1}),
        ({"virtual": 3, "vgpus": ""}, {"gpu.vgpus{gpu=0,licence=valid}": 0, "gpu.vgpus{gpu=0,licence=none}": 0}),
        ({"virtual": "!3", "vgpus": "1"}, {}),
    ],
)
def test_a_vgpu_has_its_licence_in_the_guest_and_is_counted_by_licence_on_the_host(driver, watch, answers, expected):
    fake = driver("t4")
    fake.gpus[0] |= answers
    gpu = watch()
    assert {name: value for name, value in gpu.read().items() if "licen" in name} == expected
    assert gpu.problems == []
