"""The family of each job: from its first tick to its last, over many jobs, and over a restart."""

import json
import re
import time

import pytest
from rich.cells import cell_len
from tests.agent.jobs.machine import SECOND, START, TICK, Machine, dims_of, job

from chipwatch.commands.answers import jobs_text as as_text
from chipwatch.contract.datapoint import Dimensions, Level, counter
from chipwatch.contract.facts import Device, DeviceActivity, DeviceFacts
from chipwatch.contract.owner import Allocation, Owner
from chipwatch.contract.plugin import Given
from chipwatch.host.gpu_metrics import UTILIZATION
from chipwatch.jobs.ledger import JobLedger
from chipwatch.jobs.metrics import ALL
from chipwatch.jobs.processor import JobsProcessor

ADA, BOB = job(41337, user="ada", partition="long"), job(41340, user="bob")
BUSY = {"active": 1.0}
IDLE = {"active": 0.0}


def spent(machine, number):
    """Return the seconds by state of a job."""
    times = [
        point for point in machine.points if point.metric.name == "job.gpu.time" and point.dims["job"] == str(number)
    ]
    return {point.dims["state"]: point.value for point in times if point.value}


def test_a_host_without_accelerators_has_no_series_and_says_so(machine):
    machine.facts = []
    assert [*machine.processor.derive([], START, machine.facts)] == []
    assert machine.processor.describe() == "no accelerator"
    assert as_text(machine.processor.answer()) == "no accelerator is known"


def test_devices_without_processes_and_activity_are_left_out(machine):
    machine.facts = [DeviceFacts(SECOND, None, {"0": dims_of(0)}, [], "gpu", [Device(dims_of(0), "H100")])]
    assert [*machine.processor.derive([UTILIZATION.point(START, 50.0, dims_of(0))], START, machine.facts)] == []
    assert machine.processor.answer()["devices"] == []


def test_a_level_leaves_out_the_points_above_it_and_changes_no_other():
    def points(level):
        machine = Machine(dollars_per_hour=3.6)
        machine.processor.open(Given(level=level))
        found = set()
        for _ in range(3):
            machine.tick(
                [(0, 10, 7e9), (0, 11), (1, 10)], {n: {"active": 0.5} for n in range(3)}, owners={10: ADA, 11: BOB}
            )
            found |= {(point.metric, point.dims, point.value) for point in machine.points}
        return found

    whole = points(Level.ALL)
    assert {metric.name for metric, *_ in whole} == {metric.name for metric in ALL}
    assert points(Level.BASIC) == {point for point in whole if point[0].level is Level.BASIC}


def test_a_device_that_nobody_uses_any_more_is_free_and_does_nothing(machine):
    machine.tick([(0, 10)], {0: {"active": 0.6}}, owners={10: ADA})
    told = []
    for active in (0.6, 0.0, 0.0, 0.6):
        machine.tick([], {0: {"active": active}})
        (device,) = machine.processor.answer()["devices"]
        told.append((device["state"], device["cause"], device["active"]))
    assert told == [("free", "no_process", 0.6), *[("free", "no_process", 0.0)] * 2, ("unknown", "unknown", 0.6)]
    assert machine.values("gpu.idle.time")["no_process", "0"] == pytest.approx(0.4 * TICK + 2 * TICK)


def test_a_job_has_one_family_with_its_partition_and_its_user_if_asked_for():
    machine = Machine(dimensions=("user",), dollars_per_hour=3.6)
    assert {metric.name for metric in machine.processor.metrics} - {
        metric.name for metric in Machine().processor.metrics
    } == {"job.cost"}
    for _ in range(3):
        machine.tick([(0, 10, 7e9), (1, 10, 8e9)], {0: BUSY, 1: BUSY}, owners={10: ADA})
    whose = {"job": "41337", "partition": "long", "user": "ada"}
    assert {(point.metric.name, point.dims, point.value) for point in machine.points if "job" in point.dims} == {
        *(("job.gpu.time", Dimensions(whose, state=state), 0.0) for state in ("stalled", "held", "unseen")),
        ("job.gpus", Dimensions(whose, source="process"), 2.0),
        ("job.gpu.time", Dimensions(whose, state="busy"), 20.0),
        ("job.gpu.memory.max", Dimensions(whose), 8e9),
        ("job.gpu.imbalance", Dimensions(whose), 0.0),
        ("job.gpu.held", Dimensions(whose, gpu="0"), 1.0),
        ("job.gpu.held", Dimensions(whose, gpu="1"), 1.0),
        ("job.energy", Dimensions(whose), 0.0),
        ("job.cost", Dimensions(whose), 0.02),
    }


def test_a_counter_begins_when_it_was_zero(machine):
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([(0, 10)], {0: {"active": 1.0, "throttled": 1.0}}, owners={10: ADA})
    starts = {point.dims["state"]: point.start_time for point in machine.points if point.metric.name == "job.gpu.time"}
    assert starts == {
        **dict.fromkeys(("busy", "stalled", "held", "unseen"), START + 5 * SECOND), "throttled": START + 10 * SECOND,
    }  # fmt: skip


def test_the_last_values_of_a_job_are_sent_when_it_ends_and_then_no_more(machine):
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([], {0: IDLE})
    assert spent(machine, 41337) == {"busy": 10.0}
    assert not machine.values("job.gpus")
    machine.tick([], {0: IDLE})
    assert not spent(machine, 41337)


def test_a_job_counts_from_the_start_of_its_process(machine):
    machine.tick([], {0: IDLE})
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA._replace(since=machine.at + 3 * SECOND)})
    assert spent(machine, 41337) == {"busy": 2.0}


def test_a_reused_pid_is_the_job_of_its_new_process(machine):
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([(0, 10)], {0: BUSY}, owners={10: BOB._replace(since=machine.at + 4 * SECOND)})
    assert spent(machine, 41337) == {"busy": 5.0, "unseen": 4.0}
    assert spent(machine, 41340) == {"busy": 1.0}


def test_a_job_that_pauses_goes_on_with_its_account(machine):
    for processes in ([(0, 10)], [(0, 10)], [], [], [(0, 10)], [(0, 10)]):
        machine.tick(processes, {0: BUSY}, owners={10: ADA})
    assert spent(machine, 41337)["busy"] == pytest.approx(10.0 + 5.0, abs=5)
    assert len(machine.processor.answer()["jobs"]) == 1


def test_the_word_of_a_scheduler_counts_more_than_use_and_the_environment_more_than_that(machine):
    given = [Allocation("0", ADA, "mapping"), Allocation("1", ADA, "environment")]
    for _ in range(2):
        machine.tick([(0, 11), (1, 11)], {0: BUSY, 1: BUSY}, owners={11: BOB}, allocations=given)
    assert machine.values("job.gpus") == {
        ("41337", "long", "mapping"): 1.0, ("41337", "long", "environment"): 1.0, ("41340", "process"): 1.0,
    }  # fmt: skip
    assert spent(machine, 41337) == {"busy": 7.5}  # GPU 0 alone, GPU 1 with the other job


def test_a_job_keeps_its_user_when_a_source_without_users_names_it():
    ledger = JobLedger(8)
    for owner, user in ((job(7), ""), (job(7, user="ada"), "ada"), (job(7), "ada")):
        assert ledger.account(owner, START).owner.user == user


def test_a_gpu_that_was_given_as_a_whole_is_given_with_its_instances(machine):
    names = {"0": dims_of(0), "MIG-1": dims_of("0.1")}
    for _ in range(2):
        activity = {"0.0": {**BUSY, "slices": 3 / 7}, "0.1": {**BUSY, "slices": 4 / 7}}
        machine.tick([], activity, allocations=[Allocation("0", ADA, "mapping")], names=names)
    assert machine.values("job.gpus") == {("41337", "long", "mapping"): pytest.approx(1.0)}
    assert spent(machine, 41337) == {"busy": pytest.approx(5.0)}


def test_a_device_that_misses_three_readings_while_others_answer_is_lost(machine):
    both = [(0, 10), (1, 10)]
    for _ in range(2):
        machine.tick(both, {0: BUSY, 1: BUSY}, owners={10: ADA})
    for states in ({"busy": 15.0}, {"busy": 20.0}, {"busy": 25.0, "lost": 15.0}):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
        assert spent(machine, 41337) == states
    assert [device["state"] for device in machine.processor.answer()["devices"]] == ["busy", "lost"]


def test_a_device_that_is_cut_into_instances_is_not_lost(machine):
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    for _ in range(5):
        machine.tick([], {"0.0": BUSY})
    assert [device["device"] for device in machine.processor.answer()["devices"]] == ["0.0"]


def test_a_collector_that_hangs_leaves_the_time_unseen_and_not_lost(machine):
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, seconds=60)
    assert spent(machine, 41337) == {"busy": 10.0, "unseen": 50.0}


def test_the_xid_of_a_gpu_that_fell_off_the_bus_is_evidence_of_its_loss(machine):
    given = [Allocation("0", ADA, "mapping")]
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, allocations=given)
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, allocations=given, points=[])
    machine.moment += 5 * SECOND
    machine.at += 5 * SECOND
    facts = machine.facts
    machine.facts = [facts[0]._replace(moment=machine.moment), facts[1]]
    xid = counter("gpu.xid", "{error}", "").point(machine.at, 1, Dimensions(gpu="0", xid="79"), start_time=START)
    machine.points = [*machine.processor.derive([xid], machine.at, machine.facts)]
    assert spent(machine, 41337) == {"busy": 5.0, "lost": 5.0}


def test_a_maker_without_facts_of_activity_is_read_by_its_points(machine):
    for _ in range(2):
        points = [(0, "gpu.utilization", 40.0), (0, "gpu.power", 300.0)]
        machine.tick([(0, 10)], {}, owners={10: ADA}, points=points, names={"0": dims_of(0)})
    assert spent(machine, 41337) == {"busy": 2.0, "stalled": 3.0}
    assert machine.values("job.energy") == {("41337", "long"): 1500.0}
    said = machine.processor.describe()
    assert "utilization by point value" in said
    assert re.search(r"(\d+\.\d{3}) s charged of \1 s allocated", said)


def test_the_efficiency_of_a_job_is_the_mean_over_its_device_time_while_it_has_a_device_alone():
    machine = Machine()
    for percent, pids in (
        (None, [10]), (40.0, [10]), (None, [10]), (70.0, [10]), (70.0, [10, 11]), (5.0, [10, 11]), (0.0, [11]),
    ):  # fmt: skip
        points = [] if percent is None else [(0, "gpu.efficiency", percent)]
        machine.tick([(0, pid) for pid in pids], {0: BUSY}, owners={10: ADA, 11: BOB}, points=points)
    ada, bob = ({row["job"]: row for row in machine.processor.answer()[kind]} for kind in ("ended", "jobs"))
    assert ada["41337"]["efficiency"] == 60.0
    assert bob["41340"]["efficiency"] == 0.0  # measured, which is not absent
    machine = Machine()
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    assert machine.processor.answer()["jobs"][0]["efficiency"] is None


def test_gpus_of_a_job_that_do_unequal_work_are_reported_and_gpus_that_take_turns_are_not():
    machine, turns = Machine(), Machine()
    for n in range(300):
        machine.tick([(0, 10), (1, 10)], {0: BUSY, 1: {"active": 0.3}}, owners={10: ADA})
        active = float(n % 2)
        turns.tick([(0, 10), (1, 10)], {0: {"active": active}, 1: {"active": 1 - active}}, owners={10: ADA})
    assert machine.values("job.gpu.imbalance") == {("41337", "long"): pytest.approx(70.0)}
    assert turns.values("job.gpu.imbalance")["41337", "long"] < 5


def test_each_accelerator_tells_which_container_of_which_pod_holds_it(machine):
    pod = Owner("kubernetes", "llama-0", namespace="ml", pod="llama-0")
    first, second = pod._replace(container="trainer"), pod._replace(container="evaluator")
    given = [Allocation("0", first, "kubelet"), Allocation("1", second, "kubelet")]
    machine.tick([(0, 10), (1, 11), (1, 12)], {0: BUSY, 1: BUSY}, owners={10: first, 11: second}, allocations=given)
    of_pod = Dimensions(job="llama-0", namespace="ml")
    assert {point.dims: point.value for point in machine.points if point.metric.name == "job.gpu.held"} == {
        Dimensions(of_pod, container="trainer", gpu="0"): 1.0,
        Dimensions(of_pod, container="evaluator", gpu="1"): 1.0,
    }
    assert not any("container" in point.dims for point in machine.points if point.metric.name == "job.gpus")


def test_a_gpu_in_place_of_another_has_its_own_uuid(machine):
    for uuid in ("GPU-1", "GPU-2"):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
        facts = machine.facts
        dims = Dimensions(gpu="0", uuid=uuid)
        machine.facts = [
            facts[0]._replace(moment=machine.moment + 1, activity=[facts[0].activity[0]._replace(dims=dims)]), facts[1],
        ]  # fmt: skip
        points = [*machine.processor.derive([], machine.at, machine.facts)]
        assert [one.dims["uuid"] for one in points if one.metric.name == "job.gpu.held"] == [uuid]


def test_jobs_that_share_an_accelerator_hold_a_part_of_it_and_those_beyond_the_limit_are_added_up():
    machine = Machine(max_jobs=2)
    owners = {100 + n: job(n) for n in range(5)}
    for _ in range(3):
        machine.tick([(0, pid) for pid in owners], {0: BUSY}, owners=owners)
    assert machine.values("job.gpu.held") == pytest.approx({("0", "0"): 0.2, ("0", "1"): 0.2, ("0", "other"): 0.6})
    assert {point.dims["job"] for point in machine.points if "job" in point.dims} == {"0", "1", "other"}
    assert spent(machine, "other") == {"busy": pytest.approx(6.0)}
    answer = machine.processor.answer()
    assert answer["charged_seconds"] == pytest.approx(answer["allocated_seconds"]) == pytest.approx(10.0)


def test_many_gpus_and_jobs_are_bounded_in_series_and_memory(machine):
    gpus = range(64)
    for round_ in range(4):  # 200 jobs at a time, others in each tick
        owners = {pid: job(f"{round_ % 2}.{pid}") for pid in range(200)}
        machine.tick([(gpu, pid) for gpu in gpus for pid in owners], dict.fromkeys(gpus, BUSY), owners=owners)
    assert len({point.dims["job"] for point in machine.points if "job" in point.dims}) <= 2 * 65
    machine.tick([], dict.fromkeys(gpus, IDLE))
    machine.tick([], dict.fromkeys(gpus, IDLE))
    assert not [point for point in machine.points if "job" in point.dims]
    assert len(json.loads(machine.processor.saved())["accounts"]) <= 2 * 65
    answer = machine.processor.answer()
    assert answer["charged_seconds"] == pytest.approx(answer["allocated_seconds"])


def test_the_ledger_is_kept_over_a_restart_as_counters_are():
    machine = Machine(dollars_per_hour=3600)
    owner = ADA._replace(since=START - 100 * SECOND)
    for _ in range(3):
        machine.tick([(0, 10, 5e9)], {0: {**BUSY, "energy": 50.0}}, owners={10: owner})
    saved, machine.processor = machine.processor.saved(), JobsProcessor(JobsProcessor.Config(dollars_per_hour=3600))
    machine.processor.restore(saved)
    for _ in range(2):
        machine.tick([(0, 10, 1e9)], {0: {**BUSY, "energy": 50.0}}, owners={10: owner})
    assert spent(machine, 41337) == {"busy": 15.0, "unseen": 5.0}
    (told,) = machine.processor.answer()["jobs"]
    assert told["seconds"]["busy"] == 15.0
    assert told["energy"] == 150.0
    assert told["cost"] == 20.0
    assert told["memory_max"] == 5e9
    assert told["since"] == START / SECOND - 100


def test_the_table_says_who_holds_what_now_and_what_is_free(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    machine = Machine(dollars_per_hour=2.5)
    since = START - 3600 * SECOND
    owners = {10: ADA._replace(since=since), 11: BOB._replace(since=since)}
    processes = [(gpu, 10, 61 * 2**30) for gpu in range(4)] + [(gpu, 11, 24 * 2**30) for gpu in (4, 5)]
    for n in range(40):
        activity = {gpu: {"active": 0.9 if gpu < 4 else 0.0, "energy": 3000.0} for gpu in range(8)}
        activity[4] = activity[5] = {"active": 0.0 if n else 1.0}
        activity[6] = {"lost": True}
        machine.tick(processes, activity, owners=owners)
    lines = as_text(machine.processor.answer()).splitlines()
    assert [line.split() for line in lines] == [
        ["JOB", "USER", "GPUS", "SINCE", "BUSY", "STALLED", "HELD", "THROTTLED", "LOST", "MEMORY", "MAX", "ENERGY", "COST", "NOW"],
        ["41337", "ada", "4", "1:03:20", "90", "%", "10", "%", "0", "%", "0", "%", "0", "%", "61.0", "GiB", "0.13", "kWh", "$0.54",
         "0-3", "busy"],
        ["41340", "bob", "2", "1:03:20", "0", "%", "31", "%", "69", "%", "0", "%", "0", "%", "24.0", "GiB", "-", "$0.27",
         "4,5", "held:", "no", "kernel", "since", "08:00"],
        ["-", "-", "2", "6", "lost;", "7", "free"],
    ]  # fmt: skip


def test_a_container_name_from_outside_cannot_break_the_table(machine):
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: Owner("docker", "a\nb\x1b[31m" + "x" * 100)})
    assert len(as_text(machine.processor.answer()).splitlines()) == 2
    assert "\x1b" not in as_text(machine.processor.answer())


def test_a_device_that_no_collector_names_is_listed_and_logged_once(machine, caplog):
    odd = [Allocation(name, ADA, "kubelet") for name in ("gpu-0-mig-19-4", "gpu-vfio-1", "0", "gpu-vfio-1")]
    for _ in range(6):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, allocations=odd)
    text = "no collector has gpu-0-mig-19-4, gpu-vfio-1, which the scheduler gave to jobs"
    assert machine.processor.answer()["missing"] == {"devices": text}
    assert f"devices unknown: {text}" in machine.processor.describe()
    assert [record.getMessage() for record in caplog.records] == [f"jobs: {text}"]
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, allocations=odd[2:3])
    assert machine.processor.answer()["missing"] == {}


@pytest.mark.parametrize("what", ["kubelet", "mapping", "pids"])
def test_while_what_tells_who_holds_devices_cannot_be_read_none_is_free(machine, what):
    machine.tick([], {0: IDLE})
    assert machine.values("gpu.count") == {("free",): 1}
    machine.tick([], {0: IDLE}, missing={what: "it does not answer"})
    assert machine.values("gpu.count") == {("free",): 0, ("unknown",): 1}
    (device,) = machine.processor.answer()["devices"]
    assert (device["state"], device["reason"]) == ("unknown", "it does not answer")
    machine.tick([], {0: IDLE})
    assert machine.values("gpu.count") == {("free",): 1, ("unknown",): 0}


def test_before_the_collector_jobs_has_answered_no_device_is_free(machine):
    machine.facts = [DeviceFacts(2000 * SECOND, [], {"0": dims_of(0)}, [DeviceActivity(dims_of(0), **IDLE)])]
    machine.points = [*machine.processor.derive([], START, machine.facts)]
    assert machine.values("gpu.count") == {("unknown",): 1}
    machine.moment = 2000 * SECOND
    machine.tick([], {0: IDLE})
    assert machine.values("gpu.count") == {("free",): 1, ("unknown",): 0}


def test_a_collector_that_answers_a_tick_late_leaves_no_device_unnamed_in_the_log(machine, caplog):
    given = [Allocation("1", ADA, "kubelet")]
    machine.tick([], {0: IDLE}, allocations=given)
    for _ in range(6):
        machine.tick([], {0: IDLE, 1: IDLE}, allocations=given)
    assert not caplog.records
    assert machine.processor.answer()["missing"] == {}


def test_many_devices_without_a_name_are_one_short_text(machine):
    given = [Allocation(f"gpu-vfio-{n}", ADA, "kubelet") for n in range(9)]
    machine.tick([], {0: IDLE}, allocations=given)
    shown = ", ".join(f"gpu-vfio-{n}" for n in range(4))
    why = f"no collector has {shown} and 5 more, which the scheduler gave to jobs"
    assert machine.processor.answer()["missing"] == {"devices": why}


@pytest.mark.parametrize("name", ["训练-任务", "학습", "e\u0301ve-job"])
def test_a_wide_name_shifts_no_column_of_the_table(machine, name):
    for _ in range(2):
        machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, owners={10: Owner("docker", name, user="ada"), 11: BOB})
    lines = as_text(machine.processor.answer()).splitlines()
    columns = {cell_len(line[: line.index(word)]) for line, word in zip(lines[1:], ("ada", "bob"), strict=True)}
    assert columns == {cell_len(lines[0][: lines[0].index("USER")])}


def states(machine):
    return [(device["state"], bool(device["reason"])) for device in machine.processor.answer()["devices"]]


KERNELS = {"active": 0.9}


@pytest.mark.parametrize(
    ("listed", "activity", "reason"),
    [
        ([], KERNELS, "kernels ran and the driver lists no process"),
        ([(0, 4242)], KERNELS, "process 4242 has no owner in /proc"),
        ([(0, 4242)], IDLE, "process 4242 has no owner in /proc"),
        ([], {**KERNELS, "unlisted": "refused"}, "refused"),
        ([], {**IDLE, "unlisted": "refused"}, "refused"),
        (None, IDLE, "its processes are not listed"),
        ([], {"active": None}, "whether kernels run is not known"),
    ],
)
def test_a_device_is_free_only_where_it_is_idle_and_its_list_was_answered(machine, listed, activity, reason):
    for _ in range(3):
        machine.tick(listed, {0: activity})
        (device,) = machine.processor.answer()["devices"]
        assert (device["state"], device["reason"], device["holders"]) == ("unknown", reason, [])
    assert machine.values("gpu.count") == {("unknown",): 1.0}
    causes = {key[0] for key in machine.values("gpu.idle.time")}
    assert not causes - {"unknown"}, causes
    text = as_text(machine.processor.answer())
    doing = {None: "", 0.0: "idle, "}.get(activity["active"], "busy, ")
    assert f"0 {doing}holder not known\nholder of 0 not known: {reason}" in text
    for _ in range(20):
        machine.tick([], {0: IDLE})
    assert states(machine) == [("free", False)]
    assert machine.values("gpu.count") == {("unknown",): 0.0, ("free",): 1.0}


def test_kernels_that_come_and_go_without_a_process_leave_no_device_free_between_them(machine):
    for n in range(60):
        machine.tick([], {0: KERNELS if n % 6 == 0 else IDLE})
        assert states(machine) == [("unknown", True)]


def test_the_last_kernels_of_a_job_that_has_ended_are_its_own(machine):
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([], {0: KERNELS})
    assert states(machine) == [("free", False)]


def test_while_the_name_of_a_given_device_is_not_known_no_device_is_free(machine):
    for given in (["GPU-no-collector-knows-this"], []):
        grants = [Allocation(name, BOB, "kubelet") for name in given]
        machine.tick([(0, 10)], dict.fromkeys(range(3), IDLE), owners={10: ADA}, allocations=grants)
        assert [state for state, _ in states(machine)][1:] == ["unknown" if given else "free"] * 2
    assert states(machine)[0][0] != "unknown"


def test_a_device_that_is_no_longer_read_is_not_free(machine):
    machine.tick([], {0: IDLE})
    assert states(machine) == [("free", False)]
    for _ in range(3):
        machine.tick(None, {})
    assert states(machine) == [("unseen", True)]


def test_the_states_of_devices_add_up_to_the_devices(machine):
    activity = {0: BUSY, 1: {"active": 0.2}, 2: IDLE, 3: {"lost": True}, 4: KERNELS}
    activity |= {"5.0": {**IDLE, "slices": 0.5}, "5.1": {**BUSY, "slices": 0.25}}
    fallen = [(number, "gpu.state", 0) for number in (0, 6)]  # of 0 there are readings, which its job is charged by
    for _ in range(3):
        machine.tick([(0, 10), (1, 10), ("5.1", 10)], activity | {6: IDLE}, owners={10: ADA}, points=fallen)
    counts = {key[-1]: value for key, value in machine.values("gpu.count").items() if value}
    assert counts == pytest.approx({"busy": 1 + 1 / 3, "stalled": 1, "free": 1 + 2 / 3, "lost": 2, "unknown": 1})


def test_the_holder_of_a_device_is_found_by_the_dimensions_of_it_or_of_a_part():
    machine, names = Machine(), {"0": dims_of(0), "1": dims_of(1), "MIG-1": dims_of("0.1")}

    def held(gpu):
        return {owner.job for owner in machine.processor.owners_of(dims_of(gpu))}

    given = [Allocation("MIG-1", ADA, "mapping"), Allocation("1", BOB, "mapping"), Allocation("1", ADA, "mapping")]
    parts = {"0.0": {**BUSY, "slices": 3 / 7}, "0.1": {**BUSY, "slices": 4 / 7}, 1: BUSY}
    machine.tick([], parts, allocations=given, names=names)
    assert (held("0.1"), held("0.0"), held(0), held(1)) == ({"41337"}, set(), {"41337"}, {"41337", "41340"})
    assert held("1.5") == held(1), "an instance that has no processes of its own"
    assert (held(7), machine.processor.owners_of(Dimensions(cpu="0"))) == (set(), [])
    machine.tick([], parts, allocations=given[:2], names=names)
    assert held(1) == {"41340"}
