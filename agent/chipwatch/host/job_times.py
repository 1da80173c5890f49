"""
The times that programs of jobs report about themselves, by the table job_times.json.

Its names are in these: grain/_src/core/prometheus_monitoring.py and orbax/checkpoint/_src/logging (0.12.8) of
github.com/google/{grain,orbax}; docs.ray.io/en/latest/train/user-guides/monitor-your-application.html;
docs.vllm.ai/en/latest/usage/metrics; docs.sglang.io/references/production_metrics.html. A row of the table has the
metric, the seconds of its unit, and names of which a page has the first, the second, or both with equal values.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.host.counters import Counters, MemberSum

INPUT: Final = counter(
    "job.input.wait", "s", "Time for which programs of the job waited for input, as they report it.", dims=("job",)
)
CHECKPOINT: Final = counter(
    "job.checkpoint.time", "s", "Time for which programs of the job stood still for checkpoints, as they report it.",
    dims=("job",))  # fmt: skip
STEP: Final = gauge(
    "job.step.time", "s", "Mean time of a step of training, or of a token of a server, as programs report it.",
    dims=("job",))  # fmt: skip
TIMES: Final = (INPUT, CHECKPOINT, STEP)


@cache
def table() -> dict[str, Any]:
    """Return the ports of pages by the name of the framework, and the rows of times."""
    content: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_bytes())
    return content


@cache
def names() -> frozenset[str]:
    """Return the names of the series that are times."""
    return frozenset(name + end for _, _, each in table()["times"] for name in each for end in ("", "_sum", "_count"))


Report = tuple[Dimensions, Sequence[Datapoint]]
"""The dimensions of a program's job, and the last points of the program."""
Reports = Mapping[Hashable, Report]
COUNT: Final = "_count"


class JobTimes:
    """Adds up what the programs of each job report."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._steps: dict[Dimensions, tuple[MemberSum, MemberSum]] = {}

    def take(self, reports: Reports, at: int) -> Iterator[Datapoint]:
        """Yield the times of jobs."""
        members: dict[tuple[str, Dimensions], dict[Hashable, float]] = {}
        for word, job, series, value in _times(reports):
            members.setdefault((word, job), {})[series] = value
        for job in {job: None for _, job in members}:
            for metric in (INPUT, CHECKPOINT):
                if values := members.get((metric.name, job)):
                    yield self._counters.total(metric, at, values, job)
            means = [*members.get(("", job), {}).values()]
            steps = self._steps.setdefault(job, (MemberSum(), MemberSum()))
            last = [added.value for added in steps]
            for added, word in zip(steps, (STEP.name, COUNT), strict=True):
                added.take(members.get((word, job), {}), at)
            seconds, count = (added.value - before for added, before in zip(steps, last, strict=True))
            means += [seconds / count] if count > 0 else []
            if means:
                yield STEP.point(at, sum(means) / len(means), job)


def _times(reports: Reports) -> Iterator[tuple[str, Dimensions, Hashable, float]]:
    """Yield a metric's name, the job, the series and its value; COUNT for the steps of a sum, "" for a mean."""
    for program, (job, points) in reports.items():
        values: defaultdict[str, dict[Dimensions, float]] = defaultdict(dict)
        for point in points:
            values[point.metric.name][point.dims] = point.value
        for word, scale, each in table()["times"]:
            name = next((name for name in each if name in values or f"{name}_sum" in values), "")
            counts = values.get(name + COUNT, {}) if word == STEP.name else {}
            is_mean = word == STEP.name and not counts
            for dims, value in (values.get(f"{name}_sum") or values.get(name, {})).items():
                yield "" if is_mean else word, job, (program, name, dims), scale * value
            for dims, value in counts.items():
                yield COUNT, job, (program, name, dims), value
