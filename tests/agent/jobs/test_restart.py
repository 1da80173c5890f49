"""The time in which the agent did not run, and in which a GPU was divided otherwise, is unseen."""

import pytest
from tests.agent.jobs.machine import SECOND, START, Machine, job

from chipwatch.contract.owner import Allocation, GroupUse
from chipwatch.jobs.processor import JobsProcessor

ADA, BOB = job(41337, user="ada", since=START - 100 * SECOND), job(41340, user="bob")
BUSY, IDLE = {"active": 1.0}, {"active": 0.0}


def spent(machine, owner):
    """Return the seconds by state of a job since it began."""
    rows = [row for row in machine.processor.answer()["jobs"] if row["job"] == owner.job]
    return {state: seconds for row in rows for state, seconds in row["seconds"].items() if seconds}


def sums_agree(machine):
    answer = machine.processor.answer()
    return answer["charged_seconds"] == pytest.approx(answer["allocated_seconds"], abs=1e-6)


def restart(machine, saved=None, seconds=0.0):
    """Begin a processor with what the one before saved, by default at its end, and let time pass."""
    saved = machine.processor.saved() if saved is None else saved
    machine.processor = JobsProcessor(JobsProcessor.Config())
    machine.processor.restore(saved)
    machine.moment += int(seconds * SECOND)
    machine.at += int(seconds * SECOND)


def test_a_held_gpu_does_not_begin_as_stalled_after_a_restart(machine):
    for n in range(30):
        machine.tick([(0, 10)], {0: IDLE if n else BUSY}, owners={10: ADA})
    before = spent(machine, ADA)
    restart(machine, seconds=10)
    for _ in range(3):
        machine.tick([(0, 10)], {0: IDLE}, owners={10: ADA})
    assert spent(machine, ADA) == {**before, "held": before["held"] + 10.0, "unseen": 15.0}
    (device,) = machine.processor.answer()["devices"]
    assert (device["state"], device["seconds_since_kernel"]) == ("held", 29 * 5 + 10 + 15)


def test_a_job_without_a_kernel_since_it_came_is_still_starting_after_a_restart(machine):
    machine.tick([], {0: IDLE})
    machine.tick([(0, 10)], {0: IDLE}, owners={10: ADA})
    was = machine.processor.answer()["devices"][0]["cause"]
    restart(machine)
    machine.tick([(0, 11)], {0: IDLE}, owners={11: BOB._replace(since=machine.at + SECOND)})
    assert machine.processor.answer()["devices"][0]["cause"] == was == "startup"


def test_only_jobs_that_held_a_gpu_before_and_after_are_charged_for_the_stop():
    machine, left, older = Machine(), job(1), job(2, since=START - SECOND)
    for _ in range(3):
        machine.tick([(0, 10), (1, 12)], {0: BUSY, 1: BUSY, 2: IDLE}, owners={10: ADA, 12: left})
    restart(machine, seconds=995)
    came = BOB._replace(since=machine.at - 95 * SECOND)
    processes = [(0, 10), (1, 11), (2, 13)]
    for _ in range(2):
        machine.tick(processes, {0: BUSY, 1: BUSY, 2: BUSY}, owners={10: ADA, 11: came, 13: older})
    assert spent(machine, ADA) == {"busy": 15.0, "unseen": 1000.0}
    assert spent(machine, BOB) == {"busy": 5.0, "unseen": 100.0}, "from the start of its process"
    assert spent(machine, left) == {}
    assert spent(machine, older) == {"busy": 5.0}, "it is not known when it came to the GPU"
    assert sums_agree(machine)


def test_a_job_that_was_given_a_gpu_and_has_no_process_is_charged_for_the_stop():
    machine, given = Machine(), [Allocation("0", BOB, "mapping")]
    for _ in range(2):
        machine.tick([], {0: IDLE}, allocations=given, uses=[GroupUse(BOB)])
    restart(machine, seconds=100)
    machine.tick([], {0: IDLE}, allocations=given, uses=[GroupUse(BOB)])
    assert spent(machine, BOB) == {"held": 5.0, "unseen": 105.0}


def test_a_gpu_that_was_lost_during_the_stop_goes_on_to_be_held_by_its_job():
    machine, slurm = Machine(), [GroupUse(ADA)]
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA}, uses=slurm)
    restart(machine, seconds=100)
    for _ in range(3):
        machine.tick([], {0: {"lost": True}}, uses=slurm)
    assert spent(machine, ADA) == {"unseen": 105.0, "lost": 10.0}
    machine.tick([], {0: {"lost": True}})
    assert spent(machine, ADA) == {}, "the job has ended"
    assert sums_agree(machine)


def test_a_process_that_replaced_another_during_the_stop_counts_from_its_start(machine):
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    restart(machine, seconds=100)
    machine.tick([(0, 11)], {0: BUSY}, owners={11: ADA._replace(since=machine.at - 20 * SECOND)})
    assert spent(machine, ADA) == {"busy": 5.0, "unseen": 25.0}


def test_time_before_a_boot_is_not_charged(machine):
    given = [Allocation("0", BOB, "mapping")]
    machine.tick([], {0: IDLE}, allocations=given)
    restart(machine, seconds=7200)
    machine.moment = 30 * SECOND
    machine.tick([], {0: IDLE}, allocations=given)
    assert spent(machine, BOB) == {"unseen": 35.0}


@pytest.mark.parametrize("step", [-7200, -100])
def test_a_clock_that_was_set_back_meanwhile_charges_no_time(machine, step):
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    restart(machine)
    machine.at += step * SECOND
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA._replace(since=machine.at - 50 * SECOND)})
    assert spent(machine, ADA) == {"busy": 15.0, "unseen": pytest.approx(0, abs=1e-6)} or spent(machine, ADA) == {
        "busy": 15.0
    }
    assert sums_agree(machine)


def test_a_gpu_that_is_read_only_after_a_second_restart_goes_on_from_the_first_stop(machine):
    for _ in range(2):
        machine.tick([(0, 10), (1, 10)], {0: BUSY, 1: BUSY}, owners={10: ADA})
    for _ in range(2):
        restart(machine, seconds=45)
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    machine.tick([(0, 10), (1, 10)], {0: BUSY, 1: BUSY}, owners={10: ADA})
    assert spent(machine, ADA) == {"busy": 5.0 + 5.0 + 5.0, "unseen": 50.0 + 50.0 + 105.0}
    assert sums_agree(machine)


def test_a_ledger_that_comes_after_the_first_readings_charges_no_time_twice(machine):
    for _ in range(2):
        machine.tick([(0, 10), (1, 10)], {0: BUSY, 1: IDLE}, owners={10: ADA})
    saved = machine.processor.saved()
    machine.processor = JobsProcessor(JobsProcessor.Config())
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY, 1: IDLE}, owners={10: ADA})
    machine.processor.restore(saved)
    machine.tick([(0, 10)], {0: BUSY, 1: IDLE}, owners={10: ADA})
    assert spent(machine, ADA) == {"busy": 5.0 + 15.0, "stalled": 5.0}
    assert sums_agree(machine)


def test_a_ledger_of_another_agent_that_ran_at_the_same_time_counts_no_time_twice():
    machine, energy = Machine(), {**BUSY, "energy": 100.0}
    first, second = JobsProcessor(JobsProcessor.Config()), JobsProcessor(JobsProcessor.Config())
    for n in range(12):
        machine.processor = first
        machine.tick([(0, 10)], {0: energy, 1: IDLE}, owners={10: ADA})
        if n >= 4:
            list(second.derive([], machine.at, machine.facts))
    machine.processor = second
    second.restore(first.saved())
    machine.tick([(0, 10)], {0: energy, 1: IDLE}, owners={10: ADA})
    assert spent(machine, ADA) == {"busy": 12 * 5.0}
    (row,) = machine.processor.answer()["jobs"]
    assert row["energy"] == pytest.approx(12 * 100.0)
    (busy,) = (point for point in machine.points if point.dims.get("state") == "busy" and "job" in point.dims)
    assert busy.value == 8 * 5.0, "what was sent does not fall"


def test_without_facts_of_jobs_in_the_first_tick_the_stop_is_charged_in_the_next(machine):
    for _ in range(2):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    facts = machine.facts
    restart(machine, seconds=10)
    for _ in range(2):
        machine.moment += 5 * SECOND
        machine.at += 5 * SECOND
        machine.facts = [facts[0]._replace(moment=machine.moment)]
        assert not [
            point
            for point in machine.processor.derive([], machine.at, machine.facts)
            if point.metric.name == "job.gpus"
        ]
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    assert spent(machine, ADA) == {"busy": 5.0, "unseen": 25.0}
    assert sums_agree(machine)


def test_a_job_on_an_instance_that_was_made_meanwhile_is_unseen_until_its_first_reading():
    machine, parts = Machine(), {"0.0": {**BUSY, "slices": 3 / 7}, "0.1": {**BUSY, "slices": 4 / 7}}
    for _ in range(3):
        machine.tick([("0.0", 10), ("0.1", 11)], parts, owners={10: ADA, 11: job(7)})
    anew = {"0.0": parts["0.0"], "0.2": {"active": None, "slices": 2 / 7}}
    came = BOB._replace(since=machine.at + 2 * SECOND)
    machine.tick([("0.0", 10), ("0.2", 12)], anew, owners={10: ADA, 12: came}, seconds=9)
    assert spent(machine, BOB) == {"unseen": pytest.approx(7 * 2 / 7)}
    assert spent(machine, ADA) == {"busy": pytest.approx(19 * 3 / 7)}
    machine.tick([("0.0", 10), ("0.2", 12)], {**anew, "0.2": parts["0.1"]}, owners={10: ADA, 12: came})
    assert spent(machine, BOB) == {"unseen": pytest.approx(2.0), "busy": pytest.approx(5 * 4 / 7)}
    assert sums_agree(machine)
    causes = [point for point in machine.points if point.metric.name == "gpu.idle.time"]
    assert not [point for point in causes if point.value > 5], "what was not read has no cause"


UNFOLLOWED = {"followed": ()}
OLD = BOB._replace(since=START - 50 * SECOND)
SILENT = {"missing": {"kubelet": "it does not answer"}}


def slow(machine, kind):
    """Tick with a reading that lacks the processes, their owners, or the allocations."""
    match kind:
        case "unfollowed":
            machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, **UNFOLLOWED)
        case "one unfollowed":
            machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, owners={11: OLD}, followed=[11])
        case "unlisted":
            machine.tick(None, {0: BUSY, 1: BUSY})
        case "unanswered":
            machine.tick([], {0: BUSY, 1: BUSY}, **SILENT)


@pytest.mark.parametrize("kind", ["unfollowed", "one unfollowed", "unlisted", "unanswered"])
@pytest.mark.parametrize("late", [1, 3, 8])
def test_readings_without_the_owners_of_processes_lose_no_time_over_kills(kind, late):
    given = [Allocation("0", ADA, "kubelet"), Allocation("1", BOB, "kubelet")] if kind == "unanswered" else []
    on = [] if given else [(0, 10), (1, 11)]
    for saves in range(3 + late):  # a kill after each save
        machine, saved = Machine(), b""

        def good(machine=machine):
            machine.tick(on, {0: BUSY, 1: BUSY}, owners={10: ADA, 11: OLD}, allocations=given)

        good()
        for n in range(saves + 1):
            good() if n < 3 else slow(machine, kind)
            saved = machine.processor.saved()
        restart(machine, saved, seconds=30)
        for _ in range(late):
            slow(machine, kind)
            assert sums_agree(machine)
        again = machine.processor.saved()
        restart(machine, again, seconds=30)
        for _ in range(late):
            slow(machine, kind)
        good()
        good()
        passed = (machine.at - START) / SECOND - 5
        assert sum(spent(machine, ADA).values()) == pytest.approx(passed)
        assert sum(spent(machine, BOB).values()) == pytest.approx(passed)
        assert sums_agree(machine)


@pytest.mark.parametrize("kind", ["unfollowed", "unlisted"])
def test_a_late_reading_without_owners_loses_no_time_of_a_running_agent(machine, kind):
    for n in range(12):
        if n % 3 == 2:
            slow(machine, kind)
        else:
            machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, owners={10: ADA, 11: BOB})
    machine.tick([(0, 10), (1, 11)], {0: BUSY, 1: BUSY}, owners={10: ADA, 11: BOB})
    assert spent(machine, ADA) == {"busy": 12 * 5.0}
    assert sums_agree(machine)


def test_a_gpu_that_was_not_read_before_a_kill_goes_on_from_its_last_reading(machine):
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    jobs = machine.facts[1]
    for _ in range(10):  # the driver hangs
        machine.at += 5 * SECOND
        machine.moment += 5 * SECOND
        machine.facts = [jobs._replace(moment=machine.moment)]
        [*machine.processor.derive([], machine.at, machine.facts)]
    restart(machine, seconds=10)
    machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    assert spent(machine, ADA) == {"busy": 10.0, "unseen": 65.0}


def test_a_job_that_came_during_a_stop_counts_from_its_start_also_after_a_second_one(machine):
    machine.tick([], {0: IDLE})
    restart(machine, seconds=60)
    came = BOB._replace(since=machine.at - 20 * SECOND)
    machine.facts = []
    machine.at, machine.moment = machine.at + 5 * SECOND, machine.moment + 5 * SECOND
    [*machine.processor.derive([], machine.at, machine.facts)]
    restart(machine, seconds=20)
    machine.tick([(0, 10)], {0: BUSY}, owners={10: came})
    assert spent(machine, BOB) == {"unseen": 50.0}


def test_owners_that_stay_unknown_are_awaited_for_a_minute(machine):
    for _ in range(3):
        machine.tick([(0, 10)], {0: BUSY}, owners={10: ADA})
    restart(machine)
    for _ in range(14):
        machine.tick(None, {0: IDLE})
        assert spent(machine, ADA) == {}
    (device,) = machine.processor.answer()["devices"]
    assert (device["state"], device["jobs"]) == ("unknown", [])
    assert sums_agree(machine)
