"""Devices of jobs whose name in the scheduler no collector knows."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from chipwatch.extensions import DeviceFacts
from chipwatch.owner import JobFacts
from chipwatch.processors.jobs.device import SCHEDULERS

log: Final = logging.getLogger(__name__)
SHOWN: Final = 4
TICKS: Final = 3
"""Ticks for which a late collector is awaited."""


class UnnamedDevices:
    """Finds them, and logs each change."""

    def __init__(self) -> None:
        self._names: dict[str, Mapping[str, object]] = {}
        """Of each collector, as of its last reading."""
        self._ticks = 0
        self._logged = ""
        self.text = ""
        """The unknown devices, for a person; "" if every device has a name."""

    def take(self, readings: Iterable[DeviceFacts], jobs: JobFacts | None) -> None:
        """Compare the devices of a tick with the schedulers' allocations."""
        self._names |= {reading.source: reading.names for reading in readings}
        given = (
            dict.fromkeys(allocation.device for allocation in jobs.allocations if allocation.source in SCHEDULERS)
            if jobs
            else ()
        )
        unnamed = [name for name in given if not any(name in names for names in self._names.values())]
        text = ""
        if unnamed:
            rest = f" and {len(unnamed) - SHOWN} more" if len(unnamed) > SHOWN else ""
            text = f"no collector has {', '.join(unnamed[:SHOWN])}{rest}, which the scheduler gave to jobs"
        self._ticks = self._ticks + 1 if text == self.text else 0
        self.text = text
        if text and text != self._logged and self._ticks >= TICKS:
            self._logged = text
            log.warning("jobs: %s", text, extra={"who": "jobs"})
