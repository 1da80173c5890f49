"""IOKit: the GPU driver's statistics and the GPU's clocks, as `ioreg` prints them; the SMC's temperature sensors."""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_left
from collections.abc import Callable
from itertools import islice, pairwise, takewhile
from typing import Final, NamedTuple, TypeVar

from chipwatch.collectors.apple.foundation import REF, Foundation, Functions, Libraries, bind
from chipwatch.contract.errors import Unavailable

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


MESSAGE: Final = struct.Struct("<I24xIIB3xBBBxI32s")
"""Request and answer: key; size, type, attributes; result, status, command; index; bytes."""
SELECTOR: Final = 2
READ, KEY_AT_INDEX, KEY_INFO = 5, 8, 9
"""Commands."""
FLOAT, COUNT = 0x666C7420, 0x75693332
"""The types `flt ` and `ui32`."""
KEYS: Final = int.from_bytes(b"#KEY")
"""The number of keys."""
FIRST, LAST = int.from_bytes(b"Tg\0\0"), int.from_bytes(b"Tg\xff\xff")
"""The sensors of the GPU; an M5 Max has 84 of them."""
MAX_SENSORS: Final = 512
MAX_KEYS: Final = 20_000
"""Keys that are looked at, at most; an M5 Max has 3739."""
MIN_CELSIUS, MAX_CELSIUS = 10.0, 150.0
"""A sensor that is off reads 0, and some read 5 at times: github.com/vladkens/macmon issue 68."""


class SmcAnswer(NamedTuple):
    """The SMC's answer about a key."""

    key: int
    width: int
    """Bytes of the content."""
    kind: int
    content: bytes


class Smc:
    """A connection to the SMC, and the keys of the GPU's sensors, whose names differ from chip to chip."""

    def __init__(self, registry: Registry) -> None:
        """Find the sensors; raise Unavailable if there is none."""
        self._io = registry.io

        def connect(entry: int) -> int:
            connection = PORT(0)
            code = self._io.IOServiceOpen(entry, registry.system.mach_task_self(), 0, ctypes.byref(connection))
            return 0 if code else connection.value

        self._connection = registry.first("AppleSMC", connect, "AppleSMCKeysEndpoint") or 0
        self._sensors = self._find_sensors() if self._connection else []
        if not self._sensors:
            self.close()
            raise Unavailable("the SMC cannot be read, or has no sensor of a GPU")

    def temperature(self) -> float | None:
        """Return the mean (Cel) of the sensors that have a reading."""
        values = [value for key in self._sensors if (value := self._value(key)) is not None]
        return sum(values) / len(values) if values else None

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        connection, self._connection = self._connection, 0
        if connection:
            self._io.IOServiceClose(connection)

    def __str__(self) -> str:
        return f"{len(self._sensors)} sensors of the SMC"

    def _find_sensors(self) -> list[int]:
        """Return the keys of sensors by binary search; if the table is not sorted, look at all of it."""
        answer = self._ask(READ, KEYS, (4, COUNT))
        count = min(MAX_KEYS, int.from_bytes(answer.content[:4])) if answer else 0
        start = bisect_left(range(count), FIRST, key=self._key)
        keys = list(takewhile(lambda key: FIRST <= key <= LAST, map(self._key, range(start, count))))
        keys = keys or [key for key in map(self._key, range(count)) if FIRST <= key <= LAST]
        return [key for key in keys[:MAX_SENSORS] if (info := self._ask(KEY_INFO, key)) and info[1:3] == (4, FLOAT)]

    def _key(self, index: int) -> int:
        answer = self._ask(KEY_AT_INDEX, 0, index=index)
        return answer.key if answer else 0

    def _value(self, key: int) -> float | None:
        answer = self._ask(READ, key, (4, FLOAT))
        value: float = struct.unpack_from("<f", answer.content)[0] if answer else 0.0
        return value if MIN_CELSIUS <= value <= MAX_CELSIUS else None

    def _ask(self, command: int, key: int, size_and_kind: tuple[int, int] = (0, 0), index: int = 0) -> SmcAnswer | None:
        """Return an answer; None if it is refused or the key is absent."""
        question = MESSAGE.pack(key, *size_and_kind, 0, 0, 0, command, index, b"")
        data, size = ctypes.create_string_buffer(MESSAGE.size), SIZE(MESSAGE.size)
        call, length = self._io.IOConnectCallStructMethod, len(question)
        code = call(self._connection, SELECTOR, question, length, data, ctypes.byref(size))
        if code or size.value != length:
            return None
        key, width, kind, _, result, _, _, _, content = MESSAGE.unpack(data.raw)
        return None if result else SmcAnswer(key, width, kind, content)
