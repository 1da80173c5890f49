"""Answers without a reading: patterns for "not available", errors that pass, clocks and drivers that change."""

import pytest

from chipwatch.contract.datapoint import Level
from chipwatch.contract.facts import names_of
from chipwatch.host import nvml

LOST = 15
ONES = 4294967295
ANSWERS = {
    "temperature": ONES, "limit": ONES, "power": ONES, "fan": ONES, "encoder": ONES, "decoder": ONES, "spare": ONES,
    "unrepairable": ONES, "reasons": ONES, "minor": ONES, "clock": dict.fromkeys("012", ONES),
    "pcie": dict.fromkeys(("width", "width_max", "generation", "generation_max"), ONES),
    "ecc": {"now": ONES, "default": ONES}, "sram": {"over": ONES}, "dram": {"uncorrected": ONES},
    "fabric": {"state": 3, "mask": ONES},
}  # fmt: skip
GONE = (
    "gpu.temperature{", "gpu.memory.temperature", "gpu.power.limit", "gpu.power.utilization", "gpu.fan", "gpu.encoder",
    "gpu.decoder", "gpu.clock", "gpu.rows", "gpu.pcie.", "gpu.ecc", "gpu.throttled", "gpu.energy", "gpu.nvlink",
)  # fmt: skip


@pytest.mark.parametrize("ones", [f"{ONES}u", str(ONES)])
def test_a_pattern_for_not_available_gives_neither_a_reading_nor_a_fault_nor_a_problem(fake, watch, ones):
    gpu = fake.gpus[0]
    gpu |= ANSWERS | {"field": dict.fromkeys(gpu["field"], ones)}
    watched = watch()
    watched.read()
    read = watched.read() | watched.seldom
    assert watched.problems == []
    assert not [name for name in read if name.startswith(GONE)]
    assert {name: value for name, value in watched.faults.items() if value} == {}
    kinds = {name.partition("fault=")[2].partition(",")[0].rstrip("}") for name in watched.faults}
    assert not kinds & {"pcie_narrow", "pcie_slow", "sram_uncorrected", "rows_pending", "rows_failed", "ecc_off"}
    assert read["gpu.state{gpu=0}"] == 1


@pytest.mark.parametrize("code", [10, 16, 999])
def test_memory_that_cannot_be_read_for_a_moment_is_absent_and_not_that_of_the_other_query(fake, watch, code):
    watched = watch()
    used = watched.read()["gpu.memory.used{gpu=0}"]
    fake.gpus[0]["memory"]["v2"] = f"!{code}"
    assert "gpu.memory.used{gpu=0}" not in watched.read()
    del fake.gpus[0]["memory"]["v2"]
    assert watched.read()["gpu.memory.used{gpu=0}"] == used


@pytest.mark.parametrize("code", [1, LOST, 18])
def test_events_that_can_be_neither_read_nor_freed_end_no_tick(fake, watch, monkeypatch, code):
    watched = watch(Level.BASIC)
    watched.read()
    monkeypatch.setitem(nvml.functions, "nvmlEventSetFree", lambda *_: code)
    fake.machine["wait"] = f"!{code}"
    assert watched.read()["gpu.state{gpu=0}"] == 1
    monkeypatch.delitem(nvml.functions, "nvmlEventSetFree")
    fake.machine |= {"wait": None, "events": "0:31"}
    assert [name for name in watched.read(300) if "xid=31" in name]


def test_an_instance_whose_samples_cannot_be_freed_goes_without_an_error(driver, watch, monkeypatch):
    fake = driver("h100_mig")
    watched = watch()
    watched.read(), watched.read()
    monkeypatch.setitem(nvml.functions, "nvmlGpmSampleFree", lambda *_: LOST)
    del fake.gpus[0]["mig"]["0"]
    read = watched.read()
    assert watched.problems == []
    assert "gpu.memory.used{gpu=0,mig=0}" not in read
    assert "gpu.memory.used{gpu=0,mig=1}" in read


def test_an_instance_is_asked_for_its_number_until_the_driver_knows_it(driver, watch):
    fake = driver("h100_mig")
    fake.gpus[0]["mig"]["0"]["gi"] = "!999"
    watched = watch(Level.BASIC)
    for _ in range(3):
        assert "gpu.utilization{gpu=0,mig=0}" not in watched.read(5)
    fake.gpus[0]["mig"]["0"]["gi"] = 2
    watched.read(5)
    assert "gpu.utilization{gpu=0,mig=0}" in watched.read(5)


def test_gpm_compares_no_sample_from_before_a_loss(two, driver, watch):
    two.machine["driver"] = "615.71.03"
    two.gpus[0]["gpm"] |= {"102": 100}
    watched = watch(Level.DETAILED)
    watched.read()
    assert watched.read()["gpu.c2c.sent{gpu=0}"] == 100 << 20
    two.gpus[0]["lost"] = 1
    watched.read()
    del two.gpus[0]["lost"]
    read = watched.read(3600)
    assert read["gpu.state{gpu=0}"] == 1
    assert not [name for name in read if name.startswith(("gpu.sm.active{gpu=0", "gpu.c2c.sent{gpu=0"))]
    assert watched.read()["gpu.c2c.sent{gpu=0}"] == 200 << 20


def test_nvlink_stays_with_the_field_that_answered_first(fake, watch):
    field = fake.gpus[0]["field"]
    field["202.-1"] = 700
    watched = watch()
    sent = watched.read()["gpu.nvlink.sent{gpu=0}"]
    field["138.-1"] = "!999"
    assert "gpu.nvlink.sent{gpu=0}" not in watched.read(10)
    field["138.-1"] = 5_000_001
    assert watched.read(10)["gpu.nvlink.sent{gpu=0}"] == sent + 1024


def test_processes_have_their_share_again_after_the_clock_was_set_back(fake, watch):
    fake.gpus[0] |= {"processes": "71:1", "samples": "71:9000000:40"}
    watched = watch()
    shares = []
    for samples, seconds in (("71:9000000:40", 1), ("71:10000000:50", 1), ("71:1000000:60", -9), ("71:2000000:70", 1)):
        fake.gpus[0]["samples"] = samples
        fake.tell()
        watched.at += (seconds - 1) * 10**9
        watched.read()
        shares += [process.utilization for process in watched.collector._gpus.processes()]
    assert shares == [None, 50, None, 70]


def test_gpus_that_all_fail_are_searched_by_opening_nvml_again(two, watched):
    for gpu in two.gpus:
        gpu.update(dict.fromkeys(("temperature", "power", "limit", "fields", "migs", "minor"), "!999"))
        gpu.update({"utilization": {"gpu": "!999"}, "memory": {"v2": "!999"}})
    watched.read()
    two.calls("nvmlInitWithFlags")
    watched.read(300)
    assert two.calls("nvmlInitWithFlags") == 1


def test_gpus_that_return_beside_a_lost_one_have_the_index_of_nvml(driver, watch):
    fake = driver("h100", 3)
    for gpu in fake.gpus:
        gpu["handle"] = "!999"
    fake.gpus[2]["handle"] = f"!{LOST}"
    watched = watch(Level.BASIC)
    assert watched.read().keys() == {"gpu.state{gpu=2}"}
    for gpu in fake.gpus:
        del gpu["handle"]
    read = watched.read(10)
    assert {name: read[name] for name in read if "state" in name} == {f"gpu.state{{gpu={n}}}": 1 for n in range(3)}


def test_a_gpu_keeps_its_device_file_while_the_driver_cannot_name_it(fake, watch):
    watched = watch(Level.BASIC)
    watched.read()
    fake.gpus[0]["minor"] = "!999"
    watched.read(300)
    assert "nvidia0" in names_of(watched.collector._gpus.devices())


def test_the_activity_of_jobs_and_the_series_share_the_samples_of_gpm(fake, watch):
    watched = watch(Level.DETAILED)
    watched.read(), list(watched.collector._gpus.activity())
    fake.calls("nvmlGpmSampleGet")
    engine = watched.read()["gpu.engine.active{gpu=0}"]
    assert [part.active for part in watched.collector._gpus.activity()] == [engine / 100]
    assert fake.calls("nvmlGpmSampleGet") == 1
