"""Absent, lost and broken devices: a failure loses only its own values."""

import pytest
from tests.doubles.nvml.driver import together

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import names_of
from chipwatch.contract.plugin import Given

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
GONE = (1, 9, LOST, 18)
NO_TROUBLE = (3, 13, 21, 25, 26, RESET, *GONE)
CODES = (*NO_TROUBLE, 2, 4, 6, 7, 999)
"""Errors with a meaning for the collector, and some of the others."""


def spoilt(place, code):
    if isinstance(place, dict):
        return {key: spoilt(value, code) for key, value in place.items()}
    return place.format(code)


@pytest.mark.parametrize("place", PLACES)
def test_an_error_of_any_query_affects_only_its_reading(two, watch, place):
    healthy = two.gpus[0].get(place)
    for code in CODES:
        wrong = spoilt(PLACES[place], code)
        two.gpus[0][place] = {**healthy, **wrong} if isinstance(healthy, dict) else wrong
        gpu = watch()
        gpu.read()
        said = gpu.problems
        read = gpu.read()
        gpu.collector.close()
        assert len([name for name in read if "gpu=1" in name]) == 44
        assert all(problem.startswith("GPU 0: ") for problem in said)
        assert len(said) <= 3
        gone = code in (RESET, *GONE) and place not in ASKED_WHEN_FOUND
        assert read["gpu.state{gpu=0}"] == (0 if gone else 1), code
        assert bool(said) == (code not in NO_TROUBLE), code


def test_many_failures_are_one_message_for_each_group(fake, watch):
    fake.gpus[0]["field"] = dict.fromkeys(fake.gpus[0]["field"], "!999")
    fake.gpus[0]["clock"] = dict.fromkeys("012", "!999")
    gpu = watch()
    gpu.read()
    assert sorted(gpu.problems) == [
        f"GPU 0: {group}: Unknown Error (NVML 999)"
        for group in ("clock", "ecc", "energy", "nvlink", "pcie", "recovery", "rows", "temperature", "throttled")
    ]


def test_a_lost_gpu_has_state_0_and_the_others_are_read(driver, watch):
    fake = driver("h100", 8)
    gpu = watch(Level.BASIC)
    assert len(gpu.read()) == 64
    fake.gpus[3]["lost"] = 1
    for _ in range(3):
        read = gpu.read(10)
        assert len(read) == 57
        assert {name: value for name, value in read.items() if "gpu=3" in name} == {"gpu.state{gpu=3}": 0}
        assert sum(value for name, value in read.items() if "state" in name) == 7
        assert gpu.problems == []
    assert gpu.collector.describe().endswith(", 1 lost")


def test_a_gpu_that_returns_is_read_again_and_its_counters_continue(two, watch):
    gpu = watch()
    first = gpu.at + 1_000_000_000
    gpu.read()
    two.gpus[1]["lost"] = 1
    gpu.read(10)
    del two.gpus[1]["lost"]
    gpu.read(300)
    read = gpu.read(10)
    assert read["gpu.state{gpu=1}"] == 1
    assert next(p.start_time for p in gpu.points if p.metric.name == "gpu.energy" and p.dims["gpu"] == "1") == first


def test_the_other_gpus_keep_their_index_when_one_is_lost(driver, watch):
    fake = driver("h100", 3)
    for n, gpu in enumerate(fake.gpus):
        gpu["temperature"] = 40 + n
    watched = watch(Level.BASIC)
    watched.read()
    fake.gpus[1]["lost"] = 1
    watched.read()
    del fake.gpus[1]  # NVML does not list it any more: the third one moves up
    fake.calls("nvmlDeviceGetCount_v2")
    read = watched.read()
    assert fake.calls("nvmlDeviceGetCount_v2") == 1
    assert {name: value for name, value in read.items() if "temp" in name or "state" in name} == {
        "gpu.temperature{gpu=0}": 40,
        "gpu.state{gpu=0}": 1,
        "gpu.state{gpu=1}": 0,
        "gpu.temperature{gpu=2}": 42,
        "gpu.state{gpu=2}": 1,
    }
    watched.read()
    assert fake.calls("nvmlDeviceGetCount_v2") == 0


NEW = "GPU-11111111-0000-0000-0000-00000000000"


def states(read):
    return {name.partition("gpu=")[2].rstrip("}"): value for name, value in read.items() if "state" in name}


def test_a_new_gpu_is_found_within_five_minutes_under_an_unused_index(two, watched):
    two.gpus.insert(0, two.gpus[0] | {"uuid": f"{NEW}0", "temperature": 33})
    read = watched.read(300)
    assert states(read) == {"0": 1, "1": 1, "2": 1}
    assert read["gpu.temperature{gpu=2}"] == 33


def test_a_gpu_that_was_reset_is_read_again_within_ten_seconds(two, watched):
    two.gpus[1]["lost"] = 1
    for _ in range(20):
        assert states(watched.read(5)) == {"0": 1, "1": 0}
    del two.gpus[1]["lost"]
    watched.read(5)
    assert states(watched.read(5)) == {"0": 1, "1": 1}
    watched.read(5), watched.read(5), watched.read(5)
    two.calls("nvmlDeviceGetCount_v2")
    for _ in range(50):
        watched.read(5)
    assert two.calls("nvmlDeviceGetCount_v2") == 0, "nothing is lost: it is searched every five minutes"


def test_what_a_gpu_did_not_support_is_asked_again_after_a_reset(two, watch):
    two.gpus[1]["utilization"] = {"gpu": "!3", "memory": "!3"}
    watched = watch(Level.BASIC)
    assert "gpu.utilization{gpu=1}" not in watched.read()
    two.gpus[1]["lost"] = 1
    watched.read(5)
    del two.gpus[1]["lost"]
    two.gpus[1]["utilization"] = two.gpus[0]["utilization"]
    watched.read(10)
    assert "gpu.utilization{gpu=1}" in watched.read(10)


def test_a_new_gpu_in_place_of_a_lost_one_has_its_index_and_its_xids(driver, watch):
    fake = driver("h100", 3)
    watched = watch(Level.BASIC)
    watched.read()
    fake.gpus[1]["lost"] = 1
    watched.read(5)
    del fake.gpus[1]["lost"]
    fake.gpus[1] |= {"uuid": f"{NEW}1", "temperature": 33}
    watched.read(10)
    fake.machine["events"] = "1:13"
    read = watched.read(10)
    assert states(read) == {"0": 1, "1": 1, "2": 1}
    assert read["gpu.temperature{gpu=1}"] == 33
    assert [dict(point.dims)["gpu"] for point in watched.points if point.metric.name == "gpu.xid"] == ["1"]
    assert f"{NEW}1" in names_of(watched.collector._gpus.devices())
    assert fake.gpus[1]["uuid"] in names_of(watched.collector._gpus.devices())


@pytest.mark.parametrize("returned", [8, 3])
def test_gpus_that_return_with_other_uuids_are_not_lost(driver, watch, returned):
    fake = driver("h100", 8)
    watched = watch(Level.BASIC)
    watched.read()
    for gpu in fake.gpus:
        gpu["lost"] = 1
    assert set(states(watched.read(5)).values()) == {0}
    del fake.gpus[returned:]
    for n, gpu in enumerate(fake.gpus):
        del gpu["lost"]
        gpu["uuid"] = f"{NEW}{n}"
    watched.read(10)
    assert states(watched.read(10)) == {str(n): int(n < returned) for n in range(8)}
    listed = [name for name in names_of(watched.collector._gpus.devices()) if name.startswith("GPU-")]
    assert len(listed) == 8


def test_a_gpu_that_returns_takes_its_index_also_beside_a_new_one(driver, watch):
    fake = driver("h100", 3)
    for n, gpu in enumerate(fake.gpus):
        gpu["temperature"] = 40 + n
    watched = watch(Level.BASIC)
    watched.read()
    for gpu in fake.gpus:
        gpu["lost"] = 1
    watched.read(5)
    first, second, third = fake.gpus
    del second["lost"], third["lost"]
    fake.gpus[:] = [second, first | {"uuid": f"{NEW}0", "lost": None, "temperature": 50}, third]
    watched.read(10)
    read = watched.read(10)
    assert {name: read[name] for name in read if "temperature" in name} == {
        "gpu.temperature{gpu=0}": 50, "gpu.temperature{gpu=1}": 41, "gpu.temperature{gpu=2}": 42,
    }  # fmt: skip


def test_gpus_stay_lost_while_the_driver_is_loaded_again_and_are_found_soon_after(two, watched):
    two.gpus[0]["lost"] = two.gpus[1]["lost"] = 1
    watched.read(5)
    two.machine["init"] = "!9"
    for _ in range(20):
        assert states(watched.read(10)) == {"0": 0, "1": 0}
        assert "the kernel module is not loaded" in watched.problems[0]
    del two.machine["init"], two.gpus[0]["lost"], two.gpus[1]["lost"]
    watched.read(5), watched.read(5)
    assert states(watched.read(5)) == {"0": 1, "1": 1}
    assert watched.problems == []


def test_a_gpu_without_a_handle_after_nvml_was_reopened_stays_lost(two, watched):
    two.gpus[0]["lost"] = two.gpus[1]["lost"] = 1
    watched.read(5)
    del two.gpus[0]["lost"], two.gpus[1]["lost"]
    two.gpus[1]["handle"] = "!999"
    watched.read(10)
    assert states(watched.read(5)) == {"0": 1, "1": 0}
    del two.gpus[1]["handle"]
    watched.read(5)
    assert states(watched.read(5)) == {"0": 1, "1": 1}


def test_a_driver_that_cannot_be_opened_again_for_five_minutes_is_unavailable(fake, watch):
    watched = watch(Level.BASIC)
    watched.read()
    fake.gpus[0]["lost"] = 1
    watched.read(5)
    fake.machine["init"] = "!18"
    for _ in range(30):
        watched.read(10)
    with pytest.raises(Unavailable, match="different versions"):
        watched.read(10)
    watched.collector.close()


def test_a_gpu_without_the_wanted_instance_is_not_lost_but_not_read(driver, watch):
    fake = driver("h100_mig", 2)
    wanted = fake.gpus[1]["mig"]["0"]["uuid"] = "MIG-11111111-0000-0000-0000-000000000000"
    watched = watch(Level.BASIC, devices=(0, wanted))
    assert states(watched.read()) == {"0": 1, "1": 1}
    del fake.gpus[1]["mig"]["0"]
    assert states(watched.read(300)) == {"0": 1}


def test_a_gpu_that_was_lost_before_open_has_state_0(two, watch):
    two.gpus[1]["handle"] = "!15"
    watched = watch(Level.BASIC, dimensions=("uuid",))

    def states_with_uuids():
        states = (point for point in watched.points if "state" in point.metric.name)
        return {point.dims["gpu"]: (point.value, point.dims["uuid"]) for point in states}

    watched.read()
    assert watched.problems == []
    assert states_with_uuids() == {"0": (1, two.gpus[0]["uuid"]), "1": (0, "unknown")}
    del two.gpus[1]["handle"]
    watched.read(300)
    assert states_with_uuids() == {"0": (1, two.gpus[0]["uuid"]), "1": (1, two.gpus[1]["uuid"])}


def test_a_forbidden_gpu_is_reported_and_the_others_are_read(two, watch):
    two.gpus[0]["handle"] = "!4"
    watched = watch(Level.BASIC)
    read = watched.read()
    assert read["gpu.state{gpu=1}"] == 1
    assert not [name for name in read if "gpu=0" in name]
    assert watched.problems == ["GPU 0: Insufficient Permissions (NVML 4)"]


def test_nvml_is_reopened_only_when_every_gpu_is_lost(two, watch):
    watched = watch(Level.ALL)
    watched.read()
    two.gpus[0]["lost"] = two.gpus[1]["lost"] = 1
    two.calls("nvmlInitWithFlags")
    assert set(watched.read().values()) == {0}
    assert set(watched.read(10).values()) == {0}
    inits = two.calls("nvmlInitWithFlags")
    two.gpus[0].pop("lost"), two.gpus[1].pop("lost")
    watched.read(300)
    read = watched.read(1)
    assert (inits, read["gpu.state{gpu=0}"], read["gpu.sm.active{gpu=1}"]) == (1, 1, 98.25)


def test_a_required_reset_is_state_0_and_the_other_values_are_read(driver, watch):
    fake = driver("h100")
    fake.gpus[0]["utilization"] = {"gpu": "!16"}
    read = watch(Level.BASIC).read()
    assert (read["gpu.state{gpu=0}"], read["gpu.temperature{gpu=0}"]) == (0, 59)


RECOVERIES = [
    ("570.86.15", "0u", {}, 1),
    ("570.86.15", "1u", {"gpu_reset": 1}, 0),
    ("570.86.15", "2u", {"node_reboot": 1}, 0),
    ("570.86.15", "3u", {"drain_p2p": 1}, 1),
    ("570.86.15", "4u", {"drain_and_reset": 1}, 0),
    ("580.126.09", "5u", {"unknown (5)": 1}, 1),
    ("610.43", "5u", {"recover_imex_domain": 1}, 1),
    ("610.43", "6u", {"bus_reset": 1}, 0),
    ("570.86.15", "7u", {"system_reboot": 1}, 0),
    ("615.71", "6u", {"bus_reset": 1}, 0),
    ("615.71", "7u", {"system_reboot": 1}, 0),
    ("615.71", "8u", {"unknown (8)": 1}, 1),
    ("615.71", "4294967294u", {"unknown": 1}, 1),
    ("615.71", "4294967295u", {}, 1),
    ("615.71", "-1s", {"unknown": 1}, 1),
    ("565.57.01", "1u", {}, 1),
    ("N/A", "1u", {}, 1),
]


def recoveries(read):
    head = "gpu.recovery_action{action="
    return {name.removeprefix(head)[:-7]: value for name, value in read.items() if name.startswith(head)}


def test_nvml_is_not_called_where_a_driver_has_no_card_since_it_would_make_the_device_file(
    driver, watch, proc, tmp_path
):
    fake = driver("h100")
    (proc / "driver/nvidia/gpus").mkdir()
    fake.calls("nvmlInitWithFlags")
    with pytest.raises(Unavailable, match=r"no NVIDIA GPU: .*/driver/nvidia/gpus is empty") as raised:
        watch()
    assert raised.value.is_counted
    assert fake.calls("nvmlInitWithFlags") == 0
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    assert watch().read()["gpu.state{gpu=0}"] == 1, "the file is there, so nothing is made"


@pytest.mark.parametrize("case", RECOVERIES, ids=str)
def test_a_requested_recovery_has_its_name_and_only_some_are_state_0(driver, watch, case):
    version, value, actions, state = case
    fake = driver("h100")
    fake.machine["driver"] = version
    fake.gpus[0]["field"]["230"] = value
    watched = watch(Level.BASIC)
    read = watched.read()
    assert (recoveries(read), read["gpu.state{gpu=0}"]) == (actions, state)
    assert watched.problems == []


@pytest.mark.parametrize(
    ("version", "fields", "actions"),
    [
        ("560.30.02", ("1u", "0u"), {"gpu_reset": 1}),
        ("560.30.02", ("0u", "1u"), {"drain_and_reset": 1}),
        ("550.163.01", ("1u", "1u"), {"gpu_reset": 1}),
        ("550.163.01", ("0u", "0u"), {}),
        ("555.42.06", ("1u", "1u"), {}),
        ("550.54.14", ("1u", "1u"), {}),
        ("535.230.02", ("1u", "1u"), {}),
        ("570.86.15", ("1u", "1u"), {}),
    ],
)
def test_a_driver_below_570_tells_in_two_fields_which_recovery_is_needed(driver, watch, version, fields, actions):
    reset, drain = fields
    fake = driver("h100")
    fake.machine["driver"] = version
    fake.gpus[0]["field"] |= {"226": reset, "227": drain, "230": "0u" if version.startswith("57") else "2u"}
    read = watch(Level.BASIC).read()
    assert (recoveries(read), read["gpu.state{gpu=0}"]) == (actions, 0 if actions else 1)


def test_a_recovery_that_is_done_is_0_and_a_gpu_that_never_needed_one_has_no_series(two, watch):
    watched = watch(Level.BASIC)
    for action, shown, state in (
        ("0u", {}, 1),
        ("3u", {"drain_p2p": 1}, 1),
        ("1u", {"drain_p2p": 0, "gpu_reset": 1}, 0),
        (None, {}, 1),
        ("0u", {"drain_p2p": 0, "gpu_reset": 0}, 1),
    ):
        two.gpus[0]["field"]["230"] = action
        read = watched.read(3700)
        assert (recoveries(read), read["gpu.state{gpu=0}"]) == (shown, state)
    assert watched.problems == []


@pytest.mark.parametrize("level", [Level.BASIC, Level.DETAILED, Level.ALL])
def test_a_gpu_that_fails_most_queries_has_state_0_until_it_answers_them(two, watch, level):
    healthy = two.gpus[0].copy()
    wrong = {
        "memory": {"total": "!999"},
        "temperature": "!999",
        "temperature_v": "!999",
        "limit": "!999",
        "power": "!999",
        "clock": dict.fromkeys("012", "!999"),
        "encoder": "!999",
        "decoder": "!999",
        "gpm": {"supported": "!999"},
        "field": dict.fromkeys(healthy["field"], "!999"),
    }
    watched = watch(level)
    for broken, state in ((wrong, 0), ({}, 1), (wrong, 0)):
        two.gpus[0] = healthy | broken
        for seconds in (10, 1):
            read = watched.read(seconds)
            assert (read["gpu.state{gpu=0}"], read["gpu.state{gpu=1}"]) == (state, 1)
    assert "gpu.utilization{gpu=0}" in read


def test_a_gpu_whose_queries_are_forbidden_is_not_broken(fake, watch):
    fake.gpus[0]["field"] = dict.fromkeys(fake.gpus[0]["field"], "!4")
    for name in ("temperature", "limit", "power"):
        fake.gpus[0][name] = "!4"
    assert watch(Level.BASIC).read()["gpu.state{gpu=0}"] == 1


def test_gpus_are_read_on_while_the_driver_cannot_count_them(fake, watch):
    watched = watch(Level.BASIC)
    healthy = watched.read().keys()
    fake.machine["count"] = "!10"
    assert watched.read(300).keys() >= healthy
    assert watched.problems == ["NVML: Error 10 (NVML 10)"]
    assert watched.read(600).keys() >= healthy
    del fake.machine["count"]
    watched.read(10)
    assert watched.problems == []


@pytest.mark.parametrize("code", GONE)
def test_a_driver_that_is_loaded_again_is_opened_again_within_ten_seconds(two, watch, code):
    watched = watch()
    healthy = watched.read().keys()
    for gpu in two.gpus:
        gpu["utilization"] = {"gpu": f"!{code}"}
    two.machine["init"] = f"!{code}"
    assert watched.read()["gpu.state{gpu=0}"] == 0
    assert watched.read()["gpu.state{gpu=1}"] == 0
    assert [text for text in watched.problems if "NVML: " in text]
    del two.machine["init"]
    for gpu in two.gpus:
        gpu["utilization"] = {"gpu": 5, "memory": 5}
    for _ in range(2):
        read = watched.read(10)
    assert read.keys() >= healthy
    assert read["gpu.state{gpu=0}"] == 1


def test_a_machine_without_the_driver_is_unavailable(tmp_path, monkeypatch):
    (tmp_path / "proc").mkdir()
    collector = NvidiaCollector(NvidiaCollector.Config(proc=tmp_path / "proc", root=tmp_path))
    with pytest.raises(Unavailable, match=f"no NVIDIA driver: {tmp_path}/proc/driver/nvidia/version, .*/dev/nvidiactl"):
        collector.open(Given())
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
def test_the_reason_for_a_failing_driver_says_what_to_do(fake, watch, code, sentence):
    fake.machine["init"] = f"!{code}"
    with pytest.raises(Unavailable, match=sentence):
        watch()


def test_nvml_is_closed_if_the_gpus_cannot_be_counted(fake, watch):
    fake.machine["count"] = "!999"
    fake.calls("nvmlInitWithFlags"), fake.calls("nvmlShutdown")
    with pytest.raises(Unavailable, match="NVML: Unknown Error"):
        watch()
    assert (fake.calls("nvmlInitWithFlags"), fake.calls("nvmlShutdown")) == (1, 1)


def test_check_reports_gpus_of_proc_that_nvml_does_not_list(driver, watch, proc):
    for n in range(3):
        (proc / f"driver/nvidia/gpus/0000:0{n}:00.0").mkdir(parents=True)
    driver("h100", 2)
    assert watch().collector.describe() == (
        f"2 x NVIDIA H100 80GB HBM3, driver 590.48.01, {proc}/driver/nvidia/gpus lists 3, NVML 2"
    )


def parts(watched):
    return {name for name in names_of(watched.collector._gpus.devices()) if name.startswith("MIG-")}


def test_instances_that_are_made_otherwise_are_read_in_the_next_tick(driver, watch):
    fake = driver("h100_mig")
    watched = watch(Level.BASIC)
    watched.read(), watched.read(5), watched.read(5)
    mig = fake.gpus[0]["mig"]
    *_, last = [*mig]
    mig["5"] = mig.pop(last) | {"uuid": "MIG-11111111-0000-0000-0000-000000000005", "gi": 9}
    watched.read(5)
    assert parts(watched) == {one["uuid"] for one in mig.values()}
    assert "gpu.memory.used{gpu=0,mig=5}" in watched.read(5)
    assert f"gpu.memory.used{{gpu=0,mig={last}}}" not in watched.read(5)


def test_the_first_instances_of_a_gpu_are_found_within_ten_seconds(driver, watch):
    fake = driver("h100_mig")
    mig, fake.gpus[0]["mig"] = fake.gpus[0]["mig"], None
    watched = watch(Level.BASIC)
    watched.read(), watched.read(5), watched.read(5)
    fake.gpus[0]["mig"] = mig
    watched.read(5), watched.read(5)
    assert parts(watched) == {one["uuid"] for one in mig.values()}


def test_a_gpu_that_is_divided_no_more_has_its_utilization_again(driver, watch):
    fake = driver("h100_mig")
    watched = watch(Level.BASIC)
    for _ in range(3):
        assert "gpu.utilization{gpu=0}" not in watched.read(5)
    fake.gpus[0] |= {"mig": None, "migs": 0, "utilization": {"gpu": 40, "memory": 10}}
    watched.read(5), watched.read(5)
    assert watched.read(5)["gpu.utilization{gpu=0}"] == 40


@pytest.mark.parametrize("wrong", [{"migs": "!999"}, {"mig": {"0": {"uuid": "!999"}, "2": {"uuid": "!4"}}}])
def test_instances_stay_while_the_driver_cannot_list_them(driver, watch, wrong):
    fake = driver("h100_mig")
    watched = watch(Level.BASIC)
    watched.read()
    before = parts(watched)
    fake.gpus[0] = together(fake.gpus[0], wrong)
    watched.read(5), watched.read(10)
    assert watched.problems
    assert parts(watched) == before
    assert before
