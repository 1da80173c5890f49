"""Absent, lost, broken: what fails costs itself alone."""

from __future__ import annotations

import pytest

from agent.collectors.nvidia import NvidiaCollector
from agent.datapoint import Level
from agent.errors import Unavailable

CODES = [*range(1, 31), 999]
PLACES = {
    "utilization": {"gpu": "!{}"},
    "memory": {"total": "!{}"},
    "temperature": "!{}",
    "limit": "!{}",
    "power": "!{}",
    "fan": "!{}",
    "clock": {"1": "!{}"},
    "encoder": "!{}",
    "field": {"83": "!{}", "4": "!{}", "197": "!{}"},
    "fields": "!{}",
    "gpm": {"supported": "!{}"},
    "minor": "!{}",
    "migs": "!{}",
    "events": "!{}",
}

ASKED_WHEN_FOUND = ("minor", "migs", "events")
LOST, RESET = 15, 16
NO_TROUBLE = (3, 13, 26, LOST, RESET)


def spoilt(place, code):
    if isinstance(place, dict):
        return {key: spoilt(value, code) for key, value in place.items()}
    return place.format(code)


@pytest.mark.parametrize("place", PLACES)
def test_any_error_at_any_place_costs_that_reading_and_is_said_if_it_is_trouble(driver, watch, place):
    told = driver("h100", 2)
    healthy = told.gpus[0].get(place)
    for code in CODES:
        wrong = spoilt(PLACES[place], code)
        told.gpus[0][place] = {**healthy, **wrong} if isinstance(healthy, dict) else wrong
        told.tell()
        gpu = watch()
        gpu.read()
        said = gpu.problems
        read = gpu.read()
        gpu.collector.close()
        assert len([name for name in read if "gpu=1" in name]) == 38
        assert all(problem.startswith("GPU 0: ") for problem in said)
        assert len(said) <= 3
        gone = code in (LOST, RESET) and place not in ASKED_WHEN_FOUND
        assert read["gpu.state{gpu=0}"] == (0 if gone else 1), code
        assert bool(said) == (code not in NO_TROUBLE), code


def test_a_hundred_failures_are_one_sentence_a_group(driver, watch):
    told = driver("h100")
    told.gpus[0]["field"] = dict.fromkeys(told.gpus[0]["field"], "!999")
    told.gpus[0]["clock"] = dict.fromkeys("012", "!999")
    told.tell()
    gpu = watch()
    gpu.read()
    assert sorted(gpu.problems) == [
        f"GPU 0: {group}: Unknown Error (NVML 999)"
        for group in ("clock", "ecc", "energy", "nvlink", "pcie", "recovery", "rows", "temperature", "throttled")
    ]


# -- lost, and found again --------------------------------------------------------------------------------------


def test_a_gpu_that_falls_off_the_bus_has_state_0_and_the_others_go_on(driver, watch):
    told = driver("h100", 8)
    gpu = watch(Level.BASIC)
    assert len(gpu.read()) == 64
    told.gpus[3]["lost"] = 1
    told.tell()
    for _ in range(3):
        read = gpu.read(10)
        assert len(read) == 57
        assert {name: value for name, value in read.items() if "gpu=3" in name} == {"gpu.state{gpu=3}": 0}
        assert sum(value for name, value in read.items() if "state" in name) == 7
        assert gpu.problems == []
    assert gpu.collector.describe().endswith(", 1 lost")


def test_a_gpu_that_returns_is_read_again_and_its_counters_go_on(driver, watch):
    told = driver("h100", 2)
    gpu = watch()
    first = gpu.at + 1_000_000_000
    gpu.read()
    told.gpus[1]["lost"] = 1
    told.tell()
    gpu.read(10)
    del told.gpus[1]["lost"]
    told.tell()
    gpu.read(300)
    read = gpu.read(10)
    assert read["gpu.state{gpu=1}"] == 1
    assert next(p.start_time for p in gpu.points if p.metric.name == "gpu.energy" and p.dims["gpu"] == "1") == first


def test_when_a_gpu_is_lost_it_is_looked_which_there_are_and_the_others_keep_their_index(driver, watch):
    told = driver("h100", 3)
    for n, gpu in enumerate(told.gpus):
        gpu["temperature"] = 40 + n
    told.tell()
    watched = watch(Level.BASIC)
    watched.read()
    told.gpus[1]["lost"] = 1
    told.tell()
    watched.read()
    del told.gpus[1]  # NVML does not list it any more: the third one moves up
    told.tell()
    told.calls("nvmlDeviceGetCount_v2")
    read = watched.read()
    assert told.calls("nvmlDeviceGetCount_v2") == 1
    assert {name: value for name, value in read.items() if "temp" in name or "state" in name} == {
        "gpu.temperature{gpu=0}": 40,
        "gpu.state{gpu=0}": 1,
        "gpu.state{gpu=1}": 0,
        "gpu.temperature{gpu=2}": 42,
        "gpu.state{gpu=2}": 1,
    }
    watched.read()
    assert told.calls("nvmlDeviceGetCount_v2") == 0


def test_a_gpu_that_comes_is_found_within_five_minutes_and_takes_no_ones_index(driver, watch):
    told = driver("h100", 2)
    watched = watch(Level.BASIC)
    watched.read()
    new = told.gpus[0] | {"uuid": "GPU-11111111-0000-0000-0000-000000000000", "temperature": 33}
    told.gpus[0]["lost"] = 1
    told.tell()
    watched.read()
    told.gpus[0] = new
    told.tell()
    read = watched.read(300)
    assert (read["gpu.state{gpu=0}"], read["gpu.temperature{gpu=2}"]) == (0, 33)


def test_a_gpu_that_was_lost_before_we_came_has_state_0(driver, watch):
    told = driver("h100", 2)
    told.gpus[1]["handle"] = "!15"
    told.tell()
    watched = watch(Level.BASIC, dimensions=("uuid",))
    watched.read()
    states = {
        point.dims["gpu"]: (point.value, point.dims["uuid"]) for point in watched.points if "state" in point.metric.name
    }
    assert states == {"0": (1, told.gpus[0]["uuid"]), "1": (0, "unknown")}
    del told.gpus[1]["handle"]
    told.tell()
    watched.read(300)
    states = {
        point.dims["gpu"]: (point.value, point.dims["uuid"]) for point in watched.points if "state" in point.metric.name
    }
    assert states == {"0": (1, told.gpus[0]["uuid"]), "1": (1, told.gpus[1]["uuid"])}


def test_a_gpu_that_may_not_be_opened_is_said_and_the_others_are_read(driver, watch):
    told = driver("h100", 2)
    told.gpus[0]["handle"] = "!4"
    told.tell()
    watched = watch(Level.BASIC)
    read = watched.read()
    assert read["gpu.state{gpu=1}"] == 1
    assert not [name for name in read if "gpu=0" in name]
    assert watched.problems == ["GPU 0: Insufficient Permissions (NVML 4)"]


def test_nvml_is_opened_anew_when_every_gpu_is_lost_and_only_then(driver, watch):
    told = driver("h100", 2)
    watched = watch(Level.ALL)
    watched.read()
    told.gpus[0]["lost"] = told.gpus[1]["lost"] = 1
    told.tell()
    told.calls("nvmlInitWithFlags")
    assert set(watched.read().values()) == {0}
    assert set(watched.read(10).values()) == {0}
    inits = told.calls("nvmlInitWithFlags")
    told.gpus[0].pop("lost"), told.gpus[1].pop("lost")
    told.tell()
    watched.read(300)
    read = watched.read(1)
    assert (inits, read["gpu.state{gpu=0}"], read["gpu.sm.active{gpu=1}"]) == (1, 1, 98.25)


def test_a_reset_that_is_required_is_state_0_and_what_can_be_read_is_read(driver, watch):
    told = driver("h100")
    told.gpus[0]["utilization"] = {"gpu": "!16"}
    told.tell()
    read = watch(Level.BASIC).read()
    assert (read["gpu.state{gpu=0}"], read["gpu.temperature{gpu=0}"]) == (0, 59)


def test_a_recovery_that_the_driver_asks_for_is_state_0_until_it_is_done(driver, watch):
    told = driver("h100")
    watched = watch(Level.BASIC)
    for action, state in (("0u", 1), ("1u", 0), ("4u", 0), ("0u", 1)):
        told.gpus[0]["field"]["230"] = action
        told.tell()
        assert watched.read(10)["gpu.state{gpu=0}"] == state
    assert watched.problems == []


def test_a_driver_that_is_gone_in_the_middle_makes_the_collector_unavailable(driver, watch):
    told = driver("h100")
    watched = watch(Level.BASIC)
    watched.read()
    told.machine["count"] = "!1"
    told.tell()
    with pytest.raises(Unavailable, match="NVML: Uninitialized"):
        watched.read(300)


# -- absent -----------------------------------------------------------------------------------------------------


def test_a_machine_without_nvidia_is_told_so_without_loading_anything(tmp_path, monkeypatch):
    (tmp_path / "proc").mkdir()
    collector = NvidiaCollector(NvidiaCollector.Config(proc=tmp_path / "proc", root=tmp_path))
    with pytest.raises(Unavailable, match=f"no NVIDIA driver: {tmp_path}/proc/driver/nvidia/version, .*/dev/nvidiactl"):
        collector.open()
    assert collector.describe() == ""
    collector.close()


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        (9, "the kernel module is not loaded"),
        (18, "have different versions, as after an upgrade"),
        (4, "this user may not open /dev/nvidia"),
        (17, "systemctl daemon-reload"),
        (999, "restart the container"),
        (11, r"NVML: Interrupt Request Issue \(NVML 11\)$"),
    ],
)
def test_a_driver_that_cannot_be_opened_says_what_to_do(driver, watch, code, sentence):
    told = driver("h100")
    told.machine["init"] = f"!{code}"
    told.write()
    with pytest.raises(Unavailable, match=sentence):
        watch()


def test_a_driver_that_cannot_count_its_gpus_is_closed_again(driver, watch):
    told = driver("h100")
    told.machine["count"] = "!999"
    told.write()
    told.calls("nvmlInitWithFlags"), told.calls("nvmlShutdown")
    with pytest.raises(Unavailable, match="NVML: Unknown Error"):
        watch()
    assert (told.calls("nvmlInitWithFlags"), told.calls("nvmlShutdown")) == (1, 1)


def test_a_driver_without_gpus_has_nothing_to_read(driver, watch):
    told = driver("h100")
    told.gpus.clear()
    told.write()
    with pytest.raises(Unavailable, match=r"NVML lists no GPU$"):
        watch()


def test_more_gpus_in_proc_than_nvml_lists_are_told_by_agent_check(driver, watch, proc):
    for n in range(3):
        (proc / f"driver/nvidia/gpus/0000:0{n}:00.0").mkdir(parents=True)
    driver("h100", 2)
    assert watch().collector.describe() == (
        f"2 x NVIDIA H100 80GB HBM3, driver 590.48.01, {proc}/driver/nvidia/gpus lists 3, NVML 2"
    )
