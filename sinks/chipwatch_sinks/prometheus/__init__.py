"""Serves the points on an HTTP page that Prometheus scrapes."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Final

from chipwatch.contract.datapoint import Datapoint, Dimensions, Metric
from chipwatch.contract.errors import Refused, os_text
from chipwatch.contract.sink import Limits, Rejected, Sink
from chipwatch.net.address import is_loopback, parse_address
from chipwatch.net.page_server import PageServer, Request, Response
from chipwatch_sinks.prometheus.page import Format, Page
from chipwatch_sinks.prometheus.web import Web, WebError

OPEN: Final = "application/openmetrics-text"
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
ESCAPED: Final = "version=1.0.0; charset=utf-8; escaping=underscores"
"""Content type from 1.0.0 on, which names the escaping of names; ours need none, so any is right."""
TYPES: Final[Mapping[tuple[str, str], tuple[Format, str]]] = {
    **dict.fromkeys(product(("text/plain", "text/*", "*/*"), ("0.0.4", "")), (Format.TEXT, TEXT)),
    ("text/plain", "1.0.0"): (Format.TEXT, f"text/plain; {ESCAPED}"),
    **dict.fromkeys(((OPEN, "1.0.0"), (OPEN, "")), (Format.OPENMETRICS, f"{OPEN}; {ESCAPED}")),
}
"""
Type and version in an Accept header -> the format, and the answer's content type.

https://prometheus.io/docs/instrumenting/content_negotiation/
"""
HEADERS: Final = 16
"""Most Accept headers whose meaning is cached; a scraper sends the same one each time."""
MISSED: Final = 3
"""Ticks that may be missed before the page counts as stale."""
MIN_AGE: Final = 15.0
FIRST_AGE: Final = 300.0
"""Least seconds until the page counts as stale; and the seconds after the first tick, when the pace is unknown."""
GZIP: Final = b"\x1f\x8b"
LANDING: Final = Path(__file__).with_name("landing.html").read_bytes()


@lru_cache(HEADERS)
def chosen(accept: str) -> tuple[Format, str]:
    """Return the format that an Accept header prefers, and the content type; text 0.0.4 if it asks for none we have."""
    best, best_type = 0.0, (Format.TEXT, TEXT)
    for kind, options in _weighed(accept):
        offered, weight = TYPES.get((kind, options.get("version", ""))), _weight(options)
        if offered and weight > best:
            best, best_type = weight, offered
    return best_type


@lru_cache(HEADERS)
def accepts_gzip(accept_encoding: str) -> bool:
    """Return True if an Accept-Encoding header allows gzip."""
    weights = {kind: _weight(options) for kind, options in _weighed(accept_encoding)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weighed(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each value of a header, its weight, and its parameters."""
    for part in header.split(","):
        kind, *parameters = part.split(";")
        pairs = (parameter.partition("=") for parameter in parameters)
        yield kind.strip().lower(), {key.strip().lower(): value.strip(' "\t') for key, _, value in pairs}


def _weight(options: Mapping[str, str]) -> float:
    with suppress(ValueError):
        return float(options.get("q", "1"))
    return 1.0


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
        self._written: float | None = None  # when the page was renewed last (monotonic seconds)
        self._stale_after = FIRST_AGE
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
        now = time.monotonic()
        if self._written is not None:
            self._stale_after = max(MIN_AGE, MISSED * (now - self._written))
        self._written = now
        return rejected

    def _answer(self, request: Request) -> Response:
        """Return the HTTP answer to a request: the page, or an error once it is stale."""
        if request.path == "/":
            return Response(200, LANDING, (("Content-Type", "text/html; charset=utf-8"),))
        if request.path not in ("/metrics", "/flat"):
            return Response(404, b"Nothing is here; the page is /metrics.\n")
        if (written := self._written) is None:
            return Response(503, b"Nothing was read yet.\n")
        if (age := time.monotonic() - written) > self._stale_after:
            return Response(503, f"The last reading is {age:.0f} seconds old; the agent's log says why.\n".encode())
        form, kind = (Format.FLAT, TEXT) if request.path == "/flat" else chosen(request.headers.get("accept", ""))
        body = self._page.body(form, zipped=accepts_gzip(request.headers.get("accept-encoding", "")))
        headers = [("Content-Type", kind), ("Vary", "Accept, Accept-Encoding")]
        headers += [("Content-Encoding", "gzip")] * body.startswith(GZIP)
        self._scrape = time.monotonic(), request.peer
        return Response(200, body, headers)

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
        port = self._server.port if self._server else port
        scheme = "https" if self._web.encrypts else "http"
        return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}/metrics"

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
