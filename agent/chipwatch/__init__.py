"""
The public face of chipwatch: what a plugin or a script imports.

    from chipwatch import Collector, gauge

Importing this package loads nothing else; each name is loaded when it is first used. The program itself lives in the
packages `agent` and `sinks`. These names are common, so another `agent.py` on the path must not be taken for ours: the
first use of a name here loads both packages from the folder that holds this one.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from chipwatch.advice import Advisor, Alarm, Chart, Cost, Load, Quota, Scope, Terms
    from chipwatch.collector import Collector
    from chipwatch.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary, counter, gauge
    from chipwatch.errors import BadBatch, InputEnded, PartlyCollected, Refused, Retryable, SinkClosed, Unavailable
    from chipwatch.host.counters import Counters
    from chipwatch.net.trusted_clock import TRUSTED_CLOCK
    from chipwatch.processor import Processor
    from chipwatch.sink import Limits, Rejected, Sink
    from chipwatch.testing import check_collector, check_sink

__all__ = [
    "TRUSTED_CLOCK", "Advisor", "Alarm", "BadBatch", "Chart", "Collector", "Cost", "Counters", "Datapoint",
    "DeviceProcess", "Dimensions", "InputEnded", "Kind", "Level", "Limits", "Load", "Metric", "PartlyCollected",
    "Processor", "Quota", "Refused", "Rejected", "Retryable", "Scope", "Sink", "SinkClosed", "Summary", "Terms",
    "Unavailable", "check_collector", "check_sink", "counter", "gauge",
]  # fmt: skip
HOMES: Final = {
    "chipwatch.advice": ("Advisor", "Alarm", "Chart", "Cost", "Load", "Quota", "Scope", "Terms"),
    "chipwatch.collector": ("Collector", "DeviceProcess"),
    "chipwatch.datapoint": ("Datapoint", "Dimensions", "Kind", "Level", "Metric", "Summary", "counter", "gauge"),
    "chipwatch.errors": ("BadBatch", "InputEnded", "PartlyCollected", "Refused", "SinkClosed", "Retryable", "Unavailable"),
    "chipwatch.host.counters": ("Counters",),
    "chipwatch.net.trusted_clock": ("TRUSTED_CLOCK",),
    "chipwatch.processor": ("Processor",),
    "chipwatch.sink": ("Limits", "Rejected", "Sink"),
    "chipwatch.testing": ("check_collector", "check_sink"),
}
"""Module -> the names that it gives to this package."""
MODULES: Final = {name: module for module, names in HOMES.items() for name in names}
PACKAGES: Final = ("agent", "sinks")


def claim_packages() -> None:
    """
    Load the packages `agent` and `sinks` from beside this one, whatever stands earlier on the path.

    Raises ImportError where this process has already imported another package of that name.
    """
    parent = str(__path__[0]).rpartition("chipwatch")[0] or "."
    for name in PACKAGES:
        spec = PathFinder.find_spec(name, [parent])
        if spec is None or spec.loader is None:
            raise ImportError(f"chipwatch is incomplete: its package {name!r} is missing in {parent}; install it again")
        known = sys.modules.get(name)
        if known is None:
            module = sys.modules[name] = module_from_spec(spec)
            spec.loader.exec_module(module)
        elif getattr(known, "__file__", None) != spec.origin:
            raise ImportError(
                f"this process has imported another package {name!r}, from {getattr(known, '__file__', 'nowhere')};"
                f" import chipwatch first, or rename the other one"
            )


def __getattr__(name: str) -> Any:
    """Load the module that holds `name`, and return it."""
    if name not in MODULES:
        raise AttributeError(f"module 'chipwatch' has no attribute {name!r}")
    claim_packages()
    value = globals()[name] = getattr(import_module(MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
