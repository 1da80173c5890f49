"""When NVML is queried: slow readings every ten seconds, unsupported ones hourly, forbidden ones every minute."""

import sys

import pynvml
import pytest
from tests.agent.collectors.nvidia.conftest import SECOND, START
from tests.bench.nvidia import recorded

from chipwatch.contract.datapoint import Level

LIMIT, FAN, UTILIZATION = "nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetFanSpeed", "nvmlDeviceGetUtilizationRates"


def test_slow_readings_are_made_in_the_first_two_ticks_and_then_every_ten_seconds(driver, watch):
    fake = driver("rtx4080s")
    gpu = watch()
    fake.calls(LIMIT), fake.calls(FAN)
    asked = [bool(gpu.read(5)) and (fake.calls(LIMIT), fake.calls(FAN)) for _ in range(6)]
    assert asked == [(1, 1), (1, 1), (0, 0), (1, 1), (0, 0), (1, 1)]


def test_fast_readings_are_made_in_every_tick(driver, watch):
    fake = driver("h100", 8)
    gpu = watch(Level.BASIC)
    fake.calls(UTILIZATION)
    for _ in range(4):
        gpu.read(1)
        assert fake.calls(UTILIZATION) == 8


def test_byte_counters_are_yielded_only_in_ticks_that_read_them(driver, watch):
    driver("h100")
    gpu = watch()
    fake = ["gpu.pcie.sent{gpu=0}" in gpu.read(5) for _ in range(6)]
    assert fake == [True, True, False, True, False, True]


def test_level_basic_does_not_query_values_of_higher_levels(fake, watch):
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
        fake.calls(function)
        gpu.read(10)
        assert fake.calls(function) == 0, function


def test_nvml_is_opened_once_and_closed_once(fake, watch):
    fake.calls("nvmlInitWithFlags"), fake.calls("nvmlShutdown")
    gpu = watch()
    for _ in range(100):
        gpu.read(10)
    gpu.collector.close()
    gpu.collector.close()
    assert (fake.calls("nvmlInitWithFlags"), fake.calls("nvmlShutdown")) == (1, 1)


@pytest.mark.parametrize("code", [3, 13, 26])
def test_an_unsupported_query_is_not_reported_and_is_retried_after_an_hour(fake, watch, code):
    fake.gpus[0]["utilization"] = {"gpu": f"!{code}"}
    gpu = watch(Level.BASIC)
    fake.calls(UTILIZATION)
    for _ in range(35):
        assert "gpu.utilization{gpu=0}" not in gpu.read(100)
        assert gpu.problems == []
    assert fake.calls(UTILIZATION) == 1
    fake.gpus[0]["utilization"] = {"gpu": 50, "memory": 5}
    assert gpu.read(200)["gpu.utilization{gpu=0}"] == 50


def test_an_unsupported_field_is_retried_after_an_hour_and_the_others_are_read(fake, watch):
    fake.gpus[0]["field"]["82"] = "!3"
    gpu = watch()
    gpu.read()
    fake.gpus[0]["field"]["82"] = "50u"
    read = gpu.read(3500)
    assert "gpu.memory.temperature{gpu=0}" not in read
    assert "gpu.energy{gpu=0}" in read
    assert gpu.read(200)["gpu.memory.temperature{gpu=0}"] == 50
    assert gpu.problems == []


def test_a_forbidden_query_is_retried_after_a_minute(fake, watch):
    gpu = watch()
    gpu.read()
    fake.gpus[0]["gpm"]["sample"] = "!4"
    assert "gpu.sm.active{gpu=0}" not in gpu.read(10)
    assert gpu.problems == ["GPU 0: gpm: Insufficient Permissions (NVML 4)"]
    del fake.gpus[0]["gpm"]["sample"]
    for _ in range(5):
        assert "gpu.sm.active{gpu=0}" not in gpu.read(10)
        assert gpu.problems == []
    assert gpu.read(20)["gpu.sm.active{gpu=0}"] == 98.25


def test_gpm_compares_the_samples_of_two_ticks(fake, watch):
    gpu = watch()
    gpu.read()
    for function in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc"):
        fake.calls(function)
    for _ in range(3):
        assert gpu.read(5)["gpu.sm.active{gpu=0}"] == 98.25
    assert [fake.calls(f) for f in ("nvmlGpmSampleGet", "nvmlGpmMetricsGet", "nvmlGpmSampleAlloc")] == [3, 3, 0]


def test_gpm_samples_are_at_least_100_ms_apart(fake, watch):
    gpu = watch()
    gpu.read()
    fake.calls("nvmlGpmSampleGet")
    assert "gpu.sm.active{gpu=0}" not in gpu.read(0.05)
    assert fake.calls("nvmlGpmSampleGet") == 0
    assert gpu.read(0.06)["gpu.sm.active{gpu=0}"] == 98.25


def test_a_gpu_without_gpm_is_not_sampled(fake, watch):
    fake.gpus[0]["gpm"]["supported"] = 0
    gpu = watch()
    fake.calls("nvmlGpmSampleGet"), fake.calls("nvmlGpmQueryDeviceSupport")
    for _ in range(5):
        assert "gpu.sm.active{gpu=0}" not in gpu.read(10)
    assert (fake.calls("nvmlGpmSampleGet"), fake.calls("nvmlGpmQueryDeviceSupport")) == (0, 1)
    assert gpu.problems == []


def test_gpm_samples_are_freed_by_close(driver, watch):
    fake = driver("h100_mig")
    fake.calls("nvmlGpmSampleAlloc"), fake.calls("nvmlGpmSampleFree")
    gpu = watch()
    gpu.read()
    gpu.read()
    gpu.collector.close()
    assert fake.calls("nvmlGpmSampleAlloc") == fake.calls("nvmlGpmSampleFree") == 10


def instructions(call):
    """Return how many instructions of Python a call takes: unlike its time, that is the same on a busy machine."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="each version of Python has other instructions")
@pytest.mark.parametrize(("level", "most"), [(Level.BASIC, 1.55), (Level.DETAILED, 1.8)])
def test_a_tick_of_eight_gpus_takes_little_more_than_a_loop_of_nvidia_ml_py(driver, watch, level, most):
    driver("h100", 8)
    gpu = watch(level)
    pynvml.nvmlInit()

    def tick(_=0):
        gpu.now += SECOND
        return (
            [*gpu.collector.collect(START + gpu.now)],
            [*gpu.collector._gpus.processes()],
            [*gpu.collector._gpus.activity()],
        )

    absent = []

    def loop():
        for call, args in calls:
            try:
                call(*args)
            except pynvml.NVMLError:
                absent.append(args)

    for _ in range(4):
        tick()
    (calls,) = recorded(tick, 1)
    assert len(calls) > 70
    loop()  # the first one also looks up the functions of the library
    ours, theirs = instructions(tick), instructions(loop)
    assert ours <= most * theirs, ours / theirs


def test_a_list_of_processes_that_was_empty_is_asked_again_when_the_memory_changes_or_after_ten_seconds(driver, watch):
    fake = driver("h100", 8)
    gpu = watch(Level.BASIC)
    names = [f"nvmlDeviceGet{word}RunningProcesses_v3" for word in ("Compute", "Graphics", "MPSCompute")]

    def asked(seconds):
        gpu.read(seconds), [*map(fake.calls, names)]
        assert [*gpu.collector._gpus.processes()]
        return [*map(fake.calls, names)]

    assert [asked(1), asked(1), asked(1), asked(1)] == [[8, 8, 8], [8, 8, 8], [8, 0, 0], [8, 0, 0]]
    fake.gpus[0]["memory"]["used"] += 1 << 20
    fake.gpus[0]["mps"] = "72:1048576"
    assert [asked(1), asked(1), asked(7), asked(1)] == [[8, 1, 1], [8, 0, 1], [8, 8, 8], [8, 0, 1]]
    assert 72 in {one.pid for one in gpu.processes()}


def test_a_list_that_the_driver_refuses_is_asked_in_each_tick_and_told(fake, watch):
    fake.gpus[0]["mps"] = "!999"
    gpu = watch(Level.BASIC)
    for _ in range(3):
        gpu.read(1), gpu.processes()
        assert [part.unlisted for part in gpu.collector._gpus.activity()] == [
            "NVML does not list its processes: Unknown Error (NVML 999)"
        ]
    del fake.gpus[0]["mps"]
    for _ in range(3):
        gpu.read(1), gpu.processes()
        assert [part.unlisted for part in gpu.collector._gpus.activity()] == [""]
