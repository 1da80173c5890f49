"""Laws that hold on any machine: GPUs that vanish, jobs that come and go, collectors that hang, odd values."""

import json

import hypothesis.strategies as st
import pytest
from hypothesis import Phase, given, settings
from tests.agent.jobs.machine import SECOND, START, Machine, dims_of
from tests.examples import examples

from chipwatch.contract.facts import DeviceActivity, DeviceFacts, DeviceProcess
from chipwatch.contract.owner import Allocation, GroupUse, JobFacts, Owner
from chipwatch.jobs.ledger import STATE, sums_of
from chipwatch.jobs.processor import JobsProcessor

JOBS = [
    *(Owner("slurm", str(n), cgroup=f"/slurm/uid_1/job_{n}") for n in range(3)),
    Owner("kubernetes", "trainer-0", namespace="a", cgroup="/kubepods/pod1"),
    Owner("kubernetes", "trainer-0", namespace="b"),
    Owner("user", "ada"),
]
PLACES = ["0", "1", "1.0", "1.1", "2"]
MOST_JOBS = 3
numbers = st.none() | st.floats(0, 1) | st.sampled_from([float("nan"), float("inf"), -1.0, 7.0])
devices = st.fixed_dictionaries(
    {
        "active": numbers,
        "idle": numbers,
        "energy": numbers,
        "throttled": st.floats(0, 1) | st.just(float("nan")),
        "lost": st.booleans(),
        "jobs": st.lists(st.sampled_from(range(len(JOBS))), max_size=3, unique=True),
        "works": st.lists(numbers, min_size=3, max_size=3),
        "work_is": st.sampled_from(["utilization", "occupancy"]),
        "given": st.none() | st.sampled_from(range(len(JOBS))),
        "source": st.sampled_from(["mapping", "kubelet", "environment"]),
    }
)
ticks = st.fixed_dictionaries({
    "seconds": st.sampled_from([0, 1, 5, 5, 5, 5, 11, 400, -3]),
    "clock": st.sampled_from([0, 0, 0, 3600, -3600]),
    "devices": st.dictionaries(st.sampled_from(PLACES), devices),
    "are_devices_read": st.sampled_from([True, True, True, False]),
    "are_jobs_read": st.sampled_from([True, True, True, False]),
    "are_pids_followed": st.sampled_from([True, True, False]),
    "are_processes_listed": st.sampled_from([True, True, False]),
    "alive": st.sets(st.sampled_from(range(4))),
    "began": st.sampled_from([-100, 0, 2, 100]),
})  # fmt: skip


class Run:
    """A processor, and the times of its readings."""

    def __init__(self):
        self.processor = JobsProcessor(JobsProcessor.Config(max_jobs=MOST_JOBS, dollars_per_hour=2.0))
        self.moment, self.at = 1000 * SECOND, START

    def tick(self, told):
        """Return the points of one tick."""
        self.moment += told["seconds"] * SECOND
        self.at += (abs(told["seconds"]) + told["clock"]) * SECOND
        found = told["devices"]
        facts = []
        if told["are_devices_read"]:
            listed = [
                DeviceProcess(dims_of(place), 100 + n, **{one["work_is"]: work})
                for place, one in found.items()
                for n, work in zip(one["jobs"], one["works"], strict=False)
            ]
            known = {place: dims_of(place) for place in found}
            plain = ("active", "idle", "energy", "throttled", "lost")
            active = [
                DeviceActivity(
                    dims_of(place), slices=0.5 if "." in place else 1.0, **{name: one[name] for name in plain}
                )
                for place, one in found.items()
            ]
            facts.append(DeviceFacts(self.moment, listed if told["are_processes_listed"] else None, known, active))
        if told["are_jobs_read"]:
            began = self.at - told["began"] * SECOND
            followed = None if told["are_pids_followed"] else ()
            owners = {} if followed == () else {100 + n: job._replace(since=began) for n, job in enumerate(JOBS)}
            granted = [
                Allocation(place, JOBS[one["given"]], one["source"])
                for place, one in found.items()
                if one["given"] is not None
            ]
            uses = [GroupUse(JOBS[n]) for n in sorted(told["alive"])]
            facts.append(JobFacts(self.moment, owners, granted, uses, followed=followed))
        self.facts = facts
        return [*self.processor.derive([], self.at, self.facts)]


@given(st.lists(ticks, min_size=2, max_size=25))
@settings(max_examples=examples(100), deadline=None, phases=[Phase.explicit, Phase.generate])
def test_whatever_a_machine_does_the_laws_hold(machine):
    run = Run()
    last, moments, saved = {}, [], b""
    for told in machine:
        points = run.tick(told)
        if told["are_devices_read"]:
            moments.append(run.moment)  # a reading may come after a newer one
        # What is charged is what was held, to a microsecond a tick, and no more than there was.
        answer = run.processor.answer()
        charged, held = answer["charged_seconds"], answer["allocated_seconds"]
        assert abs(charged - held) < 1e-6 * len(machine)
        assert charged <= len(PLACES) * (max(moments, default=0) - min(moments, default=0)) / SECOND + 1e-6
        for point in points:
            assert point.value >= 0
            # A counter falls only with a new start.
            if point.metric.kind == "counter":
                series = point.metric.name, point.dims
                value, start = last.get(series, (0.0, None))
                assert point.value >= value or point.start_time != start
                last[series] = point.value, point.start_time
        jobs = {(point.dims["job"], point.dims.get("namespace")) for point in points if "job" in point.dims}
        assert len(jobs) <= 2 * (MOST_JOBS + 1)  # those that ended in this tick too
        json.dumps(answer, allow_nan=False)
        saved = run.processor.saved() or saved
    again = JobsProcessor(JobsProcessor.Config(max_jobs=MOST_JOBS))
    again.restore(saved)
    kept = {
        (one["owner"][0], one["owner"][5], one["owner"][1]): one.get("sums", {})
        for one in json.loads(saved)["accounts"]
    }
    accounts = run.processor._ledger.accounts
    assert all(kept[key] == one.sums for key, one in accounts.items())


kinds = st.fixed_dictionaries({
    "seconds": st.sampled_from([0, 1, 5, 5, 5, 11, 400]),
    "activity": st.fixed_dictionaries({
        "active": st.sampled_from([0.0, 0.0, None]) | st.floats(0, 1), "throttled": st.floats(0, 1),
        "energy": st.floats(0, 5000).map(lambda joules: round(joules, 3)), "unlisted": st.sampled_from(["", "", "no"]),
    }) | st.just({"active": 0.0, "energy": 90.0}) | st.just({"lost": True, "energy": 7.0}),
    "pids": st.just([]) | st.lists(st.sampled_from([10, 11]), unique=True),
    "is_late": st.sampled_from([False, False, False, True]),
})  # fmt: skip


@given(st.lists(kinds, min_size=2, max_size=30))
@settings(max_examples=examples(200), deadline=None)
def test_the_energy_of_all_states_is_what_the_counter_of_the_device_rose(ticks):
    machine, rise = Machine(), 0.0
    owners = {10: JOBS[0], 11: JOBS[5]}
    for n, told in enumerate([*ticks, ticks[0] | {"seconds": 5, "is_late": False}]):
        activity = told["activity"]
        if n and told["is_late"]:  # the collector of jobs hangs
            machine.moment, machine.at = (time + told["seconds"] * SECOND for time in (machine.moment, machine.at))
            device = machine.facts[0]._replace(moment=machine.moment, activity=[DeviceActivity(dims_of(0), **activity)])
            machine.points = [*machine.processor.derive([], machine.at, [device])]
        else:
            machine.tick([(0, pid) for pid in told["pids"]], {0: activity}, owners=owners, seconds=told["seconds"])
        rise += activity["energy"] if n else 0.0  # the first reading is the base
    by_state = machine.values("gpu.energy.by_state")
    assert sum(by_state.values()) == pytest.approx(rise, rel=1e-9, abs=1e-5)
    assert all(energy >= 0 for energy in by_state.values())
    rows = [*machine.processor.answer()["jobs"], *machine.processor.answer()["ended"]]
    assert all(row["energy"] == pytest.approx(sum(row["joules"].values())) for row in rows)
    of_jobs = sum(row["energy"] for row in rows)
    assert of_jobs + by_state.get(("0", "free"), 0.0) <= rise + 1e-3


ends = st.sampled_from([None, None, None, "stop", "kill"])


@given(st.lists(st.tuples(ticks, ends), min_size=2, max_size=25))
@settings(max_examples=100, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_over_restarts_no_time_is_charged_twice(machine):
    run, kept, passed, sent = Run(), b"", 0, {}
    newest, at = run.moment, run.at
    for n, (told, end) in enumerate(machine):
        points = [point for point in run.tick(told) if point.metric.kind == "counter" and "job" in point.dims]
        for point in points if end != "kill" else ():  # the kill comes before the ledger is saved, and they are sent
            value, start = sent.get((point.metric.name, point.dims), (0.0, None))
            assert point.value >= value or point.start_time != start
            sent[point.metric.name, point.dims] = point.value, point.start_time
        # While the agent is stopped there is only the clock to go by.
        passed += max(0, run.moment - newest, run.at - at) if n else 0
        newest, at = max(newest, run.moment) if n else run.moment, run.at  # nothing was read before the first tick
        answer = run.processor.answer()
        charged, held = answer["charged_seconds"], answer["allocated_seconds"]
        assert abs(charged - held) < 1e-6 * len(machine)
        accounts = run.processor._ledger.accounts.values()
        total = sum(sum(sums_of(sums, STATE).values()) for one in accounts for sums in (one.sums, one.earlier))
        assert total <= len(PLACES) * passed + 1000
        if end is None or not kept:
            kept = run.processor.saved() or kept
        if end:
            kept = (run.processor.saved() if end == "stop" else None) or kept
            run.processor = JobsProcessor(JobsProcessor.Config(max_jobs=MOST_JOBS, dollars_per_hour=2.0))
            run.processor.restore(kept)
            again, before = json.loads(run.processor.saved()), json.loads(kept)
            assert again == before | {"accounts": before["accounts"][: 2 * MOST_JOBS]}
