"""Xid errors."""

import pytest
from tests.agent.collectors.nvidia.conftest import START

from chipwatch.contract.datapoint import Level
from chipwatch.jobs.verdict.callers import DEGRADED, NOT_FIT
from chipwatch.jobs.verdict.events import EventHistory
from chipwatch.jobs.verdict.rules import reasons

WAIT = "nvmlEventSetWait_v2"


def xids(watched):
    return {
        (point.dims["gpu"], point.dims["xid"]): (point.value, point.start_time)
        for point in watched.points
        if point.metric.name == "gpu.xid"
    }


def test_xids_are_counted_by_gpu_and_number_from_the_tick_before_the_first(two, watched):
    assert xids(watched) == {}
    before = watched.at
    two.machine["events"] = "0:79,1:13,1:13,0:31"
    watched.read()
    assert xids(watched) == {("0", "79"): (1, before), ("1", "13"): (2, before), ("0", "31"): (1, before)}
    two.machine["events"] = "1:13"
    watched.read()
    assert xids(watched)["1", "13"] == (3, before)
    del two.machine["events"]
    watched.read()
    assert xids(watched) == {("0", "79"): (1, before), ("1", "13"): (3, before), ("0", "31"): (1, before)}


def test_other_events_are_counted_and_a_request_for_a_recovery_is_read_in_the_same_tick(two, watch):
    for gpu in two.gpus:
        gpu["events"] = 0xF008
    watched = watch(Level.BASIC)
    watched.read()
    watched.read()
    two.machine["events"] = "0:0:16384,0:0:4096,1:0:8192,1:0:32768,1:0:1"
    two.gpus[1]["field"]["230"] = "1u"
    read = watched.read()
    assert {name: value for name, value in read.items() if "event" in name} == {
        "gpu.event{event=unavailable,gpu=0}": 1,
        "gpu.event{event=nonfatal_poison,gpu=0}": 1,
        "gpu.event{event=fatal_poison,gpu=1}": 1,
        "gpu.event{event=recovery_action,gpu=1}": 1,
    }
    assert read["gpu.recovery_action{action=gpu_reset,gpu=1}"] == 1
    assert read["gpu.state{gpu=1}"] == 0
    assert watched.read()["gpu.recovery_action{action=gpu_reset,gpu=1}"] == 1


@pytest.mark.parametrize("answers", [{"events": 8}, {"events": 0xF008, "events_refused": 0x8000}])
def test_a_driver_is_asked_only_for_events_that_it_has(fake, watch, answers):
    fake.gpus[0] |= answers
    watched = watch(Level.BASIC)
    watched.read()
    fake.machine["events"] = "0:0:16384,0:79"
    read = watched.read()
    assert [name for name in read if "event" in name or "xid" in name] == [
        "gpu.xid{action=restart_machine,gpu=0,xid=79}"
    ]
    assert watched.problems == []


def test_reading_events_does_not_wait(fake, watch):
    watched = watch(Level.BASIC)
    fake.calls(WAIT)
    watched.read()
    assert fake.calls(WAIT) == 1
    fake.machine["events"] = "0:13,0:13,0:13"
    watched.read()
    assert fake.calls(WAIT) == 4


def test_the_xids_of_a_lost_gpu_are_reported(fake, watch):
    watched = watch(Level.BASIC)
    watched.read()
    fake.gpus[0]["lost"] = 1
    fake.machine["events"] = "0:79"
    read = watched.read()
    assert read == {"gpu.state{gpu=0}": 0, "gpu.xid{action=restart_machine,gpu=0,xid=79}": 1}


def test_a_lost_gpu_does_not_block_the_events_of_the_others(two, watched):
    two.gpus[0]["lost"] = 1
    two.machine["wait"] = "!15"
    watched.read()
    del two.machine["wait"]
    two.machine["events"] = "1:31"
    watched.read()
    assert xids(watched).keys() == {("1", "31")}
    assert watched.problems == []


def test_a_gpu_without_events_is_not_registered(fake, watch):
    fake.gpus[0]["events"] = 0
    fake.calls("nvmlDeviceRegisterEvents"), fake.calls(WAIT)
    watched = watch(Level.BASIC)
    watched.read()
    assert fake.calls("nvmlDeviceRegisterEvents") == fake.calls(WAIT) == 0
    assert watched.problems == []


def test_failing_events_are_one_problem(driver, watch):
    fake = driver("h100", 4)
    fake.machine["wait"] = "!999"
    watched = watch(Level.BASIC)
    watched.read()
    assert watched.problems == ["Xid events: events: Unknown Error (NVML 999)"]


@pytest.mark.parametrize(
    ("xid", "action", "severity"),
    [(79, "restart_machine", NOT_FIT), (95, "reset_gpu", NOT_FIT), (54, "check_hardware", NOT_FIT),
     (48, "see_workflow", DEGRADED), (149, "see_workflow", DEGRADED), (78, "update_software", DEGRADED),
     (45, "see_workflow", None), (13, "restart_app", None), (63, "ignore", None), (167, "none", None), (999, "none", None)],
)  # fmt: skip
def test_an_xid_has_nvidias_action_by_which_a_verdict_judges_it_for_an_hour(two, watch, xid, action, severity):
    watched, recent = watch(Level.BASIC), EventHistory([], born=START)
    watched.read()
    recent.take(watched.points, watched.at)
    two.machine["events"] = f"1:{xid}"
    watched.read()
    recent.take(watched.points, watched.at)
    del two.machine["events"]
    two.tell()
    assert [p.dims["action"] for p in watched.points if p.metric.name == "gpu.xid"] == [action]
    found = [(one.severity, one.about, one.says) for one in reasons(recent.series(watched.at))]
    assert found == ([(severity, "gpu 1", f"had Xid {xid}")] if severity else [])
    watched.read(3601)
    recent.take(watched.points, watched.at)
    assert reasons(recent.series(watched.at)) == []
