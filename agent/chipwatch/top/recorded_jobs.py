"""The jobs of a recording: its points tell what each job has, and not which devices these are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from chipwatch.datapoint import Datapoint
from chipwatch.redaction import one_line

GPUS, GPU_TIME = "job.gpus", "job.gpu.time"
MOST: Final = 5
"""Jobs that have a line of their own."""
LONGEST: Final = 40
"""Characters of a job's name that are shown."""
Job = tuple[str, ...]
"""Its name, user, partition and namespace."""


def jobs(points: Iterable[Datapoint]) -> list[str]:
    """Return a line for each job of a tick: its accelerators, and what they did since the tick before."""
    gpus: defaultdict[Job, float] = defaultdict(float)
    spent: defaultdict[Job, dict[str, float]] = defaultdict(dict)
    for point in points:
        if point.metric.name not in (GPUS, GPU_TIME) or "job" not in point.dims:
            continue
        job = tuple(point.dims.get(name, "") for name in ("job", "user", "partition", "namespace"))
        if point.metric.name == GPUS:
            gpus[job] += point.value
        elif point.increase:
            spent[job][point.dims.get("state", "")] = point.increase
    order = sorted(gpus, key=lambda job: (-gpus[job], job))
    more = [f"{len(order) - MOST} more jobs"] if len(order) > MOST else []
    return [_line(job, gpus[job], spent[job]) for job in order[:MOST]] + more


def _line(job: Job, gpus: float, spent: Mapping[str, float]) -> str:
    name, *more = (one_line(word, LONGEST) for word in job if word)
    total = sum(spent.values())
    most = sorted(spent.items(), key=lambda item: -item[1])[:3]
    states = "".join(f", {state} {100 * time / total:.0f} %" for state, time in most if total > 0)
    owner = f" ({', '.join(more)})" if more else ""
    number = f"{gpus:.2f}".rstrip("0").rstrip(".")
    return f"job {name}{owner}: {number} accelerator{'' if number == '1' else 's'}{states}"
