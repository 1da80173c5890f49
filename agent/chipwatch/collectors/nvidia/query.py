"""Queries to the driver about one device, and the handling of errors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import pynvml

UNSUPPORTED: Final = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_DEPRECATED}
)
SECOND: Final = 1_000_000_000
HOUR: Final = 3600 * SECOND
"""Retry unsupported queries after an hour; a new driver may add them."""
MINUTE: Final = 60 * SECOND
"""Retry queries without permission after a minute; permissions may change (NVIDIA/DCGM issue 214)."""
MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""


class Lost(Exception):
    """The device has fallen off the bus and answers no more queries."""


class NvmlQuery:
    """
    Queries one device; retries unsupported queries after HOUR, forbidden ones after MINUTE.

    Other failures are in `troubles`, one message for each group: the first word of a query's name.
    """

    def __init__(self, device: str) -> None:
        self._device = device
        self._retry_at: dict[Hashable, int] = {}
        self._now = 0
        self.troubles: dict[str, str] = {}
        """Group -> error message of this tick."""
        self.answered: set[str] = set()
        """Groups with an answer in this tick."""
        self.broken: set[str] = set()
        """Groups with a failure in this tick, other than missing support or permission."""
        self.reset = False
        """True if the device reported in this tick that it needs a reset."""

    def begin(self, now: int) -> None:
        """Start a tick at `now` (monotonic ns)."""
        self._now, self.troubles, self.answered, self.broken, self.reset = now, {}, set(), set(), False

    def retry(self) -> None:
        """Repeat unsupported queries at once: the device has changed."""
        self._retry_at.clear()

    def ask(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return the answer, or None; raise Lost."""
        if self._now < self._retry_at.get(name, 0):
            return None
        try:
            answer = call(*args)
        except pynvml.NVMLError as error:
            self.failed(name, name, error.value)
            return None
        self.answered.add(name.partition(".")[0])
        return answer

    def fields(self, handle: Any, names: Mapping[tuple[int, int], str]) -> dict[int, float]:
        """Return the available fields by number; `names` maps (number, scope) to a query name. Raise Lost."""
        now, retry_at, values = self._now, self._retry_at, {}
        wanted = [key for key in names if now >= retry_at.get(key, 0)]
        answers = self.ask("fields", pynvml.nvmlDeviceGetFieldValues, handle, wanted) if wanted else None
        self.answered.discard("fields")  # each field has its own answer
        for key, got in zip(wanted, answers or (), strict=False):
            if code := got.nvmlReturn:
                self.failed(key, names[key], code)
            else:
                self.answered.add(names[key])
                values[key[0]] = getattr(got.value, MEMBERS[got.valueType])
        return values

    def failed(self, key: Hashable, name: str, code: int) -> None:
        """Handle the error `code` of a query; raise Lost."""
        if code in UNSUPPORTED:
            self._retry_at[key] = self._now + HOUR
        elif code == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise Lost
        elif code == pynvml.NVML_ERROR_RESET_REQUIRED:
            self.reset = True
        else:
            group = name.partition(".")[0]
            if code == pynvml.NVML_ERROR_NO_PERMISSION:
                self._retry_at[key] = self._now + MINUTE
            else:
                self.broken.add(group)
            self.troubles.setdefault(group, f"{self._device}: {group}: {pynvml.NVMLError(code)} (NVML {code})")
