"""NVIDIA GPUs, read through NVML; details are in docs/nvidia.md."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chipwatch.collectors.nvidia.metrics import ALWAYS, declared
from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint, Dimensions, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.extensions import Device, DeviceActivity, DeviceProcess

if TYPE_CHECKING:
    from chipwatch.collectors.nvidia.gpus import Gpus
    from chipwatch.collectors.nvidia.unified import Jetson


class NvidiaCollector(Collector):
    """
    Reads every GPU that the driver lists, and its MIG instances.

    A call that hangs in the driver blocks only this collector's daemon thread.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Which GPUs to read, and with which dimensions."""

        devices: tuple[int | str, ...] = ()
        """Indexes or UUIDs of the GPUs to read; all unless set. The UUID of a MIG instance selects its GPU."""
        cuda_visible_devices: bool = False
        """Read only the GPUs in the variable CUDA_VISIBLE_DEVICES, unless `devices` is set."""
        dimensions: tuple[Literal["uuid", "model", "driver"], ...] = ()
        """Dimensions of each point in addition to the index: uuid, model, driver (its version)."""
        pid: int | None = None
        """First process of the tree whose usage is read; set by --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; set by --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; set by --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; set by --root."""

    metrics = declared()
    level: Level = Level.ALL
    always = ALWAYS

    def __init__(self, config: Config) -> None:
        self.asking = ""
        self._config = config
        self._clock = time.monotonic_ns
        self._gpus: Gpus | Jetson | None = None
        if config.dimensions:
            self.metrics = declared(*config.dimensions)

    def open(self) -> None:
        """Find the GPUs; raise Unavailable if there is none. Without a driver, ctypes is not loaded."""
        self.close()
        try:
            self._open()
        except Unavailable:
            from chipwatch.collectors.nvidia.unified import Jetson, Kernel

            kernel = Kernel(self._config)
            if kernel.utilization() is None:
                raise
            self._gpus = Jetson(kernel, self._config.dimensions, self.level)

    def _open(self) -> None:
        """Find the GPUs by NVML; raise Unavailable."""
        root, driver = self._config.root, self._config.proc / "driver/nvidia"
        devices = root / "dev/nvidiactl", root / "dev/dxg"
        has_device = any(device.exists() for device in devices)
        if not has_device and not (driver / "version").exists():
            where = ", ".join(map(str, (driver / "version", *devices)))
            raise Unavailable(f"no NVIDIA driver: {where} are absent; install it, or give the container its GPUs")
        cards = driver / "gpus"
        if not has_device and cards.is_dir() and not any(cards.iterdir()):  # NVML would create /dev/nvidiactl
            raise Unavailable(f"no NVIDIA GPU: {cards} is empty", is_counted=True)
        from chipwatch.collectors.nvidia.gpus import Gpus

        self._gpus = Gpus(self._config, self.level, self._clock, self._ask)

    def _ask(self, device: str) -> None:
        self.asking = device

    def collect(self, at: int) -> Iterable[Datapoint]:
        assert self._gpus is not None
        if self._gpus.process != os.getpid():  # NVML does not survive a fork
            self.open()
        return chain.from_iterable(self._gpus.read(at))

    def silent(self) -> Mapping[Dimensions, str]:
        return {} if self._gpus is None else self._gpus.silent

    def devices(self) -> Iterable[Device]:
        return self._gpus.devices() if self._gpus else ()

    def processes(self) -> Iterable[DeviceProcess] | None:
        return self._gpus.processes() if self._gpus else None

    def activity(self) -> Iterable[DeviceActivity]:
        return self._gpus.activity() if self._gpus else ()

    def describe(self) -> str:
        return self._gpus.describe() if self._gpus else ""

    def close(self) -> None:
        if self._gpus:
            self._gpus.close()
            self._gpus = None
