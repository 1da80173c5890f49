"""IOKit's registry of devices, as `ioreg` prints it: the GPU driver's statistics and the GPU's clocks."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Generator, Mapping
from contextlib import closing
from itertools import pairwise
from typing import Any, Final

from agent.collectors.apple.foundation import REF, Foundation, Libraries, bind

PORT: Final = ctypes.c_uint32
"""mach_port_t, io_object_t and similar types."""
CODE: Final = ctypes.c_int32
"""kern_return_t; 0 is success."""
IOKIT: Final[Mapping[str, tuple[Any, ...]]] = {
    "IOServiceMatching": (REF, ctypes.c_char_p),
    "IOServiceGetMatchingServices": (CODE, PORT, REF, ctypes.POINTER(PORT)),
    "IOIteratorNext": (PORT, PORT),
    "IOObjectRelease": (CODE, PORT),
    "IORegistryEntryGetName": (CODE, PORT, ctypes.c_char_p),
    "IORegistryEntryCreateCFProperty": (REF, PORT, REF, REF, ctypes.c_uint32),
    "IOServiceOpen": (CODE, PORT, PORT, ctypes.c_uint32, ctypes.POINTER(PORT)),
    "IOServiceClose": (CODE, PORT),
    "IOConnectCallStructMethod": (
        CODE,
        PORT,
        ctypes.c_uint32,
        ctypes.c_char_p,
        ctypes.c_size_t,
        ctypes.c_char_p,
        ctypes.POINTER(ctypes.c_size_t),
    ),
}
SYSTEM: Final[Mapping[str, tuple[Any, ...]]] = {
    "mach_task_self": (PORT,),
    "sysctlbyname": (ctypes.c_int, ctypes.c_char_p, REF, ctypes.POINTER(ctypes.c_size_t), REF, ctypes.c_size_t),
}
NAME: Final = 128
"""sizeof(io_name_t)."""
MOST: Final = 10_000
"""Entries of one class that are read; AppleARMIODevice has about 500."""
HZ: Final = range(100_000_000, 4_000_000_000)
"""Possible clocks of a GPU; above 4.29 GHz the field would wrap."""


class Registry:
    """IOKit's registry of this machine."""

    def __init__(self, foundation: Foundation, libraries: Libraries) -> None:
        """Load the functions; raise Unavailable."""
        self._foundation = foundation
        self._io, self._system = bind(libraries.iokit, IOKIT), bind(libraries.system, SYSTEM)

    def in_virtual_machine(self) -> bool:
        """Tell whether this macOS is a guest, whose GPU is virtual."""
        value = ctypes.c_int(0)
        size = ctypes.c_size_t(ctypes.sizeof(value))
        code = self._system.sysctlbyname(
            b"kern.hv_vmm_present", ctypes.byref(value), ctypes.byref(size), None, 0
        )  # macOS 11 and later
        return code == 0 and value.value != 0

    def statistics(self, *keys: str) -> list[int | None]:
        """Return the values of `keys` in the GPU driver's PerformanceStatistics."""
        with closing(self.services("IOAccelerator")) as found:
            for entry, _ in found:
                with self._foundation.scope() as own:
                    table = own(self._property(entry, "PerformanceStatistics"))
                    values = [self._foundation.number(self._foundation.value(table, key)) for key in keys]
                if any(value is not None for value in values):
                    return values
        return [None for _ in keys]

    def clocks(self) -> list[int]:
        """Return the clocks (Hz) of the GPU's performance states, slowest first; [] if unknown."""
        with closing(self.services("AppleARMIODevice")) as found:
            for entry, name in found:
                if name == "pmgr":
                    with self._foundation.scope() as own:
                        data = self._foundation.data(own(self._property(entry, "voltage-states9")))
                    return frequencies(data)
        return []

    def services(self, kind: str) -> Generator[tuple[int, str]]:
        """Yield entry and name of each service of a class; an entry is released when the next one is taken."""
        io, matching, iterator = self._io, self._io.IOServiceMatching(kind.encode()), PORT(0)
        # The call takes ownership of the dictionary, even if it fails.
        if not matching or io.IOServiceGetMatchingServices(0, matching, ctypes.byref(iterator)) or not iterator.value:
            return
        try:
            for _ in range(MOST):
                entry = io.IOIteratorNext(iterator.value)
                if not entry:
                    return
                try:
                    name = ctypes.create_string_buffer(NAME)
                    known = io.IORegistryEntryGetName(entry, name) == 0
                    yield entry, name.value.decode(errors="replace") if known else ""
                finally:
                    io.IOObjectRelease(entry)
        finally:
            io.IOObjectRelease(iterator.value)

    def connect(self, entry: int) -> int:
        """Return a connection to an entry's driver, to be closed with `disconnect`; 0 if refused."""
        connection = PORT(0)
        code = self._io.IOServiceOpen(entry, self._system.mach_task_self(), 0, ctypes.byref(connection))
        return connection.value if code == 0 else 0

    def disconnect(self, connection: int) -> None:
        """Close a connection."""
        self._io.IOServiceClose(connection)

    def ask(self, connection: int, selector: int, question: bytes) -> bytes:
        """Return a driver's answer, as long as the question; b"" if refused."""
        answer = ctypes.create_string_buffer(len(question))
        size = ctypes.c_size_t(len(question))
        code = self._io.IOConnectCallStructMethod(
            connection, selector, question, len(question), answer, ctypes.byref(size)
        )
        return answer.raw if code == 0 and size.value == len(question) else b""

    def _property(self, entry: int, key: str) -> int | None:
        string = self._foundation.string(key)
        if not string:
            return None
        ref: int | None = self._io.IORegistryEntryCreateCFProperty(entry, string, None, 0)
        return ref


def frequencies(table: bytes) -> list[int]:
    """
    Return the clocks in a table of pairs (Hz, volts) of 32 bits each, without the first pair (off, 0 Hz).

    [] where they cannot be a GPU's: the key has another meaning on some chips.
    """
    clocks = [hz for hz, _ in struct.iter_unpack("<II", table[: len(table) // 8 * 8])]
    if clocks and clocks[0] == 0:
        del clocks[0]
    rising = all(one < other for one, other in pairwise(clocks))
    return clocks if rising and all(hz in HZ for hz in clocks) else []
