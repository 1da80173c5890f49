"""Finds the pages of metrics that frameworks serve in a job's processes, and reads them one after the other."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.contract.owner import Owner
from chipwatch.host.exposition import ExpositionReader, ScrapeResponse
from chipwatch.host.job_times import Reports, names
from chipwatch.host.listeners import listeners
from chipwatch.host.owners import Owners
from chipwatch.net.address import is_loopback
from chipwatch.net.http_client import HttpClient

TIMEOUT: Final = 2.0
"""Seconds for a page."""
MAX_BYTES: Final = 8_000_000
MAX_SERIES: Final = 500
MOST: Final = 32
"""Pages that are read."""
HEADERS: Final = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "Connection": "close"}


class JobPage:
    """A page of a job, and what it said last."""

    def __init__(self, owner: Owner, host: str, port: int) -> None:
        self.owner, self.port, self.due = owner, port, 0.0
        self._url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        self._reader = ExpositionReader(MAX_SERIES, Dimensions, lambda name, _: name in names())
        self.points: Sequence[Datapoint] = ()

    def read(self, at: int) -> str:
        """Read the page; return why that failed, or ""."""
        client = HttpClient(self._url, timeout=TIMEOUT, max_bytes=MAX_BYTES, direct=True)
        try:
            answer = client.request("GET", "", None, HEADERS)
        except (Refused, Retryable) as problem:
            return f"{self._url} of job {self.owner.job}: {problem}"
        finally:
            client.close()
        if answer.status != 200:
            return f"{self._url} of job {self.owner.job}: status {answer.status}"
        self.points, _ = self._reader.read(ScrapeResponse(answer.body, openmetrics=False, whole=True), at)
        return ""


class Pages:
    """The pages of the jobs that hold accelerators, on loopback only."""

    def __init__(self, proc: Path, owners: Owners, ports: Collection[int]) -> None:
        self._proc, self._owners, self._ports = proc, owners, ports
        self.by_address: dict[tuple[str, int], JobPage] = {}
        self.elsewhere: set[str] = set()
        """Jobs whose page is in another network namespace."""

    def find(self, pids: Collection[int]) -> None:
        """Look for the pages of the jobs of processes on devices; their other processes count, too."""
        keys = {process.owner.key for process in self._owners.of_drivers(pids).values()}
        owner_of: dict[int, Owner] = {}
        for name in os.listdir(self._proc) if keys else ():  # noqa: PTH208  # no Path for each of a thousand processes
            if name.isdecimal() and (process := self._owners.process(int(name))) and process.owner.key in keys:
                owner_of[int(name)] = process.owner
        before, self.by_address, self.elsewhere = self.by_address, {}, set()
        for listener in listeners(self._proc, dict.fromkeys(owner_of, self._ports)):
            owner, address = owner_of[listener.pid], (listener.host, listener.port)
            if not listener.is_here:
                self.elsewhere.add(owner.job)
            elif is_loopback(listener.host) and len(self.by_address) < MOST:
                known = before.get(address)
                self.by_address[address] = known if known and known.owner.key == owner.key else JobPage(owner, *address)

    def read(self, now: float, every: float, at: int) -> str | None:
        """Read the page that has waited longest, one of those that are due; return its problem, None if none is due."""
        page = min(self.by_address.values(), key=lambda page: page.due, default=None)
        if page is None or now < page.due:
            return None
        page.due = now + every
        return page.read(at)

    def reports(self) -> Reports:
        """Return the last points of each page, with the dimensions of its job."""
        return {key: (page.owner.dims(), page.points) for key, page in self.by_address.items() if page.points}
