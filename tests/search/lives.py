"""Searches lives that break a property, makes the plan of each small, and tells what no life has reached."""

import sys

from tests.search.answers import KINDS
from tests.search.figures import Figures
from tests.search.life import FULL, POINTS
from tests.search.machine import HAPPENS
from tests.search.plan import Plan, drawn, left_out
from tests.search.run import run as live

SHRINK = 12
"""Most runs that make one failing plan small."""
SOMETIMES = (
    *(f"reached {point}" for point in POINTS), *(f"killed at {point}" for point in POINTS), *HAPPENS,
    *(f"a disk that is {word}" for word in FULL), *(f"cloudwatch: {kind}" for kind in KINDS),
    *(f"otlp: {fault}" for fault in ("429", "500", "503", "400", "404", "reset", "lost", "half")),
    "request taken, agent killed", "SIGHUP with another level", "a life ends in order", "a spool owes points at an end",
    "a page is scraped", "the socket answers", "a job is charged", "a job leaves a record", "an incident is sealed", "a run is recorded",
    "incident: killed", "incident: xid", "incident: gpu-lost", "a line of output is cut by a kill", "dropped:spool full",
    "a recording is refused at the start", "a stop says what is lost", "a long life", "points for another destination",
)  # fmt: skip
"""All that a search must reach, or it proves less than it seems to."""


def run(figures: Figures) -> None:
    """Live until that is done or the time is over."""
    for dice in figures.trials():
        plan = drawn(dice.randrange(10**9))
        seen = live(plan)
        figures.counts.update(seen.sometimes)
        again = live(plan).failures if seen.failures else {}  # what a busy machine did is not believed
        for law, text in seen.failures.items():
            sys.stderr.write(f"{plan}: {'twice' if law in again else 'once'}: {law}: {text}\n")
            if law in again:
                figures.fail(f"{law}: {text}\n    a line for seeds.txt: {smaller(plan, law)}  # {law}")


def smaller(plan: Plan, law: str) -> Plan:
    """Return a plan with less in it that still breaks a property, as far as a few runs can tell."""
    runs = 0
    for part in [*plan.parts()]:
        if part.partition(".")[0] not in plan.without and runs < SHRINK:
            runs += 1
            less = left_out(plan, part)
            if law in live(less).failures:
                plan = less
    return plan
