"""
Draws from a seed a configuration, and lives with what happens in each: to servers, the disk, the clock and the machine.

Each part has its own dice, so that a part can be left out and the others stay: that is how a failing plan is shrunk.
A plan is written as its seed and the parts that are left out, such as `4711 - 0 2.3 1.end`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import NamedTuple

from tests.search.life import FULL, POINTS, Kill
from tests.search.machine import HAPPENS

ENDS = ("kill", "kill", "point", "point", "point", "request", "stop", "hang up", "interrupt")
"""Ends of a life: killed from outside, at a point of its code, or by a server that has its request; or in order."""
JUMPS = (1, -3, 3600, -3600, 20 * 86_400)
"""Seconds by which the clock is wrong."""
NAMESPACES = ("Chipwatch", "Trial")


class Event(NamedTuple):
    """Something that happens at a time of a life (s after its first point)."""

    at: float
    what: str
    of: str
    value: object


@dataclass(frozen=True)
class LifePlan:
    """One life."""

    seconds: float
    end: str
    kill: Kill | None = None
    events: tuple[Event, ...] = ()
    namespace: str = NAMESPACES[0]


@dataclass(frozen=True)
class Plan:
    """A seed, what it draws, and what is left out of it."""

    seed: int
    sinks: tuple[str, ...]
    options: dict[str, object]
    paced: bool
    """The wall clock is some time ago and goes faster, for a service that takes a point of a series each ten seconds."""
    lives: tuple[LifePlan, ...]
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the line of tests/search/seeds.txt."""
        return " ".join([str(self.seed), *(("-", *self.without) if self.without else ())])

    def parts(self) -> Iterator[str]:
        """Yield the names of what can be left out, the largest first."""
        for kind in ("life", "end", "event"):
            for n, life in enumerate(self.lives):
                if kind == "life" and len(self.lives) > 1 and life.seconds:
                    yield f"{n}"
                elif kind == "end" and life.end != "stop" and life.seconds:
                    yield f"{n}.end"
                elif kind == "event":
                    yield from (f"{n}.{at}" for at, event in enumerate(life.events) if event.what)


def plan_of(line: str) -> Plan:
    """Return the plan that a line of seeds.txt names."""
    seed, _, without = line.partition(" - ")
    plan = drawn(int(seed))
    for part in without.split():
        plan = left_out(plan, part)
    return plan


def left_out(plan: Plan, part: str) -> Plan:
    """Return a plan without one of its parts; the numbers of the others stay."""
    n, _, of = part.partition(".")
    lives = [*plan.lives]
    life = lives[int(n)]
    if not of:
        life = LifePlan(0.0, "stop")
    elif of == "end":
        life = replace(life, end="stop", kill=None)
    else:
        events = [*life.events]
        events[int(of)] = Event(0.0, "", "", None)
        life = replace(life, events=tuple(events))
    lives[int(n)] = life
    return replace(plan, lives=tuple(lives), without=(*plan.without, part))


def drawn(seed: int) -> Plan:
    """Return the plan of a seed."""
    dice = Random(f"configuration {seed}")
    paced = dice.random() < 0.2
    others = ["google"] if paced else dice.sample(["cloudwatch", "otlp", "prometheus"], dice.randint(1, 3))
    options: dict[str, object] = {
        "interval": 0.1 if paced else dice.choice([0.1, 0.2, 0.3]),
        "level": dice.choice(["basic", "detailed", "all", "all"]),
        "window": 20 if paced else dice.choice([0, 0, 0, 0.6]),
        "recorder": dice.random() < 0.7,
        "processors": dice.random() < 0.8,
        "spool_bytes": dice.choice([1 << 16, 1 << 18, 128 << 20, 128 << 20]),
        "temporality": dice.choice(["cumulative", "cumulative", "delta"]),
        "record": dice.random() < 0.3,
        "batch": dice.choice([50, 400, 1000]),
    }
    several = not paced and dice.random() < 0.2
    lives = tuple(
        _life(Random(f"life {n} {seed}"), others, several=several, record=bool(options["record"]))
        for n in range(dice.randint(2, 4))
    )
    return Plan(seed, ("stdout", *others), options, paced, lives)


def _life(dice: Random, sinks: list[str], *, several: bool, record: bool) -> LifePlan:
    seconds, end = round(dice.uniform(0.3, 2.5), 1) if dice.random() < 0.97 else 12.0, dice.choice(ENDS)
    kill = None
    if end == "point":
        points = [point for point in POINTS if record or "recording" not in point]
        point = POINTS[0] if dice.random() < 0.3 else dice.choice(points)
        often = 40 if point in {"commit spool", "write ring"} else 3
        whens = ["before", "after", "in"][: 3 if "write" in point else 2]
        kill = Kill(point, dice.randint(1, often), dice.choice(whens))
    events = []
    for sink in sinks:
        events.append(Event(0.0, "well", sink, dice.choice([0.0, 0.3, 0.7, 1.0])))
        if dice.random() < 0.5:
            events.append(Event(_time(dice, seconds), "well", sink, dice.choice([0.0, 0.5, 1.0])))
    many = dice.choice([0, 1, 2, 4])
    events += [Event(_time(dice, seconds), "machine", dice.choice(HAPPENS), dice.randrange(100)) for _ in range(many)]
    if dice.random() < 0.3:
        at = dice.choice([0.0, _time(dice, seconds)])
        events.append(Event(at, "disk", dice.choice([*FULL]), None))
        if dice.random() < 0.5:
            events.append(Event(_time(dice, seconds), "disk", "", None))
    if dice.random() < 0.15:
        events.append(Event(_time(dice, seconds), "clock", "", dice.choice(JUMPS)))
    if dice.random() < 0.2:
        events.append(Event(_time(dice, seconds), "level", dice.choice(["basic", "detailed", "all"]), None))
    if dice.random() < 0.4:
        events.append(Event(_time(dice, seconds), "status", "", None))
    return LifePlan(seconds, end, kill, tuple(events), dice.choice(NAMESPACES) if several else NAMESPACES[0])


def _time(dice: Random, seconds: float) -> float:
    return round(dice.uniform(0.0, seconds), 1)
