"""The System Management Controller: the temperature sensors of the GPU."""

from __future__ import annotations

import ctypes
import struct
from bisect import bisect_left
from itertools import takewhile
from typing import Final, NamedTuple

from chipwatch.collectors.apple.registry import PORT, SIZE, Registry
from chipwatch.errors import Unavailable

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
