"""Scrapes a page over HTTP, with limits of time and size. It uses no proxy, no redirect, no open connection."""

from __future__ import annotations

import os
import zlib
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chipwatch.collectors.openmetrics.endpoint import Endpoint, ScrapeFailed
from chipwatch.contract.errors import Refused, Retryable
from chipwatch.host.exposition import ScrapeResponse
from chipwatch.net.faults import checked_header, read_secret
from chipwatch.net.http_client import ClientTls, HttpClient

ACCEPT: Final = "application/openmetrics-text;version=1.0.0;q=1,text/plain;version=0.0.4;q=0.5"
NOT_METRICS: Final = ("text/html", "application/xhtml+xml", "application/json", "application/vnd.google.protobuf")


class Scraper:
    """Scrapes one endpoint, on the caller's thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = of = endpoint
        tls = ClientTls(of.ca_file, of.cert_file, of.key_file, of.insecure)
        most, option = of.max_bytes, "max_bytes"
        self._client = HttpClient(of.url, timeout=of.timeout, max_bytes=most, tls=tls, direct=True, bytes_option=option)

    def scrape(self) -> ScrapeResponse:
        """Return the page; raise ScrapeFailed."""
        try:
            status, headers, body, _ = self._client.request("GET", "", None, self._headers())
        except (Refused, Retryable) as problem:
            raise ScrapeFailed(str(problem).removeprefix(f"{urlsplit(self._endpoint.url).netloc}: ")) from None
        finally:
            self._client.close()
        if status in (301, 302, 303, 307, 308):
            raise ScrapeFailed("the answer is a redirect, which is not followed")
        if status != 200:
            raise ScrapeFailed(f"the answer has the status {status}")
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in NOT_METRICS:
            raise ScrapeFailed(f"the answer is {kind}, not metrics")
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", "x-gzip", ""):
            raise ScrapeFailed("the answer has a Content-Encoding that was not requested")
        is_whole = "gzip" in coding or bool({"content-length", "transfer-encoding"} & headers.keys())
        most = self._endpoint.max_bytes
        page = _unpacked(body, most) if "gzip" in coding else body
        if len(page) > most:
            raise ScrapeFailed(f"the answer has more than {most} bytes (max_bytes)")
        return ScrapeResponse(page, kind == "application/openmetrics-text", is_whole)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", "Connection": "close", "User-Agent": "chipwatch"}
        for name, value in self._endpoint.headers.items():
            headers[name] = value if isinstance(value, str) else _secret(name, **value)
        if self._endpoint.bearer_token_file:
            headers["Authorization"] = f"Bearer {_secret('bearer_token_file', file=self._endpoint.bearer_token_file)}"
        return headers


def _unpacked(body: bytes, most: int) -> bytes:
    """Unpack gzip with one or more members (RFC 1952, 2.2), at most one byte more than `most`; raise ScrapeFailed."""
    page = bytearray()
    try:
        while body and len(page) <= most:
            unpack = zlib.decompressobj(wbits=31)
            page += unpack.decompress(body, most + 1 - len(page))
            if not unpack.eof and len(page) <= most:
                raise ScrapeFailed("the answer is incomplete")
            body = unpack.unused_data
    except zlib.error:
        raise ScrapeFailed("the answer is not gzip, though its Content-Encoding says so") from None
    return bytes(page)


def _secret(header: str, *, env: str = "", file: str | Path = "") -> str:
    """Read the value of a header from a variable or a file; raise ScrapeFailed, without the value."""
    try:
        return read_secret(Path(file)) if file else checked_header(os.environ.get(env, ""), f"the variable {env}")
    except ValueError as problem:
        raise ScrapeFailed(f"{header}: {problem}") from problem
