"""Reads IOKit: the GPU driver's statistics and clocks, as `ioreg` prints them, and the SMC's temperature sensors."""

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
"""Most entries of one class that are read; AppleARMIODevice has about 500."""
HZ: Final = range(100_000_000, 4_000_000_000)
"""Possible clocks (Hz) of a GPU; the field would wrap above 4.29 GHz."""


class Registry:
    """IOKit's registry of this machine."""

    def __init__(self, foundation: Foundation, libraries: Libraries) -> None:
        """Load the functions; raise Unavailable."""
        self._foundation = foundation
        self.io, self.system = bind(libraries.iokit, IOKIT), bind(libraries.system, SYSTEM)

    def in_virtual_machine(self) -> bool:
        """Return True if this macOS (11 or later) is a virtual machine, whose GPU is virtual."""
        value = ctypes.c_int(0)
        size = SIZE(ctypes.sizeof(value))
        code = self.system.sysctlbyname(b"kern.hv_vmm_present", ctypes.byref(value), ctypes.byref(size), None, 0)
        return code == 0 and value.value != 0

    def statistics(self, *keys: str) -> list[int | None]:
        """Return the values of `keys` in the GPU driver's PerformanceStatistics; None for absent ones."""

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
        """Call `read` on services of the class `kind`, with the name `name` if given; return its first result."""
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
    Parse a table of pairs (Hz, volts) of 32 bits each; return the clocks without the state off (0 Hz).

    Return [] if they cannot be a GPU's clocks: on some chips the key means something else.
    """
    clocks = [hz for hz, _ in struct.iter_unpack("<II", table[: len(table) // 8 * 8])]
    clocks = clocks[1:] if clocks[:1] == [0] else clocks
    rising = all(one < other for one, other in pairwise(clocks))
    return clocks if rising and all(hz in HZ for hz in clocks) else []


MESSAGE: Final = struct.Struct("<I24xIIB3xBBBxI32s")
"""A request to the SMC or its answer: key; size, type, attributes; result, status, command; index; bytes."""
SELECTOR: Final = 2
READ, KEY_AT_INDEX, KEY_INFO = 5, 8, 9
"""Commands of the SMC."""
FLOAT, COUNT = 0x666C7420, 0x75693332
"""Types of the SMC: `flt ` and `ui32`."""
KEYS: Final = int.from_bytes(b"#KEY")
"""Key with the number of keys."""
FIRST, LAST = int.from_bytes(b"Tg\0\0"), int.from_bytes(b"Tg\xff\xff")
"""First and last key of the GPU's sensors; an M5 Max has 84."""
MAX_SENSORS: Final = 512
MAX_KEYS: Final = 20_000
"""Most keys that are searched; an M5 Max has 3739."""
MIN_CELSIUS, MAX_CELSIUS = 10.0, 150.0
"""Range of valid readings. A sensor that is off reads 0, some read 5: github.com/vladkens/macmon issue 68."""


class SmcAnswer(NamedTuple):
    """An answer of the SMC about a key."""

    key: int
    width: int
    """Number of bytes in the content."""
    kind: int
    content: bytes


class Smc:
    """A connection to the SMC, with the keys of the GPU's sensors, which differ from chip to chip."""

    def __init__(self, registry: Registry) -> None:
        """Connect and find the sensors; raise Unavailable if there are none."""
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
        """Return the mean (°C) of the sensors with a valid reading; None without one."""
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
        """Find the keys of sensors by binary search; if the keys are not sorted, search all."""
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
        """Send a command; return the answer, None if it is refused or the key is absent."""
        question = MESSAGE.pack(key, *size_and_kind, 0, 0, 0, command, index, b"")
        data, size = ctypes.create_string_buffer(MESSAGE.size), SIZE(MESSAGE.size)
        call, length = self._io.IOConnectCallStructMethod, len(question)
        code = call(self._connection, SELECTOR, question, length, data, ctypes.byref(size))
        if code or size.value != length:
            return None
        key, width, kind, _, result, _, _, _, content = MESSAGE.unpack(data.raw)
        return None if result else SmcAnswer(key, width, kind, content)
