"""Runs Intel's program xpu-smi at intervals, and parses its output by the headers of its columns."""

from __future__ import annotations

import csv
import json
import re
from contextlib import suppress
from typing import Final

from chipwatch.host import gpu_metrics
from chipwatch.host.drm import CardTool
from chipwatch.host.gpu_metrics import Readings
from chipwatch.host.rows import ToolRow, tool_readings
from chipwatch.host.supervised_process import OneShot

IDS: Final = "0,1,2,3,4,5,8,18"
"""Numbers of metrics that mean the same in xpu-smi 1 and 2; numbers above 20 were reassigned."""
COLUMNS: Final = (
    ToolRow(r"gpu utilization \(%\)", gpu_metrics.UTILIZATION),
    ToolRow(r"gpu power \(w\)", gpu_metrics.POWER),
    ToolRow(r"gpu frequency \(mhz\)", gpu_metrics.CLOCK_GRAPHICS),
    ToolRow(r"(gpu )?core temperature \((c|celsius.*|°c)\)", gpu_metrics.TEMPERATURE),
    ToolRow(r"(gpu )?memory temperature \((c|celsius.*|°c)\)", gpu_metrics.MEMORY_TEMPERATURE),
    ToolRow(r"gpu memory utilization \(%\)", gpu_metrics.MEMORY_UTILIZATION),
    ToolRow(r"gpu energy consumed \(j\)", gpu_metrics.ENERGY),
    ToolRow(r"gpu memory used \(mib\)", gpu_metrics.MEMORY_USED, scale=1 << 20),
)


def parse_dump(data: bytes) -> dict[int, Readings]:
    """
    Parse `xpu-smi dump`; return DeviceId -> readings, without empty cells and N/A.

    A last line without its end is ignored, because its last number may be cut.
    """
    lines = data[: data.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    start = next((n for n, line in enumerate(lines) if "deviceid" in line.lower()), len(lines))
    try:
        rows = list(csv.reader(lines[start:], skipinitialspace=True))
    except csv.Error:  # a cell has more than 128 KiB
        rows = []
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    readings_by_id: dict[int, Readings] = {}
    for row in rows[1:]:
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=False)}
        if re.fullmatch(r"\d{1,9}", cells.get("deviceid", "")):
            readings_by_id[int(cells["deviceid"])] = tool_readings(cells, COLUMNS)
    return readings_by_id


def parse_discovery(data: bytes) -> dict[int, str]:
    """Parse `xpu-smi discovery -j`, which may begin with warnings; return DeviceId -> PCI address."""
    output = data.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        rows = json.JSONDecoder().raw_decode(output, output.index("{"))[0]["device_list"]
        return {int(row["device_id"]): str(row["pci_bdf_address"]).lower() for row in rows}
    return {}


def xpu_smi(program: str, interval: float, timeout: float) -> CardTool:
    """Return a runner of xpu-smi; it runs every `interval` seconds, for at most `timeout` seconds."""
    dump = [program, "dump", "-d", "-1", "-m", IDS, "-i", "1", "-n", "1"]
    return CardTool(dump, parse_dump, [program, "discovery", "-j"], parse_discovery, OneShot(interval, timeout))
