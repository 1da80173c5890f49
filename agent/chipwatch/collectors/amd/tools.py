"""AMD's own programs, run at intervals for values that sysfs lacks; cards are matched by PCI address."""

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
"""PCI address of a card, and a metric that sysfs lacks."""


def parse_json(data: bytes) -> Any:
    """Return the first JSON object or list of objects; warnings may precede it. Raise QueryFailed."""
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


# The keys of a value in a row of amd-smi.
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
    """Parse `amd-smi metric --json`: a list (ROCm 6), or one under `gpu_data` (ROCm 7); raise QueryFailed."""
    rows = _amd_smi_rows(parse_json(data))
    return {n: tool_readings({name: _inside(row, name) for name, *_ in AMD_SMI}, AMD_SMI) for n, row in rows}


def _inside(row: Any, path: str) -> Any:
    """Return the value at the keys of `path`, which dots separate, or None."""
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
    """Return PCI addresses, "" if unknown, by number, from `amd-smi list --json` or rocm-smi; raise QueryFailed."""
    value = parse_json(data)
    slots = {index: row.get("bdf") for index, row in _amd_smi_rows(value)}
    slots |= {index: row.get("pci bus") for index, row in _rocm_smi_rows(value)}
    return {n: slot.lower() if isinstance(slot, str) and SLOT.fullmatch(slot) else "" for n, slot in slots.items()}


def find_programs(config: AmdCollector.Config, *, listed: bool = False) -> Iterator[CardTool]:
    """
    Yield the programs that are there, best first; an old one may precede ROCm's own in $PATH.

    `listed`: PCI addresses are needed.
    """
    where = config.path or os.pathsep.join(["/opt/rocm/bin", os.environ.get("PATH", os.defpath)])
    oneshot = partial(OneShot, config.tool_interval, config.tool_timeout)
    if smi := shutil.which("amd-smi", path=where):
        listing = [smi, "list", "--json"] if listed else []
        yield CardTool([smi, "metric", "--json"], amd_smi, listing, pci_addresses, oneshot())
    if smi := shutil.which("rocm-smi", path=where):
        yield CardTool([smi, "-a", "--showmeminfo", "vram", "--json"], rocm_smi, (), pci_addresses, oneshot())


class GapSource:
    """One tool, and the metrics that it lacks."""

    def __init__(self, tool: CardTool, interval: float) -> None:
        """`interval`: seconds between two runs of the tool."""
        self.tool, self._backoff = tool, Backoff(2 * interval)
        self._lacks: dict[Gap, float] = {}
        self.useful = False
        """True once it has filled a gap."""

    def fill(self, gaps: set[Gap], now: float, problems: list[str]) -> Mapping[Gap, float]:
        """Take those that the tool may fill out of `gaps`, and query them; return the values of an answer."""
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
    Fills gaps from amd-smi, then rocm-smi, which is asked for what the first lacks.

    No tool is started while nothing is missing, and no call waits. A metric that a tool lacked is requested again in an
    hour, and a tool that fails is retried with back-off: a card that has no such sensor costs little.
    """

    def __init__(self, config: AmdCollector.Config) -> None:
        self._sources = [GapSource(tool, config.tool_interval) for tool in find_programs(config, listed=True)]

    def fill(self, missing: Mapping[str, Iterable[Metric]], now: float, problems: list[str]) -> Mapping[str, Readings]:
        """Return new readings of the `missing` metrics, both by PCI address; `now` in monotonic s."""
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
