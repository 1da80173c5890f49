"""One scrape over HTTP, bounded in time and in bytes; no proxy, no redirect, no connection kept."""

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

from agent.collectors.openmetrics.endpoint import Answer, Endpoint, allowed
from agent.net.timed_socket import TimedSocket, left

ACCEPT: Final = "application/openmetrics-text;version=1.0.0;q=1,text/plain;version=0.0.4;q=0.5"
NOT_METRICS: Final = frozenset(
    {"text/html", "application/xhtml+xml", "application/json", "application/vnd.google.protobuf"}
)
CHUNK: Final = 1 << 16


class Failed(Exception):
    """There is no page; the message says why, and tells no secret."""


class Scraper:
    """Scrapes one endpoint, on whatever thread calls it."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Take the endpoint."""
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
            why = f"no whole answer in {self._endpoint.timeout:g} s"
        except ssl.SSLError as problem:
            why = f"TLS: {getattr(problem, 'verify_message', '') or problem.reason or 'failed'}"
        except OSError as problem:
            why = problem.strerror or str(problem) or type(problem).__name__
        except zlib.error:
            why = "the answer says that it is gzip, and is not"
        except (http.client.HTTPException, ValueError) as problem:
            why = f"no answer that HTTP allows ({type(problem).__name__})"
        self._tls = None
        raise Failed(why)

    def _scrape(self) -> Answer:
        url, deadline = urlsplit(self._endpoint.url), time.monotonic() + self._endpoint.timeout
        headers = self._headers()
        assert url.hostname is not None
        secure = url.scheme == "https"
        connection = http.client.HTTPConnection(url.hostname, url.port or (443 if secure else 80))
        if secure:
            connection.default_port = 443  # so that Host does not name it
        raw = socket.create_connection((url.hostname, connection.port), timeout=self._endpoint.timeout)
        try:
            raw.settimeout(left(deadline))
            sock = self._context().wrap_socket(raw, server_hostname=url.hostname) if secure else raw
            raw = sock
            connection.sock = TimedSocket(sock, deadline)  # all of a socket that it uses
            target = (url.path or "/") + (f"?{url.query}" if url.query else "")
            connection.request("GET", target, headers=headers)
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
                raise Failed(f"TLS: {named}: {problem.strerror or 'no certificate in PEM'}") from problem
            if of.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._tls = context
        return self._tls

    def _answer(self, response: http.client.HTTPResponse) -> Answer:
        if response.status in (301, 302, 303, 307, 308):
            raise Failed("the answer is a redirect, which is not followed")
        if response.status != 200:
            raise Failed(f"the answer is status {response.status}")
        kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind in NOT_METRICS:
            raise Failed(f"the answer is {kind}, not metrics")
        coding = response.headers.get("Content-Encoding", "identity").strip().lower()
        if coding not in ("identity", "gzip", "x-gzip", ""):
            raise Failed("the answer is packed in a way that was not asked for")
        framed = response.length is not None or bool(response.chunked)
        body = self._body(response, zipped="gzip" in coding)
        return Answer(body, kind == "application/openmetrics-text", framed or "gzip" in coding)

    def _body(self, response: http.client.HTTPResponse, *, zipped: bool) -> bytes:
        """Return the whole body; raise Failed where it is too large or was cut."""
        most = self._endpoint.max_bytes
        if (response.length or 0) > most:
            raise Failed(f"the page has more than {most} bytes (max_bytes)")
        unpack = zlib.decompressobj(wbits=31) if zipped else None
        body = bytearray()
        while chunk := response.read1(CHUNK):
            while chunk:
                body += unpack.decompress(chunk, most + 1 - len(body)) if unpack else chunk
                if len(body) > most:
                    raise Failed(f"the page has more than {most} bytes (max_bytes)")
                chunk = unpack.unused_data if unpack else b""
                if chunk:  # gzip may come in several parts: RFC 1952, section 2.2
                    unpack = zlib.decompressobj(wbits=31)
        if response.length or (unpack and not unpack.eof):
            raise Failed("the answer was cut")
        return bytes(body)


def _secret(header: str, *, env: str = "", file: str | Path = "") -> str:
    """Return the value of a header from where it is kept; raise Failed, which does not tell it."""
    try:
        value = Path(file).read_text().strip() if file else os.environ.get(env, "")
    except (OSError, ValueError) as problem:
        raise Failed(f"{header}: cannot read {file} ({type(problem).__name__})") from problem
    if not value:
        raise Failed(f"{header}: there is nothing in {file or f'the variable {env}'}")
    if not allowed(value):
        raise Failed(f"{header}: {file or f'the variable {env}'} holds what HTTP does not allow")
    return value
