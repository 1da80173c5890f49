"""Reads GPUs that share the machine's memory from the kernel's files; also Jetsons without NVML."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.collectors.nvidia.metrics import GPU, MODEL
from chipwatch.collectors.nvidia.points import PartPoints
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.facts import Device, DeviceActivity, Unlisted
from chipwatch.host.procfs import number, text

if TYPE_CHECKING:
    from chipwatch.host.process_tree import Where

INTEGRATED: Final = re.compile(r"\b(GB10|Thor|Orin|Xavier|Tegra|nvgpu)\b")
"""Matches models that use the machine's memory; NVML reports none for them, or wrong numbers."""
TEGRA: Final = re.compile(r"\b(Orin|Xavier|Tegra|nvgpu)\b")
"""Matches models for which NVML returns 0 instead of readings (wentbackward/nv-monitor pull request 17)."""
LOADS: Final = ("class/devfreq/*/device/load", "devices/gpu.0/load", "devices/platform/gpu.0/load")
"""Files with the utilization in tenths of a percent; JetPack 5 and later have 17000000.gpu (rbonghi/jetson_stats)."""
NAME: Final = re.compile(r"gpu|ga10b|gv11b|gp10b|gm20b")
"""Matches a GPU's folder in class/devfreq; other folders belong to memory or codecs."""
ZONES: Final = ("gpu-thermal", "gpu-therm")
MOST_TENTHS: Final = 1000
MOST_MILLIDEGREES: Final = 150_000


class Kernel:
    """
    Reads an integrated GPU from the kernel's files.

    A file may appear after the agent has started, so each reading searches until it exists. No file stays open.
    """

    def __init__(self, places: Where, model: str = "") -> None:
        self._proc, self._sys, self.model = places.proc, places.sys, model
        self.is_integrated, self.is_tegra = bool(INTEGRATED.search(model)), bool(TEGRA.search(model))
        self._files: dict[str, Path | None] = {}
        """The files that the last readings found, by kind."""

    def _number(self, kind: str, files: Iterator[Path]) -> int | None:
        """Return the number in the known file of this kind, or in the first of `files`; None if there is none."""
        file = self._files.get(kind) or next(files, None)
        value = number(file) if file else None
        self._files[kind] = None if value is None else file
        return value

    def utilization(self) -> float | None:
        """Return the utilization of the last moments (%); None if unknown."""
        files = (file for pattern in LOADS for file in self._sys.glob(pattern))
        tenths = self._number("load", (file for file in files if NAME.search("/".join(file.parts[-3:-1]))))
        return tenths / 10 if tenths is not None and tenths <= MOST_TENTHS else None

    def clock(self) -> float | None:
        """Return the clock (MHz); None if unknown."""
        folders = self._sys.glob("class/devfreq/*")
        hertz = next((number(folder / "cur_freq") for folder in folders if NAME.search(folder.name)), None)
        return hertz / 1e6 if hertz else None

    def temperature(self) -> float | None:
        """Return the temperature (°C); None if unknown."""
        zones = self._sys.glob("class/thermal/thermal_zone*/type")
        value = self._number("zone", (file.with_name("temp") for file in zones if text(file).lower() in ZONES))
        return value / 1000 if value is not None and 0 < value <= MOST_MILLIDEGREES else None

    def memory(self) -> int | None:
        """Return the machine's memory (bytes); None if unknown."""
        kib = re.search(r"^MemTotal:\s+(\d+) kB", text(self._proc / "meminfo"), re.MULTILINE)
        return int(kib[1]) << 10 if kib else None

    def is_node_of_gpu(self, node: int) -> bool:
        """Return True if a NUMA node is the memory of a GPU, which has no CPUs."""
        file = self._sys / f"devices/system/node/node{node}/cpulist"
        return file.exists() and not text(file)

    def board(self) -> str:
        """Return the model of the board."""
        return text(self._sys / "firmware/devicetree/base/model").strip("\0") or "Jetson"


class Jetson:
    """The GPU of a Jetson without NVML. It has the methods of `Gpus`, and reads the kernel's files."""

    def __init__(self, kernel: Kernel, dimensions: tuple[str, ...], level: Level) -> None:
        self._kernel, self._model = kernel, kernel.board()
        self._dims = Dimensions({GPU: "0"} | ({MODEL: self._model} if MODEL in dimensions else {}))
        self._points = PartPoints(self._dims, (GPU, *dimensions), level)
        self.process = os.getpid()
        """PID of the process that created it."""
        self.silent: dict[Dimensions, str] = {}
        """Always empty; see `Gpus`."""

    def read(self, at: int) -> Iterator[list[Datapoint]]:
        """Yield all readings; an absent file gives none."""
        kernel, points = self._kernel, self._points
        points.at, points.points = at, []
        points.add(("gpu.utilization",), kernel.utilization())
        points.add(("gpu.temperature",), kernel.temperature())
        points.add(("gpu.memory.total",), kernel.memory())
        points.add(("gpu.clock.graphics",), kernel.clock())
        points.add(("gpu.unified_memory",), 1)
        yield points.points

    def devices(self) -> Iterator[Device]:
        """Yield the one GPU."""
        yield Device(self._dims, self._model, ("0",))

    def processes(self) -> Iterator[Unlisted]:
        """Yield why there is no list of processes."""
        yield Unlisted("the kernel lists none")

    def activity(self) -> Iterator[DeviceActivity]:
        """Yield the utilization of the last moments."""
        load = self._kernel.utilization()
        yield DeviceActivity(self._dims, None if load is None else load / 100, "point value")

    def describe(self) -> str:
        """Return the model and the source."""
        return f"1 x {self._model}, by devfreq"

    def close(self) -> None:
        """Free nothing."""
