"""
The public face of chipwatch: what a plugin or a script imports.

    from chipwatch import Collector, gauge

Importing this package loads nothing else; each name is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # the module `typing` takes longer than all that comes before the program can answer Ctrl-C
if TYPE_CHECKING:
    from typing import Any, Final

    from chipwatch.contract.advice import (
        Advisor,
        Alarm,
        AlarmRule,
        Board,
        Chart,
        Cost,
        Load,
        Quota,
        Scope,
        SentMetric,
        Tariff,
        Terms,
    )
    from chipwatch.contract.collector import Collector
    from chipwatch.contract.datapoint import Datapoint, Dimensions, Kind, Level, Metric, Summary, counter, gauge
    from chipwatch.contract.errors import (
        BadBatch,
        InputEnded,
        PartlyCollected,
        Refused,
        Retryable,
        SinkClosed,
        Unavailable,
    )
    from chipwatch.contract.facts import (
        Device,
        DeviceActivity,
        DeviceFacts,
        DeviceProcess,
        MachineIdentity,
        RiseEvidence,
        Unlisted,
    )
    from chipwatch.contract.owner import Allocation, GroupUse, JobFacts, Owner, ProcessUse
    from chipwatch.contract.plugin import Given, Needs
    from chipwatch.contract.processor import Processor
    from chipwatch.contract.sink import Limits, Rejected, Sink
    from chipwatch.contract.testing import check_collector, check_sink
    from chipwatch.contract.trusted_clock import TRUSTED_CLOCK
    from chipwatch.host.counters import Counters
    from chipwatch.show.watching.watch import Watch, watch

__all__ = [
    "TRUSTED_CLOCK", "Advisor", "Alarm", "AlarmRule", "Allocation", "BadBatch", "Board", "Chart", "Collector",
    "Cost", "Counters", "Datapoint", "Device", "DeviceActivity", "DeviceFacts", "DeviceProcess", "Dimensions",
    "Given", "GroupUse", "InputEnded", "JobFacts", "Kind", "Level", "Limits", "Load", "MachineIdentity", "Metric",
    "Needs", "Owner", "PartlyCollected", "ProcessUse", "Processor", "Quota", "Refused", "Rejected", "Retryable",
    "RiseEvidence", "Scope", "SentMetric", "Sink", "SinkClosed", "Summary", "Tariff", "Terms", "Unavailable",
    "Unlisted", "Watch", "check_collector", "check_sink", "counter", "gauge", "watch",
]  # fmt: skip
MODULES: Final = (
    "contract.datapoint", "contract.errors", "contract.collector", "contract.processor", "contract.sink",
    "contract.facts", "contract.plugin", "contract.owner", "host.counters", "contract.trusted_clock", "contract.advice",
    "contract.testing", "show.watching.watch",
)  # fmt: skip
"""The modules that define these names, in the order in which they are searched; the last is for `watch` alone."""


def __getattr__(name: str) -> Any:
    """Load the module that defines `name`, and return it."""
    modules = MODULES[-1:] if name.lower() == "watch" else MODULES[:-1]
    for module in map(import_module, [f"chipwatch.{module}" for module in modules] if name in __all__ else []):
        if name in vars(module):
            value = globals()[name] = vars(module)[name]
            return value
    raise AttributeError(f"module 'chipwatch' has no attribute {name!r}")


def load_ipython_extension(shell: Any) -> None:
    """Add the magic `%chipwatch` to IPython; called by `%load_ext chipwatch`."""
    import_module("chipwatch.show.watching.magic").register(shell)


def __dir__() -> list[str]:
    """Return the public names."""
    return list(__all__)
