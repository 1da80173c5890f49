"""NVIDIA GPUs, through NVML; docs/nvidia.md tells what is read and how."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from agent.collector import Collector
from agent.collectors.nvidia.metrics import of_gpu, of_instance
from agent.datapoint import Datapoint
from agent.errors import Unavailable

if TYPE_CHECKING:
    from agent.collectors.nvidia.gpus import Gpus


class NvidiaCollector(Collector):
    """
    Reads every GPU that the driver lists, and its instances where it is divided (MIG).

    A call that hangs in the driver hangs this collector's thread, which is a daemon, and nothing else.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Which GPUs, and how they are told apart."""

        devices: tuple[int | str, ...] = ()
        """Indexes or UUIDs of the GPUs to read; all unless set. The UUID of a MIG instance stands for its GPU."""
        cuda_visible_devices: bool = False
        """Read only the GPUs that the variable CUDA_VISIBLE_DEVICES names, unless `devices` is set."""
        dimensions: tuple[Literal["uuid", "model"], ...] = ()
        """Further dimensions of each point, beside the index: uuid, model."""
        pid: int | None = None
        """First process of the tree whose own share is told; filled from --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; filled from --root."""

    metrics = (*of_gpu(), *of_instance())

    def __init__(self, config: Config) -> None:
        """Take the configuration."""
        self._config = config
        self._clock = time.monotonic_ns
        self._gpus: Gpus | None = None
        if config.dimensions:
            self.metrics = (*of_gpu(*config.dimensions), *of_instance(*config.dimensions))

    def open(self) -> None:
        """Find the GPUs; raise Unavailable where there is none, before the library, which takes 3 MB, is loaded."""
        self.close()
        self._look()
        try:
            from agent.collectors.nvidia.gpus import Gpus  # noqa: PLC0415  it loads pynvml
        except ModuleNotFoundError as problem:
            raise Unavailable(f"{problem}; pip install nvidia-ml-py") from problem
        self._gpus = Gpus(self._config, self.level, self._clock)

    def collect(self, at: int) -> Iterable[Datapoint]:
        """Yield what can be read now; what is dear every ten seconds."""
        assert self._gpus is not None
        if self._gpus.process != os.getpid():  # NVML does not survive a fork
            self.open()
        return self._gpus.read(at)

    def describe(self) -> str:
        """Say what GPUs there are, and how the watched process tree is found on them."""
        return self._gpus.describe() if self._gpus else ""

    def close(self) -> None:
        """Close NVML."""
        if self._gpus:
            self._gpus.close()
            self._gpus = None

    def _look(self) -> None:
        """Raise Unavailable where the system has nothing of NVIDIA's: this costs microseconds, and hangs never."""
        if sys.platform == "win32":
            return
        root = self._config.root
        signs = self._config.proc / "driver/nvidia/version", root / "dev/nvidiactl", root / "dev/dxg"
        if not any(sign.exists() for sign in signs):
            raise Unavailable(f"no NVIDIA driver: {', '.join(map(str, signs))} are absent")
