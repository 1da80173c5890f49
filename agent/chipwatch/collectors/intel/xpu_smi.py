"""Intel's program xpu-smi, run at intervals; its columns are found by their headers."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from chipwatch.datapoint import Metric
from chipwatch.host import gpu_metrics
from chipwatch.host.gpu_metrics import Readings
from chipwatch.host.supervised_process import OneShot, QueryFailed, quoted

IDS: Final = "0,1,2,3,4,5,8,18"
"""Metrics whose numbers mean the same in xpu-smi 1 and 2; numbers above 20 were reassigned."""
COLUMNS: Final[tuple[tuple[str, Metric, float], ...]] = (
    (r"gpu utilization \(%\)", gpu_metrics.UTILIZATION, 1),
    (r"gpu power \(w\)", gpu_metrics.POWER, 1),
    (r"gpu frequency \(mhz\)", gpu_metrics.CLOCK_GRAPHICS, 1),
    (r"(gpu )?core temperature \((c|celsius.*|°c)\)", gpu_metrics.TEMPERATURE, 1),
    (r"(gpu )?memory temperature \((c|celsius.*|°c)\)", gpu_metrics.MEMORY_TEMPERATURE, 1),
    (r"gpu memory utilization \(%\)", gpu_metrics.MEMORY_UTILIZATION, 1),
    (r"gpu energy consumed \(j\)", gpu_metrics.ENERGY, 1),
    (r"gpu memory used \(mib\)", gpu_metrics.MEMORY_USED, 1 << 20),
)


def parse_dump(data: bytes) -> dict[int, Readings]:
    """
    Parse `xpu-smi dump`: readings by DeviceId; an empty cell or N/A is absent.

    An unfinished last line is ignored: its last number may be cut.
    """
    lines = data[: data.rfind(b"\n") + 1].decode(errors="replace").splitlines()
    start = next((n for n, line in enumerate(lines) if "deviceid" in line.lower()), len(lines))
    try:
        rows = list(csv.reader(lines[start:], skipinitialspace=True))
    except csv.Error:  # a cell above 128 KiB
        rows = []
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    readings_by_id: dict[int, Readings] = {}
    for row in rows[1:]:
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=False)}
        if re.fullmatch(r"\d{1,9}", cells.get("deviceid", "")):
            readings = readings_by_id[int(cells["deviceid"])] = {}
            for pattern, metric, factor in COLUMNS:
                for name, cell in cells.items():
                    if re.fullmatch(pattern, name) and re.fullmatch(r"\d+(\.\d+)?", cell):
                        readings[metric] = float(cell) * factor
    return readings_by_id


def parse_discovery(data: bytes) -> dict[int, str]:
    """Parse `xpu-smi discovery -j`: PCI addresses by DeviceId; warnings may precede the JSON."""
    output = data.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
        rows = json.JSONDecoder().raw_decode(output, output.index("{"))[0]["device_list"]
        return {int(row["device_id"]): str(row["pci_bdf_address"]).lower() for row in rows}
    return {}


class XpuSmi:
    """Runs xpu-smi at intervals."""

    def __init__(self, program: str, interval: float, timeout: float) -> None:
        """`interval`: seconds between two runs; `timeout`: seconds that a run may take."""
        self._program, self._oneshot = program, OneShot(interval, timeout)
        self._slots: dict[int, str] = {}

    def poll(self, now: float, *, start: bool) -> Mapping[str, Readings]:
        """
        Return readings by PCI address if a run has just ended, without waiting; raise QueryFailed.

        `start`: whether it may be started, which wakes a card that sleeps.
        """
        arguments = ["dump", "-d", "-1", "-m", IDS, "-i", "1", "-n", "1"] if self._slots else ["discovery", "-j"]
        answer = self._oneshot.poll([self._program, *arguments], now, start=start)
        if answer is None:
            return {}
        dump: dict[int, Readings] = {}
        if self._slots:
            dump = parse_dump(answer.data)
        elif slots := parse_discovery(answer.data):
            self._slots = slots
            self._oneshot.run_now()
            return {}
        if not dump:
            raise QueryFailed(f"xpu-smi reported no GPU: {quoted(answer.data, 80)!r}{answer.how}")
        return {self._slots[number]: readings for number, readings in dump.items() if number in self._slots}

    def close(self) -> None:
        """End it."""
        self._oneshot.close()
