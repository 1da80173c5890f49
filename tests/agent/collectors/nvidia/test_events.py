"""Xid errors."""

from __future__ import annotations

from agent.datapoint import Level
from agent.pipeline.window import Window
from tests.agent.collectors.nvidia.conftest import START

WAIT = "nvmlEventSetWait_v2"


def xids(watched):
    return {
        (point.dims["gpu"], point.dims["xid"]): (point.value, point.start_time)
        for point in watched.points
        if point.metric.name == "gpu.xid"
    }


def test_each_xid_of_each_gpu_is_counted_from_the_tick_before_it_came(driver, watch):
    told = driver("h100", 2)
    watched = watch(Level.BASIC)
    watched.read()
    assert xids(watched) == {}
    before = watched.at
    told.machine["events"] = "0:79,1:13,1:13,0:31"
    told.tell()
    watched.read()
    assert xids(watched) == {("0", "79"): (1, before), ("1", "13"): (2, before), ("0", "31"): (1, before)}
    told.machine["events"] = "1:13"
    told.tell()
    watched.read()
    assert xids(watched)["1", "13"] == (3, before)
    del told.machine["events"]
    told.tell()
    watched.read()
    assert xids(watched) == {("0", "79"): (1, before), ("1", "13"): (3, before), ("0", "31"): (1, before)}


def test_the_first_xid_of_a_kind_counts_in_the_window_in_which_it_came(driver, watch):
    told = driver("h100")
    watched, window = watch(Level.BASIC), Window(0, born=START)
    watched.read()
    window.add(watched.points, watched.at)
    told.machine["events"] = "0:48"
    told.tell()
    watched.read()
    assert [p.increase for p in window.add(watched.points, watched.at) if p.metric.name == "gpu.xid"] == [1]


def test_nobody_waits_for_events(driver, watch):
    told = driver("h100")
    watched = watch(Level.BASIC)
    told.calls(WAIT)
    watched.read()
    assert told.calls(WAIT) == 1
    told.machine["events"] = "0:13,0:13,0:13"
    told.tell()
    watched.read()
    assert told.calls(WAIT) == 4


def test_a_flood_of_events_is_taken_in_parts(driver, watch):
    told = driver("h100")
    watched = watch(Level.BASIC)
    watched.read()
    told.machine["events"] = ",".join(["0:13"] * 200)
    told.tell()
    watched.read()
    assert xids(watched)["0", "13"][0] == 200


def test_the_xids_of_a_gpu_that_is_lost_are_still_told(driver, watch):
    told = driver("h100")
    watched = watch(Level.BASIC)
    watched.read()
    told.gpus[0]["lost"] = 1
    told.machine["events"] = "0:79"
    told.tell()
    read = watched.read()
    assert read == {"gpu.state{gpu=0}": 0, "gpu.xid{gpu=0,xid=79}": 1}


def test_a_lost_gpu_does_not_keep_the_events_of_the_others_from_coming(driver, watch):
    told = driver("h100", 2)
    watched = watch(Level.BASIC)
    watched.read()
    told.gpus[0]["lost"] = 1
    told.machine["wait"] = "!15"
    told.tell()
    watched.read()
    del told.machine["wait"]
    told.machine["events"] = "1:31"
    told.tell()
    watched.read()
    assert xids(watched).keys() == {("1", "31")}
    assert watched.problems == []


def test_a_gpu_without_events_is_not_registered(driver, watch):
    told = driver("h100")
    told.gpus[0]["events"] = 0
    told.tell()
    told.calls("nvmlDeviceRegisterEvents"), told.calls(WAIT)
    watched = watch(Level.BASIC)
    watched.read()
    assert told.calls("nvmlDeviceRegisterEvents") == told.calls(WAIT) == 0
    assert watched.problems == []


def test_events_that_cannot_be_had_are_one_problem(driver, watch):
    told = driver("h100", 4)
    told.machine["wait"] = "!999"
    told.tell()
    watched = watch(Level.BASIC)
    watched.read()
    assert watched.problems == ["Xid events: events: Unknown Error (NVML 999)"]
