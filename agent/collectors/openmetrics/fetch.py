"""One scrape over HTTP with limits of time and size; without proxies, redirects and persistent connections."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import time
import zlib
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from agent.collectors.openmetrics.endpoint import Endpoint, allowed
from agent.host.exposition import Answer
from agent.net.timed_socket import TimedSocket, left

ACCEPT: Final = "application/openmetrics-text;version=1.0.0;q=1,text/plain;version=0.0.4;q=0.5"
NOT_METRICS: Final = ("text/html", "application/xhtml+xml", "application/json", "application/vnd.google.protobuf")
CHUNK: Final = 1 << 16


class Failed(Exception):
    """The scrape failed; the message says why, without secrets."""


class Scraper:
    """Scrapes one endpoint, on the caller's thread."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._tls: ssl.SSLContext | None = None

    def scrape(self) -> Answer:
        """Return the page; raise Failed."""
        try:
            return self._scrape()
        except Failed:
            self._tls = None  # certificates may have been renewed
            raise
        except TimeoutError:
            why = f"no complete answer in {self._endpoint.timeout:g} s"
        except ssl.SSLError as problem:
            why = f"TLS: {getattr(problem, 'verify_message', '') or problem.reason or 'failed'}"
        except OSError as problem:
            why = problem.strerror or str(problem) or type(problem).__name__
        except zlib.error:
            why = "the answer is not gzip, though its Content-Encoding says so"
        except (http.client.HTTPException, ValueError) as problem:
            why = f"the answer is not valid HTTP ({type(problem).__name__})"
        self._tls = None
        raise Failed(why)

    def _scrape(self) -> Answer:
        url, deadline = urlsplit(self._endpoint.url), time.monotonic() + self._endpoint.timeout
        headers, secure = self._headers(), url.scheme == "https"
        assert url.hostname is not None
        connection = http.client.HTTPConnection(url.hostname, url.port or (443 if secure else 80))
        if secure:
            connection.default_port = 443  # so that Host does not name it
        raw = socket.create_connection((url.hostname, connection.port), timeout=self._endpoint.timeout)
        try:
            raw.settimeout(left(deadline))
            raw = self._context().wrap_socket(raw, server_hostname=url.hostname) if secure else raw
            connection.sock = TimedSocket(raw, deadline)
            connection.request("GET", (url.path or "/") + (f"?{url.query}" if url.query else ""), headers=headers)
            with connection.getresponse() as response:
                return self._answer(response)
        finally:
            raw.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": ACCEPT, "Accept-Encoding": "gzip", "Connection": "close", "User-Agent": "chipwatch"}
        for name, value in self._endpoint.headers.items():
            headers[name] = value if isinstance(value, str) else _secret(name, **value)
        if self._endpoint.bearer_token_file:
            headers["Authorization"] = f"Bearer {_secret('bearer_token_file', file=self._endpoint.bearer_token_file)}"
        return headers

    def _context(self) -> ssl.SSLContext:
        if self._tls is None:
            of = self._endpoint
            try:
                context = ssl.create_default_context(cafile=of.ca_file)
                if of.cert_file:
                    context.load_cert_chain(of.cert_file, of.key_file, password=lambda: "")
            except OSError as problem:
                named = ", ".join(str(file) for file in (of.ca_file, of.cert_file, of.key_file) if file)
                raise Failed(f"TLS: {named}: {problem.strerror or 'not a certificate in PEM'}") from problem
            if of.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls

    def _answer(self, response: http.client.HTTPResponse) -> Answer:
        if response.status in (301, 302, 303, 307, 308):
            raise Failed("the answer is a redirect, which is not followed")
        if response.status != 200:
            raise Failed(f"the answer has the status {response.status}")
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind in NOT_METRICS:
            raise Failed(f"the answer is {kind}, not metrics")
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", "x-gzip", ""):
            raise Failed("the answer has a Content-Encoding that was not requested")
        framed = response.length is not None or bool(response.chunked)
        body = self._body(response, zipped="gzip" in coding)
        return Answer(body, kind == "application/openmetrics-text", framed or "gzip" in coding)

    def _body(self, response: http.client.HTTPResponse, *, zipped: bool) -> bytes:
        """Return the body; raise Failed if it is too large or incomplete."""
        most = self._endpoint.max_bytes
        too_large = f"the page has more than {most} bytes (max_bytes)"
        if (response.length or 0) > most:
            raise Failed(too_large)
        unpack = zlib.decompressobj(wbits=31) if zipped else None
        body = bytearray()
        while chunk := response.read1(CHUNK):
            while chunk:
                body += unpack.decompress(chunk, most + 1 - len(body)) if unpack else chunk
                if len(body) > most:
                    raise Failed(too_large)
                chunk = unpack.unused_data if unpack else b""
                if chunk:  # gzip may have several members: RFC 1952, section 2.2
                    unpack = zlib.decompressobj(wbits=31)
        if response.length or (unpack and not unpack.eof):
            raise Failed("the answer is incomplete")
        return bytes(body)


def _secret(header: str, *, env: str = "", file: str | Path = "") -> str:
    """Return the value of a header from a variable or a file; raise Failed without repeating it."""
    try:
        value = Path(file).read_text().strip() if file else os.environ.get(env, "")
    except (OSError, ValueError) as problem:
        raise Failed(f"{header}: cannot read {file} ({type(problem).__name__})") from problem
    if not value or not allowed(value):
        fault = "has characters that HTTP does not allow" if value else "is empty"
        raise Failed(f"{header}: {file or f'the variable {env}'} {fault}")
    return value
