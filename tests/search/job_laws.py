"""Laws of jobs, judged by what an agent printed, what its socket answers, and the records that it keeps."""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from itertools import pairwise
from math import inf
from typing import Any, NamedTuple

from tests.search.machine import GPUS, PRICE, Machine

IDLE = {"stalled", "held", "lost", "unknown"}
"""The states in which no kernel runs."""
TIME, CAUSE, COST, HELD, COUNT = "job.gpu.time", "job.gpu.idle.time", "job.cost", "job.gpus", "gpu.count"
WORD = {TIME: "state", CAUSE: "cause", COST: "job", HELD: "job", COUNT: "state"}
"""Metric -> the dimension that tells its points apart, beside the job."""
BY_STATE = "gpu.energy.by_state"
OF_DEVICE = ("gpu.idle.time", "gpu.busy.time", BY_STATE)
TINY, HELD_AFTER = 1e-6, 60_000
"""Seconds that rounding may cost; ms without a kernel after which a GPU counts as held."""


class Tick(NamedTuple):
    """The values of jobs that one tick printed."""

    life: int
    at: int
    """Milliseconds since the epoch."""
    told: dict[tuple[str, str], dict[str, float]]
    """Metric and job ("" for none) -> word -> value."""

    def of(self, metric: str, job: str = "") -> dict[str, float]:
        """Return the values of a metric of a job by their words."""
        return self.told.get((metric, job), {})

    def seconds(self, job: str) -> float:
        """Return the time of a job on all its GPUs."""
        return sum(self.of(TIME, job).values())


def ticks_of(lines: Iterable[Any]) -> list[Tick]:
    """Return the ticks that were printed, without the last one of a life, of which a kill may have cut a part."""
    ticks: dict[tuple[int, int], Tick] = {}
    for line in lines:
        name, dims = line.series[0], dict(line.series[1])
        if word := WORD.get(name):
            tick = ticks.setdefault((line.life, line.at), Tick(line.life, line.at, defaultdict(Counter)))
            tick.told[name, dims.get("job", "")][dims[word]] += line.value
    last = {tick.life: tick for tick in ticks.values()}
    return [tick for tick in ticks.values() if tick is not last[tick.life]]


def agree(states: dict[str, float], causes: dict[str, float], cost: float | None) -> str:
    """Return what is wrong with the time of a job by state and by cause, and with its cost; "" if they agree."""
    idle, total = sum(states[state] for state in IDLE & states.keys()), sum(states.values())
    if causes and abs(idle - sum(causes.values())) > TINY:
        return f"{causes} of {states}"
    return f"{cost} for {total} s" if cost is not None and abs(cost - total * PRICE / 3600) > TINY else ""


def answer_is_whole(jobs: dict[str, Any]) -> str:
    """Return what is wrong with the rows of `chipwatch jobs`, if anything."""
    rows = [*jobs.get("jobs", ()), *jobs.get("ended", ())]
    return next(filter(None, (agree(row["seconds"], row["idle"], row["cost"]) for row in rows)), "")


def holders(jobs: dict[str, Any]) -> dict[str, list[str]]:
    """Return the jobs of each GPU in an answer of the socket."""
    return {device["place"]["gpu"]: device["jobs"] for device in jobs.get("devices", ())}


def judge_ticks(ticks: list[Tick], machine: Machine) -> dict[str, str]:
    """Return the laws that do not hold within a tick, and what was seen: all its points are of the same readings."""
    wrong: dict[str, str] = {}
    for tick in ticks:
        held = {job: sum(tick.of(HELD, job).values()) for metric, job in tick.told if metric == HELD}
        for job in {job for metric, job in tick.told if metric == TIME}:
            cost = next(iter(tick.of(COST, job).values()), None)
            if text := agree(tick.of(TIME, job), tick.of(CAUSE, job), cost):
                wrong["jobs: time, causes and cost of a job agree"] = f"{job}: {text}"
        for job, gpus in held.items():
            if gpus > machine.gpus_of(job) + TINY:
                wrong["jobs: a job holds no GPU of another"] = f"{job}: {gpus} at {tick.at}"
        if tick.of(COUNT).get("free", 0.0) + sum(held.values()) > GPUS + TINY:
            wrong["jobs: a GPU that is held is not free"] = f"{held}, {tick.of(COUNT)} at {tick.at}"
    return wrong


def judge_time(ticks: list[Tick], machine: Machine, born: dict[int, int], died: dict[int, float]) -> dict[str, str]:
    """
    Return the same of jobs that stayed on their GPUs, over all lives; these began to print, and were over, then (ms).

    A reading is made between the tick before it and the tick after it. So for one constant, the time of a job is at
    least what had passed on its GPUs at the tick before, and at most what had passed at the tick after.
    """
    slack, wrong = 250 * (1 + os.getloadavg()[0] / 4), dict[str, str]()
    for job, gpus in ((str(pid), machine.gpus_of(str(pid))) for pid in machine.stayed):
        least, most, gone, last, told = -inf, inf, 0.0, None, [tick for tick in ticks if tick.of(HELD, job)]
        for before, now, after in zip(told, told[1:], told[2:], strict=False):
            spent = 1000 * now.seconds(job) / gpus
            if before.life == now.life == after.life and now.seconds(job) > before.seconds(job):
                least, most = max(least, spent - after.at), min(most, spent - before.at)
                if last is not None and last < now.life:
                    ended = max(died[life] for life in died if life < now.life)
                    gone += max(0.0, born[now.life] - ended - slack)
                last = now.life
                if now.of(TIME, job)["unseen"] < gpus * gone / 1000 - TINY:
                    wrong["jobs: time in which no agent ran is unseen"] = f"{job}: {now.of(TIME, job)} of {gone} ms"
        if least > most + slack:
            wrong["jobs: the time of a job that stays is what passed"] = f"{job}: {least - most:.0f} ms a GPU"
        if early := [tick for tick in told if tick.of(TIME, job)["held"] and tick.at < told[0].at + HELD_AFTER]:
            wrong["jobs: a GPU counts as held a minute after its last kernel"] = f"{early[0]}"
        for before, now in pairwise(told if gpus == 1 else ()):
            starts = now.of(CAUSE, job).get("startup", 0.0) - before.of(CAUSE, job).get("startup", 0.0)
            if before.life == now.life and starts > 0 and before.of(TIME, job)["busy"]:
                wrong["jobs: a job that has run a kernel is not starting"] = f"{job}: {now}"
    return wrong


def judge_devices(lines: Iterable[Any], machine: Machine, died: dict[int, float]) -> dict[str, str]:
    """
    Return the same of GPUs in each life; the driver's counters do not begin again while nothing happens.

    Where a reading is late, its energy is estimated by the power, and may be too much.
    """
    spent, wrong = defaultdict[tuple[int, str], Counter[Any]](Counter), dict[str, str]()
    began, energy = dict[int, int](), defaultdict[Any, list[float]](list)
    for line in lines:
        dims = dict(line.series[1])
        key = line.life, dims.get("gpu", "")
        began.setdefault(line.life, line.at)
        if line.series[0] in OF_DEVICE:
            spent[key][line.series] = line.value
        elif line.series[0] == "gpu.energy":
            energy[key].append(line.value)
        if dims.get("state") == "free" and line.value and key[1] in machine.kept:
            wrong["jobs: a GPU that is held is not free"] = f"{line}"
    for key, values in spent.items():
        times = sum(value for (name, _), value in values.items() if name != BY_STATE)
        if times > (most := (died[key[0]] - began[key[0]]) / 1000):
            wrong["jobs: a GPU is busy and idle no longer than it was there"] = f"{key}: {times} of {most} s"
        used, rise = sum(values.values()) - times, energy[key]
        if rise and not machine.happened and used > (most := 1.5 * (max(rise) - rise[0]) + 100):
            wrong["jobs: energy by state is no more than was used"] = f"{key}: {used} of {most} J"
    return wrong


def judge_records(rows: list[dict[str, Any]], ticks: list[Tick], machine: Machine) -> dict[str, str]:
    """Return the laws of records of jobs that do not hold; a kill may write a record twice."""
    wrong: dict[str, str] = {}
    for pid, stretches in machine.held.items():
        told = [row for row in rows if row["job"] == str(pid)]
        ends = {row["until"] for row in told}
        least = max((tick.seconds(str(pid)) for tick in ticks), default=0.0)
        most = sum(end < inf for _, end in stretches)
        if len(ends) > most or (most == len(stretches) and least and not ends):
            wrong["jobs: a job leaves one record of its end"] = f"{pid}: {sorted(ends)} of {most}"
        if told and len(stretches) == 1 and sum(told[-1]["seconds"].values()) < least - 0.01:
            wrong["jobs: a record has all that was charged"] = f"{told[-1]} of {least} s"
    return wrong


def read_records(texts: Iterable[str]) -> list[dict[str, Any]]:
    """Return the records of files; a line that a kill cut is none."""
    rows = []
    for line in (line for text in texts for line in text.splitlines()):
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows
