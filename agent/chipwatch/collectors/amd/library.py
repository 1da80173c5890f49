"""AMD's library amdsmi, for values that sysfs lacks."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from chipwatch.collectors.amd.metrics import HOTSPOT, Readings, number
from chipwatch.collectors.amd.tools import MIB, CardReadings, not_empty
from chipwatch.datapoint import Metric
from chipwatch.host import gpu_metrics
from chipwatch.host.oneshot import QueryFailed

if TYPE_CHECKING:
    from chipwatch.collectors.amd import AmdCollector

NONE: Final = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""Numbers that mean "no value", apart from "N/A"."""
JUNCTION: Final = "temp_metric TemperatureType.JUNCTION TemperatureMetric.CURRENT"
VALUES: Final[tuple[tuple[str, str, Metric, float], ...]] = (
    ("gpu_activity", "gfx_activity", gpu_metrics.UTILIZATION, 1),
    ("gpu_activity", "umc_activity", gpu_metrics.MEMORY_ACTIVITY, 1),
    ("gpu_vram_usage", "vram_total", gpu_metrics.MEMORY_TOTAL, MIB),  # "MB" are MiB
    ("gpu_vram_usage", "vram_used", gpu_metrics.MEMORY_USED, MIB),
    ("power_info", "average_socket_power", gpu_metrics.POWER, 1),
    ("power_info", "current_socket_power", gpu_metrics.POWER, 1),
    ("power_info", "socket_power", gpu_metrics.POWER, 1),
    ("power_cap_info", "power_cap", gpu_metrics.POWER_LIMIT, 1),
    (JUNCTION, "", HOTSPOT, 1),
    (JUNCTION, "", gpu_metrics.TEMPERATURE, 1),
    ("temp_metric TemperatureType.EDGE TemperatureMetric.CURRENT", "", gpu_metrics.TEMPERATURE, 1),  # not MI300
    ("temp_metric TemperatureType.VRAM TemperatureMetric.CURRENT", "", gpu_metrics.MEMORY_TEMPERATURE, 1),
    ("clock_info ClkType.GFX", "clk", gpu_metrics.CLOCK_GRAPHICS, 1),
    ("clock_info ClkType.MEM", "clk", gpu_metrics.CLOCK_MEMORY, 1),
    ("gpu_total_ecc_count", "correctable_count", gpu_metrics.ECC_CORRECTED, 1),
    ("gpu_total_ecc_count", "uncorrectable_count", gpu_metrics.ECC_UNCORRECTED, 1),
)
"""
Function (without amdsmi_get_) and constants (without AmdSmi) it takes, key in its answer, metric, factor.

The later line of a metric wins; the key "" is the answer itself. Keys differ by version.
"""


class AmdSmiLibrary:
    """The Python binding amdsmi of the installed ROCm; its calls may hang, so they run on a thread."""

    def __init__(self, config: AmdCollector.Config) -> None:
        self._interval, self._timeout = config.tool_interval, config.tool_timeout
        self._folder = config.root / "opt/rocm/share/amd_smi"
        self._due = self._deadline = 0.0
        self._answer: Future[CardReadings] | None = None
        self._late = False
        self._smi: ModuleType | None = None
        self.slots: Mapping[str, str] = {}

    def present(self) -> bool:
        """Return whether the library is installed, without loading it."""
        try:
            return self._folder.is_dir() or importlib.util.find_spec("amdsmi") is not None
        except ValueError:  # a module of this name that nobody imported
            return False

    def poll(self, now: float, *, start: bool = True) -> CardReadings | None:
        """As in Program."""
        answer = self._answer
        if answer is None:
            if start and now >= self._due:
                self._due, self._deadline = now + self._interval, now + self._timeout
                self._late, self._answer = False, Future()
                threading.Thread(target=self._run, args=(self._answer,), name="amdsmi", daemon=True).start()
        elif answer.done():
            self._answer = None
            return None if self._late else answer.result()
        elif start and now > self._deadline:  # stuck: start no second thread
            self._late = True
            raise QueryFailed(f"amdsmi gave no answer in {self._timeout:g} s")
        return None

    def close(self) -> None:
        """Ignore the answer of a running call; the next call may start at once."""
        self._late, self._due = True, 0.0

    def __str__(self) -> str:
        return "amdsmi"

    def _run(self, answer: Future[CardReadings]) -> None:
        try:
            answer.set_result(self._read())
        except QueryFailed as error:
            answer.set_exception(error)
        except Exception as error:  # noqa: BLE001  an error of the binding must not cost the readings of sysfs
            answer.set_exception(QueryFailed(f"amdsmi failed: {error!r}"))

    def _read(self) -> CardReadings:
        try:
            smi = self._smi or self._import()
        except (ImportError, OSError, AttributeError, KeyError) as error:  # all of these, where its library is absent
            raise QueryFailed(f"amdsmi cannot be imported: {error!r}") from error
        try:
            if self._smi is None:
                smi.amdsmi_init()
                self._smi = smi
            handles = [(str(n), handle) for n, handle in enumerate(smi.amdsmi_get_processor_handles())]
            slots = {n: self._ask(handle, "gpu_device_bdf") for n, handle in handles}
            self.slots = {n: slot.lower() for n, slot in slots.items() if isinstance(slot, str)}
            return not_empty({n: self._read_card(handle) for n, handle in handles})
        except getattr(smi, "AmdSmiException", OSError) as error:
            raise QueryFailed(f"amdsmi: {error}") from error
        except AttributeError as error:  # another module of this name
            raise QueryFailed(f"amdsmi is not AMD's library: {error}") from error

    def _read_card(self, handle: Any) -> Readings:
        readings: Readings = {}
        answers = {call: self._ask(handle, call) for call in dict.fromkeys(call for call, *_ in VALUES)}
        for call, key, metric, factor in VALUES:
            if (value := _value(answers[call], key)) is not None:
                readings[metric] = value * factor
        if (cap := readings.get(gpu_metrics.POWER_LIMIT, 0)) >= gpu_metrics.MOST["W"]:
            readings[gpu_metrics.POWER_LIMIT] = cap / 1e6  # in µW or, in other versions, W
        energy = self._ask(handle, "energy_count")  # the key before 6.4 is `power`; the resolution is in µJ
        steps = _value(energy, "energy_accumulator") or _value(energy, "power")
        if steps and (step := _value(energy, "counter_resolution")):
            readings[gpu_metrics.ENERGY] = steps * step * 1e-6
        speed, top = (_value(self._ask(handle, call, 0)) for call in ("gpu_fan_speed", "gpu_fan_speed_max"))
        if speed is not None and top:
            readings[gpu_metrics.FAN] = 100 * speed / top
        return readings

    def _ask(self, handle: Any, call: str, *args: Any) -> Any:
        """Return the answer of a function; None where this version or this card lacks it."""
        name, *constants = call.split()
        try:
            args = (*(attrgetter(f"AmdSmi{constant}")(self._smi) for constant in constants), *args)
            return getattr(self._smi, f"amdsmi_get_{name}")(handle, *args)
        except (AttributeError, getattr(self._smi, "AmdSmiException", OSError)):
            return None

    def _import(self) -> ModuleType:
        """Return the binding that came with ROCm, else one that the user installed; raise ImportError."""
        if self._folder.is_dir() and str(self._folder) not in sys.path:
            sys.path.append(str(self._folder))
        return importlib.import_module("amdsmi")


def _value(answer: Any, key: str = "") -> float | None:
    """Return the number under `key`, or the answer itself if it is a number."""
    value = number(answer.get(key) if isinstance(answer, dict) else answer)
    return None if value in NONE else value
