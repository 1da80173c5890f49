"""IOKit's registry of devices, as `ioreg` prints it: the GPU driver's statistics and the GPU's clocks."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from itertools import islice, pairwise
from typing import Final, TypeVar

from chipwatch.collectors.apple.foundation import REF, Foundation, Functions, Libraries, bind

T = TypeVar("T")
PORT: Final = ctypes.c_uint32
"""mach_port_t, io_object_t and similar types."""
CODE: Final = ctypes.c_int32
"""kern_return_t; 0 is success."""
TEXT, SIZE = ctypes.c_char_p, ctypes.c_size_t
IOKIT: Final[Functions] = {
    "IOServiceMatching": (REF, TEXT),
    "IOServiceGetMatchingServices": (CODE, PORT, REF, ctypes.POINTER(PORT)),
    "IOIteratorNext": (PORT, PORT),
    "IOObjectRelease": (CODE, PORT),
    "IORegistryEntryGetName": (CODE, PORT, TEXT),
    "IORegistryEntryCreateCFProperty": (REF, PORT, REF, REF, ctypes.c_uint32),
    "IOServiceOpen": (CODE, PORT, PORT, ctypes.c_uint32, ctypes.POINTER(PORT)),
    "IOServiceClose": (CODE, PORT),
    "IOConnectCallStructMethod": (CODE, PORT, ctypes.c_uint32, TEXT, SIZE, TEXT, ctypes.POINTER(SIZE)),
}
SYSTEM: Final[Functions] = {
    "mach_task_self": (PORT,),
    "sysctlbyname": (ctypes.c_int, TEXT, REF, ctypes.POINTER(SIZE), REF, SIZE),
}
MAX_NAME: Final = 128
"""sizeof(io_name_t)."""
MAX_ENTRIES: Final = 10_000
"""Entries of one class that are read; AppleARMIODevice has about 500."""
HZ: Final = range(100_000_000, 4_000_000_000)
"""Possible clocks of a GPU; above 4.29 GHz the field would wrap."""


class Registry:
    """IOKit's registry of this machine."""

    def __init__(self, foundation: Foundation, libraries: Libraries) -> None:
        """Load the functions; raise Unavailable."""
        self._foundation = foundation
        self.io, self.system = bind(libraries.iokit, IOKIT), bind(libraries.system, SYSTEM)

    def in_virtual_machine(self) -> bool:
        """Return whether this macOS (11 and later) is a guest, whose GPU is virtual."""
        value = ctypes.c_int(0)
        size = SIZE(ctypes.sizeof(value))
        code = self.system.sysctlbyname(b"kern.hv_vmm_present", ctypes.byref(value), ctypes.byref(size), None, 0)
        return code == 0 and value.value != 0

    def statistics(self, *keys: str) -> list[int | None]:
        """Return the values of `keys` in the GPU driver's PerformanceStatistics."""

        def read(entry: int) -> list[int | None] | None:
            with self._foundation.scope() as own:
                table = own(self._property(entry, "PerformanceStatistics"))
                values = [self._foundation.number(self._foundation.value(table, key)) for key in keys]
            return None if values == [None for _ in keys] else values

        return self.first("IOAccelerator", read) or [None for _ in keys]

    def clocks(self) -> list[int]:
        """Return the clocks (Hz) of the GPU's performance states, slowest first; [] if unknown."""

        def read(entry: int) -> list[int]:
            with self._foundation.scope() as own:
                return frequencies(self._foundation.data(own(self._property(entry, "voltage-states9"))))

        return self.first("AppleARMIODevice", read, "pmgr") or []

    def first(self, kind: str, read: Callable[[int], T | None], name: str = "") -> T | None:
        """Return the first result that is not None of `read` on the services of a class and, if given, of a name."""
        io, matching, iterator = self.io, self.io.IOServiceMatching(kind.encode()), PORT(0)
        # The call takes ownership of the dictionary, even if it fails.
        if not matching or io.IOServiceGetMatchingServices(0, matching, ctypes.byref(iterator)) or not iterator.value:
            return None
        entry_name, result = ctypes.create_string_buffer(MAX_NAME), None
        for entry in islice(iter(lambda: io.IOIteratorNext(iterator.value), 0), MAX_ENTRIES):
            if not name or (io.IORegistryEntryGetName(entry, entry_name) == 0 and entry_name.value == name.encode()):
                result = read(entry)
            io.IOObjectRelease(entry)
            if result is not None:
                break
        io.IOObjectRelease(iterator.value)
        return result

    def _property(self, entry: int, key: str) -> int | None:
        string = self._foundation.string(key)
        ref: int | None = self.io.IORegistryEntryCreateCFProperty(entry, string, None, 0) if string else None
        return ref


def frequencies(table: bytes) -> list[int]:
    """
    Return the clocks in a table of pairs (Hz, volts) of 32 bits each, without the first pair (off, 0 Hz).

    [] where they cannot be a GPU's: the key has another meaning on some chips.
    """
    clocks = [hz for hz, _ in struct.iter_unpack("<II", table[: len(table) // 8 * 8])]
    clocks = clocks[1:] if clocks[:1] == [0] else clocks
    rising = all(one < other for one, other in pairwise(clocks))
    return clocks if rising and all(hz in HZ for hz in clocks) else []
