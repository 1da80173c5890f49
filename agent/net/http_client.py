"""A connection to one HTTP server that is kept open, with limits of time and size for each answer."""

from __future__ import annotations

import base64
import http.client
import os
import select
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

from agent.errors import Refused, Retryable
from agent.net.timed_socket import TimedSocket, TooLarge, left
from agent.version import __version__

CONNECT_SECONDS: Final = 5.0
"""Seconds to wait for a connection."""
MAX_BYTES: Final = 1 << 23
"""Bytes that an answer may have, with its headers."""
PORTS: Final = {"http": 80, "https": 443}


class Answer(NamedTuple):
    """An answer; a redirect is an answer too, and is not followed."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def retry_after(self) -> float | None:
        """Return the seconds that the server asks to wait, None where it names none in that form."""
        text = self.headers.get("Retry-After", "")
        return float(text) if text.isascii() and text.isdigit() and len(text) < 7 else None


@dataclass(frozen=True, slots=True)
class Tls:
    """How a server is verified, and how it verifies us."""

    ca_file: str | None = None
    """Certificates in PEM, in place of the system's."""
    cert_file: str | None = None
    """Our certificate, with its key unless that has a file of its own."""
    key_file: str | None = None
    insecure: bool = False
    """Do not verify the server."""


class HttpClient:
    """Sends requests to the server of a URL, one after another; used by one thread."""

    def __init__(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        timeout: float,
        tls: Tls = Tls(),
        max_bytes: int = MAX_BYTES,
    ) -> None:
        """Send `headers` with each request; a whole answer may take `timeout` seconds."""
        self._url, self._timeout, self._tls, self._max_bytes = urlsplit(url), timeout, tls, max_bytes
        self._headers = {"User-Agent": f"chipwatch/{__version__}", "Accept-Encoding": "identity", **headers}
        self._host, self._port = self._url.hostname or "", self._url.port or PORTS[self._url.scheme]
        self._socket: socket.socket | None = None
        self._proxy: SplitResult | None = None
        self._context: ssl.SSLContext | None = None

    def request(self, method: str, path: str, body: bytes | None = None) -> Answer:
        """Return the answer, whatever its status; raise Retryable, or Refused where the TLS settings are wrong."""
        where = f"{self._url.scheme}://{self._host}:{self._port}"
        try:
            return self._request(method, self._url.path.rstrip("/") + path, body)
        except (Refused, Retryable):
            raise
        except ssl.SSLCertVerificationError as problem:
            raise Refused(f"{where}: the server's certificate is not accepted: {problem.verify_message}") from None
        except TimeoutError:
            raise Retryable(f"{where}: no complete answer in {self._timeout:g} s") from None
        except TooLarge:
            raise Retryable(f"{where}: the answer has more than {self._max_bytes} bytes") from None
        except ssl.SSLError as problem:
            raise Retryable(f"{where}: TLS: {problem.reason or 'failed'}") from None
        except OSError as problem:
            raise Retryable(f"{where}: {problem.strerror or type(problem).__name__}") from None
        except (http.client.HTTPException, ValueError) as problem:
            raise Retryable(f"{where}: the answer is not valid HTTP ({type(problem).__name__})") from None

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        open_now, self._socket = self._socket, None
        if open_now is not None:
            open_now.close()

    def _request(self, method: str, path: str, body: bytes | None) -> Answer:
        deadline = time.monotonic() + self._timeout
        used, self._socket = self._socket, None
        if used is not None and select.select([used], [], [], 0)[0]:  # the server has closed it
            used.close()
            used = None
        raw = used or self._connect(deadline)
        is_kept = False
        try:
            connection = http.client.HTTPConnection(self._host, self._port)
            connection.default_port = PORTS[self._url.scheme]  # so that Host does not name it
            connection.sock = TimedSocket(raw, deadline, max_bytes=self._max_bytes)
            target = f"http://{self._url.netloc.rpartition('@')[2]}{path}" if self._is_relayed else path
            relayed = self._proxy_headers() if self._is_relayed else {}
            connection.request(method, target, body, {**self._headers, **relayed})
            with connection.getresponse() as response:
                answer = Answer(response.status, response.headers, response.read())
                is_kept = not response.will_close
        finally:
            if is_kept:
                self._socket = raw
            else:
                raw.close()
        return answer

    def _connect(self, deadline: float) -> socket.socket:
        """Return a new connection, through a proxy where the environment names one."""
        self._proxy = _proxy(self._url.scheme, self._host)
        place = (
            (self._host, self._port) if self._proxy is None else (self._proxy.hostname or "", self._proxy.port or 80)
        )
        raw = socket.create_connection(place, timeout=min(CONNECT_SECONDS, left(deadline)))
        try:
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            raw.settimeout(left(deadline))
            if self._url.scheme != "https":
                return raw
            if self._proxy is not None:
                self._tunnel(raw, deadline)
            return self._tls_context().wrap_socket(raw, server_hostname=self._host)
        except BaseException:
            raw.close()
            raise

    @property
    def _is_relayed(self) -> bool:
        """Whether a proxy reads the request itself, since it is not encrypted."""
        return self._proxy is not None and self._url.scheme == "http"

    def _tunnel(self, raw: socket.socket, deadline: float) -> None:
        host = f"[{self._host}]" if ":" in self._host else self._host
        lines = [f"CONNECT {host}:{self._port} HTTP/1.1", f"Host: {host}:{self._port}"]
        lines += [f"{name}: {value}" for name, value in self._proxy_headers().items()]
        raw.sendall("\r\n".join([*lines, "", ""]).encode("latin-1"))
        response = http.client.HTTPResponse(TimedSocket(raw, deadline, max_bytes=self._max_bytes), method="CONNECT")  # type: ignore[arg-type]
        response.begin()
        if response.status != 200:
            raise Retryable(f"the proxy {self._proxy.hostname if self._proxy else ''} answers {response.status}")

    def _proxy_headers(self) -> dict[str, str]:
        proxy = self._proxy
        if proxy is None or proxy.username is None:
            return {}
        return {"Proxy-Authorization": basic(unquote(proxy.username), unquote(proxy.password or ""))}

    def _tls_context(self) -> ssl.SSLContext:
        if self._context is None:
            of = self._tls
            try:
                context = ssl.create_default_context(cafile=of.ca_file)
                if of.cert_file:
                    context.load_cert_chain(of.cert_file, of.key_file, password=lambda: "")
            except OSError as problem:
                named = ", ".join(file for file in (of.ca_file, of.cert_file, of.key_file) if file)
                raise Refused(f"TLS: {named}: {problem.strerror or 'not a certificate in PEM'}") from None
            if of.insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._context = context
        return self._context


def basic(user: str, password: str) -> str:
    """Return the value of an Authorization header for a user and a password."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


def _proxy(scheme: str, host: str) -> SplitResult | None:
    """Return the proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for `host`."""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return None
    from urllib.request import getproxies_environment, proxy_bypass  # noqa: PLC0415  # takes 1 MB

    text = getproxies_environment().get(scheme)
    if not text or proxy_bypass(host):
        return None
    return urlsplit(text if "://" in text else f"http://{text}")
