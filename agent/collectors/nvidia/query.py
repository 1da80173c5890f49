"""Questions to the driver about one device, and what becomes of those that it does not answer."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import pynvml

UNSUPPORTED: Final = frozenset(
    {pynvml.NVML_ERROR_NOT_SUPPORTED, pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_DEPRECATED}
)
SECOND: Final = 1_000_000_000
HOUR: Final = 3600 * SECOND
"""So long nothing is asked again that a device does not have: a new driver may know it."""
MINUTE: Final = 60 * SECOND
"""So long nothing is asked again that is forbidden: some permissions come and go (NVIDIA/DCGM issue 214)."""
MEMBERS: Final = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")
"""Members of nvmlValue_t by nvmlValueType_t."""


class Lost(Exception):
    """The device has fallen off the bus: it answers nothing more."""


class NvmlQuery:
    """
    Asks about one device, one question after the other.

    What is not supported is asked again after an hour, what is forbidden after a minute; any other failure is trouble,
    of which there is one sentence for each group, which is the first word of a question's name.
    """

    def __init__(self, who: str) -> None:
        """Take what the device is called in sentences."""
        self._who = who
        self._off: dict[Hashable, int] = {}
        self._now = 0
        self.troubles: dict[str, str] = {}
        """By group, of this tick."""
        self.answered = self.reset = False
        """Whether a question of this tick was answered; whether the device said that it needs a reset."""

    def begin(self, now: int) -> None:
        """Begin a tick at `now` (monotonic ns)."""
        self._now, self.troubles, self.answered, self.reset = now, {}, False, False

    def ask(self, name: str, call: Callable[..., Any], *args: Any) -> Any:
        """Return the answer, or None; raise Lost."""
        if self._now < self._off.get(name, 0):
            return None
        try:
            answer = call(*args)
        except pynvml.NVMLError as error:
            self.refused(name, name, error.value)
            return None
        self.answered = True
        return answer

    def fields(self, handle: Any, names: Mapping[tuple[int, int], str]) -> dict[int, float]:
        """Return fields by number, as far as they are there; `names` has the numbers and scopes. Raise Lost."""
        now, off = self._now, self._off
        wanted = [key for key in names if now >= off.get(key, 0)]
        found = {}
        if wanted:
            for key, got in zip(
                wanted, self.ask("fields", pynvml.nvmlDeviceGetFieldValues, handle, wanted) or (), strict=False
            ):
                if code := got.nvmlReturn:
                    self.refused(key, names[key], code)
                else:
                    found[key[0]] = getattr(got.value, MEMBERS[got.valueType])
        return found

    def refused(self, key: Hashable, name: str, code: int) -> None:
        """Note that a question was answered with an error; raise Lost."""
        if code in UNSUPPORTED:
            self._off[key] = self._now + HOUR
        elif code == pynvml.NVML_ERROR_GPU_IS_LOST:
            raise Lost
        elif code == pynvml.NVML_ERROR_RESET_REQUIRED:
            self.reset = True
        else:
            if code == pynvml.NVML_ERROR_NO_PERMISSION:
                self._off[key] = self._now + MINUTE
            group = name.partition(".")[0]
            self.troubles.setdefault(group, f"{self._who}: {group}: {pynvml.NVMLError(code)} (NVML {code})")
