"""Metrics that the programs of jobs report: pages of frameworks, and OTLP metrics that they push; see docs/why.md."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from chipwatch.contract.collector import Collector
from chipwatch.contract.datapoint import Datapoint
from chipwatch.contract.errors import PartlyCollected, Unavailable, os_text
from chipwatch.host.job_times import TIMES, JobProgram, JobTimes, names, table
from chipwatch.host.owners import Owners

if TYPE_CHECKING:
    from chipwatch.collectors.programs.pages import Pages
    from chipwatch.collectors.programs.receiver import OtlpReceiver

FIND: Final = 60.0
"""Seconds between two looks for pages."""


class ProgramsCollector(Collector):
    """Reads the pages of frameworks that are named, and receives OTLP metrics if a port is set; off otherwise."""

    metrics = TIMES

    @dataclass(frozen=True, slots=True)
    class Config:
        """The pages that are read, and the port on which metrics are received; nothing unless set."""

        pages: tuple[str, ...] = ()
        """Frameworks whose pages are read where a job serves them: grain, orbax, ray, sglang, vllm, also vllm:8001."""
        every: float = 15.0
        """Seconds between two readings of a page."""
        port: int = 0
        """Port of loopback on which programs may push OTLP metrics over HTTP, usually 4318; 0: none."""
        max_series: int = 500
        """Series that a process may push."""
        attributes: tuple[str, ...] = ("service.name", "rank")
        """Attributes of the resource that become dimensions of what is pushed."""
        proc: Path = Path("/proc")
        """Where the host's /proc is mounted; filled from --proc."""
        sys: Path = Path("/sys")
        """Where the host's /sys is mounted; filled from --sys."""
        root: Path = Path("/")
        """Where the host's / is mounted; filled from --root."""

        def __post_init__(self) -> None:
            """Raise ValueError for an unknown framework, or a wrong port."""
            for word in self.pages:
                name, colon, port = word.partition(":")
                if name not in table()["pages"] or (colon and not (port.isdecimal() and 0 < int(port) <= 65535)):
                    raise ValueError(
                        f"pages: expected NAME or NAME:PORT of {', '.join(table()['pages'])}, got {word!r}"
                    )
            if not 0 <= self.port <= 65535:
                raise ValueError(f"port: expected 0 to 65535, got {self.port}")

    def __init__(self, config: Config) -> None:
        self._config, self._clock, self._times = config, time.monotonic, JobTimes()
        self.dynamic = bool(config.port)
        """Programs push metrics of any name."""
        self._pids: frozenset[int] = frozenset()
        self._pages: Pages | None = None
        self._receiver: OtlpReceiver | None = None
        self._due = 0.0

    def open(self) -> None:
        self.close()
        config = self._config
        if not (config.pages or config.port):
            raise Unavailable("no source is configured: set `pages` or `port` in [collectors.programs]")
        if not (config.proc / "self/net/tcp").exists():
            raise Unavailable(f"{config.proc}/self/net/tcp is absent: processes of jobs are found on Linux only")
        of_pages, of_pushes = (Owners(config.proc, config.root, config.root / "var/log", config.sys) for _ in range(2))
        if config.port:
            from chipwatch.collectors.programs.receiver import OtlpReceiver  # noqa: PLC0415  # loads socket

            most, attributes = config.max_series, config.attributes
            try:
                self._receiver = OtlpReceiver(config.port, most, attributes, config.proc, of_pushes)
            except OSError as problem:
                raise Unavailable(f"127.0.0.1:{config.port}: {os_text(problem)}") from problem
        if config.pages:
            from chipwatch.collectors.programs.pages import Pages  # noqa: PLC0415  # loads http.client

            parts = (word.partition(":") for word in config.pages)
            self._pages = Pages(config.proc, of_pages, {int(port or table()["pages"][name]) for name, _, port in parts})

    def follow(self, pids: Collection[int]) -> None:
        self._pids = frozenset(pids)

    def collect(self, at: int) -> Iterator[Datapoint]:
        now, programs, problems, is_new = self._clock(), list[JobProgram](), list[str](), False
        if receiver := self._receiver:
            points = receiver.take(at)
            yield from (point for point in points if point.metric.name not in names())
            is_new, problems = any(point.metric.name in names() for point in points), receiver.problems
            programs += receiver.senders.values()
        if pages := self._pages:
            if now >= self._due:
                pages.find(self._pids)
                self._due = now + (FIND if pages.by_address else self._config.every)
            problem = pages.read(now, self._config.every, at)
            is_new |= problem == ""
            problems += [problem] if problem else []
            programs += pages.by_address.values()
        if is_new:
            yield from self._times.take(programs, at)
        if problems:
            raise PartlyCollected(problems)

    def describe(self) -> str:
        pages = [page.url for page in self._pages.by_address.values()] if self._pages else []
        pushes = [f"OTLP metrics at 127.0.0.1:{self._receiver.port}"] if self._receiver else []
        return "; ".join([*pages, *pushes])

    def close(self) -> None:
        if self._receiver:
            self._receiver.close()
        self._pages, self._receiver, self._due = None, None, 0.0
