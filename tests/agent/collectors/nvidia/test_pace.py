"""What is dear is asked seldom, what is not there hourly, what is forbidden every minute."""

from __future__ import annotations

import pytest

from agent.datapoint import Level

LIMIT, FAN, UTILIZATION = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetUtilizationRates"


def test_what_is_dear_is_read_in_the_first_two_ticks_and_then_every_ten_seconds(driver, watch):
    told = driver("rtx4080s")
    gpu = watch()
    told.calls(LIMIT), told.calls(FAN)
    asked = [bool(gpu.read(5)) and (told.calls(LIMIT), told.calls(FAN)) for _ in range(6)]
    assert asked == [(1, 1), (1, 1), (0, 0), (1, 1), (0, 0), (1, 1)]


def test_what_is_cheap_is_read_in_every_tick(driver, watch):
    told = driver("h100", 8)
    gpu = watch(Level.BASIC)
    told.calls(UTILIZATION)
    for _ in range(4):
        gpu.read(1)
        assert told.calls(UTILIZATION) == 8


def test_counters_of_bytes_are_told_only_when_they_were_read(driver, watch):
    driver("h100")
    gpu = watch()
    told = ["gpu.pcie.sent{gpu=0}" in gpu.read(5) for _ in range(6)]
    assert told == [True, True, False, True, False, True]


def test_at_level_basic_nothing_is_asked_that_is_not_told(driver, watch):
    told = driver("h100")
    gpu = watch(Level.BASIC)
    for _ in range(3):
        gpu.read(10)
    for function in (
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetEncoderUtilization",
        "nvmlGpmQueryDeviceSupport",
        "nvmlGpmSampleGet",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetProcessUtilization",
    ):
        told.calls(function)
        gpu.read(10)
        assert told.calls(function) == 0, function


def test_nvml_is_opened_once_and_closed_once(driver, watch):
    told = driver("h100")
    told.calls("nvmlInitWithFlags"), told.calls("nvmlShutdown")
    gpu = watch()
    for _ in range(100):
        gpu.read(10)
    gpu.collector.close()
    gpu.collector.close()
    assert (told.calls("nvmlInitWithFlags"), told.calls("nvmlShutdown")) == (1, 1)


@pytest.mark.parametrize("code", [3, 13, 26])
def test_what_is_not_supported_is_no_trouble_and_is_asked_again_after_an_hour(driver, watch, code):
    told = driver("h100")
    told.gpus[0]["utilization"] = {"gpu": f"!{code}"}
    told.tell()
    gpu = watch(Level.BASIC)
    told.calls(UTILIZATION)
    for _ in range(35):
        assert "gpu.utilization{gpu=0}" not in gpu.read(100)
        assert gpu.problems == []
    assert told.calls(UTILIZATION) == 1
    told.gpus[0]["utilization"] = {"gpu": 50, "memory": 5}
    told.tell()
    assert gpu.read(200)["gpu.utilization{gpu=0}"] == 50


def test_a_field_that_is_not_supported_is_left_out_for_an_hour_and_the_others_are_read(driver, watch):
    told = driver("h100")
    told.gpus[0]["field"]["82"] = "!3"
    told.tell()
    gpu = watch()
    gpu.read()
    told.gpus[0]["field"]["82"] = "50u"
    told.tell()
    read = gpu.read(3500)
    assert "gpu.memory.temperature{gpu=0}" not in read
    assert "gpu.energy{gpu=0}" in read
    assert gpu.read(200)["gpu.memory.temperature{gpu=0}"] == 50
    assert gpu.problems == []


def test_what_is_forbidden_is_asked_again_after_a_minute(driver, watch):
    told = driver("h100")
    gpu = watch()
    gpu.read()
    told.gpus[0]["gpm"]["sample"] = "!4"
    told.tell()
    assert "gpu.sm.active{gpu=0}" not in gpu.read(10)
    assert gpu.problems == ["GPU 0: gpm: Insufficient Permissions (NVML 4)"]
    del told.gpus[0]["gpm"]["sample"]
    told.tell()
    for _ in range(5):
        assert "gpu.sm.active{gpu=0}" not in gpu.read(10)
        assert gpu.problems == []
    assert gpu.read(20)["gpu.sm.active{gpu=0}"] == 98.25


# -- GPM --------------------------------------------------------------------------------------------------------


def test_two_snapshots_are_compared_that_are_a_tick_apart(driver, watch):
    told = driver("h100")
    gpu = watch()
    gpu.read()
    for function in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc"):
        told.calls(function)
    for _ in range(3):
        assert gpu.read(5)["gpu.sm.active{gpu=0}"] == 98.25
    assert [told.calls(f) for f in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc")] == [3, 3, 0]


def test_snapshots_that_would_be_too_near_are_not_taken(driver, watch):
    told = driver("h100")
    gpu = watch()
    gpu.read()
    told.calls("nvmlGpmSampleGet")
    assert "gpu.sm.active{gpu=0}" not in gpu.read(0.05)
    assert told.calls("nvmlGpmSampleGet") == 0
    assert gpu.read(0.06)["gpu.sm.active{gpu=0}"] == 98.25


def test_a_gpu_before_hopper_is_not_asked_for_snapshots(driver, watch):
    told = driver("h100")
    told.gpus[0]["gpm"]["supported"] = 0
    told.tell()
    gpu = watch()
    told.calls("nvmlGpmSampleGet"), told.calls("nvmlGpmQueryDeviceSupport")
    for _ in range(5):
        assert "gpu.sm.active{gpu=0}" not in gpu.read(10)
    assert (told.calls("nvmlGpmSampleGet"), told.calls("nvmlGpmQueryDeviceSupport")) == (0, 1)
    assert gpu.problems == []


def test_snapshots_are_freed_at_the_end(driver, watch):
    told = driver("h100_mig")
    told.calls("nvmlGpmSampleAlloc"), told.calls("nvmlGpmSampleFree")
    gpu = watch()
    gpu.read()
    gpu.read()
    gpu.collector.close()
    assert told.calls("nvmlGpmSampleAlloc") == told.calls("nvmlGpmSampleFree") == 10
