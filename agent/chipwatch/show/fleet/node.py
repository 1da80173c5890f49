"""One line about a node: computed from the readings on its page, in a store, or in the answers of its agent."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from math import inf, isnan
from pathlib import Path
from typing import Any, Final

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.base.text import duration
from chipwatch.host.xid import is_applications_own
from chipwatch.jobs.verdict.callers import DEGRADED, NOT_FIT
from chipwatch.jobs.verdict.judge import judge
from chipwatch.jobs.verdict.rules import BY_METRIC, Reason, Seen, reasons
from chipwatch.show.report.devices import FAMILIES, FIGURES, GROUPS, device_states

COUNT, GPUS, STATE = "gpu.count", "job.gpus", "gpu.state"
CPU, OLDEST = "cpu.utilization", "agent.spool.oldest"
XID, LAST_XID = "gpu.xid", "gpu.xid.last"
"""NVIDIA's errors by code (Xid), and dcgm-exporter's metric with the code of the last one."""
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(FIGURES["utilization"], "used"), **dict.fromkeys(FIGURES["power"], "power"),
    **dict.fromkeys(("agent.sink.dropped", "agent.sink.rejected"), "gone"),
    GPUS: "job", STATE: "state", COUNT: "count", CPU: "cpu", OLDEST: "oldest",
    XID: "xid", LAST_XID: "last xid",
}  # fmt: skip
"""Metric of a line -> its kind, by which a line and the queries of a store choose metrics."""
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    metric: (
        max((rule.limit for _, rule in rules if rule.below), default=-inf),
        min((rule.limit for _, rule in rules if not rule.below), default=inf),
    )
    for metric, rules in BY_METRIC.items()
    if rules[0][1].gauge
}
"""Gauge of a rule of the verdict -> the lowest and the highest value at which no rule applies."""
MACHINE: Final = "target_info"
"""Name on a page of the series whose labels describe the machine."""
POLLED: Final = frozenset({*KINDS, *LIMITS, MACHINE})
"""The metrics from which a line is computed, and the one with labels of the node."""
LATE: Final = 300.0
"""Age (s) of unsent points above which delivery counts as late."""
MOST_GPUS, MOST_WATTS, MOST_PERCENT = 4096, 100_000.0, 101.0
"""Highest figures of a node that can be true: accelerators, watts, and a percentage with its rounding."""
LONGEST: Final = 40
"""Most characters of a name of a job or a user."""
HALF: Final = 0.5
"""Tolerance of a sum of accelerators whose partitions are rounded."""
DOUBTED, WAITING = "not believed", "waiting"
"""Verdict on a node whose figures cannot be true, and on one that has not answered yet."""
FREE, NOT_KNOWN, EITHER = "free", "not known", "idle or free"
"""Words for accelerators without a known job; EITHER if the node's page does not say who holds them."""
WORKS: Final = ("busy", "throttled")


class FleetNode(msgspec.Struct, omit_defaults=True):
    """The line about one node; a figure that is unknown is None or empty."""

    node: str
    error: str = ""
    """Why the node does not answer; "" if it does."""
    seen: float = 0.0
    """Time of its last answer (s since the epoch)."""
    verdict: str | None = None
    reason: str = ""
    """The worst fault, in a sentence."""
    gpus: int = 0
    """Number of accelerators of all kinds."""
    busy: int | float | None = None
    """Accelerators that worked for a job; all that worked if the page does not say who holds them."""
    lost: int | float = 0
    idle: dict[str, float] = {}
    """Cause, FREE, NOT_KNOWN or EITHER -> accelerators. Their sum with `busy` and `lost` is `gpus`."""
    utilization: float | None = None
    """Mean utilization of its accelerators (%)."""
    power: float | None = None
    """Power of its accelerators (W)."""
    cpu: float | None = None
    """Utilization of its CPUs (%)."""
    jobs: list[str] = []
    users: list[str] = []
    delivery: str | None = None
    """`ok`, or the points that its agent could not deliver."""

    @property
    def key(self) -> tuple[str]:
        """The identity of its row."""
        return (self.node,)

    @property
    def idle_most(self) -> tuple[str, float]:
        """The most frequent cause of idleness, and its share of the accelerators (%)."""
        cause, number = max(self.idle.items(), key=lambda item: item[1], default=("", 0.0))
        return cause, 100 * number / self.gpus if self.gpus else 0.0

    @property
    def word(self) -> str:
        """Return `silent`, or the verdict; "" if that is unknown."""
        return "silent" if self.error else self.verdict or ""

    @property
    def place(self) -> tuple[Any, ...]:
        """The sort key among nodes: the worst node is first."""
        order = ("silent", DOUBTED, NOT_FIT, DEGRADED)
        rank = order.index(self.word) if self.word in order else len(order)
        late = self.delivery in (None, "ok") and not self.reason
        return rank, late, -self.lost, -sum(self.idle.values()), *number_aware(self.node)


def number_aware(name: str) -> list[tuple[int, str]]:
    """Return a sort key for a name that orders numbers in it by value: n2 before n10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def short(text: str, most: int = LONGEST) -> str:
    """Return a foreign name on one line, without secrets, cut to `most` characters."""
    return _short(text[: 2 * most], most)


_short: Final = lru_cache(20_000)(one_line)


def _names(words: Iterable[str]) -> list[str]:
    """Return each name once, as `short` writes it."""
    return [*filter(None, dict.fromkeys(map(short, words)))]


def _worst(reasons: Iterable[Reason]) -> tuple[str | None, str]:
    """Return the severity of the worst reason, and a sentence about it; None and "" without one."""
    worst = min(reasons, key=lambda reason: reason.severity != NOT_FIT, default=None)
    return (worst.severity, one_line(f"{worst.about} {worst.says}")) if worst else (None, "")


def summarise(name: str, seen: Sequence[Seen], at: float) -> FleetNode:
    """Compute the line about a node from its readings at `at` (s since the epoch)."""
    kinds: dict[str, list[Seen]] = {kind: [] for kind in (*KINDS.values(), "")}
    for item in seen:
        kinds[KINDS.get(item.metric, "")].append(item)
    used: dict[tuple[str, str], float] = {}
    present = {_device(item.dims) for item in (*kinds["used"], *kinds["state"])}
    for item in kinds["used"]:
        if not isnan(item.value):
            device = _device(item.dims)
            used[device] = max(used.get(device, 0.0), item.value)
    states = {_device(item.dims): item.value for item in kinds["state"]}
    power = {(*_device(item.dims), item.dims.get("mig", "")): item.value for item in kinds["power"]}
    gpus = len(present)
    counts = _counts(kinds["count"], gpus)
    if doubt := _doubt(kinds, gpus, sum(counts.values())):
        return FleetNode(name, seen=at, verdict=DOUBTED, reason=doubt)
    jobs, users = (_names(item.dims.get(key, "") for item in kinds["job"]) for key in ("job", "user"))
    node = FleetNode(name, seen=at, jobs=jobs, users=users, delivery=_delivery_by(kinds))
    node.gpus = gpus
    if counts:
        _divide(node, counts)
    elif gpus:
        node.lost = sum(not value for value in states.values())
        node.busy = sum(value > 0 and states.get(device) != 0 for device, value in used.items()) if used else None
        silent = sum(states.get(device) != 0 for device in present - used.keys())
        parts = {EITHER: gpus - node.lost - (node.busy or 0) - silent, NOT_KNOWN: silent}
        node.idle = {word: number for word, number in parts.items() if number}
    node.utilization = sum(used.values()) / len(used) if used else None
    node.power = sum(power.values()) if power else None
    node.cpu = next((item.value for item in kinds["cpu"]), None)
    suspects = [item for item in seen if item.rose is not None or (item.metric in LIMITS and not _within(item))]
    node.verdict, node.reason = _worst(reasons(suspects))
    if not node.verdict and (codes := dict.fromkeys(filter(None, map(_xid, (*kinds["xid"], *kinds["last xid"]))))):
        node.reason = one_line(f"{'; '.join(codes)}; its page does not say when")
    return node


def _xid(item: Seen) -> str:
    """Describe a GPU's Xid if its time is unknown and no application causes it; otherwise return ""."""
    code = f"{item.value:.0f}" if item.metric == LAST_XID else item.dims.get("xid", "")
    if item.rose is not None or not item.value or is_applications_own(code):
        return ""
    return f"gpu {item.dims.get('gpu', '?')} had Xid {code}"


def _counts(told: Iterable[Seen], gpus: int) -> Mapping[tuple[str, str], float]:
    """Return the accelerators by (state, cause). If several targets report the same ones, count only one target."""
    sources: dict[frozenset[tuple[str, str]], dict[tuple[str, str], float]] = {}
    for item in told:
        dims = dict(item.dims)
        key = dims.pop("state", ""), dims.pop("cause", "")
        sources.setdefault(frozenset(dims.items()), {})[key] = item.value
    if sum(sum(source.values()) for source in sources.values()) > gpus + HALF:
        return max(sources.values(), key=lambda source: sum(source.values()))
    sums = defaultdict[tuple[str, str], float](float)
    for source in sources.values():
        for key, number in source.items():
            sums[key] += number
    return sums


def _divide(node: FleetNode, counts: Mapping[tuple[str, str], float]) -> None:
    """Set `busy`, `lost` and `idle` of a node from its accelerators by (state, cause)."""
    node.busy = _whole(sum(number for (state, _), number in counts.items() if state in WORKS))
    node.lost = _whole(counts.get(("lost", ""), 0.0))
    idle = defaultdict[str, float](float)
    for (state, cause), number in counts.items():
        if state not in (*WORKS, "lost"):
            idle[short(cause or (NOT_KNOWN if GROUPS.get(state) == NOT_KNOWN else state))] += number
    idle[NOT_KNOWN] += max(0.0, node.gpus - sum(counts.values()))  # accelerators without a state
    node.idle = {word: _whole(number) for word, number in idle.items() if number > 0.01}


def _whole(number: float) -> int | float:
    """Return a number of accelerators as an integer if it is whole; partitions count by their size."""
    return round(number) if abs(number - round(number)) < 0.001 else number


def _within(item: Seen) -> bool:
    """Return True if a gauge is between its limits, where no rule applies."""
    low, high = LIMITS[item.metric]
    return low <= item.value <= high


def _doubt(kinds: Mapping[str, Sequence[Seen]], gpus: int, counted: float) -> str:
    """Return a sentence about a figure that cannot be true; "" if all can."""
    limits = ("used", MOST_PERCENT, "%"), ("power", MOST_WATTS, "W"), ("cpu", MOST_PERCENT, "%"), ("count", inf, "")
    for kind, most, unit in limits:
        if wrong := next((item for item in kinds[kind] if item.value < 0 or item.value > most), None):
            return f"{wrong.metric} is {wrong.value:.4g} {unit}".rstrip()
    if counted > gpus + HALF:
        return f"its agent counts {counted:.4g} accelerators, {gpus} are read: do two agents send under its name?"
    return f"it has {gpus:,} accelerators" if gpus > MOST_GPUS else ""


def believed(line: FleetNode, name: str) -> FleetNode:
    """Check a line that another machine sent: cut and clean its texts; return DOUBTED if a figure cannot be true."""
    figures = [
        (line.gpus, MOST_GPUS), (line.busy, line.gpus), (line.lost, line.gpus), (line.utilization, MOST_PERCENT),
        ((line.busy or 0) + line.lost + sum(line.idle.values()), (line.gpus or MOST_GPUS) + HALF),
        (line.cpu, MOST_PERCENT), (line.power, MOST_WATTS * MOST_GPUS),
        *((number, MOST_GPUS) for number in (*line.idle.values(), len(line.idle), len(line.jobs), len(line.users))),
    ]  # fmt: skip
    if not all(0 <= (number or 0) <= most for number, most in figures):
        return FleetNode(name, seen=line.seen, verdict=DOUBTED, reason="its figures cannot be true")
    return msgspec.structs.replace(
        line, node=name, error=one_line(line.error), reason=one_line(line.reason),
        verdict=line.verdict and short(line.verdict), delivery=line.delivery and short(line.delivery),
        jobs=[*map(short, line.jobs)], users=[*map(short, line.users)],
        idle={short(cause): number for cause, number in line.idle.items()})  # fmt: skip


def _delivery_by(kinds: Mapping[str, Sequence[Seen]]) -> str | None:
    """Return what an agent could not deliver, from its metrics; None if it has no such metrics."""
    oldest, gone = max((item.value for item in kinds["oldest"]), default=0.0), sum(item.value for item in kinds["gone"])
    if oldest > LATE:
        return f"points {duration(oldest, 1)} old"
    return f"{gone:,.0f} lost" if gone else "ok" if kinds["oldest"] else None


def _device(dims: Mapping[str, str]) -> tuple[str, str]:
    """Return the device of a reading; for a partition, its whole device."""
    return ("gpu", dims["gpu"]) if "gpu" in dims else next(((k, dims[k]) for k in FAMILIES if k in dims), ("gpu", ""))


def of_agent(name: str, answers: Mapping[str, Mapping[str, Any]], at: float) -> FleetNode:
    """Compute the line about a node from its agent's answers to `status`, `jobs` and `verdict`."""
    judged = judge(answers["verdict"], [], Path("/sys"), [], "agent")
    told = answers.get("jobs", {})
    devices, series = device_states(told), [Seen(*fields) for fields in answers["verdict"]["series"]]
    counts = [Seen(COUNT, one["dims"], one["gpus"]) for one in told.get("counts", ())]
    node = summarise(name, [*series, *counts], at)
    node.verdict, node.reason = judged.word, _worst(judged.reasons)[1]
    node.jobs = _names(word for device in devices for word in device.jobs)
    node.users = _names(word for device in devices for word in device.users)
    node.delivery = _delivery(answers["status"])
    return node


def _delivery(status: Mapping[str, Any]) -> str:
    kept = sum(sink["kept"] for sink in status["sinks"].values() if sink["refused"] or sink["last_error"])
    gone = sum(sum((*sink["rejected"].values(), *sink["dropped"].values())) for sink in status["sinks"].values())
    return f"{kept:,} kept" if kept else f"{gone:,} lost" if gone else "ok"


def totals(nodes: Sequence[FleetNode]) -> dict[str, Any]:
    """Return the number of nodes by verdict, and of all accelerators by their use."""
    sums = {field: sum(getattr(node, field) or 0 for node in nodes) for field in ("gpus", "busy", "lost")}
    idle = defaultdict[str, float](float)
    for cause, number in (pair for node in nodes for pair in node.idle.items()):
        idle[cause] += number
    return {"nodes": Counter(node.word or "answer" for node in nodes), **sums, "idle": idle}
