"""AMD's library amdsmi, for machines whose sysfs shows no card."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from agent.collectors.amd import metrics as m
from agent.collectors.amd.metrics import number
from agent.collectors.amd.tools import MIB, Cards, Trouble, Wanted, some
from agent.datapoint import Metric
from agent.lane import Lane

ANSWER: Final = 2.0
"""Seconds that the library may take."""
NONE: Final = frozenset({0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF})
"""What the library says where it has no value, unless it says "N/A"."""


class Library:
    """The binding amdsmi of the installed ROCm; its calls are made where they may hang."""

    def __init__(self, config: Wanted) -> None:
        """Take where the machine's / is, and how often to ask."""
        self._root, self._pace, self._asked = config.root, config.pace, 0.0
        self._lane: Lane[Cards] = Lane(self._read, "amdsmi")
        self._smi: ModuleType | None = None

    def first(self) -> Cards:
        """Ask for the first time; raise Trouble."""
        cards = self.poll(time.monotonic())
        assert cards is not None
        return cards

    def poll(self, now: float) -> Cards | None:
        """Return what it says, or None where it is not its time; raise Trouble."""
        if self._asked and now < self._asked + self._pace:
            return None
        self._asked = now
        try:
            return self._lane.ask(ANSWER)
        except TimeoutError as error:
            raise Trouble(str(error)) from None

    def close(self) -> None:
        """Let the thread end."""
        self._lane.close()

    def __str__(self) -> str:
        """Return its name."""
        return "amdsmi"

    def _read(self) -> Cards:
        try:
            smi = self._smi or _imported(self._root / "opt/rocm/share/amd_smi")
        except (ImportError, OSError, AttributeError, KeyError) as error:  # all of these, where its library is absent
            raise Trouble(f"amdsmi cannot be imported: {error!r}") from error
        try:
            if self._smi is None:
                smi.amdsmi_init()
                self._smi = smi
            handles = smi.amdsmi_get_processor_handles()
            return some({str(n): dict(self._card(handle)) for n, handle in enumerate(handles)})
        except getattr(smi, "AmdSmiException", OSError) as error:
            raise Trouble(f"amdsmi: {error}") from error
        except AttributeError as error:  # something else of this name
            raise Trouble(f"amdsmi lacks what it should have: {error}") from error

    def _card(self, handle: Any) -> Iterator[tuple[Metric, float]]:
        """Yield what one card tells; keys differ by version, and `N/A` may stand for anything."""
        smi = self._smi
        kinds, clocks = getattr(smi, "AmdSmiTemperatureType", None), getattr(smi, "AmdSmiClkType", None)
        current = getattr(getattr(smi, "AmdSmiTemperatureMetric", None), "CURRENT", None)
        activity = {"gfx_activity": m.UTILIZATION, "umc_activity": m.MEMORY_ACTIVITY}
        yield from self._told(activity, "amdsmi_get_gpu_activity", handle)
        memory = {"vram_total": m.MEMORY_TOTAL, "vram_used": m.MEMORY_USED}  # in MB, which are MiB
        for metric, value in self._told(memory, "amdsmi_get_gpu_vram_usage", handle):
            yield metric, value * MIB
        power = dict.fromkeys(("average_socket_power", "current_socket_power", "socket_power"), m.POWER)
        yield from self._told(power, "amdsmi_get_power_info", handle)
        for kind, metric in ("JUNCTION", m.TEMPERATURE), ("EDGE", m.TEMPERATURE), ("VRAM", m.MEMORY_TEMPERATURE):
            if (of := getattr(kinds, kind, None)) is not None:
                yield from self._told({"": metric}, "amdsmi_get_temp_metric", handle, of, current)
        for kind, metric in ("GFX", m.CLOCK_GRAPHICS), ("MEM", m.CLOCK_MEMORY):
            if (of := getattr(clocks, kind, None)) is not None:
                yield from self._told({"clk": metric}, "amdsmi_get_clock_info", handle, of)
        errors = {"correctable_count": m.ECC_CORRECTED, "uncorrectable_count": m.ECC_UNCORRECTED}
        yield from self._told(errors, "amdsmi_get_gpu_total_ecc_count", handle)

    def _told(self, keys: Mapping[str, Metric], call: str, *args: Any) -> Iterator[tuple[Metric, float]]:
        """Yield what a call answers under `keys`, or as it is under ""; nothing where it does not exist."""
        try:
            answer = getattr(self._smi, call)(*args)
        except (AttributeError, getattr(self._smi, "AmdSmiException", OSError)):
            return  # this version, or this card, has no such thing
        for key, metric in keys.items():
            value = number(answer.get(key) if isinstance(answer, dict) else answer)
            if value is not None and value not in NONE:
                yield metric, value


def _imported(folder: Path) -> ModuleType:
    """Return the binding that came with ROCm, else one that the user installed; raise ImportError."""
    if folder.is_dir() and str(folder) not in sys.path:
        sys.path.append(str(folder))
    return importlib.import_module("amdsmi")
