"""Jobs on machines in trouble: unknown time is charged to nobody, and no wrong owner is named."""

import json

import pytest
from tests.agent.jobs.machine import SECOND, Machine, dims_of, job

from chipwatch.commands.answers import jobs_text as as_text
from chipwatch.contract.datapoint import gauge
from chipwatch.contract.facts import DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.owner import Allocation, GroupUse, JobFacts, Owner
from chipwatch.jobs.ledger import MOST_BYTES
from chipwatch.jobs.processor import JobsProcessor

ADA = job(41337, cgroup="/slurm/uid_1/job_41337")
BOB = job(41340, cgroup="/slurm/uid_2/job_41340")
BUSY = {"active": 1.0}


def spent(machine, number):
    found = machine.values("job.gpu.time").items()
    return {state: value for (name, state), value in found if name == str(number) and value}


def sums(machine):
    answer = machine.processor.answer()
    return answer["charged_seconds"], answer["allocated_seconds"]


def test_instances_that_are_made_again_keep_the_sums_and_restart_their_counters(machine):
    for devices in ({"0.1": {"active": 0.2, "slices": 0.5}}, {"0": {"active": 0.2}}) * 2:
        for _ in range(3):
            machine.tick([(place, 10) for place in devices], devices, owners={10: ADA})
    # Two readings of each after its first one.
    assert sums(machine) == (pytest.approx(30.0), pytest.approx(30.0))
    (idle,) = [point for point in machine.points if point.metric.name == "gpu.idle.time"]
    assert idle.value == pytest.approx(8.0)
    assert machine.at - idle.start_time <= 15 * SECOND


def test_a_job_that_ends_on_a_gpu_that_does_not_answer_is_charged_no_more(machine):
    both = {"owners": {10: ADA, 11: BOB}, "uses": [GroupUse(ADA), GroupUse(BOB)]}
    for _ in range(2):
        machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, **both)
    for _ in range(4):
        machine.tick([(0, 10)], {0: BUSY}, **both)
    assert spent(machine, 41340) == {"busy": 5.0, "lost": 20.0}
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, uses=[GroupUse(ADA)])
    assert spent(machine, 41340) == {"busy": 5.0, "lost": 20.0}, "its last values"
    for _ in range(10):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, uses=[GroupUse(ADA)])
    assert spent(machine, 41340) == {}
    assert sums(machine)[0] == pytest.approx(sums(machine)[1])


def test_a_user_without_a_process_left_is_not_charged_for_a_lost_gpu():
    machine, user = Machine(), Owner("user", "eve")
    for _ in range(2):
        machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, owners={10: ADA, 11: user}, uses=[GroupUse(ADA)])
    for _ in range(10):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, uses=[GroupUse(ADA)])
    assert machine.processor.answer()["devices"][1]["holders"] == []


def test_a_job_that_ends_while_no_device_answers_is_gone(machine):
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, uses=[GroupUse(ADA)])
    for told in ({"uses": [GroupUse(ADA)]}, {"missing": {"jobs": "1 job is left out"}}):
        machine.tick(None, {}, **told)
        assert machine.values("job.gpus") == {("41337", "process"): 1.0}
    machine.tick(None, {})
    assert machine.values("job.gpus") == {}


def devices_alone(machine, activity, processes=(), source=""):
    """Let five seconds pass in which the collector `jobs` did not answer."""
    machine.moment += 5 * SECOND
    machine.at += 5 * SECOND
    listed = [DeviceProcess(dims_of(gpu), pid) for gpu, pid in processes]
    names = {str(gpu): dims_of(gpu) for gpu in activity}
    found = [DeviceActivity(dims_of(gpu), **options) for gpu, options in activity.items()]
    machine.facts = [DeviceFacts(machine.moment, listed, names, found, source)]
    machine.points = [*machine.processor.derive([], machine.at, machine.facts)]


def test_while_the_collector_of_jobs_hangs_nobody_is_charged():
    machine, given = Machine(), [Allocation("0", ADA, "mapping")]
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, uses=[GroupUse(ADA)], allocations=given)
    for _ in range(100):
        devices_alone(machine, {0: BUSY}, [(0, 99)])
    assert spent(machine, 41337) == {"busy": 20.0}, "two intervals after its last word"
    assert "holders unknown: the collector jobs has not answered" in machine.processor.describe()
    machine.tick([(0, 11)], {0: BUSY}, owners={11: BOB})
    assert "holders unknown" not in machine.processor.describe()
    assert spent(machine, 41337) == {"busy": 20.0, "unseen": 495.0}
    assert sums(machine)[0] == pytest.approx(sums(machine)[1])


def test_a_hung_collector_does_not_mean_a_lost_gpu_though_another_makers_collector_answers(machine):
    jobs = JobFacts(0, {10: ADA}, uses=[GroupUse(ADA)])
    for tick in range(10):
        machine.moment += 5 * SECOND
        machine.at += 5 * SECOND
        processes = [DeviceProcess(dims_of(gpu), 10) for gpu in (0, 7)]
        facts = [
            DeviceFacts(machine.moment, processes, {}, [DeviceActivity(dims_of(gpu), 1.0)], source)
            for gpu, source in ((0, "nvidia"), (7, "amd"))
        ]
        machine.facts = [jobs._replace(moment=machine.moment), *(facts if tick < 3 else facts[1:])]
        machine.points = [*machine.processor.derive([], machine.at, machine.facts)]
    assert spent(machine, 41337) == {"busy": 10.0 + 45.0}


@pytest.mark.parametrize(
    ("active", "states"),
    [
        (float("nan"), {"unknown": 10.0}),
        (-0.5, {"stalled": 10.0}),
        (3.0, {"busy": 10.0}),
        (float("inf"), {"busy": 10.0}),
    ],
)
def test_an_invalid_share_ends_no_tick_and_makes_no_negative_time(machine, active, states):
    for _ in range(3):
        odd = {"active": active, "idle": float("nan"), "energy": float("-inf"), "throttled": float("nan")}
        machine.tick([(0, 10)], {0: odd}, owners={10: ADA})
    assert spent(machine, 41337) == states
    assert machine.values("job.energy") == {("41337",): 0.0}


def test_energy_by_power_counts_for_two_intervals_at_most(machine):
    for seconds in (5, 5, 3600):
        machine.moment += seconds * SECOND
        machine.at += seconds * SECOND
        point = gauge("gpu.power", "W", "").point(machine.at, 700.0, dims_of(0))
        jobs = JobFacts(machine.moment, {10: ADA})
        facts = DeviceFacts(machine.moment, [DeviceProcess(dims_of(0), 10)], {}, [DeviceActivity(dims_of(0), 1.0)])
        machine.facts = [facts, jobs]
        machine.points = [*machine.processor.derive([point], machine.at, machine.facts)]
    assert machine.values("job.energy") == {("41337",): pytest.approx(700 * 15)}


def test_a_job_that_slurm_left_in_the_mapping_does_not_win_over_the_one_that_runs():
    machine, left = Machine(), [Allocation("0", job(41000), "mapping")]
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, allocations=left)
    assert machine.values("job.gpus") == {("41337", "process"): 1.0}
    for _ in range(3):
        machine.tick([], {0: BUSY}, owners={}, allocations=left)
    assert machine.values("job.gpus") == {("41000", "mapping"): 1.0}, "it may not have begun yet"
    for _ in range(3):
        machine.tick([(0, 12)], {0: BUSY}, owners={12: Owner("user", "eve")}, allocations=left)
    assert machine.values("job.gpus") == {("41000", "mapping"): 1.0}, "without cgroups of Slurm its word counts"
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, allocations=[Allocation("0", BOB, "mapping")])
    assert machine.values("job.gpus") == {("41340", "mapping"): 1.0}, "it has a cgroup"


def test_two_jobs_of_one_name_have_separate_rows(machine):
    pods = [Owner("kubernetes", "train-0", namespace=name) for name in ("a", "b")]
    for _ in range(2):
        machine.tick(
            [(0, 10), (1, 11), (2, 11)], {0: BUSY, 1: BUSY, 2: {"active": 0.0}}, owners={10: pods[0], 11: pods[1]}
        )
    answer = machine.processor.answer()
    rows = sorted(line.split()[1] + line.rpartition("-  ")[2] for line in as_text(answer).splitlines()[1:])
    assert rows == ["10 busy", "21 busy; 2 stalled"]
    assert answer["devices"][1]["holders"] == [{"kind": "kubernetes", "namespace": "b", "job": "train-0"}]
    assert answer["devices"][1]["jobs"] == ["train-0"]


def test_a_ledger_above_its_limit_keeps_the_jobs_that_held_a_device_last(monkeypatch):
    monkeypatch.setattr("chipwatch.jobs.ledger.MOST_BYTES", MOST_BYTES // 8)
    many, machine = 150, Machine(max_jobs=150)
    owners = {n: Owner("slurm", f"{n:07}", user="ada", unit="u" * 700, cgroup="/x" * 200) for n in range(2 * many)}
    for first in (0, many):
        for _ in range(2):
            machine.tick([(0, n) for n in range(first, first + many)], {0: BUSY}, owners=owners)
    saved = machine.processor.saved()
    assert 0.9 * MOST_BYTES < 8 * len(saved) <= MOST_BYTES
    again = JobsProcessor(JobsProcessor.Config(max_jobs=many))
    again.restore(saved)
    kept = [int(one["owner"][1]) for one in json.loads(saved)["accounts"]]
    assert many // 2 < len(kept) < many
    assert min(kept) >= many


ACCOUNT = '{"at":1,"accounts":[{"owner":["slurm","1"],"since":1,"seen":1,%s}]}'


@pytest.mark.parametrize(
    "odd",
    ["", "{", "[1]", "[" * 100_000, '"earlier":{"state busy":-5}', f'"earlier":{{"state busy":{"9" * 400}}}', '"sums":-1', '"memory":1e300',
     '"earlier":{"state busy":1e3}', '"earlier":[]', '"held":{"gpu=0":[-1]}'],
)  # fmt: skip
def test_a_ledger_with_values_that_no_agent_wrote_is_refused(odd):
    with pytest.raises(ValueError, match="the ledger of jobs cannot be read"):
        JobsProcessor(JobsProcessor.Config()).restore((ACCOUNT % odd if ":" in odd else odd).encode())


def test_a_ledger_of_a_later_version_keeps_what_this_one_does_not_know():
    machine = Machine(dollars_per_hour=1.0)
    told = {"earlier": {"state busy": 3600 * SECOND, "state frozen": 7}, "shape": "new"}
    machine.processor.restore((ACCOUNT % json.dumps(told)[1:-1]).encode())
    machine.tick([(0, 10)], {0: BUSY}, owners={10: job(1)})
    (row,) = machine.processor.answer()["jobs"]
    assert (row["seconds"]["busy"], row["cost"]) == (3600.0, 1.0)
    (kept,) = json.loads(machine.processor.saved())["accounts"]
    assert kept["earlier"] == {"state busy": 3600 * SECOND, "state frozen": 7}


def test_accounts_of_a_clock_that_was_ahead_do_not_crowd_out_accounts_of_today():
    machine = Machine(max_jobs=2)
    ahead = [{"owner": ["slurm", f"9{n}"], "since": 1, "seen": 2**62} for n in range(4)]
    machine.processor.restore(json.dumps({"at": 2**62, "accounts": ahead}).encode())
    for number in (1, 2):
        for _ in range(3):
            machine.tick([(0, number)], {0: BUSY}, owners={number: job(number)})
    machine.tick([(0, 1)], {0: BUSY}, owners={1: job(1)})
    machine.tick([(0, 1)], {0: BUSY}, owners={1: job(1)})
    (row,) = machine.processor.answer()["jobs"]
    assert row["seconds"]["busy"] >= 15.0, "its account was kept while it held nothing"
