"""
Parses the JSON records of neuron-monitor 2.x (October 2021 and later).

Only broken JSON makes a record invalid: a field accepts any JSON, and its reader checks the type. Undeclared keys,
such as `loaded_models` (three quarters of a large record), are skipped without building objects.
https://awsdocs-neuron.readthedocs-hosted.com/en/latest/tools/neuron-sys-tools/neuron-monitor-user-guide.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, TypeVar

import msgspec

from chipwatch.host.supervised_process import quoted

Scalar = None | bool | int | float | str
NoObject = Scalar | list[Any]

LARGEST: Final = 2**53
"""Largest count, size or rate that is believed: 9 PB, or 9 Pflop/s of one core."""
LARGEST_TOTAL: Final = 2**63 - 1
"""Largest sum of counts: sinks send 64-bit integers."""
NAME: Final = re.compile(r"\w{1,64}", re.ASCII)
"""Matches a valid value of a dimension such as `error`."""
INDEX: Final = re.compile(r"0|[1-9][0-9]{0,3}")
"""Matches the index of a core or device."""
MAX_NAMES: Final = 64
"""Most names of counts or categories in one object; each is a series."""
MAX_PROBLEMS: Final = 32
"""Most different problems of one tick."""


class Core(msgspec.Struct, gc=False):
    """One core, as one runtime reports it."""

    neuroncore_utilization: Any = None
    flops: Any = None
    effective_flops: Any = None
    """In addition to `flops` in tools of 2024, instead of it in 2026."""
    v3d: Any = None
    """The physical cores of a logical core (Trn2)."""


class RecordGroup(msgspec.Struct):
    """Any metric group. All have `period` and `error`; other keys depend on the group."""

    period: Any = None
    error: Any = None
    neuroncores_in_use: dict[str, Core | NoObject] | NoObject = None
    execution_summary: Any = None
    inference_summary: Any = None
    """Name of `execution_summary` before October 2022."""
    error_summary: Any = None
    latency_stats: Any = None
    neuron_runtime_used_bytes: Any = None
    vcpu_usage: Any = None
    neuron_devices: Any = None


class Runtime(msgspec.Struct):
    """One application that uses the devices."""

    pid: Any = None
    neuron_runtime_tag: Any = None
    error: Any = None
    report: dict[str, RecordGroup | NoObject] | NoObject = None


class Record(msgspec.Struct):
    """One record: a line of neuron-monitor's output."""

    neuron_runtime_data: list[Runtime | NoObject] | dict[str, Any] | Scalar = None
    system_data: dict[str, RecordGroup | NoObject] | NoObject = None
    instance_info: Any = None
    neuron_hardware_info: Any = None
    neuron_k8s_info: Any = None


_decoder: Final = msgspec.json.Decoder(Record | NoObject)
_NOTHING: Final = Record()
KINDS: Final = {dict: "an object", RecordGroup: "an object", list: "a list", str: "a string"}
T = TypeVar("T")


def parse_record(line: bytes) -> Record | None:
    """Parse a record; return None if the JSON is something else. Raise ValueError or RecursionError for broken JSON."""
    found = _decoder.decode(line)
    return found if isinstance(found, Record) and found != _NOTHING else None


class RecordReader:
    """Reads values of any type. A null is absent; any other invalid value is also reported as a problem."""

    def __init__(self) -> None:
        self._problems: dict[str, None] = {}
        self._reported: set[str] = set()

    def report(self, message: str) -> None:
        """Report a problem once per tick. The message must have no numbers, so that repeats are equal."""
        if len(self._problems) < MAX_PROBLEMS:
            self._problems[message] = None

    def report_once(self, message: str) -> None:
        """Report a problem only the first time."""
        if message not in self._reported and len(self._reported) < MAX_PROBLEMS:
            self._reported.add(message)
            self.report(message)

    def take_problems(self) -> list[str]:
        """Return the problems since the last call."""
        problems, self._problems = list(self._problems), {}
        return problems

    def number(self, value: Any, what: str, largest: float = LARGEST) -> float | None:
        """Return the value if it is a number from 0 to `largest`, otherwise None."""
        if type(value) is int or type(value) is float:
            if 0 <= value <= largest:
                return value
            self.report(f"{what}: out of range")
        elif value is not None:
            self.report(f"{what}: not a number")
        return None

    def failed(self, what: str, error: Any) -> bool:
        """Return True if the monitor reports an error for a part; its other values are then invalid."""
        if error is None or error == "":
            return False
        self.report(f"{what}: {quoted(error) if isinstance(error, str) else 'an error that is not a string'}")
        return True

    def expect(self, value: Any, kind: type[T], what: str) -> T | None:
        """Return the value if it has the type `kind`, otherwise None."""
        if isinstance(value, kind):
            return value
        if value is not None:
            self.report(f"{what}: not {KINDS[kind]}")
        return None

    def mapping(self, value: Any, what: str) -> dict[str, Any]:
        """Return the value if it is an object, otherwise {}."""
        return self.expect(value, dict, what) or {}

    def group(self, value: Any, name: str) -> RecordGroup | None:
        """Return the value if it is a metric group without an error, otherwise None."""
        group = self.expect(value, RecordGroup, name)
        return group if group and not self.failed(name, group.error) else None

    def named(self, value: Any, what: str, largest: float = LARGEST) -> Iterator[tuple[str, float]]:
        """Yield the names and numbers of an object, such as counts by kind of error."""
        for n, (name, number) in enumerate(self.mapping(value, what).items()):
            if n >= MAX_NAMES or not NAME.fullmatch(name):
                self.report(f"{what}: too many names, or an invalid name")
            elif (found := self.number(number, what, largest)) is not None:
                yield name, found

    def text(self, value: Any, what: str) -> str:
        """Return a string on one line, cut to 255 characters; "" if the value is something else."""
        text = self.expect(value, str, what) or ""
        return "".join(c if c.isprintable() else "?" for c in text[:255]).strip()
