"""Reads the metrics page of a node: with our names, or with those that dcgm-exporter and node_exporter use."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import isfinite, isnan
from pathlib import Path
from typing import Final, NamedTuple

from chipwatch.config.naming.profiles import PLACEHOLDER, profile
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch.host.exposition import SERIES_TEXT, labels_of
from chipwatch.jobs.verdict.rules import Seen
from chipwatch.show.fleet.node import KINDS, LAST_XID, MACHINE, POLLED

PROFILES: Final = ("dcgm", "dcgm4.7", "node")
MAX_KEPT: Final = 128 << 20
"""Most bytes of series texts that are remembered, for all nodes together; most nodes have the same ones."""
COST: Final = 600
"""Bytes that a remembered series takes in addition to its text."""
MAX_LINE: Final = 1 << 14
"""Most bytes of a line; a longer one is skipped."""
PODS: Final = ("pod", "exported_pod", "hpc_job")
"""Labels of dcgm-exporter that name the job on a GPU."""
TYPE: Final = b"\n# TYPE "
"""Start of the line before each family on the pages of agents and exporters."""
DCGM: Final = "DCGM_FI_DEV_"
BASE_UNITS: Final = [
    f"{DCGM}{name}" for name in (
        "SM_CLOCK_HERTZ", "MEMORY_CLOCK_HERTZ", "FB_CAPACITY_BYTES", "FB_FREE_BYTES", "FB_USED_BYTES",
        "FB_RESERVED_BYTES", "MEMORY_UTIL_RATIO", "GPU_ENERGY_JOULES_TOTAL",
    )
]  # fmt: skip
"""Names that DCGM 4.7 added, in base units (fields 1600 to 1648)."""
ANY_BASE_UNIT: Final = re.compile("|".join(BASE_UNITS).encode())
RATIO, OF_ONE = f"{DCGM}GPU_UTIL_RATIO", f"{DCGM}GPU_UTIL_RATIO_OF_ONE"
"""A name whose values are 0 to 100 in DCGM 4.6 and 0 to 1 in 4.7, which also has BASE_UNITS; our name for 4.7's."""
FRACTION: Final = re.compile(rb"%s(?:\{[^\n]*\})? +0?\.\d*[1-9]" % RATIO.encode())
"""A value of RATIO with decimals, which only DCGM 4.7 has."""
LAST_XIDS: Final = (f"{DCGM}XID_ERRORS", f"{DCGM}XID_ERROR")
"""Names for the code of the last Xid: before DCGM 4.6, and since then."""


class PageName(NamedTuple):
    """Meaning of a name on a page: our metric, and the factor from the page's unit to ours."""

    metric: Metric
    factor: float
    labels: Mapping[str, str] = {}
    """The page's label -> our dimension."""

    def dims(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Translate the labels of a series to our dimensions."""
        return {self.labels.get(key, key): value for key, value in labels.items()}


class PageSeries(NamedTuple):
    """Meaning of a series on a page; `factor` converts its value to our unit."""

    metric: str
    dims: Mapping[str, str]
    factor: float
    jobs: Sequence[Mapping[str, str]] = ()
    """The job that a label of dcgm-exporter names, as dimensions."""


@cache
def names() -> dict[str, PageName]:
    """Return the meaning of each name that a page may have: ours, then other tools'."""
    table: dict[str, PageName] = {}
    for ending, kind, factor, units in json.loads(Path(__file__).with_name("names.json").read_bytes()):
        for unit, name in ((unit, name) for unit, listed in units.items() for name in listed):
            table[name.replace(".", "_") + ending] = PageName(Metric(name, Kind(kind), unit, ""), factor)
    ours = {entry.metric.name: entry.metric for entry in table.values()}
    for tool in PROFILES:
        for metric, theirs in profile(tool).names.items():
            if metric in ours and not PLACEHOLDER.search(theirs.template):
                labels = {key: match[1] for key, text in theirs.dims.items() if (match := PLACEHOLDER.fullmatch(text))}
                table.setdefault(theirs.template, PageName(ours[metric], 1 / theirs.factor, labels))
    table[OF_ONE], table[RATIO] = table[RATIO], table[RATIO]._replace(factor=1.0)
    last = Metric(LAST_XID, Kind.GAUGE, "1", "")
    table |= {name: PageName(last, 1.0, table[RATIO].labels) for name in LAST_XIDS}
    return table | {MACHINE: PageName(Metric(MACHINE, Kind.GAUGE, "1", ""), 1.0)}


def series_of(name: str, labels: Mapping[str, str], wanted: frozenset[str] = POLLED) -> PageSeries | None:
    """Return the meaning of a name with labels; None if its metric is not wanted."""
    entry = names().get(name)
    if entry is None or entry.metric.name not in wanted:
        return None
    job = next((labels[key] for key in PODS if labels.get(key)), "")
    return PageSeries(entry.metric.name, entry.dims(labels), entry.factor, [{"job": job}] if job else ())


@cache
def _families() -> re.Pattern[bytes]:
    """Return a pattern for the families of a page that a line about a node needs."""
    wanted = (re.escape(name).encode() for name, entry in names().items() if entry.metric.name in POLLED)
    return re.compile(rb"\n# TYPE (?:%s) [^\n]*((?:\n(?!# TYPE )[^\n]*)*)" % b"|".join(wanted))


def _lines(body: bytes) -> list[bytes]:
    """Return the lines of the wanted families, or all lines of a page without types; drop an unfinished last line."""
    body = b"\n" + body[: body.rfind(b"\n")]
    parts = _families().findall(body) if TYPE in body else [body]
    return [line for part in parts for line in part.split(b"\n")[1:]]


class NodePageReader:
    """Reads the pages of all nodes; remembers each series text, which most nodes share. Used by one thread."""

    def __init__(self) -> None:
        self._series: dict[bytes, PageSeries | None] = {}
        self._kept = 0

    def read(self, body: bytes) -> list[Seen]:
        """Return the readings of a page in Prometheus' text format 0.0.4; malformed lines are left out."""
        if RATIO.encode() in body and (ANY_BASE_UNIT.search(body) or FRACTION.search(body)):
            body = body.replace(RATIO.encode(), OF_ONE.encode())
        seen: list[Seen] = []
        jobs: dict[str, Mapping[str, str]] = {}
        for line in _lines(body):
            if line[:1] == b"#":
                continue
            head, _, number = line.rpartition(b" ")
            try:
                series = self._series[head]
            except KeyError:
                series, number = self._learn(line)
            if series is None:
                continue
            try:
                value = float(number) * series.factor
            except ValueError:
                continue
            if isfinite(value) or (isnan(value) and KINDS.get(series.metric) == "used"):  # NaN: the device exists
                seen.append(Seen(series.metric, series.dims, value))
                if series.jobs:
                    jobs.update({job["job"]: job for job in series.jobs})
        return [*seen, *(Seen("job.gpus", job, 1.0) for job in jobs.values())]

    def _learn(self, line: bytes) -> tuple[PageSeries | None, bytes]:
        """Parse and remember the series of a line; return it with its value as text, without a timestamp."""
        if len(line) > MAX_LINE:
            return None, b""
        if self._kept > MAX_KEPT:
            self._series, self._kept = {}, 0
        head, text = line.rpartition(b" ")[0], line.decode(errors="replace")
        match = SERIES_TEXT.match(text)
        if not match or not (words := text[match.end() :].split()):
            return None, b""
        try:
            series = series_of(*labels_of(match[2], match[3] or ""))
        except ValueError:
            return None, b""
        if len(words) == 1 and head:
            self._series[head] = series
            self._kept += len(head) + COST
        return series, words[0].encode()


def points_of(points: Sequence[Datapoint]) -> Iterator[Datapoint]:
    """Translate points that have the names of a page to our metrics, DCGM 4.7's unit included; leave out others."""
    is_of_one = not {point.metric.name for point in points}.isdisjoint(BASE_UNITS)
    for point in points:
        if entry := names().get(OF_ONE if is_of_one and point.metric.name == RATIO else point.metric.name):
            dims = Dimensions(entry.dims(point.dims))
            yield point._replace(metric=entry.metric, value=point.value * entry.factor, dims=dims)
