"""Why a job is slow, in recorded situations: which cause is named, and that no wrong one is."""

import itertools
import logging
import re
import tomllib
from collections import Counter
from pathlib import Path

import pytest
from tests.agent.jobs.machine import SECOND, START, Machine, job

from chipwatch.contract.owner import Allocation, JobCollectives, Rank
from chipwatch.contract.rules import RULES
from chipwatch.jobs.answers import JUDGED
from chipwatch.jobs.reasons import FIGURES, Figures, loss_of, reasons
from chipwatch.jobs.recent import lowest, of_ranks

JOB_RULES = [{**rule, "do": RULES["do"].get(rule["do"], rule["do"])} for rule in RULES["why"]]
SITUATIONS = tomllib.loads((Path(__file__).parent / "reasons.toml").read_text())["situation"]
GPUS, TICK, MINUTES = 8, 5.0, 5
JOB = job(41337, user="ada")
LAUNCHED = itertools.count(10**6)


def each(value):
    return [*value] if isinstance(value, list) else [value] * GPUS


def ranks_of(numbers):
    return [Rank(number, "172.16.64.2", 400_000 + number, number % 8) for number in numbers or ()]


def dims_of_rate(name):
    """Return the dimensions of a rate; a direction may follow the metric's name."""
    if name.startswith("job."):
        return {"job": "41337"}
    direction = name.partition(" ")[2]
    port = {"device": "mlx5_3", "port": "1"} if name.startswith("rdma") else {}
    return {**port, "direction": direction} if direction else port


def play(told, minutes=MINUTES):
    """Play a situation; return its machine and the answer on the job."""
    machine = Machine(interval=TICK, dollars_per_hour=2.5)
    pids = {} if told.get("none") else {100 + n: JOB for n in range(GPUS)}
    listed = [(str(n), 100 + n, 10**9) for n in range(GPUS) if pids]
    given = [Allocation(str(n), JOB, "mapping") for n in range(GPUS)] if told.get("none") else []
    reports = ()
    if "ranks" in told:
        lists = [ranks_of(told.get(name)) for name in ("behind", "missing", "failed")]
        behind, missing, failed = lists
        reports = [
            JobCollectives(JOB, told["ranks"], 100.0, behind, len(behind), "AllReduce 6649 of 6650", missing,
                           len(missing), 0, failed)
        ]  # fmt: skip
    names = {"clock": "gpu.clock.sm", "temperature": "gpu.temperature", "sm": "gpu.sm.active",
             "tensor": "gpu.tensor.active", "power": "gpu.power"}  # fmt: skip
    totals = Counter()

    def tick(active, told=told):
        totals.update({name: rate * TICK for name, rate in told.get("rates", {}).items()})
        totals.update({name: told.get(name, 0) * TICK for name in ("own_read", "own_written")})
        totals.update({("delay", n): 0.6 * TICK for n in told.get("waits_for_cpu", ())})
        points = [(str(n), name, value) for key, name in names.items() if key in told
                  for n, value in enumerate(each(told[key]))]  # fmt: skip
        if "ranks" in told:
            totals["job.collectives"] += told.get("collectives", 5) * TICK
        host = [(name.partition(" ")[0], dims_of_rate(name), total)
                for name, total in totals.items() if isinstance(name, str) and "." in name]  # fmt: skip
        host += [(name, {"gpu": gpu}, rate * (machine.at - START) / SECOND)
                 for name, rates in told.get("by_gpu", {}).items() for gpu, rate in rates.items()]  # fmt: skip
        host.append(("job.collectives", {"job": "41338"}, (machine.at - START) / SECOND))
        host += [(name, {"source": "10.0.0.9:/data"}, value) for name, value in told.get("gauges", {}).items()]
        activity = {
            str(n): {"active": share, "throttled": throttled, "lost": told.get("lost") == n}
            for n, (share, throttled) in enumerate(zip(each(active), each(told.get("throttled", 0.0)), strict=True))
        }
        machine.tick(
            listed, activity, owners=pids, allocations=given, points=points, host=host, collectives=reports,
            uses=[machine.use(JOB, **{"cpu": 8.0, "cores": 96, **told})],
            used={pid: machine.process(pid, **{"own": 1.0, **told}) for pid in pids},
            stopped=[100 + n for n in told.get("stopped", ())],
            blocked=[100 + n for n in told.get("waits_for_file", ())],
            transfers={100: (totals["own_read"], totals["own_written"])} if "own_written" in told else {},
            delays={100 + n: totals["delay", n] for n in range(GPUS)},
        )  # fmt: skip

    if told.get("never"):
        machine.tick([], {str(n): {"active": 0.0} for n in range(GPUS)})
    else:
        tick(0.0 if told.get("none") else 1.0)
    for step in range(int(60 * minutes / TICK)):
        if step % told.get("burst", 1):
            tick(1.0, {**told, "io": 0.0, "own_read": 0, "own_written": 0})
        else:
            tick(told["active"])
    (row,) = machine.processor.answer()["jobs"]
    return machine, row["why"]


@pytest.mark.parametrize("told", SITUATIONS, ids=[told["name"] for told in SITUATIONS])
def test_a_recorded_situation_has_its_causes(told):
    _, why = play(told)
    assert [cause["cause"] for cause in why["causes"]] == told["causes"], why
    if not told["causes"]:
        assert why["sentence"].startswith(told["answer"])
    for cause in why["causes"]:
        assert cause["evidence"]
        shares = re.findall(r"([\d.]+) %", " ".join(cause["evidence"]))
        assert all(0 < float(share) <= 100 for share in shares), cause
        assert "{" not in cause["says"]


@pytest.mark.parametrize("cause", sorted({rule["cause"] for rule in JOB_RULES}))
def test_each_cause_has_a_situation(cause):
    assert len(SITUATIONS) >= 20
    assert any(cause in told["causes"] for told in SITUATIONS)


def named(rule, numbers):
    """Return whether a rule names its cause, by as many figures as it has."""
    numbers = {loss_of(rule): 1.0, **numbers}
    causes = reasons(Figures(numbers, {}, 300, 8, 8)).causes
    shown = len(rule["when"])
    return any((each.cause, each.do, len(each.evidence)) == (rule["cause"], rule["do"], shown) for each in causes)


@pytest.mark.parametrize("rule", JOB_RULES, ids=[f"{rule['cause']}: {rule['when']}" for rule in JOB_RULES])
def test_each_rule_holds_at_its_limits_and_not_below_one_of_them(rule):
    limits = {name: FIGURES[name][0] for name in rule["when"]}
    assert named(rule, limits)
    for name, least in limits.items():
        assert not named(rule, {**limits, name: least * 0.99})


def rows():
    """Return the lines of the table in docs/why.md."""
    for rule in JOB_RULES:
        when = ", ".join(f"`{name}` >= {FIGURES[name][0]:g}" for name in rule["when"])
        unless = "".join(f", `{name}` < {FIGURES[name][0]:g}" for name in rule.get("unless", ()))
        sources = dict.fromkeys(FIGURES[name][2] for name in rule["when"])
        loss = "all GPUs of the job" if loss_of(rule) == "all" else f"`{loss_of(rule)}`"
        words = re.sub(r"{[\w.]+}", "...", rule["says"])
        yield f"| {rule['cause']} | {words} | {when}{unless} | {'; '.join(sources)} | {loss} |"


def test_the_page_lists_each_rule():
    page = Path("docs/why.md").read_text().splitlines()
    assert [row for row in rows() if row not in page] == []


def test_a_stopped_process_is_named_at_once_and_shares_after_a_minute():
    starved = {"active": 0.3, "cpu": 3.0, "cores": 96, "io": 0.6, "ranks": 8}
    assert "it was read for" in play(starved, minutes=0.5)[1]["sentence"]
    assert [cause["cause"] for cause in play({**starved, "stopped": [3]}, minutes=0.5)[1]["causes"]] == ["stopped"]
    assert [cause["cause"] for cause in play(starved, minutes=1.2)[1]["causes"]] == ["files"]


def test_a_stopped_process_stays_named_while_the_list_of_processes_is_late_for_a_minute():
    machine = Machine(interval=TICK)
    owners = {100 + n: JOB for n in range(2)}

    def tick(stopped=(101,)):
        busy = {"active": 1.0}
        machine.tick([("0", 100), ("1", 101)], {"0": busy, "1": busy}, owners=owners, stopped=stopped)

    def causes():
        (row,) = machine.processor.answer()["jobs"]
        return [(cause["cause"], cause["says"]) for cause in row["why"]["causes"]]

    for _ in range(4):
        tick()
    said = [("stopped", "process 101 on gpu 1 is stopped")]
    assert causes() == said
    for n in range(1, 17):  # the driver is late
        machine.at, machine.moment = machine.at + 5 * SECOND, machine.moment + 5 * SECOND
        jobs = machine.facts[-1]
        machine.facts = [jobs._replace(moment=machine.moment)]
        [*machine.processor.derive([], machine.at, machine.facts)]
        assert n > 12 or causes() == said
    assert causes() == []
    for _ in range(3):
        tick()
    assert causes() == said
    tick(stopped=())
    assert causes() == []


@pytest.mark.parametrize(("ranks", "rest"), [(3, ""), (5, " and 2 more")])
def test_ranks_beyond_three_are_a_number(ranks, rest):
    report = JobCollectives(JOB, 64, 100.0, ranks_of(range(ranks)), ranks)
    words = {figure.name: figure.word for figure in of_ranks([report])}
    assert words["ranks.behind"].endswith(f", rank 2 (172.16.64.2 gpu 2, process 400002){rest}")


def test_what_a_cause_costs_counts_all_ranks_only_where_all_wait():
    (cause,) = play({"active": 1.0, "ranks": 64, "behind": [21]})[1]["causes"]
    assert cause["lost"] == 64
    (cause,) = play({"active": 0.4, "ranks": 64, "io": 0.6, "cpu": 3.0, "cores": 96})[1]["causes"]
    assert cause["lost"] == pytest.approx(0.6 * GPUS, rel=0.05)


def test_an_hour_of_ordinary_noise_names_nobody():
    machine = Machine(interval=TICK)
    pids = {100 + n: JOB for n in range(GPUS)}
    report = JobCollectives(JOB, 8, 1.0)
    for step in range(int(3600 / TICK)):
        wobble = [1980 - (step * 7 + n * 13) % 60 for n in range(GPUS)]
        wobble[step % GPUS] -= 500 * (step % 9 == 0)  # one low sample, now of this one, now of that one
        machine.tick(
            [(str(n), 100 + n, 1) for n in range(GPUS)],
            {str(n): {"active": 0.96 + (step + n) % 4 / 100, "throttled": 0.02 * (step % 5 == n)} for n in range(GPUS)},
            owners=pids, uses=[machine.use(JOB, cpu=9.0, cores=96, io=0.02)], collectives=[report],
            points=[(str(n), "gpu.clock.sm", clock) for n, clock in enumerate(wobble)]
            + [(str(n), "gpu.power", clock / 3) for n, clock in enumerate(wobble)],
            blocked=[100 + step % GPUS], delays={100 + n: step * (0.5 + n % 3 / 10) for n in range(GPUS)},
        )  # fmt: skip
        if step % 60 == 59:
            (row,) = machine.processor.answer()["jobs"]
            assert row["why"]["causes"] == [], (step, row["why"])


@pytest.mark.parametrize("phase", ["never", "none"])
def test_what_has_ended_is_not_named_any_more(phase):
    machine, why = play({"active": 0.0, phase: True, "cpu": 8.0, "cores": 96, "ranks": 8}, minutes=2)
    assert [cause["cause"] for cause in why["causes"]] == [{"never": "startup", "none": "ended"}[phase]]
    said = []
    for _ in range(24):
        machine.tick(
            [(str(n), 100 + n, 1) for n in range(GPUS)], {str(n): {"active": 0.99} for n in range(GPUS)},
            owners={100 + n: JOB for n in range(GPUS)}, uses=[machine.use(JOB, cpu=9.0, cores=96)],
            collectives=[JobCollectives(JOB, 8, 1.0)],
            host=[("job.collectives", {"job": "41337"}, float(next(LAUNCHED)))],
        )  # fmt: skip
        said.append(machine.processor.answer()["jobs"][0]["why"]["sentence"])
    assert said[-1] == "nothing slows it; clocks are not compared: --level detailed"
    assert not any("no reading" in sentence for sentence in said)
    assert "it was read for" in said[6]


@pytest.mark.parametrize(("gpus", "rest"), [(3, ""), (4, "; clocks are not compared: --level detailed")])
def test_clocks_are_asked_for_where_there_are_peers(gpus, rest):
    assert reasons(Figures({"share.waiting": 0.0}, {}, 300, gpus)).sentence == f"nothing slows it{rest}"


def test_after_a_pause_of_the_machine_figures_are_of_the_last_minutes():
    machine, why = play({"active": 0.3, "cpu": 3.0, "cores": 96, "io": 0.6, "ranks": 8})
    assert why["causes"]
    pids = {100 + n: JOB for n in range(GPUS)}
    for step in range(14):
        machine.tick(
            [(str(n), 100 + n, 1) for n in range(GPUS)], {str(n): {"active": 0.99} for n in range(GPUS)}, owners=pids,
            uses=[machine.use(JOB, cpu=9.0, cores=96)], collectives=[JobCollectives(JOB, 8, 1.0)],
            host=[("job.collectives", {"job": "41337"}, float(next(LAUNCHED)))],
            seconds=3600 if not step else TICK,
        )  # fmt: skip
    (row,) = machine.processor.answer()["jobs"]
    assert row["why"]["causes"] == []


def test_many_jobs_are_judged_in_turns(monkeypatch):
    machine, judged = Machine(), []
    answers, why = machine.processor._answers, machine.processor._answers.why
    monkeypatch.setattr(answers, "why", lambda key: judged.append(key[-1]) or why(key))
    for _ in range(5):
        owners = {100 + n: job(n) for n in range(JUDGED + 4)}
        busy = {n: {"active": 1.0} for n in range(len(owners))}
        machine.tick([(pid - 100, pid) for pid in owners], busy, owners=owners, seconds=10)
    assert Counter(judged) == dict.fromkeys(map(str, range(JUDGED + 4)), 4)
    assert len({*judged[:JUDGED]}) == JUDGED


def test_a_change_of_cause_is_logged_once(caplog):
    caplog.set_level(logging.INFO)
    play({"active": 0.3, "cpu": 3.0, "cores": 96, "io": 0.6, "ranks": 8})
    lines = [record.getMessage() for record in caplog.records if record.getMessage().startswith("job ")]
    assert lines == ["job 41337: its GPUs wait for files"]


@pytest.mark.parametrize(
    ("clocks", "slow"),
    [
        ([1980] * 7 + [1400], 7),
        ([1980] * 3 + [1400], 3),
        ([1980, 1980, 1400], None),  # fewer than four
        ([1980, 1800, 1600, 1400, 1200, 1000], None),  # all differ
        ([1980] * 7 + [1950], None),
        ([1400] * 4 + [1980] * 4, None),
        ([], None),
    ],
)  # fmt: skip
def test_a_device_is_slow_only_far_from_at_least_three_others(clocks, slow):
    place = lowest({(("gpu", str(n)),): clock for n, clock in enumerate(clocks)}, 0.05)
    assert place == (None if slow is None else (("gpu", str(slow)),))
