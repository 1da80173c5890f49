"""Collects metrics of AMD GPUs from sysfs; docs/amd.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from chipwatch.collectors.amd.card import METRICS, AmdCard, amd_cards
from chipwatch.contract.datapoint import Dimensions
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import Device, DeviceProcess, Unlisted
from chipwatch.contract.plugin import Given
from chipwatch.host.drm import CardCollector

if TYPE_CHECKING:
    from chipwatch.collectors.amd.chip import KfdNode

PARTITION: Final = "amdgpu_xcp"
"""Prefix of the names of devices that the kernel creates for partitions: amdgpu_xcp_drv.c."""


class AmdCollector(CardCollector[AmdCard]):
    """
    Reads every card of the driver amdgpu from files that stay open; does not wake a card that sleeps.

    The dimension `gpu` is the kernel's number of the card (/sys/class/drm/cardN), so cards of different vendors never
    have the same one.
    """

    @dataclass(frozen=True, slots=True)
    class Config:
        """Dimensions and paths."""

        dimensions: tuple[Literal["uuid"], ...] = ()
        """Further dimensions of each point. `uuid` is "GPU-" with the card's unique_id, or its PCI address."""
        pid: int | None = None
        """First process of the tree whose share is reported; filled from --pid."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""

    metrics = METRICS

    def __init__(self, config: Config) -> None:
        super().__init__(config.dimensions)
        self._config = config
        self._nodes: dict[str, KfdNode] = {}
        self._modes: list[tuple[str, str]] = []

    def open(self, given: Given) -> None:
        super().open(given)
        config = self._config
        if not self._cards:
            raise Unavailable(f"no card of AMD's in {config.sys / 'class/drm'}")
        if config.pid is not None:
            from chipwatch.collectors.amd.chip import AmdShare

            with suppress(ProcessLookupError):  # it has ended; the process collector reports that
                self._share = AmdShare(config, config.pid)

    def find_cards(self) -> Iterable[tuple[str, Path]]:
        return amd_cards(self._config.sys)

    def make_card(self, index: str, folder: Path) -> AmdCard:
        return AmdCard(index, folder, self._level)

    def _processes(self) -> Iterable[DeviceProcess | Unlisted]:
        """Return the processes that compute on the cards, as AMD's compute driver (KFD) lists them."""
        sys = self._config.sys
        if not (sys / "class/kfd/kfd/proc").is_dir():
            return [Unlisted("the kernel has no KFD")]
        from chipwatch.collectors.amd.chip import computing, occupied

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
            from chipwatch.collectors.amd.chip import find_nodes

            self._nodes, self._modes = find_nodes(self._config.sys), modes

    def _parts(self) -> Iterator[tuple[KfdNode, Dimensions]]:
        """Yield each device of KFD with the dimensions of its card, or of its partition if the card has several."""
        cards = {card.slot: card for card in self._cards.values()}
        number = Counter(node.slot for node in self._nodes.values())
        for node in self._nodes.values():
            if card := cards.get(node.slot):
                yield node, card.dims | ({"mig": str(node.partition)} if number[node.slot] > 1 else {})

    def describe(self) -> str:
        asleep = sum(card.suspended for card in self._cards.values())
        return f"{len(self._cards)} GPUs, {self._config.sys}{f', {asleep} asleep' if asleep else ''}"

    def close(self) -> None:
        super().close()
        self._nodes = {}
