"""Finds the pages of metrics that frameworks serve in a job's processes, and scrapes them on one separate thread."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.contract.owner import Owner
from chipwatch.host.blocking_call import BlockingCall
from chipwatch.host.exposition import ExpositionReader, ScrapeResponse
from chipwatch.host.job_times import Reports, names
from chipwatch.host.listeners import listeners
from chipwatch.host.owners import Owners
from chipwatch.net.address import is_loopback
from chipwatch.net.http_client import HttpClient

TIMEOUT: Final = 3.0
"""Seconds for a page."""
MAX_BYTES: Final = 8_000_000
MAX_SERIES: Final = 500
MOST: Final = 32
"""Pages that are read."""
HEADERS: Final = {"Accept": "text/plain;version=0.0.4", "Accept-Encoding": "identity", "Connection": "close"}
Address = tuple[str, int]


class JobPage:
    """A page of a job, and what it said last."""

    def __init__(self, owner: Owner) -> None:
        self.owner, self.reader = owner, ExpositionReader(MAX_SERIES, Dimensions, lambda name, _: name in names())
        self.points: Sequence[Datapoint] = ()


class Pages:
    """The pages of the jobs that hold accelerators, on loopback only."""

    def __init__(self, proc: Path, owners: Owners, ports: Collection[int]) -> None:
        self._proc, self._owners, self._ports = proc, owners, ports
        self.by_address: dict[Address, JobPage] = {}
        self.elsewhere: set[str] = set()
        """Jobs whose page is in another network namespace."""
        self._answers: SimpleQueue[tuple[Address, ScrapeResponse | str]] = SimpleQueue()
        self._asked: Sequence[Address] = ()
        self._call = BlockingCall(self._scrape, "scrape-programs")

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
                self.by_address[address] = known if known and known.owner.key == owner.key else JobPage(owner)

    def ask(self) -> None:
        """Scrape all pages, unless that still goes on."""
        self._asked = [*self.by_address]
        if self._asked:
            with suppress(TimeoutError):
                self._call.ask(0)

    def take(self, at: int) -> tuple[bool, list[str]]:
        """Take the pages that have come; return whether there are some, and a message for each problem."""
        is_new, problems = False, list[str]()
        with suppress(Empty):
            while True:
                address, answer = self._answers.get_nowait()
                if (page := self.by_address.get(address)) is None:
                    continue
                if isinstance(answer, str):
                    problems.append(f"{address[0]}:{address[1]} of job {page.owner.job}: {answer}")
                else:
                    page.points, is_new = page.reader.read(answer, at)[0], True
        return is_new, problems

    def reports(self) -> Reports:
        """Return the last points of each page, with the dimensions of its job."""
        return {address: (page.owner.dims(), page.points) for address, page in self.by_address.items() if page.points}

    def close(self) -> None:
        """End the thread."""
        self._call.close()

    def _scrape(self) -> None:
        for host, port in self._asked:
            client = HttpClient(
                f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics",
                timeout=TIMEOUT, max_bytes=MAX_BYTES, direct=True,
            )  # fmt: skip
            try:
                answer = client.request("GET", "", None, HEADERS)
                body = ScrapeResponse(answer.body, openmetrics=False, whole=True)
                self._answers.put(((host, port), body if answer.status == 200 else f"status {answer.status}"))
            except (Refused, Retryable) as problem:
                self._answers.put(((host, port), str(problem)))
            finally:
                client.close()
