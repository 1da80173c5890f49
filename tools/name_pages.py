"""The page for Prometheus of one GPU: under our names, the names of dcgm-exporter before 4.9 and since, and both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Final

from chipwatch.advisor.catalogue import catalogue
from chipwatch.config.naming.profiles import profile
from chipwatch.config.naming.rename import copier, renamer
from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Metric
from chipwatch_sinks.prometheus.page import Format, Page

FOLDER: Final = Path(__file__).parents[1] / "tests/golden/pages"
NAMES: Final = ("native", "dcgm", "dcgm4.7", "dcgm,dcgm4.7")
OF_GPU: Final = {"gpu": "0", "uuid": "GPU-a7c8", "model": "NVIDIA H100", "driver": "580.65"}
DIMS: Final = {"reason": ("power", "thermal"), "cause": ("correctable", "uncorrectable"), "xid": ("79",)}
VALUES: Final = {"%": 87.0, "By": 3.0 * 2**30, "MHz": 1980.0, "J": 1234.567, "W": 698.5, "Cel": 61.0}
SECOND: Final = 10**9


def points() -> list[Datapoint]:
    """Return a point of each of the GPU's metrics that dcgm-exporter has too, of a tick of 5 s."""
    names = {**profile("dcgm").names, **profile("dcgm").copies}
    metrics = sorted((metric for metric in catalogue()["nvidia"] if metric.name in names), key=lambda of: of.name)
    return [point for metric in metrics for point in _series(metric)]


def _series(metric: Metric) -> list[Datapoint]:
    key = next((key for key in DIMS if key in metric.dims), "")
    metric = replace(metric, dims=(*OF_GPU, *filter(None, [key])))
    is_counter, value = metric.kind is Kind.COUNTER, VALUES.get(metric.unit, 4.0)
    times = (1, 10 * SECOND) if is_counter else (None, None)
    increase = value / 2 if is_counter else None
    return [
        Datapoint(metric, value, Dimensions({**OF_GPU, **({key: word} if key else {})}), 15 * SECOND, *times, None, increase)
        for word in DIMS.get(key, ("",))
    ]  # fmt: skip


def page(names: str, given: list[Datapoint]) -> str:
    """Return the page of points under the names of a profile, or of several, with the label of the host."""
    copy, rename = copier(names), renamer(names)
    merged = [
        point._replace(dims=Dimensions(hostname="n-1") | point.dims)
        for point in [*given, *(copy(given) if copy else ())]
    ]
    shown = Page(machine_labels=True)
    rejected = shown.take([rename(point) if rename else point for point in merged])
    assert not rejected, rejected
    return shown.body(Format.TEXT, zipped=False).decode()


def pages() -> dict[Path, str]:
    """Return the golden pages, by file."""
    return {FOLDER / f"{names.replace(',', '_and_')}.prom": page(names, points()) for names in NAMES}
