"""Collects metrics of AMD GPUs, from sysfs and from AMD's tools; docs/amd.md."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from chipwatch.collectors.amd.card import METRICS, AmdCard, amd_cards
from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import PartlyCollected, Unavailable
from chipwatch.contract.facts import Device, DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given
from chipwatch.host.drm import SECOND, CardCollector, CardReadings, CardTool
from chipwatch.host.gpu_metrics import GpuPoints, Readings
from chipwatch.host.procfs import close_all
from chipwatch.host.supervised_process import QueryFailed

if TYPE_CHECKING:
    from chipwatch.collectors.amd.share import KfdNode
    from chipwatch.collectors.amd.tools import Gaps

PARTITION: Final = "amdgpu_xcp"
"""Prefix of the names of devices that the kernel creates for partitions: amdgpu_xcp_drv.c."""


class AmdCollector(CardCollector[AmdCard]):
    """
    Reads every card of the driver amdgpu from files that stay open; does not wake a card that sleeps.

    Values that sysfs lacks come from amd-smi, then rocm-smi, which run beside it. The dimension `gpu` is the kernel's
    number of the card (/sys/class/drm/cardN), so cards of different vendors never have the same one.
    If the kernel has the driver but no card, the first tool that finds a card is used; `gpu` is then the tool's number.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Paths, and how often a tool is run for values that sysfs lacks."""

        dimensions: tuple[Literal["uuid"], ...] = ()
        """Dimensions of each point beside the card's number: uuid: GPU- and unique_id, else the PCI address."""
        path: str | None = None
        """Folders of amd-smi and rocm-smi, separated as in $PATH; /opt/rocm/bin and $PATH unless set."""
        tool_interval: float = 15.0
        """Seconds between two runs of a tool."""
        tool_timeout: float = 10.0
        """Seconds that a run may take before it gets SIGTERM."""
        pid: int | None = None
        """First process of the tree whose share is reported; filled from --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; filled from --root."""

    metrics = METRICS

    def __init__(self, config: Config) -> None:
        super().__init__(config.dimensions)
        self._config = config
        self._tool: CardTool | None = None
        self._gaps: Gaps | None = None
        self._points: dict[str, GpuPoints] = {}
        self._nodes: dict[str, KfdNode] = {}
        self._modes: list[tuple[str, str]] = []
        self._answer: CardReadings | None = None

    def open(self, given: Given) -> None:
        super().open(given)
        config = self._config
        if not self._cards:
            self._find_tool()
        elif config.pid is not None:
            from chipwatch.collectors.amd.share import AmdShare

            with suppress(ProcessLookupError):  # it has ended; the process collector reports that
                self._share = AmdShare(config, config.pid)

    def find_cards(self) -> Iterable[tuple[str, Path]]:
        return amd_cards(self._config.sys)

    def make_card(self, index: str, folder: Path) -> AmdCard:
        return AmdCard(index, folder, self._level)

    def collect(self, at: int) -> Iterable[Datapoint]:
        return self._from_tool(at) if self._tool else super().collect(at)

    def _processes(self) -> Iterable[DeviceProcess | Unlisted]:
        """Return the processes that compute on the cards, as AMD's compute driver (KFD) lists them."""
        sys = self._config.sys
        if not (sys / "class/kfd/kfd/proc").is_dir():
            return [Unlisted("the kernel has no KFD")]
        from chipwatch.collectors.amd.share import computing, occupied

        self._find_nodes()
        sizes_at = computing(sys, self._nodes)
        listed: list[DeviceProcess | Unlisted] = []
        for node, dims in self._parts():
            sizes = {pid: size for pid, size in sizes_at.get(node, {}).items() if size}
            units = occupied(sys, self._nodes, node, sizes) if len(sizes) > 1 else {}
            listed += [DeviceProcess(dims, pid, size, None, units.get(pid)) for pid, size in sizes.items()]
        return listed

    def facts(self) -> Iterator[Device | DeviceProcess | Unlisted]:
        """Yield also the partitions for which the kernel has created devices."""
        yield from super().facts()
        if any(card.chip.is_divided for card in self._cards.values()):
            self._find_nodes()
        yield from (Device(dims, ids=(node.name,)) for node, dims in self._parts() if node.name.startswith(PARTITION))

    def _find_nodes(self) -> None:
        """Find KFD's devices; find them again when the mode of a card has changed."""
        modes = [card.chip.modes for card in self._cards.values()]
        if not self._nodes or modes != self._modes:
            from chipwatch.collectors.amd.share import find_nodes

            self._nodes, self._modes = find_nodes(self._config.sys), modes

    def _parts(self) -> Iterator[tuple[KfdNode, Dimensions]]:
        """Yield each device of KFD with the dimensions of its card, or of its partition if the card has several."""
        cards = {card.slot: card for card in self._cards.values()}
        number = Counter(node.slot for node in self._nodes.values())
        for node in self._nodes.values():
            if card := cards.get(node.slot):
                yield node, card.dims | ({"mig": str(node.partition)} if number[node.slot] > 1 else {})

    def describe(self) -> str:
        if self._tool:
            return f"{len(self._points)} GPUs, {self._tool}"
        asleep = sum(card.suspended for card in self._cards.values())
        tools = f", {used}" if (used := str(self._gaps or "")) else ""
        return f"{len(self._cards)} GPUs, {self._config.sys}{tools}{f', {asleep} asleep' if asleep else ''}"

    def close(self) -> None:
        super().close()
        close_all(self._tool, self._gaps)
        self._tool = self._gaps = self._answer = None
        self._points, self._nodes = {}, {}

    def _ask_tools(self, now: float, problems: list[str]) -> Mapping[str, Readings]:
        cards = self._cards.values()
        asleep = any(card.suspended for card in cards)
        missing = {card.slot: card.gaps for card in cards if card.gaps and card.slot and not asleep}
        if self._gaps is None:
            if not missing:
                return {}
            from chipwatch.collectors.amd.tools import Gaps

            self._gaps = Gaps(self._config)
        return self._gaps.fill(missing, now, problems)

    def _find_tool(self) -> None:
        """Use the first tool that finds a card; raise Unavailable if none does."""
        config = self._config
        signs = config.sys / "module/amdgpu", config.root / "dev/kfd", config.root / "dev/dxg"
        where = f"no card of AMD's in {config.sys / 'class/drm'}"
        if not any(sign.exists() for sign in signs):
            raise Unavailable(f"{where}; {', '.join(map(str, signs))} are absent")
        from chipwatch.collectors.amd.tools import find_programs

        errors = []
        for tool in find_programs(config):
            try:
                while (answer := tool.poll(time.monotonic())) is None:
                    time.sleep(0.01)
            except QueryFailed as error:
                tool.close()
                errors.append(str(error))
            else:
                self._tool, self._answer = tool, answer
                return
        raise Unavailable(f"{where}; {'; '.join(errors) or 'neither amd-smi nor rocm-smi is installed'}")

    def _from_tool(self, at: int) -> Iterable[Datapoint]:
        """Yield the points of the tool's answer, if there is a new one."""
        assert self._tool is not None
        answer, self._answer = self._answer, None
        try:
            answer = answer or self._tool.poll(self._clock() / SECOND)
        except QueryFailed as error:
            raise PartlyCollected([str(error)]) from None
        for index, readings in (answer or {}).items():
            points = self._points.setdefault(index, GpuPoints(Dimensions(gpu=index)))
            yield from (point for point in points.make(at, readings) if point.metric.level <= self._level)
