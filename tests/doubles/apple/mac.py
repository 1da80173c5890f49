"""A Mac: the library compiled from apple.c, and a description of the machine."""

from __future__ import annotations

import ctypes
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from chipwatch.collectors.apple.foundation import Libraries

HERE = Path(__file__).parent
# An M2 Ultra, as `macmon debug` printed it (github.com/vladkens/macmon issues 17 and 68).
CLOCKS = (0, 444, 612, 808, 968, 1110, 1236, 1338, 1398)
STATES = ("OFF", *(f"P{n}" for n in range(1, 16)))


class CannotBuild(Exception):
    """There is no C compiler, or not the kind of system that this is for."""


def build(folder: Path) -> Path:
    """Compile the library into `folder`; return its path."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or not compiler:
        raise CannotBuild("the fake of macOS needs Linux and a C compiler (cc)")
    library = folder / "libapple.so"
    flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-D_GNU_SOURCE", "-shared", "-fPIC", "-fvisibility=hidden"]
    done = subprocess.run(
        [compiler, *flags, "-o", library, HERE / "apple.c"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the fake of macOS does not compile: {done.stderr}")
    return library


def table(clocks_mhz: tuple[int, ...]) -> str:
    """Return a table of clocks and volts as the registry has it, in hexadecimal digits."""
    return b"".join(struct.pack("<II", 1_000_000 * mhz, 700) for mhz in clocks_mhz).hex()


class Mac:
    """The machine; what is changed here it knows after `tell`."""

    def __init__(self, library: Path) -> None:
        """Begin with an M2 Ultra."""
        self.libraries = Libraries(*[str(library)] * 5)
        self._fake = ctypes.CDLL(str(library))
        self._fake.fakeTrouble.restype = ctypes.c_char_p
        self._fake.fakeAlive.restype = self._fake.fakeCalls.restype = ctypes.c_long
        self._fake.fakeFail.argtypes = ctypes.c_long, ctypes.c_int
        self._fake.fakeFail(0, 0)
        self._fake.fakeForget()
        self.before = self.alive
        self.vm: int | None = 0
        self.statistics: dict[str, object] | str | None = {
            "In use system memory (driver)": 0,
            "Device Utilization %": 57,
            "In use system memory": 27_443_200,
            "Alloc system memory": 33_285_996_544,
        }
        self.clocks: str | None = table(CLOCKS)
        self.energy: dict[str, tuple[str, int]] = {
            "DIE_0_CPU Energy": ("mJ", 25_679),
            "PCPUDTL00": ("mJ", 1),
            "GPU SRAM0_0": ("mJ", 77),
            "GPU0_0": ("mJ", 80),
            "PCIe Port 0 Energy": ("uJ", 9),
            "GPU Energy": ("nJ", 5_000_000_000),
        }
        self.times: dict[str, int] | None = dict.fromkeys(STATES, 1000)
        self.sensors: list[tuple[str, str, float]] = [
            ("FNum", "ui8 ", 0),
            ("TB0p", "flt ", 51.9),
            ("Tg04", "flt ", 40.0),
            ("Tg05", "flt ", 42.0),
            ("Tg0j", "ui32", 0),
            ("Tg5z", "flt ", 0.0),
            ("Th00", "flt ", 90.0),
            ("VP0R", "flt ", 1.0),
        ]
        self.smc: str | None = "AppleSMCKeysEndpoint"
        self.tell()

    def tell(self, **changes: object) -> None:
        """Change the machine, and have the library know."""
        for name, value in changes.items():
            setattr(self, name, value)
        self._fake.fakeLoad("\n".join("\t".join(map(str, line)) for line in self._lines()).encode())

    def pass_by(self, seconds: float, watts: float = 0.0, **busy: float) -> None:
        """Let the GPU use power, and be in each state for a share of the time, the rest of it off."""
        unit, count = self.energy["GPU Energy"]
        scale = {"mJ": 1e3, "uJ": 1e6, "nJ": 1e9}.get(unit, 1)
        self.energy["GPU Energy"] = unit, count + round(seconds * watts * scale)
        for state, share in {"OFF": 1.0 - sum(busy.values()), **busy}.items():
            if self.times is not None:
                self.times[state] += round(24e6 * seconds * share)
        self.tell()

    def fail(self, nth: int, *, for_ever: bool = False) -> None:
        """Let the nth call from now on fail that may fail, and all after it; 0 for none."""
        self._fake.fakeFail(nth, for_ever)

    @property
    def calls(self) -> int:
        """Of those that may fail, since the last `fail`."""
        return int(self._fake.fakeCalls())

    @property
    def alive(self) -> int:
        """Objects, ports and pools that are not released yet."""
        return int(self._fake.fakeAlive())

    @property
    def leaked(self) -> int:
        """The same, since this Mac was made."""
        return self.alive - self.before

    def trouble(self) -> list[str]:
        """Return what was wrong with the calls."""
        return list(dict.fromkeys(self._fake.fakeTrouble().decode().splitlines()))

    def _lines(self) -> list[tuple[object, ...]]:
        lines: list[tuple[object, ...]] = [] if self.vm is None else [("vm", self.vm)]
        lines += [("service", "AppleARMIODevice", "uart"), ("service", "AppleARMIODevice", "pmgr")]
        if self.clocks is not None:
            lines.append(("data", "voltage-states9", self.clocks))
        lines += [("service", "AppleSMC", "AppleSMC"), ("service", "AppleSMC", self.smc)] if self.smc else []
        lines.append(("service", "IOAccelerator", "AGXAcceleratorG14X"))
        if isinstance(self.statistics, str):
            lines.append(("word", "PerformanceStatistics", self.statistics))
        elif isinstance(self.statistics, Mapping):
            lines += [("text" if isinstance(v, str) else "number", k, v) for k, v in self.statistics.items()]
        lines += [("energy", name, unit, count) for name, (unit, count) in self.energy.items()]
        if self.times is not None:
            lines.append(("states", "GPUPH", " ".join(f"{name}:{time}" for name, time in self.times.items())))
        for key, kind, value in self.sensors:
            content = struct.pack("<f", value).hex() if kind == "flt " else "00"
            lines.append(("smc", key, kind, {"flt ": 4, "ui32": 4}.get(kind, 1), content))
        return lines
