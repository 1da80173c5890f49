"""AMD's library amdsmi, for what sysfs lacks."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from types import ModuleType
from typing import Any, Final

from agent.collectors.amd.metrics import HOTSPOT, number
from agent.collectors.amd.tools import MIB, CardReadings, ToolConfig, not_empty
from agent.datapoint import Metric
from agent.host import gpu_metrics
from agent.host.oneshot import QueryFailed

NONE: Final = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""What the library returns for no value, apart from "N/A"."""

HEAT: Final = (
    ("JUNCTION", HOTSPOT), ("JUNCTION", gpu_metrics.TEMPERATURE),
    ("EDGE", gpu_metrics.TEMPERATURE), ("VRAM", gpu_metrics.MEMORY_TEMPERATURE),
)  # fmt: skip
"""Kind of sensor and its metric; the later line wins; MI300 has no edge."""


class Library:
    """The Python binding amdsmi of the installed ROCm; its calls may hang, so they run on a thread."""

    def __init__(self, config: ToolConfig) -> None:
        """Take the configuration."""
        self._root, self._interval, self._timeout = config.root, config.tool_interval, config.tool_timeout
        self._due = self._deadline = 0.0
        self._answers: SimpleQueue[Callable[[], CardReadings]] | None = None
        self._late = False
        self._smi: ModuleType | None = None
        self.slots: Mapping[str, str] = {}

    def present(self) -> bool:
        """Tell whether there is such a library; it is not loaded yet."""
        try:
            return self._folder.is_dir() or importlib.util.find_spec("amdsmi") is not None
        except ValueError:  # a module of this name that nobody imported
            return False

    def poll(self, now: float, *, start: bool = True) -> CardReadings | None:
        """As in Tool; `now` in seconds, monotonic."""
        if self._answers is None:
            if start and now >= self._due:
                self._due, self._deadline = now + self._interval, now + self._timeout
                self._late, self._answers = False, SimpleQueue()
                threading.Thread(target=self._answer, args=(self._answers,), name="amdsmi", daemon=True).start()
            return None
        try:
            answer = self._answers.get_nowait()
        except Empty:
            if start and now > self._deadline:  # stuck: start no second thread
                self._late = True
                raise QueryFailed(f"amdsmi gave no answer in {self._timeout:g} s") from None
            return None
        self._answers = None
        return None if self._late else answer()

    def close(self) -> None:
        """Ignore the answer of a running call; the next call may start at once."""
        self._late, self._due = True, 0.0

    def __str__(self) -> str:
        """Return its name."""
        return "amdsmi"

    @property
    def _folder(self) -> Path:
        return self._root / "opt/rocm/share/amd_smi"

    def _answer(self, answers: SimpleQueue[Callable[[], CardReadings]]) -> None:
        try:
            cards = self._read()
        except Exception as raised:  # noqa: BLE001  whatever the binding raises costs its own values alone
            error = raised if isinstance(raised, QueryFailed) else QueryFailed(f"amdsmi failed: {raised!r}")

            def fail() -> CardReadings:
                raise error

            answers.put(fail)
        else:
            answers.put(lambda: cards)

    def _read(self) -> CardReadings:
        try:
            smi = self._smi or _imported(self._folder)
        except (ImportError, OSError, AttributeError, KeyError) as error:  # all of these, where its library is absent
            raise QueryFailed(f"amdsmi cannot be imported: {error!r}") from error
        try:
            if self._smi is None:
                smi.amdsmi_init()
                self._smi = smi
            handles = [(str(n), handle) for n, handle in enumerate(smi.amdsmi_get_processor_handles())]
            slots = {n: slot for n, handle in handles if (slot := self._ask("amdsmi_get_gpu_device_bdf", handle))}
            self.slots = {n: slot.lower() for n, slot in slots.items() if isinstance(slot, str)}
            return not_empty({n: dict(self._card(handle)) for n, handle in handles})
        except getattr(smi, "AmdSmiException", OSError) as error:
            raise QueryFailed(f"amdsmi: {error}") from error
        except AttributeError as error:  # something else of this name
            raise QueryFailed(f"amdsmi lacks what it should have: {error}") from error

    def _card(self, handle: Any) -> Iterator[tuple[Metric, float]]:
        """Yield the readings of one card; keys differ by version, and any value may be `N/A`."""
        smi = self._smi
        kinds, clocks = getattr(smi, "AmdSmiTemperatureType", None), getattr(smi, "AmdSmiClkType", None)
        current = getattr(getattr(smi, "AmdSmiTemperatureMetric", None), "CURRENT", None)
        activity = {"gfx_activity": gpu_metrics.UTILIZATION, "umc_activity": gpu_metrics.MEMORY_ACTIVITY}
        yield from self._values(activity, "amdsmi_get_gpu_activity", handle)
        memory = {"vram_total": gpu_metrics.MEMORY_TOTAL, "vram_used": gpu_metrics.MEMORY_USED}  # in MB, which are MiB
        for metric, value in self._values(memory, "amdsmi_get_gpu_vram_usage", handle):
            yield metric, value * MIB
        power = dict.fromkeys(("average_socket_power", "current_socket_power", "socket_power"), gpu_metrics.POWER)
        yield from self._values(power, "amdsmi_get_power_info", handle)
        for metric, cap in self._values({"power_cap": gpu_metrics.POWER_LIMIT}, "amdsmi_get_power_cap_info", handle):
            yield metric, cap if cap < gpu_metrics.MOST["W"] else cap / 1e6  # in µW or, in other versions, W
        for kind, metric in HEAT:
            if (of := getattr(kinds, kind, None)) is not None:
                yield from self._values({"": metric}, "amdsmi_get_temp_metric", handle, of, current)
        for kind, metric in ("GFX", gpu_metrics.CLOCK_GRAPHICS), ("MEM", gpu_metrics.CLOCK_MEMORY):
            if (of := getattr(clocks, kind, None)) is not None:
                yield from self._values({"clk": metric}, "amdsmi_get_clock_info", handle, of)
        errors = {"correctable_count": gpu_metrics.ECC_CORRECTED, "uncorrectable_count": gpu_metrics.ECC_UNCORRECTED}
        yield from self._values(errors, "amdsmi_get_gpu_total_ecc_count", handle)
        yield from self._products(handle)

    def _products(self, handle: Any) -> Iterator[tuple[Metric, float]]:
        """Yield what is computed from two answers."""
        count = self._ask("amdsmi_get_energy_count", handle)  # the key before 6.4, and since; the step is in µJ
        if isinstance(count, dict) and (step := number(count.get("counter_resolution"))):
            steps = number(count.get("energy_accumulator", count.get("power")))
            if steps is not None and steps not in NONE:
                yield gpu_metrics.ENERGY, steps * step * 1e-6
        if top := number(self._ask("amdsmi_get_gpu_fan_speed_max", handle, 0)):
            for metric, speed in self._values({"": gpu_metrics.FAN}, "amdsmi_get_gpu_fan_speed", handle, 0):
                yield metric, 100 * speed / top

    def _values(self, keys: Mapping[str, Metric], call: str, *args: Any) -> Iterator[tuple[Metric, float]]:
        """Yield the values under `keys` in the answer of a call; the key "" is the answer itself."""
        answer = self._ask(call, *args)
        for key, metric in keys.items():
            value = number(answer.get(key) if isinstance(answer, dict) else answer)
            if value is not None and value not in NONE:
                yield metric, value

    def _ask(self, call: str, *args: Any) -> Any:
        """Return the answer of a call; None where this version or this card lacks it."""
        try:
            return getattr(self._smi, call)(*args)
        except (AttributeError, getattr(self._smi, "AmdSmiException", OSError)):
            return None


def _imported(folder: Path) -> ModuleType:
    """Return the binding that came with ROCm, else one that the user installed; raise ImportError."""
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("amdsmi")
