"""The table of conditions that make a machine degraded or not fit, or begin an incident; and their evaluation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from chipwatch.contract import rules
from chipwatch.jobs.verdict.callers import NOT_FIT

HOUR: Final = 3600.0
FEW: Final = 10
"""Events that are too few to compute a rate from."""


class Seen(NamedTuple):
    """The last value of a series, and its recent increase."""

    metric: str
    dims: Mapping[str, str]
    value: float
    rose: float | None = None
    """Increase of a counter in the last hour; None if nobody watched it."""
    last: int | None = None
    """Time of its last increase (ns since the epoch); None if unknown."""
    text: str = ""
    """Evidence in words, such as a message of the kernel."""
    seconds: float = HOUR
    """Seconds that `rose` covers: an hour, or the time between two readings."""


class Reason(NamedTuple):
    """A fault: what has it, how severe it is, the fault in words, what to do, and the series that shows it."""

    about: str
    severity: str
    says: str
    do: str
    shown_by: Seen | None = None


class Rule(NamedTuple):
    """
    A condition on a metric: a gauge is compared by its last value, a counter by its increase in the last hour.

    If the increase covers less than an hour, the limit shrinks in proportion, but not below FEW.
    `only`: the values that a dimension may have; series with others are not compared.
    `about`, `says`, `do`: templates, filled with the dimensions and `value`.
    `instead`: a metric; if it gives a reason of the same severity about the same thing, this rule gives none.
    `alone`: the severity if no rule of another area is about the same thing, for a signal that is sometimes wrong.
    `severity`: "" if the rule counts for no verdict. `incident`: the cause of the incident that it begins, or "".
    """

    area: str
    metric: str
    severity: str
    about: str
    says: str
    do: str = ""
    only: Mapping[str, Sequence[str]] = {}
    limit: float = 0.0
    below: bool = False
    instead: str = ""
    alone: str = ""
    gauge: bool = False
    incident: str = ""

    def knows(self, seen: Seen) -> bool:
        """Return True if the rule is about this series."""
        return seen.metric == self.metric and all(seen.dims.get(key) in words for key, words in self.only.items())

    def reason(self, seen: Seen) -> Reason | None:
        """Return the fault of a series; None if the condition is not met."""
        if not self.knows(seen):
            return None
        value = seen.value if self.gauge else seen.rose
        if value is None:  # nobody watched, but a message of the kernel has its time
            value = 1.0 if seen.last else 0.0
        limit = self.limit if self.gauge else max(self.limit * seen.seconds / HOUR, min(self.limit, FEW))
        if not (value < limit if self.below else value > limit):
            return None
        words = defaultdict[str, Any](lambda: "?", seen.dims, value=value)
        about, says, do = (text.format_map(words) for text in (self.about, self.says, self.do))
        return Reason(about, self.severity, says, do, seen)


LOGGED: Final = frozenset({"gpu.recovery_action", "gpu.state", "gpu.xid"})
"""
Metrics whose faults are logged.

https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html has the recoveries.
"""
GPU, RDMA, KERNEL, NVME, NEURON = "GPUs", "RDMA ports", "kernel log", "NVMe drives", "Neuron devices"


def _rule(signal: Mapping[str, Any], only: Mapping[str, Sequence[str]], severity: str, *words: Any) -> Rule:
    """Return the rule of a row of the table, with what its signal says and what differs."""
    says, do, *more = words
    incident = {"incident": "not-fit"} if severity == NOT_FIT and not any("alone" in each for each in more) else {}
    row = {**incident, **signal, **dict(*more), "only": only, "severity": severity, "says": says}
    row["do"] = rules.RULES["do"].get(do, do)
    return Rule(**{name: row[name] for name in Rule._fields if name in row})


TABLE: Final = tuple(_rule(one, *row) for one in rules.RULES["signals"] for row in one.get("verdict", ()))
RULES: Final = tuple(rule for rule in TABLE if rule.severity)
"""
All rules of the table (TABLE), and those that count for a verdict (RULES).

Severities and hourly limits follow the health watches of DCGM 4.6: its failure is not fit, its warning degraded.
A GPU without any NVLink is only degraded, because some machines have no NVLink bridge.
"""
BY_METRIC: Final[Mapping[str, list[tuple[int, Rule]]]] = {
    rule.metric: [(place, other) for place, other in enumerate(TABLE) if other.metric == rule.metric] for rule in TABLE
}
"""Metric -> its rules, each with its index in TABLE."""
SIGNS: Final = frozenset({rule.metric for rule in TABLE if rule.incident})
"""Metrics that may begin an incident."""
FAULTS: Final = {word: rule.area for rule in RULES if rule.metric == "gpu.fault" for word in rule.only["fault"]}
"""Fault that RULES look at -> its area."""
LINK_DOWN: Final = "nvlink_down"
"""The fault whose state every GPU with NVLinks reports."""
COUNTED: Final = {GPU: ("gpu",), RDMA: ("device", "port"), NVME: ("device",), NEURON: ("neuron_device",)}
"""Area whose members are counted -> dimensions that identify a member."""


def found(series: Iterable[Seen]) -> list[tuple[int, Reason]]:
    """Return the rules that apply, by their index in TABLE, in its order; for each series, the first one counts."""
    by_place: list[tuple[int, Reason]] = []
    given = set()
    for item in series:
        for place, rule in BY_METRIC.get(item.metric, ()):
            if reason := rule.reason(item):
                by_place.append((place, reason))
                given.add((rule.metric, *reason[:2]))
                break
    by_place.sort(key=lambda pair: pair[0])
    return [(place, reason) for place, reason in by_place if (TABLE[place].instead, *reason[:2]) not in given]


def reasons(series: Iterable[Seen]) -> list[Reason]:
    """Return the faults that count for a verdict, in the order of the table."""
    by_place = [(place, reason) for place, reason in found(series) if reason.severity]
    signs = Counter(about for about, _ in {(reason.about, TABLE[place].area) for place, reason in by_place})
    return [
        reason._replace(severity=(signs[reason.about] < 2 and TABLE[place].alone) or reason.severity)
        for place, reason in by_place
    ]


def unreported_faults(series: Iterable[Seen]) -> Iterator[tuple[str, str]]:
    """Yield a pair for each group of working GPUs whose driver does not report all faults: the GPUs, the faults."""
    reported: dict[str, set[str]] = {}
    works = set()
    for item in series:
        gpu = item.dims.get("gpu", "")
        if item.metric == "gpu.fault":
            reported.setdefault(item.dims["fault"], set()).add(gpu)
        elif item.metric == "gpu.state" and item.value:
            works.add(gpu)
    missing: dict[tuple[str, ...], list[str]] = {}
    linked = reported.get(LINK_DOWN, set())
    for fault, area in FAULTS.items():
        asked = works & linked if "NVLink" in area else works
        if gpus := tuple(sorted(asked - reported.get(fault, set()))):
            missing.setdefault(gpus, []).append(fault.replace("_", " "))
    for gpus, faults in missing.items():
        about = "GPUs" if len(gpus) == len(works) else f"gpu {', '.join(gpus)}"
        yield about, f"not told by the driver: {', '.join(faults)}"


def fine(
    series: Iterable[Seen], wrong: Iterable[Reason], read: Iterable[str], *, all_answer: bool = True
) -> Iterator[str]:
    """
    Yield each area without a fault, with the number of its members; `read`: areas that were read and have no series.

    If not all GPUs answer, only the number of working GPUs is stated for them.
    """
    areas: dict[str, set[Any]] = {area: set() for area in read}
    bad = {id(reason.shown_by) for reason in wrong}
    ill: dict[str, set[Any]] = {}
    for item in series:
        for area in {rule.area for _, rule in BY_METRIC.get(item.metric, ()) if rule.severity and rule.knows(item)}:
            member = tuple(item.dims.get(key) for key in COUNTED.get(area, ()))
            areas.setdefault(area, set()).add(member)
            if id(item) in bad:
                ill.setdefault(area, set()).add(member)
                ill.setdefault(GPU, set()).add((item.dims.get("gpu"),))
            elif not all_answer and "gpu" in item.dims:
                ill.setdefault(area, set())
    order = list(dict.fromkeys(rule.area for rule in RULES))
    for area, members in sorted(areas.items(), key=lambda pair: order.index(pair[0])):
        left = len(members - ill.get(area, set()))
        if area not in COUNTED and area not in ill:
            yield area
        elif area in COUNTED and left:
            yield f"{left} {area if left > 1 else area.removesuffix('s')}"
