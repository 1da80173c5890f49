"""Collects metrics of NVIDIA GPUs, by the driver's library NVML; docs/nvidia.md."""

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
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import Device, DeviceActivity, DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given, Needs

if TYPE_CHECKING:
    from chipwatch.collectors.nvidia.gpus import Gpus
    from chipwatch.collectors.nvidia.unified import Jetson


class NvidiaCollector(Collector):
    """
    Reads every GPU that the driver lists, and its MIG instances.

    A call that hangs in the driver blocks only this collector's thread.
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
    needs = Needs(level=True, always=ALWAYS)
    knows = (Device, DeviceProcess, DeviceActivity)

    def __init__(self, config: Config) -> None:
        self._config, self._given = config, Given()
        self._asked = ""
        self._clock = time.monotonic_ns
        self._gpus: Gpus | Jetson | None = None
        if config.dimensions:
            self.metrics = declared(*config.dimensions)

    def open(self, given: Given) -> None:
        """Find the GPUs; raise Unavailable without one. ctypes is loaded only if there is a driver."""
        self.close()
        self._given = given
        try:
            self._open()
        except Unavailable:
            from chipwatch.collectors.nvidia.unified import Jetson, Kernel

            kernel = Kernel(self._config)
            if kernel.utilization() is None:
                raise
            self._gpus = Jetson(kernel, self._config.dimensions, given.level)

    def _open(self) -> None:
        """Find the GPUs by NVML; raise Unavailable without a driver or a GPU."""
        root, driver = self._config.root, self._config.proc / "driver/nvidia"
        devices = root / "dev/nvidiactl", root / "dev/dxg"
        has_device = any(device.exists() for device in devices)
        if not has_device and not (driver / "version").exists():
            where = ", ".join(map(str, (driver / "version", *devices)))
            raise Unavailable(f"no NVIDIA driver: {where} are absent; install it, or give the container its GPUs")
        cards = driver / "gpus"
        if not has_device and cards.is_dir() and not any(cards.iterdir()):  # opening NVML would create /dev/nvidiactl
            raise Unavailable(f"no NVIDIA GPU: {cards} is empty", is_counted=True)
        from chipwatch.collectors.nvidia.gpus import Gpus

        self._gpus = Gpus(self._config, self._given.level, self._clock, self._ask)

    def _ask(self, device: str) -> None:
        self._asked = device

    def collect(self, at: int) -> Iterable[Datapoint]:
        assert self._gpus is not None
        if self._gpus.process != os.getpid():  # NVML does not survive a fork
            self.open(self._given)
        return chain.from_iterable(self._gpus.read(at))

    def silent(self) -> Mapping[Dimensions, str]:
        return {} if self._gpus is None else self._gpus.silent

    def asking(self) -> str:
        return self._asked

    def facts(self) -> Iterable[Device | DeviceProcess | DeviceActivity | Unlisted]:
        gpus = self._gpus
        return [*gpus.processes(), *gpus.activity(), *gpus.devices()] if gpus else []

    def describe(self) -> str:
        return self._gpus.describe() if self._gpus else ""

    def close(self) -> None:
        if self._gpus:
            self._gpus.close()
            self._gpus = None
