"""Runs Intel's program xpu-smi at intervals, and parses its output by the headers of its columns."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, TypeVar

from chipwatch.host import gpu_metrics
from chipwatch.host.gpu_metrics import Readings, plausible
from chipwatch.host.rows import ToolRow, tool_readings
from chipwatch.host.supervised_process import OneShot, ProgramOutput, QueryFailed, quoted

T = TypeVar("T")
DISCOVERY: Final = "discovery", "-j"
DUMP: Final = "dump", "-d", "-1", "-m", "0,1,2,3,4,5,8,18", "-i", "1", "-n", "1"
"""Prints metrics whose numbers mean the same in xpu-smi 1 and 2; numbers above 20 were reassigned."""
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


class XpuSmi:
    """Runs xpu-smi at intervals. It numbers the cards itself, so it is asked for their PCI addresses first."""

    def __init__(self, program: str, interval: float, timeout: float) -> None:
        """Run it every `interval` seconds, for at most `timeout` seconds."""
        self._program, self._oneshot = program, OneShot(interval, timeout)
        self._slots: Mapping[int, str] = {}

    def poll(self, now: float, *, start: bool) -> dict[str, Readings]:
        """
        Return the plausible readings of each answer once, by PCI address; otherwise {}. Never wait.

        Start the program if it is due at `now` (monotonic seconds) and `start` is set. Raise QueryFailed.
        """
        answer = self._oneshot.poll([self._program, *(DUMP if self._slots else DISCOVERY)], now, start=start)
        if answer is None:
            return {}
        if not self._slots:
            self._slots = _not_empty(parse_discovery(answer.data), answer)
            self._oneshot.run_now()
            return {}
        slots, cards = self._slots, _not_empty(parse_dump(answer.data), answer)
        if cards.keys() != slots.keys():  # a card has gone, and the others may have new numbers
            self._slots = {}
            raise QueryFailed(f"xpu-smi reported other GPUs than it listed before{answer.how}")
        return {slots[index]: plausible(readings) for index, readings in cards.items()}

    def close(self) -> None:
        """Kill the program if it runs."""
        self._oneshot.close()


def _not_empty(by_id: dict[int, T], answer: ProgramOutput) -> dict[int, T]:
    """Return the values of an answer by device; raise QueryFailed if no card has a value."""
    if not any(by_id.values()):
        raise QueryFailed(f"xpu-smi reported no GPU: {quoted(answer.data, 80)!r}{answer.how}")
    return by_id
