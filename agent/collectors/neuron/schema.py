"""
The records of neuron-monitor 2.x (October 2021 and later) as JSON.

Only broken JSON makes a record invalid: each field accepts any JSON, and its reader checks the type. Undeclared keys,
such as `loaded_models` (three quarters of a large record), are skipped without building objects.

https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from agent.collectors.neuron.problems import Problems
from agent.host.supervised_process import quoted

Scalar = None | bool | int | float | str
NoObject = Scalar | list[Any]

LARGEST: Final = 2**53
"""The largest count, size or rate: 9 PB, 9 Pflop/s of one core."""
MOST_NAMES: Final = 64


class Core(msgspec.Struct, gc=False):
    """One core, as one runtime reports it."""

    neuroncore_utilization: Any = None
    flops: Any = None
    effective_flops: Any = None
    """Beside `flops` in 2024, instead of it in 2026."""
    v3d: Any = None
    """The physical cores behind a logical one (Trn2)."""


class Group(msgspec.Struct):
    """Any metric group: all have `period` and `error`; their other keys differ."""

    period: Any = None
    error: Any = None
    neuroncores_in_use: dict[str, Core | NoObject] | NoObject = None
    execution_summary: Any = None
    inference_summary: Any = None
    """The name of `execution_summary` before October 2022."""
    error_summary: Any = None
    latency_stats: Any = None
    neuron_runtime_used_bytes: Any = None
    vcpu_usage: Any = None
    neuron_devices: Any = None


class Runtime(msgspec.Struct):
    """One application."""

    pid: Any = None
    neuron_runtime_tag: Any = None
    error: Any = None
    report: dict[str, Group | NoObject] | NoObject = None


class Record(msgspec.Struct):
    """One line."""

    neuron_runtime_data: list[Runtime | NoObject] | dict[str, Any] | Scalar = None
    system_data: dict[str, Group | NoObject] | NoObject = None
    instance_info: Any = None
    neuron_hardware_info: Any = None
    neuron_k8s_info: Any = None


_decoder: Final = msgspec.json.Decoder(Record | NoObject)
_NOTHING: Final = Record()


def decode(line: bytes) -> Record | None:
    """Return a record, None if the JSON is something else; raise ValueError, RecursionError if it is no JSON."""
    found = _decoder.decode(line)
    return found if isinstance(found, Record) and found != _NOTHING else None


class Reader:
    """Reads values of any type; notes invalid ones; null or missing is absent."""

    def __init__(self, problems: Problems) -> None:
        """Note invalid values in `problems`."""
        self._problems = problems

    def number(self, value: Any, what: str, most: float = LARGEST) -> float | None:
        """Return a number from 0 to `most`, or None."""
        if type(value) is int or type(value) is float:
            if 0 <= value <= most:
                return value
            self._problems.add(f"{what}: out of range")
        elif value is not None:
            self._problems.add(f"{what}: no number")
        return None

    def failed(self, what: str, error: Any) -> bool:
        """Tell whether the monitor reports an error for a part; its other values are then invalid."""
        if error is None or error == "":
            return False
        self._problems.add(f"{what}: {quoted(error) if isinstance(error, str) else 'an error that is no text'}")
        return True

    def group(self, value: Any, name: str) -> Group | None:
        """Return a metric group, None if it is invalid or has failed."""
        if isinstance(value, Group):
            return None if self.failed(name, value.error) else value
        if value is not None:
            self._problems.add(f"{name}: no object")
        return None

    def mapping(self, value: Any, what: str) -> dict[str, Any]:
        """Return an object, {} if it is none."""
        if isinstance(value, dict):
            return value
        if value is not None:
            self._problems.add(f"{what}: no object")
        return {}

    def named(self, value: Any, what: str, most: float = LARGEST) -> Iterator[tuple[str, float]]:
        """Yield names and numbers of an object, such as counts by kind of error."""
        for n, (name, number) in enumerate(self.mapping(value, what).items()):
            if n >= MOST_NAMES or not is_name(name):
                self._problems.add(f"{what}: too many names, or one that is none")
            elif (found := self.number(number, what, most)) is not None:
                yield name, found

    def text(self, value: Any, what: str) -> str:
        """Return a text as one line of at most 255 characters, "" if it is none."""
        if isinstance(value, str):
            return "".join(c if c.isprintable() else "?" for c in value[:255]).strip()
        if value is not None:
            self._problems.add(f"{what}: no text")
        return ""


def is_name(text: str) -> bool:
    """Tell whether `text` may be the value of a dimension such as `error`."""
    return 0 < len(text) <= 64 and text.isascii() and text.replace("_", "").isalnum()


def is_index(text: str) -> bool:
    """Tell whether `text` is the index of a core or of a device."""
    return 0 < len(text) <= 4 and text.isascii() and text.isdecimal() and (text == "0" or text[0] != "0")
