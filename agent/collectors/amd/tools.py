"""AMD's own programs, for machines whose sysfs shows no card: each at a pace of its own."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess  # noqa: TID251  # amd-smi and rocm-smi are programs; fixed names, no shell
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Protocol

from agent.collectors.amd import metrics as m
from agent.collectors.amd.metrics import Readings, number
from agent.datapoint import Metric

MOST: Final = 1 << 22
"""Bytes that a program may print: eight cards make 0.1 MB."""
PIPE: Final = 1 << 16
MIB: Final = 1 << 20
Cards = Mapping[str, Readings]
"""Readings by the tool's number of the card."""


class Wanted(Protocol):
    """How to ask."""

    @property
    def root(self) -> Path:
        """Where the machine's / is."""

    @property
    def path(self) -> str | None:
        """Folders of programs; None: ROCm's and those of $PATH."""

    @property
    def pace(self) -> float:
        """Seconds between two questions."""

    @property
    def patience(self) -> float:
        """Seconds that a program may take."""


class Trouble(Exception):
    """A tool gave nothing to be used; says why."""


def loaded(data: bytes) -> Any:
    """Return the first JSON that holds an object or a list of them; warnings may stand before it. Raise Trouble."""
    whole, decoder = data.decode(errors="replace"), json.JSONDecoder()
    for start in list(re.finditer(r"^\s*(?=[\[{])", whole, re.MULTILINE))[:100]:
        try:
            value, _ = decoder.raw_decode(whole, start.end())
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) or (isinstance(value, list) and value and isinstance(value[0], dict)):
            return value
    said = " ".join(whole.split())
    raise Trouble(f"printed no JSON: {said[:80]!r}" if said else "printed nothing")


def amd_smi(data: bytes) -> Cards:
    """Return what `amd-smi metric --json` says: a list (ROCm 6), or one under `gpu_data` (ROCm 7). Raise Trouble."""
    value = loaded(data)
    rows = value.get("gpu_data") if isinstance(value, dict) else value
    rows = [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    cards = {str(row["gpu"]): _row(row) for row in rows if isinstance(row.get("gpu"), int)}
    return some(cards)


# Where a value is in a row of amd-smi, the unit that it must have if it names one, and the factor to the metric's own.
AMD_SMI: Final[tuple[tuple[str, Metric, str, float], ...]] = (
    ("usage.gfx_activity", m.UTILIZATION, "%", 1),
    ("usage.umc_activity", m.MEMORY_ACTIVITY, "%", 1),
    ("mem_usage.total_vram", m.MEMORY_TOTAL, "mb", MIB),
    ("mem_usage.used_vram", m.MEMORY_USED, "mb", MIB),
    ("temperature.hotspot", m.TEMPERATURE, "c", 1),
    ("temperature.edge", m.TEMPERATURE, "c", 1),  # the later one wins; MI300 has no edge
    ("temperature.mem", m.MEMORY_TEMPERATURE, "c", 1),
    ("power.socket_power", m.POWER, "w", 1),
    ("power.power_limit", m.POWER_LIMIT, "w", 1),
    ("energy.total_energy_consumption", m.ENERGY, "j", 1),
    ("clock.gfx_0.clk", m.CLOCK_GRAPHICS, "mhz", 1),
    ("clock.mem_0.clk", m.CLOCK_MEMORY, "mhz", 1),
    ("fan.usage", m.FAN, "%", 1),
    ("ecc.total_correctable_count", m.ECC_CORRECTED, "", 1),
    ("ecc.total_uncorrectable_count", m.ECC_UNCORRECTED, "", 1),
)


def _row(row: Any) -> Readings:
    readings: Readings = {}
    for path, metric, unit, factor in AMD_SMI:
        value = row
        for key in path.split("."):
            value = value.get(key) if isinstance(value, dict) else None
        if (found := number(value, unit or None)) is not None:
            readings[metric] = found * factor
    return readings


# Keys of rocm-smi from 4.3 to 7, in lower case; the later line wins. Of `GPU memory use (%)` nothing is made but
# activity, which it is: https://github.com/ROCm/rocm_smi_lib renamed it in 6.1.2.
ROCM_SMI: Final[tuple[tuple[str, Metric, str | None, float], ...]] = (
    (r"gpu use \(%\)", m.UTILIZATION, None, 1),
    (r"gpu memory use \(%\)", m.MEMORY_ACTIVITY, None, 1),
    (r"gpu memory read/write activity \(%\)", m.MEMORY_ACTIVITY, None, 1),
    (r"gpu memory allocated \(vram%\)", m.MEMORY_UTILIZATION, None, 1),
    (r"vram total memory \(b\)", m.MEMORY_TOTAL, None, 1),
    (r"vram total used memory \(b\)", m.MEMORY_USED, None, 1),
    (r"temperature \(sensor junction\) \(c\)", m.TEMPERATURE, None, 1),
    (r"temperature \(sensor edge\) \(c\)", m.TEMPERATURE, None, 1),
    (r"temperature \(sensor memory\) \(c\)", m.MEMORY_TEMPERATURE, None, 1),
    (r"(average|current socket) graphics package power \(w\)", m.POWER, None, 1),
    (r"max graphics package power \(w\)", m.POWER_LIMIT, None, 1),
    (r"accumulated energy \(uj\)", m.ENERGY, None, 1e-6),
    (r"sclk clock speed:?", m.CLOCK_GRAPHICS, "mhz", 1),
    (r"mclk clock speed:?", m.CLOCK_MEMORY, "mhz", 1),
    (r"fan speed \(%\)", m.FAN, None, 1),
)


def rocm_smi(data: bytes) -> Cards:
    """Return what `rocm-smi -a --json` says of each `cardN`; every value is a string. Raise Trouble."""
    value = loaded(data)
    cards: dict[str, Readings] = {}
    for name, row in value.items() if isinstance(value, dict) else ():
        if re.fullmatch(r"card\d+", name) and isinstance(row, dict):
            texts = {key.strip().lower(): said for key, said in row.items()}
            readings = cards[name[4:]] = {}
            for pattern, metric, unit, factor in ROCM_SMI:
                for key, said in texts.items():
                    if re.fullmatch(pattern, key) and (found := number(said, unit)) is not None:
                        readings[metric] = found * factor
    return some(cards)


def some(cards: dict[str, Readings]) -> Cards:
    """Return the cards; raise Trouble where nothing was told of any."""
    if not any(cards.values()):
        raise Trouble("told of no GPU")
    return cards


class Program:
    """
    Runs a program now and then, listens to it when a tick asks, and never waits.

    At most one runs. One that takes too long, or prints too much, is told to end and left alone.
    """

    def __init__(
        self, command: Sequence[str | Path], parse: Callable[[bytes], Cards], pace: float, most: float
    ) -> None:
        """Take what to run, how to read it, and in seconds how often and for how long at most."""
        self._command, self._parse, self._pace, self._most = command, parse, pace, most
        self._child: subprocess.Popen[bytes] | None = None
        self._data = b""
        self._started = 0.0
        self._late = False

    def first(self) -> Cards:
        """Run it once and wait for it; raise Trouble."""
        while True:
            if (cards := self.poll(time.monotonic())) is not None:
                return cards
            if self._child and self._child.stdout:
                select.select([self._child.stdout], [], [], 0.05)

    def poll(self, now: float) -> Cards | None:
        """Return what it said if it has just ended, else None, at once; raise Trouble. `now` in seconds, monotonic."""
        if self._child is None:
            if self._started and now < self._started + self._pace:
                return None
            self._start(now)
        child = self._child
        assert child is not None
        assert child.stdout is not None
        ended = child.poll() is not None  # asked before the last read, so that nothing is left behind
        with suppress(BlockingIOError):
            while len(self._data) <= MOST and (data := os.read(child.stdout.fileno(), PIPE)):
                self._data += data
        if ended:
            return self._ended(child.returncode)
        if not self._late and (now > self._started + self._most or len(self._data) > MOST):
            self._late = True
            child.terminate()
            why = "printed too much" if len(self._data) > MOST else f"gave no answer in {self._most:g} s"
            raise Trouble(f"{self._name} {why}")
        return None

    def close(self) -> None:
        """Tell what runs to end; it is not waited for longer than a moment."""
        if (child := self._child) is not None:
            self._child = None
            child.kill()
            with suppress(subprocess.TimeoutExpired):
                child.wait(0.5)
            if child.stdout:
                child.stdout.close()

    def __str__(self) -> str:
        """Return the command."""
        return " ".join(map(str, self._command))

    @property
    def _name(self) -> str:
        return Path(self._command[0]).name

    def _start(self, now: float) -> None:
        self._data, self._late, self._started = b"", False, now
        try:
            self._child = subprocess.Popen(  # noqa: S603  # a program of the system's, or of the path that was set
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for the agent
            )
        except OSError as error:
            raise Trouble(f"{self._name} cannot be started: {error.strerror}") from error
        assert self._child.stdout is not None
        os.set_blocking(self._child.stdout.fileno(), False)

    def _ended(self, code: int) -> Cards | None:
        self.close()
        if self._late:
            return None  # which was said when it was told to end
        try:
            return self._parse(self._data)
        except Trouble as trouble:
            raise Trouble(f"{self._name} {trouble}{f' (exit code {code})' if code else ''}") from None


def programs(config: Wanted) -> Iterator[Program]:
    """Yield the programs that are there, best first; a stale one may stand earlier on $PATH than ROCm's own."""
    pace, most = config.pace, config.patience
    where = config.path or os.pathsep.join(["/opt/rocm/bin", os.environ.get("PATH", os.defpath)])
    if smi := shutil.which("amd-smi", path=where):
        yield Program([smi, "metric", "--json"], amd_smi, pace, most)
    if smi := shutil.which("rocm-smi", path=where):
        yield Program([smi, "-a", "--showmeminfo", "vram", "--json"], rocm_smi, pace, most)
