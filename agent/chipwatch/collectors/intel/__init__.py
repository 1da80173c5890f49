"""Intel GPUs, driven by i915 or xe, from sysfs, hwmon, fdinfo and xpu-smi; docs/intel.md."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from chipwatch.collector import Collector
from chipwatch.collectors.intel.card import INTEL, IntelCard, IntelShare, parse_client
from chipwatch.datapoint import Datapoint, Level
from chipwatch.errors import PartlyCollected, Unavailable
from chipwatch.extensions import Device, DeviceProcess
from chipwatch.host import gpu_metrics
from chipwatch.host.drm import SECOND, Cards, CardTool, cards, clients
from chipwatch.host.open_devices import OpenDevices
from chipwatch.host.pace import SLOW, Pace
from chipwatch.host.supervised_process import QueryFailed


class IntelCollector(Collector):
    """
    Reads every Intel card from files that are kept open; does not wake a card that sleeps.

    Values that sysfs lacks come from xpu-smi, where that is installed. `gpu` is the kernel's number of the card
    (/sys/class/drm/cardN), which no card of another vendor has.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Paths, and how often xpu-smi is run."""

        path: str | None = None
        """Folders of xpu-smi, separated as in $PATH; $PATH unless set."""
        tool_interval: float = 15.0
        """Seconds between two runs of xpu-smi."""
        tool_timeout: float = 10.0
        """Seconds that a run may take before it gets SIGTERM."""
        pid: int | None = None
        """First process of the tree whose share is reported; filled from --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""

    metrics = (
        gpu_metrics.UTILIZATION, gpu_metrics.MEMORY_UTILIZATION, gpu_metrics.MEMORY_USED, gpu_metrics.TEMPERATURE,
        gpu_metrics.MEMORY_TEMPERATURE, gpu_metrics.POWER, gpu_metrics.POWER_UTILIZATION, gpu_metrics.POWER_LIMIT,
        gpu_metrics.ENERGY, gpu_metrics.CLOCK_GRAPHICS, gpu_metrics.PROCESS_MEMORY_USED,
        gpu_metrics.PROCESS_UTILIZATION,
    )  # fmt: skip
    level: Level = Level.ALL

    def __init__(self, config: Config) -> None:
        self._config, self._clock = config, time.monotonic_ns
        self._cards = Cards(lambda: cards(config.sys, INTEL), IntelCard)
        self._xpu: CardTool | None = None
        self._share: IntelShare | None = None
        self._slow = Pace(SLOW)
        self._open: OpenDevices | None = None

    def open(self) -> None:
        self.close()
        config, self._slow = self._config, Pace(SLOW)
        self._cards.search(self._clock(), force=True)
        if not self._cards:
            raise Unavailable(f"no Intel card with sensors in {config.sys / 'class/drm'}")
        from shutil import which  # noqa: PLC0415  # 0.6 MB, only where there is a card

        if program := which("xpu-smi", path=config.path):
            from chipwatch.collectors.intel.xpu_smi import xpu_smi  # noqa: PLC0415  only where it is installed

            self._xpu = xpu_smi(program, config.tool_interval, config.tool_timeout)
        if config.pid is not None:
            with suppress(ProcessLookupError):  # it has ended; the process collector reports that
                self._share = IntelShare(config, config.pid, parse_client)

    def collect(self, at: int) -> Iterable[Datapoint]:
        now = self._clock()
        self._cards.search(now)
        awake = [card for card in self._cards.values() if card.begin()]
        problems: list[str] = []
        from_tool: Mapping[str, gpu_metrics.Readings] = {}
        if self._xpu:
            try:
                answer = self._xpu.poll(now / SECOND, start=len(awake) == len(self._cards))
                from_tool = self._xpu.by_slot(answer or {})
            except QueryFailed as error:
                problems.append(str(error))
        for card in awake:
            # A counter comes from one source only: another one may have begun at another moment.
            readings = card.complete(card.read(self._clock()), from_tool.get(card.slot, {}))
            yield from (point for point in card.points.make(at, readings) if point.metric.level <= self.level)
            problems += card.problems.values()
        if self._share and self._slow.is_due(now / SECOND):
            yield from self._share.points(at, self._cards.values())
        if problems:
            raise PartlyCollected(problems)

    def processes(self) -> Iterable[DeviceProcess] | None:
        """Return the processes that have a card open, with their memory; None without the right to see them."""
        self._open = self._open or OpenDevices(self._config.proc, r"/dev/dri/(card|renderD)\d+")
        if not self._cards or (pids := self._open.by_process()) is None:
            return None
        dims = {card.slot: card.dims for card in self._cards.values()}
        users = clients(self._config.proc, pids, parse_client).values()
        return [DeviceProcess(dims[use.slot], use.pid, use.memory) for use in users if use.slot in dims]

    def devices(self) -> Iterable[Device]:
        return self._cards.devices()

    def describe(self) -> str:
        return f"{len(self._cards)} GPUs, {self._config.sys}{', xpu-smi' if self._xpu else ''}"

    def close(self) -> None:
        self._cards.close()
        if self._xpu:
            self._xpu.close()
        self._xpu = self._share = None
