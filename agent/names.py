"""Naming profiles: our metrics under the names that another tool's dashboards know."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from agent.datapoint import Datapoint, Dimensions, Kind, Metric

MIB, GIB, MB = 2.0**-20, 2.0**-30, 1e-6


class Name(NamedTuple):
    """A name with `{dimension}` places, which take those dimensions up; a unit and a factor where they differ."""

    template: str
    unit: str | None = None
    factor: float = 1.0


# Weights & Biases: https://docs.wandb.ai/models/ref/python/experiments/system-metrics. Its MB and GB are binary, its
# counters begin at 0 with the agent.
WANDB: Final[Mapping[str, Name]] = {
    "cpu.core.utilization": Name("cpu.{cpu}.cpu_percent"),
    "memory.utilization": Name("memory_percent"),
    "memory.available": Name("proc.memory.availableMB", "MiBy", MIB),
    "disk.utilization": Name("disk.{path}.usagePercent"),
    "disk.used": Name("disk.{path}.usageGB", "GiBy", GIB),
    "disk.read": Name("disk.in", "MiBy", MIB),
    "disk.written": Name("disk.out", "MiBy", MIB),
    "disk.device.read": Name("disk.{device}.in", "MiBy", MIB),
    "disk.device.written": Name("disk.{device}.out", "MiBy", MIB),
    "network.sent": Name("network.sent"),
    "network.received": Name("network.recv"),
    "process.cpu.utilization": Name("cpu"),
    "process.threads": Name("proc.cpu.threads"),
    "process.memory.rss": Name("proc.memory.rssMB", "MiBy", MIB),
    "process.memory.utilization": Name("proc.memory.percent"),
}

# MLflow: https://mlflow.org/docs/latest/ml/tracking/system-metrics/. Its megabytes are 10^6 bytes.
MLFLOW: Final[Mapping[str, Name]] = {
    "cpu.utilization": Name("system/cpu_utilization_percentage"),
    "memory.utilization": Name("system/system_memory_usage_percentage"),
    "memory.used": Name("system/system_memory_usage_megabytes", "MBy", MB),
    "disk.utilization": Name("system/disk_usage_percentage"),
    "disk.used": Name("system/disk_usage_megabytes", "MBy", MB),
    "disk.available": Name("system/disk_available_megabytes", "MBy", MB),
    "network.sent": Name("system/network_transmit_megabytes", "MBy", MB),
    "network.received": Name("system/network_receive_megabytes", "MBy", MB),
}

PROFILES: Final[Mapping[str, Mapping[str, Name]]] = {"native": {}, "wandb": WANDB, "mlflow": MLFLOW}


class Renamer:
    """
    Gives points the names, units and scale of a profile; a metric that the profile lacks keeps its own.

    Counters begin at 0 with the first point of this process, as they do in the tools whose names these are.
    Used by one thread.
    """

    def __init__(self, profile: Mapping[str, Name]) -> None:
        """Take a profile of PROFILES."""
        self._profile = profile
        self._known: dict[tuple[str, Dimensions], tuple[Metric, Dimensions, float, float, int]] = {}

    def __call__(self, point: Datapoint) -> Datapoint:
        """Return the point under its other name."""
        name = self._profile.get(point.metric.name)
        if name is None:
            return point
        key = (point.metric.name, point.dims)
        if key not in self._known:
            self._known[key] = self._learn(name, point)
        metric, dims, factor, base, since = self._known[key]
        summary, increase = point.summary, point.increase
        if factor != 1.0:
            if summary is not None:
                summary = summary._replace(
                    sum=summary.sum * factor,
                    minimum=summary.minimum * factor,
                    maximum=summary.maximum * factor,
                    values=tuple(value * factor for value in summary.values),
                )
            increase = None if increase is None else increase * factor
        value = (point.value - base) * factor
        if metric.kind is Kind.GAUGE:
            return Datapoint(metric, value, dims, point.at, None, point.start, summary)
        if value < 0:  # the counter began anew: so does ours
            self._known[key] = (metric, dims, factor, 0.0, point.at)
            value, since = point.value * factor, point.at
        return Datapoint(metric, value, dims, point.at, since, point.start, None, increase)

    @staticmethod
    def _learn(name: Name, point: Datapoint) -> tuple[Metric, Dimensions, float, float, int]:
        old = point.metric
        taken = {key for key in point.dims if f"{{{key}}}" in name.template}
        text = name.template.format_map({key: point.dims[key] for key in taken})
        keys = tuple(key for key in old.dims if key not in taken)
        metric = Metric(text, old.kind, name.unit or old.unit, old.help, old.level, keys)
        dims = Dimensions({key: value for key, value in point.dims.items() if key not in taken})
        base = point.value if old.kind is Kind.COUNTER else 0.0
        return metric, dims, name.factor, base, point.at


def renamer(profile: str) -> Callable[[Datapoint], Datapoint] | None:
    """Return what renames points, or None for `native`; raise LookupError naming the profiles."""
    if profile not in PROFILES:
        raise LookupError(f"names: no such profile {profile!r}; choose from: {', '.join(PROFILES)}")
    return Renamer(PROFILES[profile]) if PROFILES[profile] else None
