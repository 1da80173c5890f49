"""Jobs over their nodes: one record for each run of a job, from pages, from agents by ssh, or from a store."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from itertools import chain
from math import inf
from operator import add, itemgetter
from typing import Any, Final

import msgspec

from chipwatch.base.redaction import one_line
from chipwatch.base.text import duration
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import CommandError, Refused, Retryable
from chipwatch.history.job_records import JobRecord
from chipwatch.jobs.accounting import STATES, UNKNOWN, UNSEEN
from chipwatch.show.fleet.hosts import NodeAddress, output_of
from chipwatch.show.fleet.node import GPUS, LONGEST
from chipwatch.show.fleet.poll import RETRIES_AT_ONCE, Access, page_of, ssh_command
from chipwatch.show.fleet.store import BY, PromClient, name_of, node_of, own_label
from chipwatch.show.report import amounts

LATEST, MOST = 1e11, 1e18
"""Latest time (s since the epoch; the year 5138), and the largest amount, in any unit, that can be true."""
MINUTE, APART, SETTLED = 60.0, 300.0, 600.0
"""
Seconds by which a store's times may differ from the true ones; by which a node may begin later, or end earlier, than
the job; and after the start of a job from which there is advice on it.
"""
TOTAL: Final = "gpu.memory.total"
FIELDS: Final = {
    "job.gpu.time": "seconds", "job.gpu.idle.time": "idle", "job.energy": "energy", "job.cost": "cost",
    "job.gpu.memory.max": "memory_max",
}  # fmt: skip
"""Metric of a job -> field of its record."""
KEYS: Final = {"seconds": "state", "idle": "cause"}
"""Field of several values -> the dimension that tells them apart."""
FOLDS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    **dict.fromkeys((*KEYS, "joules"), lambda one, two: {key: one.get(key, 0) + two.get(key, 0) for key in one | two}),
    **dict.fromkeys(("user", "partition"), lambda one, _: one), **dict.fromkeys(("since", "memory_total"), min),
    **dict.fromkeys(("until", "end_unseen", "memory_max", "host_memory_max"), max),
    **dict.fromkeys(("energy", "cost", "cpu", "cpus"), add),
}  # fmt: skip
"""Field -> how two values of it make one; an unknown value (0, "", None or {}) counts in none."""
OF_JOB: Final = ("exported_job", "job", "user", "exported_namespace", "namespace", "partition")


class FleetJob(JobRecord):
    """A run of a job over its nodes: sums over the nodes, the most of each, and what stands out."""

    nodes: Sequence[str] = ()
    missing: Mapping[str, str] = {}
    """Node -> the figures or the time of the job that it does not tell."""
    worst: Mapping[str, str] = {}
    """
    The node that lost the largest share of its accelerators' time, the cause, and that share.

    From a store also its gpu that had no kernel for longest by one cause; then the cause is that one.
    """
    memory_total: float = 0.0
    """Bytes of the smallest accelerator on its nodes; 0 if unknown."""
    advice: str = ""


class JobParts(dict[tuple[str, ...], FleetJob]):
    """The parts of jobs on nodes, by node and job, made of labelled values."""

    def of(self, node: str, labels: Mapping[str, str]) -> FleetJob:
        """Return the part of a job on a node, a new one for a new job."""
        named = {key: one_line(own_label(labels, key), 200) for key in ("job", "namespace", "user", "partition")}
        return self.setdefault((node, *named.values()), msgspec.convert({**named, "nodes": [node]}, FleetJob))

    def add(self, node: str, field: str, labels: Mapping[str, str], value: Any) -> None:
        """Add a value to a field of a part."""
        part = self.of(node, labels)
        if key := KEYS.get(field):
            value = {one_line(labels.get(key, ""), LONGEST): value}
        old = getattr(part, field)
        setattr(part, field, FOLDS[field](old, value) if old else value)


def of_page(node: str, points: Sequence[Datapoint]) -> Iterable[FleetJob]:
    """Return the jobs on the page of a node."""
    parts = JobParts()
    for point in points:
        if field := FIELDS.get(point.metric.name):
            parts.add(node, field, point.dims, point.value)
            if point.start_time and point.start_time < point.at:  # else the page has no start times
                parts.add(node, "since", point.dims, point.start_time / 1e9)
    for part in parts.values():
        part.until = points[0].at / 1e9
        part.memory_total = min((point.value for point in points if point.metric.name == TOTAL), default=0.0)
    return parts.values()


def of_nodes(nodes: Iterable[NodeAddress], access: Access, since: float, silent: dict[str, str]) -> list[FleetJob]:
    """
    Ask each node for its jobs; add to `silent` why a node does not answer.

    An agent that is asked by ssh has the jobs of the last `since` seconds, a page those that hold an accelerator now.
    """

    def ask(node: NodeAddress) -> Iterable[FleetJob]:
        try:
            if node.scheme != "ssh":
                return of_page(node.name, page_of(node, access)())
            text = output_of(ssh_command(node, access, f"jobs --json --since {since:g}"))
            parts = msgspec.json.decode(text[text.find("{") :], type=dict[str, list[FleetJob]])["jobs"]
            return [msgspec.structs.replace(part, nodes=[node.name]) for part in parts]
        except (msgspec.MsgspecError, LookupError, RecursionError):
            silent[node.name] = "its chipwatch has another version"
        except (CommandError, Refused, Retryable) as problem:
            silent[node.name] = one_line(str(problem).removeprefix("HOST: "), 200)
        return ()

    with ThreadPoolExecutor(RETRIES_AT_ONCE) as pool:
        return [*chain.from_iterable(pool.map(ask, nodes))]


def _once(metric: str, span: str, word: str) -> str:
    """Return a query for a counter's increase by `word`; a series that several targets scrape counts once."""
    by, series = ", ".join(filter(None, (BY, word))), name_of(metric)
    ways = ("exported_job", '{exported_job!=""}'), ("job", '{exported_job=""}')  # else `job` is the target's
    return " or ".join(
        f"max by ({', '.join((by, label, *OF_JOB[2:]))}) (increase({series}{which}[{span}]))" for label, which in ways
    )


def _idle_gpus(seconds: int) -> str:
    """Return a query for the time in which each accelerator of a job had no kernel, by cause; times are compared."""
    step, by = f"{max(60, seconds // 60)}s", ", ".join(OF_JOB)
    idle = f"max by ({BY}, gpu, cause) (rate({name_of('gpu.idle.time')}[{max(300, seconds // 60)}s]))"
    alone = f"topk by ({BY}, gpu) (1, max by ({BY}, gpu, {by}) ({name_of('job.gpu.held')} == 1))"
    return f"sum_over_time(({idle} * on ({BY}, gpu) group_left ({by}) {alone})[{seconds}s:{step}])"


def of_store(client: PromClient, window: float) -> list[FleetJob]:
    """Return the jobs that held an accelerator in the last `window` seconds, by node; raise StoreFault."""
    seconds = max(60, round(window))
    span, by = f"{seconds}s", ", ".join((BY, *OF_JOB))
    held_since = f"(timestamp({name_of(GPUS)})[{span}:1m]) or timestamp({name_of(GPUS)})"  # also in its first minute
    queries = {field: _once(metric, span, KEYS.get(field, "")) for metric, field in FIELDS.items()} | {
        "since": f"min by ({by}) (min_over_time{held_since})",
        "until": f"max by ({by}) (max_over_time{held_since})",
        "memory_max": f"max by ({by}) (max_over_time({name_of('job.gpu.memory.max')}[{span}]))",
    }
    parts = JobParts()
    for field, query in queries.items():
        for labels, value, _ in client.ask(query):
            parts.add(node_of(labels), field, labels, value)
    for labels, *_ in sorted(client.ask(_idle_gpus(seconds)), key=lambda sample: sample[1]):  # the longest is last
        part = parts.of(node_of(labels), labels)
        part.worst = {key: one_line(labels.get(key, ""), LONGEST) for key in ("gpu", "cause")}
    totals = {node_of(labels): value for labels, value, _ in client.ask(f"min by ({BY}) ({name_of(TOTAL)})")}
    for part in (found := [part for part in parts.values() if part.since]):
        part.memory_total = totals.get(part.nodes[0], 0.0)
    return found


def joined(parts: Iterable[FleetJob], silent: dict[str, str]) -> list[FleetJob]:
    """
    Return one record for each run of a job; `silent` nodes may have parts, too.

    Parts of one name belong to one run, unless all others had ended a minute before one began, or its node has a part
    in the run. A node with a time or an amount that cannot be true becomes silent.
    """
    runs: dict[tuple[str, ...], list[list[FleetJob]]] = defaultdict(list)
    for part in sorted(parts, key=lambda part: part.since):
        mine = runs[part.kind, part.namespace, part.job]
        ends = {other.nodes[0]: other.until + other.end_unseen + MINUTE for other in mine[-1]} if mine else {}
        told = *msgspec.structs.astuple(part), *part.seconds.values(), *part.idle.values(), *part.joules.values()
        are_true = all(0 <= value <= MOST for value in told if isinstance(value, int | float))
        if max(part.since, part.until) > LATEST or not are_true:
            silent[part.nodes[0]] = "its figures cannot be true"
        elif part.nodes[0] not in ends and part.since <= max(ends.values(), default=-inf):
            mine[-1].append(part)
        else:
            mine.append([part])
    return [_sum(run, silent) for run in chain.from_iterable(runs.values())]


def _sum(run: Sequence[FleetJob], silent: Mapping[str, str]) -> FleetJob:
    """Return the record of a run from its parts."""
    total = msgspec.structs.replace(run[0], nodes=sorted({part.nodes[0] for part in run}))
    lacking: dict[str, list[str]] = defaultdict(list)
    for field, fold in FOLDS.items():
        if known := [part for part in run if getattr(part, field)]:
            setattr(total, field, reduce(fold, (getattr(part, field) for part in known)))
        for part in run if known and fold is add else ():
            if not getattr(part, field):
                lacking[part.nodes[0]].append(field)
    weights = {part.nodes[0]: sum(part.seconds.values()) for part in run if part.efficiency is not None}
    if whole := sum(weights.values()):
        total.efficiency = sum(weights.get(part.nodes[0], 0) * (part.efficiency or 0) for part in run) / whole
    for part in run:
        for gap, where in ((part.since - total.since, "first"), (total.until - part.until, "last")):
            if gap > APART and part.since:
                lacking[part.nodes[0]].append(f"the {where} {duration(gap)}")
    total.missing = {**{node: ", ".join(words) for node, words in lacking.items()}, **silent}
    lost, cause, part = max(map(_loss, run), key=itemgetter(0))
    total.worst = {"node": part.nodes[0], "cause": cause, **part.worst, "lost": f"{100 * lost:.0f} %"} if lost else {}
    total.advice = advice_on(total, total.memory_total)
    return total


def advice_on(record: JobRecord, size: float = 0.0) -> str:
    """Return what its user can do without a loss, or ""; `size`: bytes of its smallest accelerator, 0 if unknown."""
    is_settled = record.until - SETTLED > record.since > 0
    held, charged = record.seconds.get("held", 0.0), sum(record.seconds.values())
    if is_settled and 2 * held > charged:
        return f"its GPUs were held idle for {100 * held / charged:.0f} % of the time: end it when nobody works with it"
    if is_settled and record.seconds.get("busy", 0) and 0 < record.memory_max < size / 2:
        peak, whole = amounts.binary(record.memory_max), amounts.binary(size)
        return f"half the memory is enough: no accelerator had more than {peak} of {whole} in use"
    return ""


def _loss(part: FleetJob) -> tuple[float, str, FleetJob]:
    """Return the share of a part's time that was lost, and the largest cause."""
    seen = sum(time for state, time in part.seconds.items() if state not in (UNKNOWN, UNSEEN))
    causes = {**part.idle, "throttled": part.seconds.get("throttled", 0.0)}
    return (1 - part.seconds.get("busy", 0.0) / seen if seen else 0.0), max(causes, key=causes.__getitem__), part


def notes_on(record: JobRecord) -> Iterator[str]:
    """Yield what a reader of a record must know."""
    if record.end_unseen:
        yield f"the agent did not run at its end; up to {amounts.clock(record.end_unseen)} more is unseen"
    if isinstance(record, FleetJob) and record.missing:
        yield f"incomplete: {', '.join(f'{node} ({what})' for node, what in record.missing.items())}"
    yield from filter(None, (getattr(record, "advice", "") or advice_on(record),))


def cells_of(record: JobRecord) -> dict[str, str]:
    """Return title -> cell of the row of a record; over nodes also its hours by state, and the worst node."""
    charged, elapsed = sum(record.seconds.values()), record.until - record.since
    seen = charged - sum(record.seconds.get(state, 0) for state in (UNKNOWN, UNSEEN))
    worked = record.seconds.get("busy", 0) + record.seconds.get("throttled", 0)
    cause, idle = max(record.idle.items(), key=lambda item: item[1], default=("", 0.0))
    cpus = (record.cpus or 0) * elapsed
    row = {
        "JOB": one_line(record.job, LONGEST),
        "USER": one_line(record.user, LONGEST) or "-",
        "STARTED": time.strftime("%m-%d %H:%M", time.localtime(record.since)) if record.since else "-",
        "ELAPSED": amounts.clock(max(0.0, elapsed)) if record.since else "-",
        "GPU TIME": amounts.clock(charged),
        "GPU": f"{100 * worked / seen:.0f} %" if seen > 0 else "-",
        "IDLE BY": one_line(f"{cause} {100 * idle / charged:.0f} %") if idle and charged else "-",
        "GPU MEMORY": amounts.binary(record.memory_max) if record.memory_max else "-",
        "CPU": f"{100 * (record.cpu or 0) / cpus:.0f} %" if cpus > 0 else "-",
        "MEMORY": amounts.binary(record.host_memory_max) if record.host_memory_max else "-",
        "EFF": "-" if record.efficiency is None else f"{record.efficiency:.0f} %",
        "ENERGY": amounts.energy(record.energy) if record.energy else "-",
        "COST": "-" if record.cost is None else f"${record.cost:,.2f}",
    }
    if isinstance(record, FleetJob):
        hours = {state.upper(): f"{record.seconds.get(state, 0) / 3600:,.1f} h" for state in STATES}
        row |= {"NODES": f"{len(record.nodes)}", **hours, "WORST": one_line(" ".join(record.worst.values())) or "-"}
    return row
