"""Queries the driver about one device: handles errors, and remembers what it does not support."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from ctypes import byref, c_char, c_uint, memmove
from functools import lru_cache
from math import inf, isfinite
from struct import Struct
from typing import Any, Final

from chipwatch.host import nvml

UNSUPPORTED: Final = frozenset({
    nvml.NVML_ERROR_NOT_SUPPORTED, nvml.NVML_ERROR_FUNCTION_NOT_FOUND, nvml.NVML_ERROR_DEPRECATED,
    nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
})  # fmt: skip
GONE: Final = frozenset({
    nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_UNINITIALIZED, nvml.NVML_ERROR_DRIVER_NOT_LOADED,
    nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
})  # fmt: skip
"""Errors after which the device or the driver answers no more queries."""
ABSENT: Final = UNSUPPORTED | {nvml.NVML_ERROR_INVALID_ARGUMENT}
"""Errors for a link, a field or a metric that the GPU or driver does not have."""
SECOND: Final = 1_000_000_000
HOUR: Final = 3600 * SECOND
"""An hour (ns), after which unsupported queries are tried again: a new driver may support them."""
MINUTE: Final = 60 * SECOND
"""A minute (ns), after which forbidden queries are tried again: permissions may change (NVIDIA/DCGM issue 214)."""
FIELD: Final = Struct("IIqqIiQ")
"""nvmlFieldValue_t: number, scope, time, latency, type of the value, code, value."""
TYPES: Final = "dILQqiH"
"""The format of a value, in the order of nvmlValueType_t."""
ENOUGH: Final = frozenset({0, nvml.NVML_ERROR_INSUFFICIENT_SIZE})
"""Codes after which there may be more rows. nvmlDeviceGetSamples returns no error in that case."""
ROOM: Final = 64
"""Rows for which an array always has room."""
MOST_ROWS: Final = 100_000
"""Most rows of a list; a larger number is an error of the driver, and must not take memory."""


class Lost(Exception):
    """The device has fallen off the bus, or its driver was unloaded."""


class NvmlQuery:
    """
    Queries one device; tries unsupported queries again after HOUR, forbidden ones after MINUTE.

    `troubles` has one message about other errors for each group of queries, which share the first word of their names.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._retry_at: dict[Hashable, int] = {}
        self.revision = 0
        """Increases whenever the set of queries to ask changes."""
        self.now = 0
        """Time of this tick (monotonic ns)."""
        self.troubles: dict[str, str] = {}
        """Group -> error message in this tick."""
        self.answered: set[str] = set()
        """Queries that were answered in this tick."""
        self.broken: set[str] = set()
        """Groups with an error in this tick, other than missing support or permission."""
        self.refusals: set[int] = set()
        """Codes for missing support or permission that have occurred so far."""
        self.reset = False
        """True if the device said in this tick that it needs a reset."""
        self.refused: dict[Hashable, int] = {}
        """Query -> code of its last error; the error is over if the query is in `answered`."""

    def begin(self, now: int) -> None:
        """Start a tick at `now` (monotonic ns)."""
        self.now, self.troubles, self.answered, self.broken, self.reset = now, {}, set(), set(), False

    def retry(self) -> None:
        """Try unsupported queries again at once, because the device has changed."""
        self._retry_at.clear()
        self.revision += 1

    def due_at(self, key: Hashable) -> int:
        """Return the time (monotonic ns) at which a query may be asked again; 0 for now."""
        return self._retry_at.get(key, 0)

    def postpone(self, key: Hashable, delay: int) -> None:
        """Do not ask a query for `delay` ns."""
        self._retry_at[key] = self.now + delay
        self.revision += 1

    def ask(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Call a function of NVML; return its answer, None without one. Raise Lost."""
        if name in self._retry_at and self.now < self._retry_at[name]:
            return None
        try:
            answer = call(*args)
        except nvml.NVMLError as error:
            self.refused[name] = error.value
            self.failed(name, name, error.value)
            return None
        self.answered.add(name)
        return answer

    def failed(self, key: Hashable, name: str, code: int) -> None:
        """Handle the error `code` of a query; raise Lost."""
        if code in UNSUPPORTED or code == nvml.NVML_ERROR_NO_PERMISSION:
            self.refusals.add(code)
        if code in UNSUPPORTED:
            self.postpone(key, HOUR)
        elif code in GONE:
            raise Lost
        elif code == nvml.NVML_ERROR_RESET_REQUIRED:
            self.reset = True
        elif code != nvml.NO_DATA:
            group = name.partition(".")[0]
            if code == nvml.NVML_ERROR_NO_PERMISSION:
                self.postpone(key, MINUTE)
            else:
                self.broken.add(group)
            self.troubles.setdefault(group, f"{self._device}: {group}: {nvml.NVMLError(code)} (NVML {code})")


class FieldSet:
    """
    A set of fields that one call of NVML reads.

    Its array is built once, because to build it for each call would take longer than everything else.
    """

    def __init__(
        self, query: NvmlQuery, names: Mapping[tuple[int, int], str], absent: frozenset[int] = UNSUPPORTED
    ) -> None:
        """`names`: (field, scope) -> query name, "" to report no failures; `absent`: codes of absent fields."""
        self._query, self._names, self._absent = query, names, absent
        self._keys: list[tuple[int, int]] = []
        self._made: tuple[int, float] = -1, 0
        """Revision for which the array was built, and the time (monotonic ns) until which it is valid."""
        self.partial: set[int] = set()
        """Fields that failed in the last call, although the device has them."""

    def read(self, handle: Any) -> dict[tuple[int, int], float]:
        """Return (field, scope) -> value, for available fields; raise Lost."""
        query = self._query
        if query.revision != self._made[0] or query.now >= self._made[1]:
            self._make()
        self.partial = set()
        if not self._keys:
            return {}
        memmove(self._array, self._request, len(self._request))
        if query.ask("fields", nvml.nvmlDeviceGetFieldValues, handle, len(self._keys), self._array) is None:
            self.partial = {number for number, _ in self._keys}
            return {}
        query.answered.discard("fields")  # each field has its own answer
        heads = self._heads.unpack(self._array)
        kinds, codes = heads[::2], heads[1::2]
        numbers = _values(kinds).unpack(self._array)
        values: dict[tuple[int, int], float] = dict(zip(self._keys, numbers, strict=True))
        are_numbers = nvml.NOT_AVAILABLE.isdisjoint(numbers) and all(map(isfinite, numbers))
        missing = [] if are_numbers and not any(codes) and max(kinds) < len(TYPES) else [
            (key, code) for key, kind, code, number in zip(self._keys, kinds, codes, numbers, strict=True)
            if code or kind >= len(TYPES) or number in nvml.NOT_AVAILABLE or not isfinite(number)
        ]  # fmt: skip
        for key, _ in missing:
            del values[key]
        query.answered.update(filter(None, map(self._names.__getitem__, values)))
        self._miss(missing)
        return values

    def _miss(self, missing: Iterable[tuple[tuple[int, int], int]]) -> None:
        """Handle fields without a value, by their codes; raise Lost."""
        for key, code in missing:
            if code in self._absent:
                self._query.postpone(key, HOUR)
            elif self._names[key] and code:
                self._query.failed(key, self._names[key], code)
            else:
                self.partial.add(key[0])

    def _make(self) -> None:
        """Build the array of the fields that may be asked now."""
        due = {key: self._query.due_at(key) for key in self._names}
        later = [at for at in due.values() if at > self._query.now]
        self._made = self._query.revision, min(later, default=inf)
        self._keys = [key for key, at in due.items() if at <= self._query.now]
        absent = nvml.NVML_ERROR_NOT_SUPPORTED  # stays if the driver does not write a field
        self._request = b"".join(FIELD.pack(*key, 0, 0, 0, absent, 0) for key in self._keys)
        self._array = (c_char * len(self._request))()
        self._heads = Struct("24xIi8x" * len(self._keys))


@lru_cache(maxsize=256)
def _values(kinds: tuple[int, ...]) -> Struct:
    """Return the layout of the values in an array of fields, by their types."""
    return Struct("".join(f"32x{TYPES[kind] if kind < len(TYPES) else TYPES[0]}0Q" for kind in kinds))


class Rows:
    """Reads lists that the driver writes into an array, which is kept. One call is enough unless a list is longer."""

    def __init__(self, row: Struct) -> None:
        self._size, self._count = row.size, c_uint()
        self._reference = byref(self._count)
        self._array: Any = (c_char * (row.size * ROOM))()

    def read(self, fill: Callable[..., int], *args: Any) -> bytes:
        """Return the rows that `fill` writes, maybe none; it gets `args`, a count and an array. Raise NVMLError."""
        size, count, array = self._size, self._count, self._array
        count.value = room = ROOM
        code = fill(*args, self._reference, array)
        if not (code or count.value) or code == nvml.NVML_ERROR_NOT_FOUND:
            return b""
        while code in ENOUGH and (code or count.value >= room) and room < MOST_ROWS:
            room = min(2 * max(count.value, room) + 5, MOST_ROWS)  # the list may grow until the next call
            array, count.value = (c_char * (size * room))(), room
            code = fill(*args, self._reference, array)
        if code:
            raise nvml.NVMLError(code)
        return bytes(array[: size * min(count.value, room)])
