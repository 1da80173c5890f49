"""Answers HTTP requests with the page, in the format that the reader prefers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Final

from chipwatch.net.page_server import Request, Response
from chipwatch_sinks.prometheus.page import Format, Page

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


class PageAnswers:
    """Makes the HTTP answer to each request: the page, or an error once it is stale."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._written: float | None = None
        self._stale_after = FIRST_AGE

    def fresh(self, now: float) -> None:
        """Note that the page was renewed at `now` (monotonic seconds)."""
        if self._written is not None:
            self._stale_after = max(MIN_AGE, MISSED * (now - self._written))
        self._written = now

    def __call__(self, request: Request) -> Response:
        """Return the HTTP answer to a request."""
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
        return Response(200, body, headers)


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
    weight = 1.0
    with suppress(ValueError):
        weight = float(options.get("q", "1"))
    return weight
