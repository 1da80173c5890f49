"""Intel's program xpu-smi, at a pace of its own, and read by header names."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import subprocess  # noqa: TID251  # xpu-smi is a program; a fixed name, no shell
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from agent.collectors.intel import metrics as m
from agent.collectors.intel.metrics import Readings
from agent.datapoint import Metric

IDS: Final = "0,1,2,3,4,5,8,18"
"""Numbers of metrics that mean the same in xpu-smi 1 and 2: those above 20 moved."""
COLUMNS: Final[tuple[tuple[str, Metric, float], ...]] = (
    (r"gpu utilization \(%\)", m.UTILIZATION, 1),
    (r"gpu power \(w\)", m.POWER, 1),
    (r"gpu frequency \(mhz\)", m.CLOCK, 1),
    (r"(gpu )?core temperature \((c|celsius.*|°c)\)", m.TEMPERATURE, 1),
    (r"(gpu )?memory temperature \((c|celsius.*|°c)\)", m.MEMORY_TEMPERATURE, 1),
    (r"gpu memory utilization \(%\)", m.MEMORY_UTILIZATION, 1),
    (r"gpu energy consumed \(j\)", m.ENERGY, 1),
    (r"gpu memory used \(mib\)", m.MEMORY_USED, 1 << 20),
)
MOST: Final = 1 << 20


def dumped(data: bytes) -> dict[int, Readings]:
    """Return what `xpu-smi dump` printed, by DeviceId; columns by their header, an empty cell or N/A is absent."""
    lines = data.decode(errors="replace").splitlines()
    start = next((n for n, line in enumerate(lines) if "deviceid" in line.lower()), len(lines))
    rows = list(csv.reader(io.StringIO("\n".join(lines[start:])), skipinitialspace=True))
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    found: dict[int, Readings] = {}
    for row in rows[1:]:
        cells = {name: cell.strip() for name, cell in zip(header, row, strict=False)}
        if cells.get("deviceid", "").isdecimal():
            readings = found[int(cells["deviceid"])] = {}
            for pattern, metric, factor in COLUMNS:
                for name, cell in cells.items():
                    if re.fullmatch(pattern, name) and re.fullmatch(r"\d+(\.\d+)?", cell):
                        readings[metric] = float(cell) * factor
    return found


def discovered(data: bytes) -> dict[int, str]:
    """Return PCI addresses by DeviceId from `xpu-smi discovery -j`; warnings may stand before the JSON."""
    whole = data.decode(errors="replace")
    with suppress(ValueError, KeyError, TypeError, AttributeError):
        rows = json.JSONDecoder().raw_decode(whole, whole.index("{"))[0]["device_list"]
        return {int(row["device_id"]): str(row["pci_bdf_address"]).lower() for row in rows}
    return {}


class XpuSmi:
    """Runs xpu-smi now and then, listens when a tick asks, and never waits."""

    def __init__(self, program: str, pace: float, patience: float) -> None:
        """Take where it is, and in seconds how often it is run and how long it may take."""
        self._program, self._pace, self._patience = program, pace, patience
        self._child: subprocess.Popen[bytes] | None = None
        self._data, self._due, self._end, self._late = b"", 0.0, 0.0, False
        self._slots: dict[int, str] = {}

    def poll(self, now: float, *, start: bool) -> Mapping[str, Readings]:
        """
        Return what it said by PCI address, if it has just ended; raise ValueError with what is wrong.

        `start` says whether it may be started: it would wake a card that sleeps.
        """
        if self._child is None:
            if start and now >= self._due:
                self._start(now)
            return {}
        return self._listen(now)

    def close(self) -> None:
        """End it."""
        if (child := self._child) is not None:
            self._child = None
            child.kill()
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.5)
            if child.stdout:
                child.stdout.close()

    def _start(self, now: float) -> None:
        words = ["dump", "-d", "-1", "-m", IDS, "-i", "1", "-n", "1"] if self._slots else ["discovery", "-j"]
        self._data, self._late, self._due, self._end = b"", False, now + self._pace, now + self._patience
        try:
            self._child = subprocess.Popen(  # noqa: S603  # a fixed name, or what the configuration says
                [self._program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the agent
            )
        except OSError as error:
            raise ValueError(f"xpu-smi cannot be started: {error.strerror}") from error
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)

    def _listen(self, now: float) -> Mapping[str, Readings]:
        child = self._child
        assert child is not None
        assert child.stdout is not None
        ended = child.poll() is not None  # asked before the last read, so that nothing is left behind
        with suppress(BlockingIOError):
            while len(self._data) <= MOST and (more := os.read(child.stdout.fileno(), 1 << 16)):
                self._data += more
        if not ended:
            if not self._late and (now > self._end or len(self._data) > MOST):
                self._late = True
                child.terminate()
                raise ValueError("xpu-smi printed too much" if now <= self._end else "xpu-smi gave no answer in time")
            return {}
        self.close()
        if self._late:
            return {}
        if not self._slots:
            self._slots, self._due = discovered(self._data), self._due if not discovered(self._data) else now
            found: dict[int, Readings] = {}
            missing = not self._slots
        else:
            found = dumped(self._data)
            missing = not found
        if missing:
            raise ValueError(f"xpu-smi told of no GPU: {' '.join(self._data[:80].decode(errors='replace').split())!r}")
        return {self._slots[number]: readings for number, readings in found.items() if number in self._slots}
