"""A node of the fleet in one line: made of the readings on its page, in a store, or in the answers of its agent."""

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

COUNT, GPU_TIME, GPUS, STATE = "gpu.count", "job.gpu.time", "job.gpus", "gpu.state"
CPU, OLDEST = "cpu.utilization", "agent.spool.oldest"
XID, LAST_XID = "gpu.xid", "gpu.xid.last"
"""Errors of NVIDIA's driver by code, and the code of the last one, which dcgm-exporter has."""
UTILIZATION: Final = frozenset(FIGURES["utilization"])
POWER: Final = frozenset(FIGURES["power"])
LOST: Final = ("agent.sink.dropped", "agent.sink.rejected")
KINDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(UTILIZATION, "used"), **dict.fromkeys(POWER, "power"), **dict.fromkeys(LOST, "gone"),
    GPUS: "job", STATE: "state", COUNT: "count", CPU: "cpu", OLDEST: "oldest",
    XID: "xid", LAST_XID: "xid",
}  # fmt: skip
LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    metric: (
        max((rule.limit for _, rule in rules if rule.below), default=-inf),
        min((rule.limit for _, rule in rules if not rule.below), default=inf),
    )
    for metric, rules in BY_METRIC.items()
    if rules[0][1].gauge
}
"""Gauges of the rules of a verdict -> the values between which no rule applies."""
POLLED: Final = frozenset({*KINDS, *LIMITS})
"""The metrics that a line is made of."""
LATE: Final = 300.0
"""Age of unsent points (s) from which a delivery counts as late."""
MOST_GPUS, MOST_WATTS, MOST_PERCENT = 4096, 100_000.0, 101.0
"""More accelerators in a node are a mistake; so is more power of one, or a larger share, which may be rounded."""
LONGEST: Final = 40
"""Characters of a name of a job or a user."""
HALF: Final = 0.5
"""So much may parts of accelerators exceed the whole by rounding."""
DOUBTED, WAITING = "not believed", "waiting"
"""Verdicts on a node whose figures cannot be true, and on one that has not answered yet."""
FREE, NOT_KNOWN, EITHER = "free", "not known", "idle or free"
"""Words for accelerators that no job is known to hold; EITHER: by a page that does not say who holds them."""
WORKS: Final = ("busy", "throttled")


class FleetNode(msgspec.Struct, omit_defaults=True):
    """A node; what is not known is absent."""

    node: str
    error: str = ""
    """Why there is no answer."""
    seen: float = 0.0
    """Time of the last answer (s since the epoch)."""
    verdict: str | None = None
    reason: str = ""
    """The worst thing that is wrong."""
    gpus: int = 0
    """Accelerators of all kinds."""
    busy: int | float | None = None
    """Accelerators that worked for a job; all that worked, where the page does not say who holds them."""
    lost: int | float = 0
    idle: dict[str, float] = {}
    """Cause, or FREE, NOT_KNOWN or EITHER -> accelerators; with `busy` and `lost` they add up to `gpus`."""
    utilization: float | None = None
    """Mean over its accelerators (%)."""
    power: float | None = None
    """Watts of its accelerators."""
    cpu: float | None = None
    """Utilization of its CPUs (%)."""
    jobs: list[str] = []
    users: list[str] = []
    delivery: str | None = None
    """ok, or what its agent has not delivered."""

    @property
    def key(self) -> tuple[str]:
        """The identity of its row."""
        return (self.node,)

    @property
    def idle_most(self) -> tuple[str, float]:
        """The first cause, and its share of the accelerators (%)."""
        cause, number = max(self.idle.items(), key=lambda item: item[1], default=("", 0.0))
        return cause, 100 * number / self.gpus if self.gpus else 0.0

    @property
    def word(self) -> str:
        """Return silent or the verdict; nothing if it is not known."""
        return "silent" if self.error else self.verdict or ""

    @property
    def place(self) -> tuple[Any, ...]:
        """The place among the nodes, worst first."""
        order = ("silent", DOUBTED, NOT_FIT, DEGRADED)
        rank = order.index(self.word) if self.word in order else len(order)
        late = self.delivery in (None, "ok") and not self.reason
        return rank, late, -self.lost, -sum(self.idle.values()), *number_aware(self.node)


def number_aware(name: str) -> list[tuple[int, str]]:
    """Return the place of a name, in which numbers count as such."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d{1,18})", name)]


def short(text: str) -> str:
    """Return a name that somebody else chose on one line of LONGEST characters, without secrets."""
    return _short(text[: 2 * LONGEST])


@lru_cache(10_000)
def _short(text: str) -> str:
    return one_line(text, LONGEST)


def _names(words: Iterable[str]) -> list[str]:
    """Return each name once, short."""
    return [*filter(None, dict.fromkeys(map(short, words)))]


def _worst(reasons: Iterable[Reason]) -> Reason | None:
    return min(reasons, key=lambda reason: reason.severity != NOT_FIT, default=None)


def _sentence(reason: Reason) -> str:
    return one_line(f"{reason.about} {reason.says}")


def summarise(name: str, seen: Sequence[Seen], at: float) -> FleetNode:
    """Return a node by its readings; `at` in s since the epoch."""
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
    if worst := _worst(reasons(suspects)):
        node.verdict, node.reason = worst.severity, _sentence(worst)
    elif codes := dict.fromkeys(filter(None, map(_xid, kinds["xid"]))):
        node.reason = one_line(f"{'; '.join(codes)}; its page does not say when")
    return node


def _xid(item: Seen) -> str:
    """Return an Xid that nobody watched and that no application causes, or nothing."""
    code = f"{item.value:.0f}" if item.metric == LAST_XID else item.dims.get("xid", "")
    if item.rose is not None or not item.value or not code.isdecimal() or is_applications_own(int(code[:9])):
        return ""
    return f"gpu {item.dims.get('gpu', '?')} had Xid {code}"


def _counts(told: Iterable[Seen], gpus: int) -> Mapping[tuple[str, str], float]:
    """Return accelerators by state and cause; of targets that each tell all of them, of one."""
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
    """Set what the accelerators do by their numbers by state and cause, as the agent tells them: all add up."""
    node.busy = _whole(sum(number for (state, _), number in counts.items() if state in WORKS))
    node.lost = _whole(counts.get(("lost", ""), 0.0))
    idle = defaultdict[str, float](float)
    for (state, cause), number in counts.items():
        if state not in (*WORKS, "lost"):
            idle[short(cause or (NOT_KNOWN if GROUPS.get(state) == NOT_KNOWN else state))] += number
    idle[NOT_KNOWN] += max(0.0, node.gpus - sum(counts.values()))  # without a state
    node.idle = {word: _whole(number) for word, number in idle.items() if number > 0.01}


def _whole(number: float) -> int | float:
    """Return a number of accelerators, of which parts count by their size, as an integer if it is one."""
    return round(number) if abs(number - round(number)) < 0.001 else number


def _within(item: Seen) -> bool:
    """Return whether a gauge is between its limits, where no rule applies."""
    low, high = LIMITS[item.metric]
    return low <= item.value <= high


def _doubt(kinds: Mapping[str, Sequence[Seen]], gpus: int, counted: float) -> str:
    """Return what cannot be true, or nothing."""
    limits = ("used", MOST_PERCENT, "%"), ("power", MOST_WATTS, "W"), ("cpu", MOST_PERCENT, "%"), ("count", inf, "")
    for kind, most, unit in limits:
        if wrong := next((item for item in kinds[kind] if item.value < 0 or item.value > most), None):
            return f"{wrong.metric} is {wrong.value:.4g} {unit}".rstrip()
    if counted > gpus + HALF:
        return f"its agent counts {counted:.4g} accelerators, {gpus} are read: do two agents send under its name?"
    return f"it has {gpus:,} accelerators" if gpus > MOST_GPUS else ""


def believed(line: FleetNode, name: str) -> FleetNode:
    """Return the line that another machine made of itself: short texts without control characters, possible figures."""
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
    """Return what an agent has not delivered, by its metrics; None if it sends none of these."""
    oldest, gone = max((item.value for item in kinds["oldest"]), default=0.0), sum(item.value for item in kinds["gone"])
    if oldest > LATE:
        return f"points {duration(oldest, 1)} old"
    return f"{gone:,.0f} lost" if gone else "ok" if kinds["oldest"] else None


def _device(dims: Mapping[str, str]) -> tuple[str, str]:
    """Return the device of a reading, also for a reading of a part of it."""
    return next(((family, dims[family]) for family in FAMILIES if family in dims), ("gpu", ""))


def of_agent(name: str, answers: Mapping[str, Mapping[str, Any]], at: float) -> FleetNode:
    """Return a node by the answers of its agent to `status`, `jobs` and `verdict`."""
    judged = judge(answers["verdict"], [], Path("/sys"), [], "agent")
    told = answers.get("jobs", {})
    devices, series = device_states(told), [Seen(*fields) for fields in answers["verdict"]["series"]]
    counts = [Seen(COUNT, one["dims"], one["gpus"]) for one in told.get("counts", ())]
    node = summarise(name, [*series, *counts], at)
    worst = _worst(judged.reasons)
    node.verdict, node.reason = judged.word, _sentence(worst) if worst else ""
    node.jobs = _names(word for device in devices for word in device.jobs)
    node.users = _names(word for device in devices for word in device.users)
    node.delivery = _delivery(answers["status"])
    return node


def _delivery(status: Mapping[str, Any]) -> str:
    kept = sum(sink["kept"] for sink in status["sinks"].values() if sink["refused"] or sink["last_error"])
    gone = sum(sum((*sink["rejected"].values(), *sink["dropped"].values())) for sink in status["sinks"].values())
    return f"{kept:,} kept" if kept else f"{gone:,} lost" if gone else "ok"


def totals(nodes: Sequence[FleetNode]) -> dict[str, Any]:
    """Return the nodes by verdict, and the accelerators of all by what they do."""
    sums = {field: sum(getattr(node, field) or 0 for node in nodes) for field in ("gpus", "busy", "lost")}
    idle = defaultdict[str, float](float)
    for cause, number in (pair for node in nodes for pair in node.idle.items()):
        idle[cause] += number
    return {"nodes": Counter(node.word or "answer" for node in nodes), **sums, "idle": idle}
