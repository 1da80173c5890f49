"""The System Management Controller: the temperature sensors of the GPU."""

from __future__ import annotations

import struct
from contextlib import closing
from typing import Final, NamedTuple

from agent.collectors.apple.registry import Registry
from agent.errors import Unavailable

MESSAGE: Final = struct.Struct("<I24xIIB3xBBBxI32s")
"""Request and answer: key; size, type, attributes; result, status, command; index; bytes."""
SELECTOR: Final = 2
READ, BY_INDEX, ABOUT = 5, 8, 9
"""Commands."""
FLOAT, COUNT = 0x666C7420, 0x75693332
"""The types `flt ` and `ui32`."""
KEYS: Final = int.from_bytes(b"#KEY")
"""The number of keys."""
FIRST, LAST = int.from_bytes(b"Tg\0\0"), int.from_bytes(b"Tg\xff\xff")
"""The sensors of the GPU; an M5 Max has 84 of them."""
MOST: Final = 512
"""Sensors that are read, at most."""
TABLE: Final = 20_000
"""Keys that are looked at, at most; an M5 Max has 3739."""
COLDEST, HOTTEST = 10.0, 150.0
"""Cel; a sensor that is off reads 0, and some read 5 at times: github.com/vladkens/macmon issue 68."""


class Answer(NamedTuple):
    """The SMC's answer about a key."""

    key: int
    size: int
    kind: int
    content: bytes


class Smc:
    """A connection to the SMC, and the keys of the GPU's sensors, whose names differ from chip to chip."""

    def __init__(self, registry: Registry) -> None:
        """Find the sensors; raise Unavailable where there is none."""
        self._registry = registry
        self._connection = 0
        with closing(registry.services("AppleSMC")) as found:
            for entry, name in found:
                if name == "AppleSMCKeysEndpoint":
                    self._connection = registry.connect(entry)
                    break
        if not self._connection:
            raise Unavailable("no SMC")
        self._sensors = self._found()
        if not self._sensors:
            self.close()
            raise Unavailable("the SMC has no sensor of a GPU")

    def temperature(self) -> float | None:
        """Return the mean (Cel) of the sensors that have a reading."""
        read = [value for key in self._sensors if (value := self._value(key)) is not None]
        return sum(read) / len(read) if read else None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, 0
        if connection:
            self._registry.disconnect(connection)

    def __str__(self) -> str:
        """Say how many sensors there are."""
        return f"{len(self._sensors)} sensors of the SMC"

    def _found(self) -> list[int]:
        """Return the keys of sensors by binary search; if the table is not sorted, look at all of it."""
        answer = self._ask(READ, KEYS, (4, COUNT))
        count = min(TABLE, int.from_bytes(answer.content[:4])) if answer else 0
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self._key(middle) < FIRST else (low, middle)
        keys = []
        for n in range(low, count):
            if not FIRST <= (key := self._key(n)) <= LAST:
                break
            keys.append(key)
        keys = keys or [key for n in range(count) if FIRST <= (key := self._key(n)) <= LAST]
        return [key for key in keys[:MOST] if self._is_sensor(key)]

    def _key(self, index: int) -> int:
        answer = self._ask(BY_INDEX, 0, index=index)
        return answer.key if answer else 0

    def _is_sensor(self, key: int) -> bool:
        answer = self._ask(ABOUT, key)
        return answer is not None and (answer.size, answer.kind) == (4, FLOAT)

    def _value(self, key: int) -> float | None:
        answer = self._ask(READ, key, (4, FLOAT))
        if not answer:
            return None
        (value,) = struct.unpack_from("<f", answer.content)
        return float(value) if COLDEST <= value <= HOTTEST else None

    def _ask(self, command: int, key: int, about: tuple[int, int] = (0, 0), index: int = 0) -> Answer | None:
        """Return an answer; None if it is refused or the key is absent."""
        question = MESSAGE.pack(key, *about, 0, 0, 0, command, index, b"")
        data = self._registry.ask(self._connection, SELECTOR, question)
        if not data:
            return None
        key, size, kind, _, result, _, _, _, content = MESSAGE.unpack(data)
        return None if result else Answer(key, size, kind, content)
