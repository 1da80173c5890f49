"""Collects metrics of Intel GPUs (drivers i915 and xe), from sysfs, hwmon, fdinfo and xpu-smi; docs/intel.md."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from chipwatch.collectors.intel.card import INTEL, IntelCard, parse_client
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given
from chipwatch.host import gpu_metrics
from chipwatch.host.drm import SECOND, CardCollector, cards
from chipwatch.host.drm_clients import DrmClient, TreeClients, busy_shares, clients
from chipwatch.host.open_devices import OpenDevices
from chipwatch.host.procfs import close_all
from chipwatch.host.supervised_process import QueryFailed

if TYPE_CHECKING:
    from chipwatch.collectors.intel.xpu_smi import XpuSmi


class IntelCollector(CardCollector[IntelCard]):
    """
    Reads every Intel card from files that stay open; does not wake a card that sleeps.

    Values that sysfs lacks come from xpu-smi, if installed; for a card without sensors, all of them do. The dimension
    `gpu` is the kernel's number of the card (/sys/class/drm/cardN), so cards of different vendors never have the same.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Paths, and how often xpu-smi is run."""

        dimensions: tuple[Literal["uuid"], ...] = ()
        """Dimensions of each point beside the card's number: uuid, which is the PCI address."""
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
        gpu_metrics.PROCESS_UTILIZATION, gpu_metrics.CLOCK_REDUCED,
    )  # fmt: skip

    def __init__(self, config: Config) -> None:
        super().__init__(config.dimensions)
        self._config = config
        self._program: str | None = None
        self._xpu: XpuSmi | None = None
        self._open: OpenDevices | None = None
        self._clients: tuple[int, dict[tuple[str, int], DrmClient]] = 0, {}
        """Time (monotonic ns) of the last list of processes, and the use of cards by these."""

    def open(self, given: Given) -> None:
        self.close()
        config = self._config
        where = config.sys / "class/drm"
        if not any(cards(config.sys, INTEL)):
            raise Unavailable(f"no Intel card in {where}")
        from shutil import which

        self._program = which("xpu-smi", path=config.path)
        super().open(given)
        if not self._cards:
            raise Unavailable(f"no Intel card with sensors in {where}, and no xpu-smi")
        if self._program:
            from chipwatch.collectors.intel.xpu_smi import XpuSmi

            self._xpu = XpuSmi(self._program, config.tool_interval, config.tool_timeout)
        if config.pid is not None:
            with suppress(ProcessLookupError):  # it has ended; the process collector reports that
                self._share = TreeClients(config, config.pid, parse_client)

    def find_cards(self) -> Iterable[tuple[str, Path]]:
        return cards(self._config.sys, INTEL)

    def make_card(self, index: str, folder: Path) -> IntelCard:
        return IntelCard(index, folder, self._level, needs_files=self._program is None)

    def _awake(self, now: int, *, slow: bool, problems: list[str]) -> list[tuple[IntelCard, gpu_metrics.Readings]]:
        """Return also what xpu-smi has. It is not started while a card sleeps, since it would wake the card."""
        awake = super()._awake(now, slow=slow, problems=problems)
        if not self._xpu:
            return awake
        try:
            by_slot = self._xpu.poll(now / SECOND, start=not any(card.suspended for card in self._cards.values()))
        except QueryFailed as error:
            problems.append(str(error))
            by_slot = {}
        return [(card, card.complete(readings, by_slot.get(card.slot, {}))) for card, readings in awake]

    def _processes(self) -> Iterable[DeviceProcess | Unlisted]:
        """Return the processes that have a card open, with their memory and utilization."""
        self._open = self._open or OpenDevices(self._config.proc, r"/dev/dri/(card|renderD)\d+")
        if (pids := self._open.by_process()) is None:
            return [Unlisted("the right to see them is missing")]
        dims = {card.slot: card.dims for card in self._cards.values()}
        users, now = clients(self._config.proc, pids, parse_client), self._clock()
        (read_at, before), self._clients = self._clients, (now, users)
        listed: list[DeviceProcess | Unlisted] = []
        for key, use in users.items():
            if use.slot in dims:
                shares = busy_shares(use, before.get(key), now - read_at)
                busy = min(100.0, 100 * max(shares.values())) if shares else None
                listed.append(DeviceProcess(dims[use.slot], use.pid, use.memory, busy))
        return listed

    def describe(self) -> str:
        return f"{len(self._cards)} GPUs, {self._config.sys}{', xpu-smi' if self._xpu else ''}"

    def close(self) -> None:
        super().close()
        close_all(self._xpu)
        self._xpu = None
