"""Runs AMD's programs at intervals, for values that sysfs lacks; matches cards by PCI address."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from chipwatch.collectors.amd.card import HOTSPOT
from chipwatch.contract.datapoint import Metric
from chipwatch.host import gpu_metrics
from chipwatch.host.drm import CardReadings, CardTool
from chipwatch.host.gpu_metrics import Readings
from chipwatch.host.pace import HOUR, Backoff
from chipwatch.host.rows import ToolRow, tool_readings
from chipwatch.host.supervised_process import OneShot, QueryFailed, quoted

if TYPE_CHECKING:
    from chipwatch.collectors.amd import AmdCollector

SLOT: Final = re.compile(r"[0-9A-Fa-f]{4,}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")
MIB: Final = 1 << 20
Gap = tuple[str, Metric]
"""A metric that sysfs lacks for a card: the card's PCI address, the metric."""


def parse_json(data: bytes) -> Any:
    """Parse the first JSON object or list of objects in an output that may begin with warnings; raise QueryFailed."""
    output, decoder = data.decode(errors="replace"), json.JSONDecoder()
    for start in list(re.finditer(r"^\s*(?=[\[{])", output, re.MULTILINE))[:100]:
        try:
            value, _ = decoder.raw_decode(output, start.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            return value
    shown = quoted(data, 80)
    raise QueryFailed(f"printed no JSON: {shown!r}" if shown else "printed nothing")


# Keys that lead to a value in the output of amd-smi for one card.
AMD_SMI: Final = (
    ToolRow("usage.gfx_activity", gpu_metrics.UTILIZATION, "%"),
    ToolRow("usage.umc_activity", gpu_metrics.MEMORY_ACTIVITY, "%"),
    ToolRow("mem_usage.total_vram", gpu_metrics.MEMORY_TOTAL, "mb", MIB),
    ToolRow("mem_usage.used_vram", gpu_metrics.MEMORY_USED, "mb", MIB),
    ToolRow("temperature.hotspot", HOTSPOT, "c"),
    ToolRow("temperature.hotspot", gpu_metrics.TEMPERATURE, "c"),
    ToolRow("temperature.edge", gpu_metrics.TEMPERATURE, "c"),  # the later one wins; MI300 has no edge
    ToolRow("temperature.mem", gpu_metrics.MEMORY_TEMPERATURE, "c"),
    ToolRow("power.socket_power", gpu_metrics.POWER, "w"),
    ToolRow("power.power_limit", gpu_metrics.POWER_LIMIT, "w"),
    ToolRow("energy.total_energy_consumption", gpu_metrics.ENERGY, "j"),
    ToolRow("clock.gfx_0.clk", gpu_metrics.CLOCK_GRAPHICS, "mhz"),
    ToolRow("clock.mem_0.clk", gpu_metrics.CLOCK_MEMORY, "mhz"),
    ToolRow("fan.usage", gpu_metrics.FAN, "%"),
    ToolRow("ecc.total_correctable_count", gpu_metrics.ECC_CORRECTED),
    ToolRow("ecc.total_uncorrectable_count", gpu_metrics.ECC_UNCORRECTED),
)


def amd_smi(data: bytes) -> CardReadings:
    """Parse `amd-smi metric --json`: a list (ROCm 6), or a list under `gpu_data` (ROCm 7); raise QueryFailed."""
    rows = _amd_smi_rows(parse_json(data))
    return {n: tool_readings({name: _inside(row, name) for name, *_ in AMD_SMI}, AMD_SMI) for n, row in rows}


def _inside(row: Any, path: str) -> Any:
    """Return the value at a path of keys, which dots separate; None if there is none."""
    for key in path.split("."):
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _amd_smi_rows(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = value.get("gpu_data") if isinstance(value, dict) else value
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("gpu"), int):
            yield str(row["gpu"]), row


# Keys of rocm-smi from 4.3 to 7, in lower case; the later line wins. `GPU memory use (%)` is activity, not capacity:
# https://github.com/ROCm/rocm_smi_lib renamed it in 6.1.2.
ROCM_SMI: Final = (
    ToolRow(r"gpu use \(%\)", gpu_metrics.UTILIZATION),
    ToolRow(r"gpu memory use \(%\)", gpu_metrics.MEMORY_ACTIVITY),
    ToolRow(r"gpu memory read/write activity \(%\)", gpu_metrics.MEMORY_ACTIVITY),
    ToolRow(r"gpu memory allocated \(vram%\)", gpu_metrics.MEMORY_UTILIZATION),
    ToolRow(r"vram total memory \(b\)", gpu_metrics.MEMORY_TOTAL),
    ToolRow(r"vram total used memory \(b\)", gpu_metrics.MEMORY_USED),
    ToolRow(r"temperature \(sensor junction\) \(c\)", HOTSPOT),
    ToolRow(r"temperature \(sensor junction\) \(c\)", gpu_metrics.TEMPERATURE),
    ToolRow(r"temperature \(sensor edge\) \(c\)", gpu_metrics.TEMPERATURE),
    ToolRow(r"temperature \(sensor memory\) \(c\)", gpu_metrics.MEMORY_TEMPERATURE),
    ToolRow(r"(average|current socket) graphics package power \(w\)", gpu_metrics.POWER),
    ToolRow(r"max graphics package power \(w\)", gpu_metrics.POWER_LIMIT),
    ToolRow(r"accumulated energy \(uj\)", gpu_metrics.ENERGY, scale=1e-6),
    ToolRow(r"sclk clock speed:?", gpu_metrics.CLOCK_GRAPHICS, "mhz"),
    ToolRow(r"mclk clock speed:?", gpu_metrics.CLOCK_MEMORY, "mhz"),
    ToolRow(r"fan speed \(%\)", gpu_metrics.FAN),
)


def rocm_smi(data: bytes) -> CardReadings:
    """Parse `rocm-smi -a --json`: an object `cardN` for each card, all values strings; raise QueryFailed."""
    return {index: tool_readings(row, ROCM_SMI) for index, row in _rocm_smi_rows(parse_json(data))}


def _rocm_smi_rows(value: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, row in value.items() if isinstance(value, dict) else ():
        if re.fullmatch(r"card\d+", name) and isinstance(row, dict):
            yield name[4:], {key.strip().lower(): cell for key, cell in row.items()}


def pci_addresses(data: bytes) -> Mapping[str, str]:
    """Parse `amd-smi list --json` or rocm-smi: number -> PCI address, "" if unknown; raise QueryFailed."""
    value = parse_json(data)
    slots = {index: row.get("bdf") for index, row in _amd_smi_rows(value)}
    slots |= {index: row.get("pci bus") for index, row in _rocm_smi_rows(value)}
    return {n: slot.lower() if isinstance(slot, str) and SLOT.fullmatch(slot) else "" for n, slot in slots.items()}


def find_programs(config: AmdCollector.Config, *, listed: bool = False) -> Iterator[CardTool]:
    """
    Yield the installed programs, the best one first. ROCm's folder goes before $PATH, which may have old ones.

    `listed`: also get the PCI addresses of cards.
    """
    where = config.path or os.pathsep.join(["/opt/rocm/bin", os.environ.get("PATH", os.defpath)])
    oneshot = partial(OneShot, config.tool_interval, config.tool_timeout)
    if smi := shutil.which("amd-smi", path=where):
        listing = [smi, "list", "--json"] if listed else []
        yield CardTool([smi, "metric", "--json"], amd_smi, listing, pci_addresses, oneshot())
    if smi := shutil.which("rocm-smi", path=where):
        yield CardTool([smi, "-a", "--showmeminfo", "vram", "--json"], rocm_smi, (), pci_addresses, oneshot())


class GapSource:
    """A tool that fills gaps, and the metrics that it lacks."""

    def __init__(self, tool: CardTool, interval: float) -> None:
        """`interval`: seconds between two runs of the tool."""
        self.tool, self._backoff = tool, Backoff(2 * interval)
        self._lacks: dict[Gap, float] = {}
        self.useful = False
        """True once the tool has filled a gap."""

    def fill(self, gaps: set[Gap], now: float, problems: list[str]) -> Mapping[Gap, float]:
        """Remove from `gaps` those that the tool may fill, and ask it for them; return the values of its answer."""
        mine = {gap for gap in gaps if self._lacks.get(gap, 0) <= now} if self._backoff.allows(now) else set()
        gaps -= mine
        try:
            cards = self.tool.poll(now, start=bool(mine))
        except QueryFailed as error:
            self._backoff.fail(now)
            problems.append(str(error))
            return {}
        if cards is None:
            return {}
        self._backoff.succeed()
        by_slot = self.tool.by_slot(cards)
        filled = {(slot, metric): by_slot[slot][metric] for slot, metric in mine if metric in by_slot.get(slot, ())}
        self.useful = self.useful or bool(filled)
        self._lacks |= dict.fromkeys(mine - filled.keys(), now + HOUR)
        return filled


class Gaps:
    """
    Fills gaps by amd-smi; rocm-smi is asked for metrics that amd-smi lacks.

    No tool is started without a gap, and no call waits. A metric that a tool lacks is tried again after an hour, and a
    tool that fails is tried again with back-off, so that a card without a sensor does not cause many runs.
    """

    def __init__(self, config: AmdCollector.Config) -> None:
        self._sources = [GapSource(tool, config.tool_interval) for tool in find_programs(config, listed=True)]

    def fill(self, missing: Mapping[str, Iterable[Metric]], now: float, problems: list[str]) -> Mapping[str, Readings]:
        """Return PCI address -> new readings of its `missing` metrics; `now`: monotonic s."""
        gaps = {(slot, metric) for slot, metrics in missing.items() for metric in metrics}
        readings: dict[str, Readings] = {}
        for source in self._sources:
            for (slot, metric), value in source.fill(gaps, now, problems).items():
                readings.setdefault(slot, {})[metric] = value
        return readings

    def close(self) -> None:
        """Release the tools."""
        for source in self._sources:
            source.tool.close()

    def __str__(self) -> str:
        return ", ".join(str(source.tool) for source in self._sources if source.useful)
