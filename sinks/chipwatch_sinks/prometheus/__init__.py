"""Serves the points on an HTTP page that Prometheus scrapes."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.errors import Refused, os_text
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.net.address import is_loopback, parse_address
from chipwatch.net.page_server import PageServer, Request, Response
from chipwatch_sinks.prometheus.answer import PageAnswers
from chipwatch_sinks.prometheus.page import Page
from chipwatch_sinks.prometheus.web import Web, WebError

log = logging.getLogger(__name__)


class PrometheusSink(Sink):
    """
    Serves the points of the last tick at /metrics, so that a scrape reads nothing from the hardware.

    The machine's dimensions are labels of the metric `target_info`.
    """

    limits = Limits(max_points=1_000_000, durable=False, window=0, flush=0, max_age=60, scraped=True)

    @dataclass(frozen=True, slots=True)
    class Config:
        """The options."""

        listen: str = "127.0.0.1:9465"
        """Address to listen on, as [HOST:]PORT; 0.0.0.0 or [::] is every address of this machine."""
        web_config_file: Path | None = None
        """TLS, client certificates and basic auth, as Prometheus' exporters take them in --web.config.file."""
        machine_labels: bool = False
        """Put the machine's dimensions on every series too, and not only on target_info."""
        timestamps: bool = False
        """Send the time of each sample; Prometheus then does not notice at once that a series has ended."""
        interval: float = 5.0
        """Seconds between two ticks; set by --interval."""

        def __post_init__(self) -> None:
            """Raise ValueError for an invalid address."""
            try:
                parse_address(self.listen)
            except ValueError as problem:
                raise ValueError(f"listen: {problem}") from None

    def __init__(self, config: Config) -> None:
        self._config = config
        self._page = Page(interval=config.interval, machine_labels=config.machine_labels, timestamps=config.timestamps)
        self._answers = PageAnswers(self._page)
        self._web = Web(config.web_config_file)
        self._server: PageServer | None = None
        self._scrape: tuple[float, str] | None = None  # the last scrape: when (monotonic seconds) and by whom

    def refuses(self, metric: Metric, dims: Dimensions) -> str | None:
        """Return why the page cannot show this series (its name or two labels clash), or None."""
        return self._page.fault(metric, dims) or None

    def waits(self) -> bool:
        return False

    def open(self) -> None:
        self.close()
        address = parse_address(self._config.listen)
        try:
            self._web.load()
            self._server = PageServer(address, self._web.guard(self._answer), self._web.context)
        except WebError as problem:
            raise Refused(str(problem)) from problem
        except OSError as problem:
            raise Refused(
                f"cannot listen on {self._config.listen}: {os_text(problem)}; set listen to another address"
            ) from problem
        if not (self._web.encrypts or self._web.protects or is_loopback(address[0])):
            log.warning("%s is open to everyone who reaches it; web_config_file sets TLS and passwords", self.url)

    def write(self, batch: Sequence[Datapoint]) -> Sequence[Rejected]:
        """Put the batch, which is the points of one tick, on the page; return what cannot be shown."""
        rejected = self._page.take(batch)
        self._answers.fresh(time.monotonic())
        return rejected

    def _answer(self, request: Request) -> Response:
        response = self._answers(request)
        if response.status == 200 and request.path != "/":
            self._scrape = time.monotonic(), request.peer
        return response

    def status(self) -> str:
        """Return a sentence: how many series the page has, and who scraped it last."""
        series = f"{self._page.series:,} series"
        if self._scrape is None:
            return f"{series}, not scraped yet"
        at, peer = self._scrape
        return f"{series}, scraped {time.monotonic() - at:,.0f} s ago by {peer}"

    def destination(self) -> Mapping[str, str]:
        return {"listen": self._config.listen}

    def describe(self) -> str:
        return self.url

    @property
    def url(self) -> str:
        """The page's address; for port 0, with the port that the system chose."""
        host, port = parse_address(self._config.listen)
        if self._server is not None:
            port = self._server.port
        scheme = "https" if self._web.encrypts else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
