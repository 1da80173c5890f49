"""Reads NVML's fields of a GPU. tests/nvml_versions.py compares their numbers with NVIDIA's bindings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from chipwatch.collectors.nvidia.metrics import ENERGY, FAST, LINKS, SCOPES, SLOW, THERMAL, FieldRow, throttled
from chipwatch.collectors.nvidia.points import PartPoints
from chipwatch.collectors.nvidia.query import FieldSet, NvmlQuery
from chipwatch.contract.datapoint import Level

RECOVERY: Final = 230
"""Field with the recovery action, from driver 570 on: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION."""
RESET, DRAIN = 226, 227
"""Fields that older drivers have instead: NVML_FI_DEV_RESET_STATUS, NVML_FI_DEV_DRAIN_AND_RESET_STATUS."""
NONE: Final = "none"
ACTIONS: Final = (
    NONE, "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
    "system_reboot",
)  # fmt: skip
"""Recovery actions in the order of their values (NVML_GPU_RECOVERY_ACTION_*)."""
IMEX: Final = 5, 610
"""
Value of recover_imex_domain, and the first driver in which it has that meaning.

nvidia-ml-py 13.580 calls the value 5 GPU_RESET_BUS; but nvml.h of that driver has no 5, and nvidia-smi prints N/A.
"""
STOPS: Final = frozenset({"gpu_reset", "node_reboot", "drain_and_reset", "bus_reset", "system_reboot"})
"""Actions that must happen before the GPU takes new work; under other actions it continues to work."""
MAX_UNKNOWN: Final = 99
"""Largest unknown action that is reported with its number."""
SLOWDOWNS: Final = ("sw_thermal", "hw_thermal", "power_brake")
"""Reasons of consecutive fields (ns): NVML_FI_DEV_CLOCKS_EVENT_REASON_{SW_THERM,HW_THERM,HW_POWER_BRAKE}_SLOWDOWN."""
LATER_METRICS: Final = ((575, range(100, 210)), (595, range(248, 261)))
"""First driver and its new metrics of GPM: links to the CPU and context switches; counters of cycles."""


class DriverFields:
    """The fields that depend on the version of the driver; none if the version is unknown."""

    def __init__(self, version: str) -> None:
        """`version`: such as 580.82.07."""
        match = re.match(r"(\d+)(?:\.(\d+))?", version)
        self._driver = driver = (int(match[1]), int(match[2] or 0)) if match else (0, 0)
        first = 251 if (575, 0) <= driver < (580, 82) else 269
        self.slowdowns = dict(enumerate(SLOWDOWNS, first)) if driver >= (575, 0) else {}
        """Field -> reason of a slowdown. In driver 570, 251 to 253 mean something else."""
        has_status = driver >= (560, 0) or (550, 89) <= driver < (555, 0)
        self.recovery = (RECOVERY,) if driver >= (570, 0) else (RESET, DRAIN) if has_status else ()
        """Fields that show the recovery action that the GPU needs."""

    def has_metric(self, number: int) -> bool:
        """Return True if the driver has a metric of GPM."""
        return all(self._driver[0] >= first for first, numbers in LATER_METRICS if number in numbers)

    def action(self, fields: Mapping[int, float]) -> str | None:
        """Return the recovery action from the values of fields; None if unknown."""
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


class GpuFields:
    """Reads the fields of one GPU: FAST in each tick, SLOW and the recovery action every ten seconds."""

    def __init__(self, query: NvmlQuery, points: PartPoints, level: Level, driver: DriverFields) -> None:
        def names(rows: Mapping[int, FieldRow]) -> dict[tuple[int, int], str]:
            return {(number, SCOPES.get(number, 0)): row.query for number, row in rows.items()}

        fast = {n: row for n, row in FAST.items() if row.metric.level <= level or n in (ENERGY, THERMAL)}
        slow = {n: row for n, row in (SLOW | throttled(driver.slowdowns)).items() if row.metric.level <= level}
        recovery = {(number, 0): "recovery" for number in driver.recovery}
        self._fast, self._all = FieldSet(query, names(fast)), FieldSet(query, names(fast) | recovery | names(slow))
        self._points, self._driver = points, driver
        self._rows = {n: (row.key, row.unit) for n, row in (fast | slow).items() if row.metric.level <= level}
        self._links: dict[int, int] = {}
        """Older field of LINKS -> the field that answered first and is used from then on: counts may differ."""
        self.action: str | None = None
        """The recovery action that the driver asks for; None if unknown."""
        self._actions: list[str] = []
        """All recovery actions that were requested so far."""

    def read(self, handle: Any, most_energy: float, *, slow: bool) -> tuple[float | None, float | None]:
        """
        Add the fields to the points; return energy (mJ) and time of heat slowdowns (ns), None if unknown. Raise Lost.

        An increase of the energy by more than `most_energy` (J) counts as an error until it is confirmed.
        """
        answers = (self._all if slow else self._fast).read(handle)
        values = {number: value for (number, _), value in answers.items()}
        if slow:
            self._choose_links(values)
            self.action = self._driver.action(values)
            self._actions = sorted({*self._actions, self.action or NONE} - {NONE})
        energy, add, rows = values.pop(ENERGY, None), self._points.add, self._rows
        for action in self._actions if self.action is not None else ():  # a GPU that never needed one has no series
            add(("gpu.recovery_action", action), int(action == self.action))
        if energy is not None and not add(FAST[ENERGY].key, energy / FAST[ENERGY].unit, most_energy):
            energy = None
        for number, value in values.items():
            if number in rows:
                key, unit = rows[number]
                add(key, value / unit)
        return energy, values.get(THERMAL)

    def _choose_links(self, values: dict[int, float]) -> None:
        """Of each pair in LINKS, keep only the field that was chosen first."""
        for in_kib, in_bytes in LINKS.items():
            if in_bytes in values or in_kib in values:
                chosen = self._links.setdefault(in_kib, in_kib if in_kib in values else in_bytes)
                values.pop(in_kib + in_bytes - chosen, None)
