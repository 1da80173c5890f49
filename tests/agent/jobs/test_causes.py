"""Why a GPU is idle, in recorded situations."""

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from tests.agent.jobs.machine import SECOND, TICK, Machine, job

from chipwatch.contract.owner import Allocation, JobFacts
from chipwatch.jobs.causes import Evidence, Situation, cause, kind_of_work
from chipwatch.jobs.evidence import Evidences

SITUATIONS = tomllib.loads((Path(__file__).parent / "situations.toml").read_text())["situation"]


def replay(told):
    """Play a situation; return its machine, and the idle time before its last tick."""
    machine, gpu = Machine(interval=TICK), "0.0" if told.get("mig") else "0"
    jobs = [job(n) for n in range(told.get("jobs", 1))]
    owners = {100 + n: one for n, one in enumerate(jobs)} if told.get("processes", 1) else {}
    listed = [(gpu, pid, 10**9) for pid in owners]
    shown = {} if told.get("hidden") else owners
    given = [Allocation(gpu, one, "mapping") for one in jobs] if told.get("hidden") or not owners else []

    def tick(active, **more):
        uses = [
            machine.use(one, **(told if n == len(jobs) - 1 else {"cpu": 1.0, "cores": 16}))
            for n, one in enumerate(jobs)
        ]
        used = {pid: machine.process(pid, **told) for pid in owners} if "own" in told else {}
        machine.tick(
            listed, {gpu: {"active": active, **more}}, owners=shown, allocations=given, uses=uses, points=points,
            used=used,
        )  # fmt: skip

    names = {"gpu.sm.active": "sm", "gpu.tensor.active": "tensor", "gpu.dram.active": "dram"}
    points = [(gpu, name, told[key]) for name, key in names.items() if key in told]
    if told.get("never"):
        machine.tick([], {gpu: {"active": 0.0}})
    for active in [0.0 if told.get("never") or not owners else 1.0] + [0.0] * int(told.get("quiet", 0) / TICK):
        tick(active)
    before = machine.values("gpu.idle.time"), machine.values("gpu.busy.time")
    tick(told.get("active"), throttled=told.get("throttled", 0.0), lost=told.get("lost", False))
    return machine, before


@pytest.mark.parametrize("told", SITUATIONS, ids=[told["name"] for told in SITUATIONS])
def test_a_recorded_situation_has_its_cause_and_its_state(told):
    machine, (idle, busy) = replay(told)
    grown = {key[0]: value - idle.get(key, 0) for key, value in machine.values("gpu.idle.time").items()}
    causes = [cause for cause, time in grown.items() if time > 0]
    assert causes == ([told["cause"]] if "cause" in told else [])
    assert machine.processor.answer()["devices"][0]["state"] == told["state"]
    if causes:
        lasted = TICK if told.get("lost") or "active" not in told else TICK * (1 - told["active"])
        assert grown[told["cause"]] == pytest.approx(lasted)
    if "kind" in told:
        kinds = {key[1]: value - busy.get(key, 0) for key, value in machine.values("gpu.busy.time").items()}
        assert {kind for kind, time in kinds.items() if time > 0} == {told["kind"]}


def test_little_of_the_idle_time_has_no_cause_that_is_known():
    idle = Counter()
    for told in SITUATIONS:
        if "cause" in told and not told.get("control"):
            idle[told["cause"]] += 1 - told.get("active", 0.0)
    assert idle.total() >= 18
    assert idle["other"] / idle.total() < 0.1


def test_a_figure_at_a_limit_does_not_flip_the_cause():
    machine, owner, seen = Machine(interval=TICK), job(1), []
    for cpu in (7.0, 7.0, 7.3, 7.1, 7.3, 7.0, 7.1, 5.0, 5.0, 7.0):
        use = machine.use(owner, cpu=cpu, cores=8)
        machine.tick([("0", 100, 1)], {"0": {"active": 0.5}}, owners={100: owner}, uses=[use])
        seen.append(machine.processor.answer()["devices"][0]["cause"])
    assert seen == ["other"] * 2 + ["data"] * 5 + ["other"] * 3


def test_a_reading_without_a_list_of_processes_begins_no_startup():
    machine, owner = Machine(interval=TICK), job(1)
    for listed, active in ([("0", 100, 1)], 1.0), ([("0", 100, 1)], 1.0), (None, 0.0), ([("0", 100, 1)], 0.0):
        machine.tick(listed, {"0": {"active": active}}, owners={100: owner})
    idle = {key[0]: seconds for key, seconds in machine.values("gpu.idle.time").items()}
    assert idle.keys() == {"unknown", "other"}


@pytest.mark.parametrize(
    ("name", "over", "under"),
    [
        ("host", {"memory": 0.051}, {"memory": 0.05}),
        ("host", {"quota": 0.101}, {"quota": 0.1}),
        ("host", {"crowded": 0.301}, {"crowded": 0.3}),
        ("data", {"io": 0.201}, {"io": 0.2}),
        ("data", {"cpu": 7.2, "allowed": 8.0}, {"cpu": 7.19, "allowed": 8.0}),
        ("data", {"cpu": 1.0, "bound": 0.9}, {"cpu": 1.0, "bound": 0.89}),
    ],
)
def test_a_cause_begins_above_its_limit_and_goes_on_above_four_fifths_of_it(name, over, under):
    assert cause(Situation(Evidence(**over))) == name
    assert cause(Situation(Evidence(**under))) == "other"
    less = {figure: value if figure == "allowed" or value == 1.0 else 0.81 * value for figure, value in under.items()}
    assert cause(Situation(Evidence(**less))) == "other"
    assert cause(Situation(Evidence(**less), before=name)) == name
    least = {figure: value if figure == "allowed" or value == 1.0 else 0.79 * value for figure, value in under.items()}
    assert cause(Situation(Evidence(**least), before=name)) == "other"


@pytest.mark.parametrize(("cpu", "name"), [(0.049, "held"), (0.05, "other")])
def test_a_job_without_a_kernel_for_a_minute_holds_its_gpu_if_it_uses_no_cpu(cpu, name):
    assert cause(Situation(Evidence(cpu), since_kernel=60 * SECOND)) == name
    assert cause(Situation(Evidence(cpu), since_kernel=60 * SECOND - 1)) == "other"
    assert cause(Situation(since_kernel=60 * SECOND)) == "other", "its CPU is not known"


def test_a_job_starts_up_until_it_has_done_no_work_for_ten_minutes():
    assert cause(Situation(ran=False, since_work=600 * SECOND - 1)) == "startup"
    assert cause(Situation(ran=False, since_work=600 * SECOND)) == "held"


def test_loaders_that_use_four_fifths_of_the_cpus_of_a_crowded_job_are_late_and_not_held_back():
    assert cause(Situation(Evidence(6.4, 8.0, crowded=0.5))) == "data"
    assert cause(Situation(Evidence(6.3, 8.0, crowded=0.5))) == "host"
    assert cause(Situation(Evidence(8.0, 8.0, quota=0.5))) == "host"


@pytest.mark.parametrize(
    ("rates", "name"),
    [
        ({"own": 0.45, "child": 0.95}, "data"),
        ({"own": 0.55, "child": 0.95}, "other"),
        ({"own": 0.45, "child": 0.85}, "other"),
        ({"own": 0.45, "child": 0.65, "lacks": 0.3}, "data"),
        ({"own": 0.45, "child": 0.55, "lacks": 0.4}, "host"),
        ({"own": 0.15, "waits": True}, "network"),
        ({"own": 0.25, "waits": True}, "other"),
    ],
)
def test_a_process_waits_for_a_child_that_computes_or_for_data_of_a_socket(rates, name):
    machine, evidences = Machine(), Evidences()
    for n in range(2):
        evidences.take(JobFacts(round(n * TICK * SECOND), {}, processes={10: machine.process(10, **rates)}))
    assert cause(Situation(evidences.of((), (10,)))) == name


def test_kernels_wait_where_multiprocessors_are_active_and_no_unit_computes():
    active = {"gpu.sm.active": 5.0, "gpu.tensor.active": 4.9}
    assert kind_of_work(active) == "waiting"
    assert kind_of_work(active | {"gpu.tensor.active": 5.0}) == "compute"
    assert kind_of_work(active | {"gpu.sm.active": 4.9}) == "compute"
    assert kind_of_work({"gpu.sm.active": 90.0}) == "unknown"
