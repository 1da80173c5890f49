"""The table of conditions that make a machine degraded or not fit, or begin an incident, and what applies it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from chipwatch.jobs.verdict.callers import NOT_FIT

HOUR: Final = 3600.0
FEW: Final = 10
"""Events that do not make a rate."""


class Seen(NamedTuple):
    """The last value of a series, and its rise."""

    metric: str
    dims: Mapping[str, str]
    value: float
    rose: float | None = None
    """Rise of a counter in the last hour; None: nobody watched."""
    last: int | None = None
    """Time of its last rise (ns since the epoch)."""
    text: str = ""
    """Evidence, such as a message of the kernel."""
    seconds: float = HOUR
    """Time of the rise: an hour, or the time between two readings."""


class Reason(NamedTuple):
    """A fault: the thing, the severity, the fault in words, what to do, and the series that shows it."""

    about: str
    severity: str
    says: str
    do: str
    shown_by: Seen | None = None


class Rule(NamedTuple):
    """
    A condition on a metric. A gauge is compared as it is now, a counter by its rise in the last hour.

    Where only two readings were taken, the limit is that of their time, and at least FEW.

    `about`, `says` and `do` are templates of the dimensions, and of `value`; `only`: the words that a dimension
    may have. A reason of the metric `instead`, as severe and about the same thing, replaces this one. The severity is
    `alone` where no reason of another area is about the same thing: one signal that is known to be wrong at times.
    Without a severity it is of no verdict. `incident`: the cause of the incident that begins with it, "" for none.
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
        """Return whether the rule is about this series."""
        return seen.metric == self.metric and all(seen.dims.get(key) in words for key, words in self.only.items())

    def reason(self, seen: Seen) -> Reason | None:
        """Return what is wrong with a series, or None."""
        if not self.knows(seen):
            return None
        value = seen.value if self.gauge else seen.rose
        if value is None:  # where nobody watched, the time of a message shows that it is of the last hour
            value = 1.0 if seen.last else 0.0
        limit = self.limit if self.gauge else max(self.limit * seen.seconds / HOUR, min(self.limit, FEW))
        if not (value < limit if self.below else value > limit):
            return None
        words = defaultdict[str, Any](lambda: "?", seen.dims, value=value)
        about, says, do = (text.format_map(words) for text in (self.about, self.says, self.do))
        return Reason(about, self.severity, says, do, seen)


RECOVERY: Final = "gpu.recovery_action"
"""https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/error-recovery-and-response-flags.html"""
GPU, RDMA, KERNEL, NVME, NEURON = "GPUs", "RDMA ports", "kernel log", "NVMe drives", "Neuron devices"
GROUPS: Final = json.loads(Path(__file__).with_suffix(".json").read_bytes())


def _rule(row: Mapping[str, Any]) -> Rule:
    is_certain = row["severity"] == NOT_FIT and not row.get("alone")
    return Rule(**{"incident": "not-fit" if is_certain else "", **row})


TABLE: Final = tuple(_rule({**group["of"], **rule}) for group in GROUPS for rule in group["rules"])
RULES: Final = tuple(rule for rule in TABLE if rule.severity)
"""
The rules of rules.json, in groups that share area, metric, name and kind; and the rules of a verdict.

Severities, and limits per hour, follow DCGM 4.6's health watches where it has one: failure, warning. Some machines have
no NVLink bridge, so no NVLink at all is degraded. At each start JSON takes a hundredth of the time of TOML.
"""
BY_METRIC: Final[Mapping[str, list[tuple[int, Rule]]]] = {
    rule.metric: [(place, other) for place, other in enumerate(RULES) if other.metric == rule.metric] for rule in RULES
}
"""The rules of a verdict of each metric, with their places among them."""
SIGNS: Final[Mapping[str, list[Rule]]] = {
    rule.metric: [other for other in TABLE if other.metric == rule.metric] for rule in TABLE if rule.incident
}
"""The rules of each metric that may begin an incident."""
FAULTS: Final = {word: rule.area for rule in RULES if rule.metric == "gpu.fault" for word in rule.only["fault"]}
"""The faults that RULES ask for, and their areas."""
LINK_DOWN: Final = "nvlink_down"
"""The fault that a GPU reports, or reports none, if it has NVLinks."""
COUNTED: Final = {GPU: ("gpu",), RDMA: ("device", "port"), NVME: ("device",), NEURON: ("neuron_device",)}
"""Areas whose members are counted, and the dimensions that identify each."""


def reasons(series: Iterable[Seen]) -> list[Reason]:
    """Return the faults, by the first rule that applies to each metric and series, in the order of the table."""
    by_place: list[tuple[int, Reason]] = []
    given = set()
    for item in series:
        for place, rule in BY_METRIC.get(item.metric, ()):
            if reason := rule.reason(item):
                by_place.append((place, reason))
                given.add((rule.metric, *reason[:2]))
                break
    by_place.sort(key=lambda pair: pair[0])
    by_place = [(place, reason) for place, reason in by_place if (RULES[place].instead, *reason[:2]) not in given]
    signs = Counter(about for about, _ in {(reason.about, RULES[place].area) for place, reason in by_place})
    return [
        reason._replace(severity=(signs[reason.about] < 2 and RULES[place].alone) or reason.severity)
        for place, reason in by_place
    ]


def unreported_faults(series: Iterable[Seen]) -> Iterator[tuple[str, str]]:
    """Yield working GPUs whose driver does not report some faults, and these faults."""
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
    Yield the areas without a reason, with the number of their members; `read`: areas without series.

    Where not all GPUs answer, their number is the only area of GPUs.
    """
    areas: dict[str, set[Any]] = {area: set() for area in read}
    bad = {id(reason.shown_by) for reason in wrong}
    ill: dict[str, set[Any]] = {}
    for item in series:
        for area in {rule.area for _, rule in BY_METRIC.get(item.metric, ()) if rule.knows(item)}:
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
