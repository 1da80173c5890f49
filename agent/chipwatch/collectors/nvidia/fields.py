"""Fields of NVML that differ between drivers; tests/nvml_versions.py compares them with NVIDIA's bindings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

RECOVERY: Final = 230
"""NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, from driver 570 on."""
RESET, DRAIN = 226, 227
"""NVML_FI_DEV_RESET_STATUS and NVML_FI_DEV_DRAIN_AND_RESET_STATUS, which drivers below 570 have in its place."""
NONE: Final = "none"
ACTIONS: Final = (
    NONE, "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
    "system_reboot",
)  # fmt: skip
"""Recovery actions by value (NVML_GPU_RECOVERY_ACTION_*)."""
IMEX: Final = 5, 610
"""
The value of recover_imex_domain, and the first driver that means this by it.

nvidia-ml-py 13.580 alone calls 5 GPU_RESET_BUS; nvml.h of that driver has no 5, and its nvidia-smi prints N/A.
"""
STOPS: Final = frozenset({"gpu_reset", "node_reboot", "drain_and_reset", "bus_reset", "system_reboot"})
"""Actions without which the GPU takes no new work; it works on under the others."""
MAX_UNKNOWN: Final = 99
"""Largest unknown action that is named with its number."""
SLOWDOWNS: Final = ("sw_thermal", "hw_thermal", "power_brake")
"""NVML_FI_DEV_CLOCKS_EVENT_REASON_{SW_THERM,HW_THERM,HW_POWER_BRAKE}_SLOWDOWN, in ns, with successive numbers."""


LATER_METRICS: Final = ((575, range(100, 210)), (595, range(248, 261)))
"""Metrics of GPM that older drivers lack: links to the CPU, context switches; cycles since the driver was loaded."""


class DriverFields:
    """The fields that one version of the driver has; none of them if the version is not a number."""

    def __init__(self, version: str) -> None:
        """`version`: such as 580.82.07."""
        match = re.match(r"(\d+)(?:\.(\d+))?", version)
        self._driver = driver = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
        first = 251 if (575, 0) <= driver < (580, 82) else 269
        self.slowdowns = dict(enumerate(SLOWDOWNS, first)) if driver >= (575, 0) else {}
        """Reasons of slowdowns by number; at 570 the numbers 251 to 253 mean something else."""
        has_status = driver >= (560, 0) or (550, 89) <= driver < (555, 0)
        self.recovery = (RECOVERY,) if driver >= (570, 0) else (RESET, DRAIN) if has_status else ()
        """Fields with the recovery action that the GPU needs."""

    def has_metric(self, number: int) -> bool:
        """Return whether the driver has a metric of GPM."""
        return all(self._driver[0] >= first for first, numbers in LATER_METRICS if number in numbers)

    def action(self, fields: Mapping[int, float]) -> str | None:
        """Return the recovery action in the fields, None if they have none."""
        if (value := fields.get(RECOVERY)) is not None:
            number = int(value)
            if 0 <= number < len(ACTIONS) and (number != IMEX[0] or self._driver[0] >= IMEX[1]):
                return ACTIONS[number]
            return f"unknown ({number})" if 0 <= number <= MAX_UNKNOWN else "unknown"
        if fields.get(RESET):
            return "gpu_reset"
        if fields.get(DRAIN):
            return "drain_and_reset"
        return NONE if fields.keys() & {RESET, DRAIN} else None
