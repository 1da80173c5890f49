"""
The times that programs of jobs report about themselves, by the table job_times.json.

Its names are in these: grain/_src/core/prometheus_monitoring.py and orbax/checkpoint/_src/logging (0.12.8) of
github.com/google/{grain,orbax}; docs.ray.io/en/latest/train/user-guides/monitor-your-application.html;
docs.vllm.ai/en/latest/usage/metrics; docs.sglang.io/references/production_metrics.html. A row of the table has the
metric, the seconds of its unit, and names of which a page has the first, the second, or both with equal values.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.host.counters import Counters, MemberSum
from chipwatch.host.exposition import ExpositionReader, ScrapeResponse

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


COUNT: Final = "_count"
SeriesKey = tuple[str, Dimensions]


class JobProgram:
    """A program of a job that reports metrics as pages, and the last values of its times."""

    def __init__(self, job: Dimensions, max_series: int, *, all_series: bool) -> None:
        """`job`: the dimensions of its job. `all_series`: read other series than times, too."""
        self.job, self.times = job, dict[SeriesKey, Datapoint]()
        self._reader = ExpositionReader(
            max_series, lambda labels: {**labels, **job}, lambda name, _: all_series or name in names()
        )

    def read(self, page: bytes, at: int) -> tuple[dict[SeriesKey, Datapoint], list[str]]:
        """Return the points of a page, and its problems."""
        points, problems = self._reader.read(ScrapeResponse(page, openmetrics=False, whole=True), at)
        by_series = {(point.metric.name, point.dims): point for point in points}
        self.times |= {key: point for key, point in by_series.items() if key[0] in names()}
        return by_series, problems


class JobTimes:
    """Adds up what the programs of each job report."""

    def __init__(self) -> None:
        self._counters = Counters()
        self._steps: dict[Dimensions, tuple[MemberSum, MemberSum]] = {}

    def take(self, programs: Iterable[JobProgram], at: int) -> Iterator[Datapoint]:
        """Yield the times of jobs."""
        members: dict[tuple[str, Dimensions], dict[Hashable, float]] = {}
        for program in programs:
            for word, series, value in _times(program.times):
                members.setdefault((word, program.job), {})[program, series] = value
        for job in {job: None for _, job in members}:
            for metric in (INPUT, CHECKPOINT):
                if values := members.get((metric.name, job)):
                    yield self._counters.total(metric, at, values, job)
            means = [*members.get(("", job), {}).values()]
            steps = self._steps.setdefault(job, (MemberSum(), MemberSum()))
            seconds, count = (-added.value for added in steps)
            for added, word in zip(steps, (STEP.name, COUNT), strict=True):
                added.take(members.get((word, job), {}), at)
            seconds, count = seconds + steps[0].value, count + steps[1].value
            if means := [*means, seconds / count] if count > 0 else means:
                yield STEP.point(at, sum(means) / len(means), job)


def _times(points: Mapping[SeriesKey, Datapoint]) -> Iterator[tuple[str, SeriesKey, float]]:
    """Yield a metric's name, a series and its value; COUNT for the steps of a sum, "" for a mean."""
    read = {name for name, _ in points}
    for word, scale, each in table()["times"]:
        base = next((name for name in each if {name, f"{name}_sum"} & read), "")
        is_mean = word == STEP.name and base + COUNT not in read
        for (name, dims), point in points.items():
            if name == base + COUNT and word == STEP.name:
                yield COUNT, (name, dims), point.value
            elif name in (base, f"{base}_sum"):
                yield "" if is_mean else word, (name, dims), scale * point.value
