"""
The public face of chipwatch: what a plugin or a script imports.

    from chipwatch import Collector, gauge

Importing this package loads nothing else; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from chipwatch.advice import Advisor, Alarm, Chart, Cost, Load, Quota, Scope, Terms
    from chipwatch.collector import Collector
    from chipwatch.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary, counter, gauge
    from chipwatch.errors import BadBatch, InputEnded, PartlyCollected, Refused, Retryable, SinkClosed, Unavailable
    from chipwatch.extensions import (
        Answers,
        Device,
        DeviceActivity,
        DeviceFacts,
        DeviceProcess,
        Follows,
        FollowsIdle,
        HasActivity,
        HasConsole,
        HasDestination,
        HasDevices,
        HasEvidence,
        HasFacts,
        HasIdentity,
        HasProcesses,
        HasVerdictMetrics,
        IsScraped,
        IsSized,
        KeepsFiles,
        KeepsState,
        NeedsFacts,
        Prepares,
        ReadsByLevel,
        Refuses,
        YieldsOtherNames,
    )
    from chipwatch.host.counters import Counters
    from chipwatch.net.trusted_clock import TRUSTED_CLOCK
    from chipwatch.processor import Processor
    from chipwatch.sink import Limits, Rejected, Sink
    from chipwatch.testing import check_collector, check_sink

__all__ = [
    "TRUSTED_CLOCK", "Advisor", "Alarm", "Answers", "BadBatch", "Chart", "Collector", "Cost", "Counters", "Datapoint",
    "Device", "DeviceActivity", "DeviceFacts", "DeviceProcess", "Dimensions", "Follows", "FollowsIdle", "HasActivity",
    "HasConsole", "HasDestination", "HasDevices", "HasEvidence", "HasFacts", "HasIdentity", "HasProcesses",
    "HasVerdictMetrics", "InputEnded", "IsScraped", "IsSized", "KeepsFiles", "KeepsState", "Kind", "Level", "Limits",
    "Load", "Metric", "NeedsFacts", "PartlyCollected", "Prepares", "Processor", "Quota", "ReadsByLevel", "Refused",
    "Refuses", "Rejected", "Retryable", "Scope", "Sink", "SinkClosed", "Summary", "Terms", "Unavailable",
    "YieldsOtherNames", "check_collector", "check_sink", "counter", "gauge",
]  # fmt: skip
HOMES: Final = {
    "chipwatch.advice": ("Advisor", "Alarm", "Chart", "Cost", "Load", "Quota", "Scope", "Terms"),
    "chipwatch.collector": ("Collector",),
    "chipwatch.extensions": (
        "Answers",
        "Device",
        "DeviceActivity",
        "DeviceFacts",
        "DeviceProcess",
        "Follows",
        "FollowsIdle",
        "HasActivity",
        "HasConsole",
        "HasDestination",
        "HasDevices",
        "HasEvidence",
        "HasFacts",
        "HasIdentity",
        "HasProcesses",
        "HasVerdictMetrics",
        "IsScraped",
        "IsSized",
        "KeepsFiles",
        "KeepsState",
        "NeedsFacts",
        "Prepares",
        "ReadsByLevel",
        "Refuses",
        "YieldsOtherNames",
    ),
    "chipwatch.datapoint": ("Datapoint", "Dimensions", "Kind", "Level", "Metric", "Summary", "counter", "gauge"),
    "chipwatch.errors": (
        "BadBatch",
        "InputEnded",
        "PartlyCollected",
        "Refused",
        "SinkClosed",
        "Retryable",
        "Unavailable",
    ),
    "chipwatch.host.counters": ("Counters",),
    "chipwatch.net.trusted_clock": ("TRUSTED_CLOCK",),
    "chipwatch.processor": ("Processor",),
    "chipwatch.sink": ("Limits", "Rejected", "Sink"),
    "chipwatch.testing": ("check_collector", "check_sink"),
}
"""Module -> the names that it gives to this package."""
MODULES: Final = {name: module for module, names in HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Load the module that holds `name`, and return it."""
    if name not in MODULES:
        raise AttributeError(f"module 'chipwatch' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
