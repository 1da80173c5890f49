"""Why a GPU is idle, in recorded situations."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

import pytest
from tests.agent.processors.jobs.machine import TICK, Machine, job

from chipwatch.contract.owner import Allocation

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
