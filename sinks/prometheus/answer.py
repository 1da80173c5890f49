"""Answers requests with the page in the format that the reader prefers."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Final

from agent.net.page_server import Request, Response
from sinks.prometheus.page import Format, Page

PLAIN: Final = (("Content-Type", "text/plain; charset=utf-8"),)
TYPES: Final[Mapping[Format, str]] = {
    Format.TEXT: "text/plain; version=0.0.4; charset=utf-8",
    Format.OPENMETRICS: "application/openmetrics-text; version=1.0.0; charset=utf-8",
    Format.FLAT: "text/plain; version=0.0.4; charset=utf-8",
}
ESCAPING: Final = "; escaping=underscores"
"""All names are of letters, digits and underscores, whatever escaping is asked for."""
MISSED: Final = 3
"""Ticks that may be missing before the page counts as stale."""
MIN_AGE: Final = 15.0
FIRST_AGE: Final = 300.0
"""Seconds after which the page is stale at the earliest, and while there was one tick only."""
LANDING: Final = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>chipwatch</title></head><body>
<h1>chipwatch</h1>
<p>The hardware of this machine, as it was read last.</p>
<ul>
<li><a href="/metrics">/metrics</a>: for Prometheus, in the text format or OpenMetrics</li>
<li><a href="/flat">/flat</a>: the same with the labels in the names, for readers that drop labels</li>
</ul>
</body></html>
"""


class Answers:
    """What the server asks for each request."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._written: float | None = None
        self._stale_after = FIRST_AGE

    def fresh(self, now: float) -> None:
        """Note that the page is of `now` (monotonic seconds)."""
        if self._written is not None:
            self._stale_after = max(MIN_AGE, MISSED * (now - self._written))
        self._written = now

    def __call__(self, request: Request) -> Response:
        """Return the answer to a request."""
        if request.path == "/":
            return Response(200, LANDING, (("Content-Type", "text/html; charset=utf-8"),))
        if request.path not in ("/metrics", "/flat"):
            return Response(404, b"Nothing is here; the page is /metrics.\n", PLAIN)
        if (written := self._written) is None:
            return Response(503, b"Nothing was read yet.\n", PLAIN)
        if (age := time.monotonic() - written) > self._stale_after:
            return Response(
                503, f"The last reading is {age:.0f} seconds old; the agent's log says why.\n".encode(), PLAIN
            )
        form, escaping = (Format.FLAT, False) if request.path == "/flat" else chosen(request.headers.get("accept", ""))
        zipped = accepts_gzip(request.headers.get("accept-encoding", ""))
        headers = [("Content-Type", TYPES[form] + ESCAPING * escaping), ("Vary", "Accept, Accept-Encoding")]
        headers += [("Content-Encoding", "gzip")] * zipped
        return Response(200, self._page.body(form, zipped=zipped), headers)


def chosen(accept: str) -> tuple[Format, bool]:
    """Return the format that an Accept header prefers, and whether the answer names the escaping."""
    best, form, escaping = 0.0, Format.TEXT, False
    for kind, options in _weighed(accept):
        version, weight = options.get("version", ""), _weight(options)
        if kind == "application/openmetrics-text" and version in ("1.0.0", ""):
            offered = Format.OPENMETRICS
        elif kind in ("text/plain", "text/*", "*/*") and version in ("0.0.4", ""):
            offered = Format.TEXT
        else:
            continue
        if weight > best:
            best, form = weight, offered
            escaping = offered is Format.OPENMETRICS and "escaping" in options
    return form, escaping


def accepts_gzip(accept_encoding: str) -> bool:
    """Tell whether an Accept-Encoding header allows gzip."""
    weights = {kind: _weight(options) for kind, options in _weighed(accept_encoding)}
    return weights.get("gzip", weights.get("*", 0.0)) > 0


def _weighed(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the values of a header, and the parameters of each."""
    for part in header.split(","):
        kind, *parameters = part.split(";")
        pairs = (parameter.partition("=") for parameter in parameters)
        yield kind.strip().lower(), {key.strip().lower(): value.strip(' "\t') for key, _, value in pairs}


def _weight(options: Mapping[str, str]) -> float:
    weight = 1.0
    with suppress(ValueError):
        weight = float(options.get("q", "1"))
    return weight
