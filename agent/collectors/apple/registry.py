"""IOKit's registry of devices, as `ioreg` prints it: the GPU driver's statistics and the GPU's clocks."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Generator, Mapping
from contextlib import closing
from itertools import islice, pairwise
from typing import Any, Final

from agent.collectors.apple.foundation import REF, Foundation, Libraries, bind

PORT: Final = ctypes.c_uint32
"""mach_port_t, io_object_t and similar types."""
CODE: Final = ctypes.c_int32
"""kern_return_t; 0 is success."""
TEXT, SIZE = ctypes.c_char_p, ctypes.c_size_t
IOKIT: Final[Mapping[str, tuple[Any, ...]]] = {
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
SYSTEM: Final[Mapping[str, tuple[Any, ...]]] = {
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
        with closing(self.services("IOAccelerator")) as entries:
            for entry in entries:
                with self._foundation.scope() as own:
                    table = own(self._property(entry, "PerformanceStatistics"))
                    values = [self._foundation.number(self._foundation.value(table, key)) for key in keys]
                if any(value is not None for value in values):
                    return values
        return [None for _ in keys]

    def clocks(self) -> list[int]:
        """Return the clocks (Hz) of the GPU's performance states, slowest first; [] if unknown."""
        with closing(self.services("AppleARMIODevice", "pmgr")) as entries, self._foundation.scope() as own:
            for entry in entries:
                return frequencies(self._foundation.data(own(self._property(entry, "voltage-states9"))))
        return []

    def services(self, kind: str, name: str = "") -> Generator[int]:
        """Yield each service of a class, or those of a name; each is released when the next one is taken."""
        io, matching, iterator = self.io, self.io.IOServiceMatching(kind.encode()), PORT(0)
        # The call takes ownership of the dictionary, even if it fails.
        if not matching or io.IOServiceGetMatchingServices(0, matching, ctypes.byref(iterator)) or not iterator.value:
            return
        found = ctypes.create_string_buffer(MAX_NAME)
        try:
            for entry in islice(iter(lambda: io.IOIteratorNext(iterator.value), 0), MAX_ENTRIES):
                try:
                    if not name or (io.IORegistryEntryGetName(entry, found) == 0 and found.value == name.encode()):
                        yield entry
                finally:
                    io.IOObjectRelease(entry)
        finally:
            io.IOObjectRelease(iterator.value)

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
