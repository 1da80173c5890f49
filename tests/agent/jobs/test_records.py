"""A job leaves one record of its time, energy and cost, also where the agent is killed."""

import json

import pytest
from tests.agent.jobs.machine import SECOND, START, Machine, job

from chipwatch.commands.ended_jobs import CAUSES
from chipwatch.contract.owner import GroupUse
from chipwatch.contract.plugin import Given
from chipwatch.jobs import causes
from chipwatch.jobs.processor import JobsProcessor

ADA, BOB = job(41337, user="ada", since=START - 100 * SECOND), job(41340, user="bob")
BUSY, IDLE = {"active": 1.0, "energy": 1000.0}, {"active": 0.0}


class Kept(Machine):
    """A machine whose processor leaves records."""

    def __init__(self, **config):
        super().__init__(**config)
        self.records, self.error = [], None
        self.processor.open(Given(append=self.add))

    def add(self, rows):
        if self.error:
            raise self.error
        self.records += rows
        return True

    def restart(self, saved):
        self.processor = JobsProcessor(JobsProcessor.Config())
        self.processor.restore(saved)
        self.processor.open(Given(append=self.add))

    def pause(self, seconds, **facts):
        for _ in range(int(seconds / 5)):
            self.tick([], {0: IDLE}, **facts)


def test_a_job_leaves_one_record_of_its_time_energy_cost_and_cgroup():
    machine = Kept(dollars_per_hour=3600.0)
    use = GroupUse(ADA, cpu=120.0, cores=4.0, memory_max=7)
    for active in (BUSY, BUSY, BUSY, IDLE):
        machine.tick([(0, 10, 5e9)], {0: active}, owners={10: ADA}, uses=[use])
    ended = machine.at
    machine.pause(120)
    (record,) = machine.records
    assert {key: record[key] for key in ("job", "kind", "user", "memory_max", "cost", "cpu", "cpus")} == {
        "job": "41337", "kind": "slurm", "user": "ada", "memory_max": 5e9, "cost": 15.0, "cpu": 120.0, "cpus": 4.0,
    }  # fmt: skip
    assert {state: spent for state, spent in record["seconds"].items() if spent} == {"busy": 10.0, "stalled": 5.0}
    assert sum(record["idle"].values()) == 5.0
    assert record["energy"] == 2000.0
    assert (record["since"], record["until"]) == ((START - 100 * SECOND) / SECOND, ended / SECOND)


def test_a_job_has_not_ended_while_its_cgroup_is_there():
    machine = Kept()
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.pause(600, uses=[GroupUse(ADA)])
    assert machine.records == []
    assert [row["job"] for row in machine.processor.answer()["ended"]] == ["41337"]
    machine.pause(10)
    assert [row["job"] for row in machine.records] == ["41337"]
    assert machine.processor.answer()["ended"] == []


def test_a_job_that_returns_leaves_another_record_with_the_sums():
    machine = Kept()
    for _ in range(2):
        for _ in range(2):
            machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
        machine.pause(120)
    first, second = machine.records
    assert (first["seconds"]["busy"], second["seconds"]["busy"]) == (5.0, pytest.approx(15.0, abs=5))
    assert first["since"] == second["since"]


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_killed_agent_leaves_the_record_of_a_job_that_ended_meanwhile(is_recorded):
    machine = Kept()
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    if is_recorded:
        machine.pause(120)
    machine.restart(machine.processor.saved())
    machine.at += 300 * SECOND
    machine.pause(90)
    (record,) = machine.records
    assert record["seconds"]["busy"] == 10.0
    assert record["until"] == (START + 15 * SECOND) / SECOND
    assert record["end_unseen"] == (0 if is_recorded else 305.0)


@pytest.mark.parametrize("ticks", [1, 3, 6])
@pytest.mark.parametrize("pause", [0, 5, 40])
def test_a_short_job_has_its_record_after_a_kill_at_any_moment(ticks, pause):
    machine = Kept()
    machine.pause(20)
    came = BOB._replace(since=machine.at + SECOND)
    for _ in range(ticks):
        machine.tick([(0, 11)], {0: BUSY}, owners={11: came})
    saved = machine.processor.saved()
    for _ in range(pause // 5):
        machine.pause(5)
        saved = machine.processor.saved() or saved
    machine.restart(saved)
    machine.at, machine.moment = machine.at + 100 * SECOND, machine.moment + 100 * SECOND
    machine.pause(90)
    (record,) = machine.records
    assert sum(record["seconds"].values()) == 4.0 + 5.0 * (ticks - 1)
    assert record["end_unseen"] == (0 if pause else 105.0), "only an end that nobody saw is marked"


def test_a_job_that_goes_on_after_a_stop_has_no_unseen_end():
    machine = Kept()
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.restart(machine.processor.saved())
    machine.at, machine.moment = machine.at + 60 * SECOND, machine.moment + 60 * SECOND
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.pause(120)
    (record,) = machine.records
    assert (record["end_unseen"], record["seconds"]["unseen"]) == (0, 65.0)


def test_a_record_that_cannot_be_written_is_written_later(caplog):
    machine = Kept()
    machine.error = OSError(28, "No space left on device")
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.pause(120)
    assert machine.records == []
    assert caplog.text.count("No space left on device") == 1
    machine.error = None
    machine.pause(5)
    assert len(machine.records) == 1


def test_many_short_jobs_leave_a_record_each_though_few_accounts_are_kept():
    machine = Kept(max_jobs=4)
    for n in range(40):
        machine.tick([(0, n + 10)], {0: BUSY}, owners={n + 10: job(n)})
        machine.tick([(0, n + 10)], {0: BUSY}, owners={n + 10: job(n)})
    machine.pause(120)
    assert [row["job"] for row in machine.records] == [str(n) for n in range(40)]
    assert len(json.loads(machine.processor.saved())["accounts"]) == 4


def test_jobs_that_are_added_up_leave_no_record_of_their_sum():
    machine, gpus = Kept(max_jobs=1), range(3)
    for n in range(30):
        processes = [(gpu, gpu + 10) for gpu in gpus if n < 3]
        machine.tick(processes, dict.fromkeys(gpus, BUSY), owners={gpu + 10: job(gpu) for gpu in gpus if n < 3})
    assert {row["job"] for row in machine.records} <= {str(gpu) for gpu in gpus}


def test_the_columns_of_causes_are_the_causes():
    assert {name for name, _ in causes.CAUSES} == set(CAUSES)
