"""Finds the pages of metrics that frameworks serve in a job's processes, and reads them one after the other."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path
from typing import Final

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.contract.owner import Owner
from chipwatch.host.job_times import JobProgram
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


class JobPage(JobProgram):
    """A page of a program."""

    def __init__(self, owner: Owner, host: str, port: int) -> None:
        super().__init__(owner.dims(), MAX_SERIES, all_series=False)
        self.owner, self.due = owner, 0.0
        self.url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def fetch(self, at: int) -> str:
        """Read the page; return why that failed, or ""."""
        client = HttpClient(self.url, timeout=TIMEOUT, max_bytes=MAX_BYTES, direct=True)
        try:
            answer = client.request("GET", "", None, HEADERS)
        except (Refused, Retryable) as problem:
            return f"{self.url} of job {self.owner.job}: {problem}"
        finally:
            client.close()
        if answer.status == 200:
            self.read(answer.body, at)
        return "" if answer.status == 200 else f"{self.url} of job {self.owner.job}: status {answer.status}"


class Pages:
    """The pages of the jobs that hold accelerators, on loopback only."""

    def __init__(self, proc: Path, owners: Owners, ports: Collection[int]) -> None:
        self._proc, self._owners, self._ports = proc, owners, ports
        self.by_address: dict[tuple[str, int], JobPage] = {}

    def find(self, pids: Collection[int]) -> None:
        """Look for the pages of the jobs of processes on devices; their other processes count, too."""
        keys = {process.owner.key for process in self._owners.of_drivers(pids).values()}
        owner_of: dict[int, Owner] = {}
        for name in os.listdir(self._proc) if keys else ():  # noqa: PTH208  # no Path for each of a thousand processes
            if name.isdecimal() and (process := self._owners.process(int(name))) and process.owner.key in keys:
                owner_of[int(name)] = process.owner
        before, self.by_address = self.by_address, {}
        for listener in listeners(self._proc, dict.fromkeys(owner_of, self._ports)):
            owner, address = owner_of[listener.pid], (listener.host, listener.port)
            if listener.is_here and is_loopback(listener.host) and len(self.by_address) < MOST:
                known = before.get(address)
                self.by_address[address] = known if known and known.owner.key == owner.key else JobPage(owner, *address)

    def read(self, now: float, every: float, at: int) -> str | None:
        """Read the page that has waited longest, one of those that are due; return its problem, None if none is due."""
        page = min(self.by_address.values(), key=lambda page: page.due, default=None)
        if page is None or now < page.due:
            return None
        page.due = now + every
        return page.fetch(at)
