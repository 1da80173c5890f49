"""Collects metrics of Intel GPUs (drivers i915 and xe), from sysfs, hwmon, fdinfo and xpu-smi; docs/intel.md."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from chipwatch.contract.datapoint import Datapoint, Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given
from chipwatch.host import gpu_metrics
from chipwatch.host.drm import SECOND, CardCollector, CardFiles, cards
from chipwatch.host.drm_clients import DrmClient, Engine, TreeClients, busy_shares, clients, size
from chipwatch.host.gpu_metrics import Readings
from chipwatch.host.open_devices import OpenDevices
from chipwatch.host.procfs import close_all, text
from chipwatch.host.rows import FileRow
from chipwatch.host.supervised_process import QueryFailed

if TYPE_CHECKING:
    from chipwatch.collectors.intel.xpu_smi import XpuSmi


INTEL: Final = "0x8086"
MIN_ELAPSED: Final = SECOND // 2
"""Shortest time (ns) for computing a rate from counters, which increase in steps."""
ROWS: Final = (
    # The actual frequency of the chip, 0 while it sleeps: in i915, in an older i915, in xe.
    FileRow(gpu_metrics.CLOCK_GRAPHICS, "gt/gt0/rps_act_freq_mhz"),
    FileRow(gpu_metrics.CLOCK_GRAPHICS, "gt_act_freq_mhz"),
    FileRow(gpu_metrics.CLOCK_GRAPHICS, "device/tile0/gt0/freq0/act_freq"),
    # Sensors of the card; without them, of its package: Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon.
    FileRow(gpu_metrics.ENERGY, "{hwmon}/energy1_input", 1e-6),
    FileRow(gpu_metrics.ENERGY, "{hwmon}/energy2_input", 1e-6),
    FileRow(gpu_metrics.POWER_LIMIT, "{hwmon}/power1_max", 1e-6),
    FileRow(gpu_metrics.POWER_LIMIT, "{hwmon}/power1_cap", 1e-6),
    FileRow(gpu_metrics.POWER_LIMIT, "{hwmon}/power2_max", 1e-6),
    FileRow(gpu_metrics.POWER_LIMIT, "{hwmon}/power2_cap", 1e-6),
    FileRow(gpu_metrics.TEMPERATURE, "{hwmon}/{pkg}", 1e-3),
    FileRow(gpu_metrics.MEMORY_TEMPERATURE, "{hwmon}/{vram}", 1e-3),
)
"""Files below /sys/class/drm/cardN. If a metric has several rows, the first one whose file exists counts."""
REASONS: Final = {
    "pl1": "power", "pl2": "power", "pl4": "power", "ratl": "thermal", "vr_thermalert": "thermal_regulator",
    "vr_tdc": "current",
}  # fmt: skip
"""Reason of xe for a lower clock (xe_gt_throttle.c) -> its name in our metrics, if that differs."""
ROUNDING: Final = 5
"""Percent below 0 that count as 0: idle time increases in steps, and is not read exactly at `now`."""
ENGINES: Final = re.compile(r"drm-(engine|cycles)-(render|compute|rcs|ccs)")
RESIDENT: Final = re.compile(r"drm-resident-(vram|local)\d+")


class IntelCard(CardFiles):
    """One Intel card: its open files, and its last counters."""

    def __init__(self, index: str, folder: Path, level: Level = Level.ALL, *, needs_files: bool = True) -> None:
        """Open the files; raise LookupError if there are none, unless a tool can read the card (`needs_files`)."""
        super().__init__(index, folder)
        if not self.places:  # the one sensor of i915 has no label
            self.places["pkg"] = "temp1_input"
        self._rows = self.keep_rows(ROWS)
        self._has_energy = any(row.metric is gpu_metrics.ENERGY for row in self._rows)
        engines = sorted(path for path in self.device.glob("tile*/gt*/gtidle/name") if text(path).endswith("-rc"))
        self._idle = self._kept(path.with_name("idle_residency_ms") for path in engines)
        wanted = level >= gpu_metrics.CLOCK_REDUCED.level
        self._reasons = self._kept(self.device.glob("tile*/gt*/freq0/throttle/reason_*")) if wanted else []
        self._reduced: set[str] = set()
        self._last: dict[str, tuple[int, float]] = {}
        if needs_files and not (self._idle or self._rows):
            self.close()
            raise LookupError(folder)

    def read_card(self, now: int, *, slow: bool) -> Readings | None:
        """Return the readings at `now` (monotonic ns); rates cover the time since the last call."""
        del slow
        if not self.begin():
            self._last = {}  # counters may stand still while the card sleeps
            return None
        readings = {row.metric: value for row, value in self.read(self._rows)}
        if (watts := self._rate("energy", readings.get(gpu_metrics.ENERGY), now)) is not None:
            readings[gpu_metrics.POWER] = watts
        idle = [self._rate(path, self.number(path), now) for path in self._idle]  # idle ms per second
        shares = [100 - rate / 10 for rate in idle if rate is not None]
        if shares and max(shares) >= -ROUNDING:
            readings[gpu_metrics.UTILIZATION] = max(0.0, *shares)
        return readings

    def further(self, at: int) -> Iterator[Datapoint]:
        words = (path.rpartition("/reason_")[2] for path in self._reasons if self.number(path))
        now = {REASONS.get(word, word) for word in words}
        self._reduced |= now
        for reason in sorted(self._reduced):
            yield gpu_metrics.CLOCK_REDUCED.point(at, int(reason in now), self.dims | {"reason": reason})

    def complete(self, readings: Readings, from_tool: Readings) -> Readings:
        """Return the readings from sysfs, completed by readings from a tool."""
        # A counter must always come from the same source: another one may have started at another time.
        own = {gpu_metrics.ENERGY, gpu_metrics.POWER} if self._has_energy else set()
        own |= {gpu_metrics.UTILIZATION} if self._idle else set()
        return {metric: value for metric, value in from_tool.items() if metric not in own} | readings

    def _kept(self, files: Iterable[Path]) -> list[str]:
        """Open files; return the paths of those that exist, relative to the card's folder."""
        return [path for file in files if self.keep(path := str(file.relative_to(self.folder)))]

    def _rate(self, source: str, value: float | None, now: int) -> float | None:
        """Return the increase of a counter per second; None if it has decreased or has no earlier reading."""
        then = self._last.get(source)
        if value is None or (then and now - then[0] < MIN_ELAPSED and value >= then[1]):
            return None
        self._last[source] = now, value
        return (value - then[1]) * SECOND / (now - then[0]) if then and value >= then[1] else None


def parse_client(pid: int, fields: dict[str, str]) -> DrmClient:
    """Parse an fdinfo of i915 (busy ns) or xe (busy and all cycles); raise KeyError or ValueError for another."""
    if fields["drm-driver"] not in {"i915", "xe"}:
        raise KeyError("drm-driver")
    sizes = [size(value) for name, value in fields.items() if RESIDENT.fullmatch(name)]
    engines = {}
    for name, value in fields.items():
        if found := ENGINES.fullmatch(name):
            kind, engine = found.groups()
            total = int(fields[f"drm-total-cycles-{engine}"]) if kind == "cycles" else None
            engines[engine] = Engine(
                int(value.split()[0]), total, int(fields.get(f"drm-engine-capacity-{engine}", "1"))
            )
    memory = sum(sizes) if sizes else None
    return DrmClient(pid, fields["drm-pdev"].lower(), int(fields["drm-client-id"]), memory, 0, engines)


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
