"""An HTTP client with one connection, limits of time and bytes, TLS, and the environment's proxy."""

from __future__ import annotations

import base64
import os
import select
import socket
import ssl
import time
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, unquote, urlsplit

from chipwatch.base.redaction import one_line, without
from chipwatch.contract.errors import Refused, Retryable, os_text
from chipwatch.net.address import is_loopback, plain
from chipwatch.net.exchange import Exchange, Head, Incomplete, NotHttp, TooLarge, host_of, left

MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
CONNECT_TIMEOUT: Final = 5.0
"""Most seconds to wait for a connection."""
TIME, NAME = "renew it, or set this machine's clock", "check the address"
CURES: Final = {9: TIME, 10: TIME, 62: NAME, 64: NAME}
"""The remedy for a faulty certificate, by OpenSSL's code of the fault (x509_vfy.h, X509_V_ERR_*)."""
OPEN_HEADERS: Final = frozenset({
    "accept", "accept-encoding", "connection", "content-encoding", "content-type", "metadata-flavor", "user-agent",
    "x-amz-content-sha256", "x-amz-date", "x-amz-target", "x-amzn-query-mode", "x-goog-user-project",
    "x-mlflow-workspace",
})  # fmt: skip
"""Headers that are not secret. All others are, since users may choose any name for a secret one."""


class ClientTls(NamedTuple):
    """TLS options; files are in PEM. None or "": the system's authorities, and no certificate for the client."""

    ca_file: Path | str | None = None
    cert_file: Path | str | None = None
    key_file: Path | str | None = None
    insecure: bool = False
    """True to accept any certificate of the server."""
    ca_option: str = "ca_file"
    """Name of the option that sets `ca_file`, for messages."""
    context: ssl.SSLContext | None = None
    """A context that clients share; the other options do not count then."""


class HttpAnswer(NamedTuple):
    """An answer to a request."""

    status: int
    headers: Mapping[str, str]
    """The headers by name in lower case."""
    body: bytes
    """The body; empty if an error's body is too large."""
    secrets: tuple[str, ...] = ()
    """The secrets in the request, which the answer may repeat."""

    def says(self, words: str, most: int = 200) -> str:
        """Return `words`, from the answer, on one line of at most `most` characters, without secrets."""
        return one_line(" ".join(without(words, self.secrets)[: 10 * most].split()), most)


class HttpClient:
    """Sends requests to one server over a connection that it keeps. It follows no redirects. Used by one thread."""

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        max_bytes: int,
        tls: ClientTls = ClientTls(),  # noqa: B008  # a constant
        direct: bool = False,
        bytes_option: str = "",
    ) -> None:
        """
        Take the address, the most seconds for a request with its answer, and the most bytes of an answer.

        With `direct`, use no proxy. `bytes_option` is the name of the option that sets `max_bytes`, for messages.
        """
        self._url, self._parts, self._direct = url, urlsplit(url), direct
        self._secure = self._parts.scheme == "https"
        self._host, self._port = self._parts.hostname or "", self._parts.port or (443 if self._secure else 80)
        self._named = host_of(self._host, self._port, default=443 if self._secure else 80)
        self._timeout, self._max_bytes, self._tls = timeout, max_bytes, tls
        self._too_large = f"the answer has more than {max_bytes} bytes{bytes_option and f' ({bytes_option})'}"
        self._context = tls.context
        self._socket: socket.socket | None = None
        self._proxy: str | None = None

    def post(self, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Send `body` to the address; raise what `request` raises."""
        return self.request("POST", "", body, headers)

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> HttpAnswer:
        """
        Send a request to the address with `path` after it; return the answer, whatever its status.

        Raise Retryable if the network fails, Refused if a certificate or the proxy's settings are at fault.
        """
        deadline = time.monotonic() + self._timeout
        try:
            if self._socket is None or _has_news(self._socket):
                self.close()
                self._socket = self._connect(deadline)
            return self._request(self._exchange(self._socket, deadline), method, path, body, headers)
        except (Refused, Retryable):
            self.close()
            raise
        except (OSError, TooLarge, NotHttp, ValueError) as problem:
            self.close()
            self._context = self._tls.context  # without one, read the certificates again next time
            raise self._judged(problem) from None

    def close(self) -> None:
        """Close the connection; safe to call twice."""
        sock, self._socket = self._socket, None
        if sock is not None:
            sock.close()

    def _exchange(self, sock: socket.socket, deadline: float) -> Exchange:
        return Exchange(sock, self._named, deadline, max_bytes=self._max_bytes)

    def _judged(self, problem: Exception) -> Exception:
        """Return a failure as Retryable or Refused."""
        late, cut = f"no complete answer in {self._timeout:g} s", "the answer is incomplete"
        for kind, text in ((TooLarge, self._too_large), (TimeoutError, late), (Incomplete, cut)):
            if isinstance(problem, kind):
                return Retryable(text)
        if isinstance(problem, OSError):
            fault = self._fault_of_tls(problem) if self._secure else None
            return fault or Retryable(f"{self._host}:{self._port}: {os_text(problem)}")
        return Retryable(f"the answer is not valid HTTP ({type(problem).__name__})")

    def _fault_of_tls(self, problem: OSError) -> Exception | None:
        if isinstance(problem, ssl.SSLCertVerificationError):
            why = problem.verify_message.rstrip(".")
            cure = CURES.get(problem.verify_code, f"set {self._tls.ca_option}")
            return Refused(f"the certificate of {self._host} is not trusted: {why}; {cure}")
        if isinstance(problem, ssl.SSLError):
            plain = "the port does not speak TLS; is it http://?" if problem.reason == "WRONG_VERSION_NUMBER" else ""
            return Retryable(f"TLS: {plain or problem.reason or 'failed'}")
        return None

    def _request(
        self, exchange: Exchange, method: str, path: str, body: bytes | None, headers: Mapping[str, str]
    ) -> HttpAnswer:
        target = (self._parts.path + path or "/") + (f"?{self._parts.query}" if self._parts.query else "")
        proxy = None if self._secure else self._proxy
        every = {**headers, **_login(proxy)}
        head = exchange.ask(method, self._url + path if proxy else target, every, body)
        answer = self._read(exchange, head, _secrets_of(self._parts.query, tuple(every.items())))
        if head.is_last:
            self.close()
        return answer

    def _read(self, exchange: Exchange, head: Head, secrets: tuple[str, ...]) -> HttpAnswer:
        try:
            return HttpAnswer(head.status, head.headers, exchange.body(head), secrets)
        except (TooLarge, NotHttp):
            if head.status < 300:  # without its body, the answer is useless
                raise
            self.close()
            return HttpAnswer(head.status, head.headers, b"", secrets)

    def _connect(self, deadline: float) -> socket.socket:
        proxy = self._proxy = None if self._direct else proxy_of(self._url)
        via = urlsplit(proxy) if proxy else self._parts
        host, port = via.hostname or "", via.port or (443 if via.scheme == "https" else 80)
        who = f"the proxy {host}:{port}"
        try:
            sock = socket.create_connection((plain(host), port), min(CONNECT_TIMEOUT, left(deadline)))  # type: ignore[arg-type]
        except OSError as problem:
            if proxy is None or isinstance(problem, TimeoutError):
                raise
            raise Retryable(f"{who}: {os_text(problem)}") from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if not self._secure:
                return sock
            if proxy:
                self._tunnel(sock, deadline, who, _login(proxy))
            sock.settimeout(left(deadline))
            return self._get_context().wrap_socket(sock, server_hostname=plain(self._host))
        except BaseException:
            sock.close()
            raise

    def _tunnel(self, sock: socket.socket, deadline: float, who: str, login: Mapping[str, str]) -> None:
        """Ask the proxy for a tunnel to the server."""
        exchange = self._exchange(sock, deadline)
        try:
            status = exchange.ask("CONNECT", host_of(self._host, self._port, default=0), login).status
        except (ConnectionError, NotHttp) as problem:
            raise Retryable(f"{who} gives no valid answer ({type(problem).__name__})") from None
        if status == 407:
            raise Refused(f"{who} answers 407: set user and password, as http://USER:PASSWORD@HOST:PORT")
        if not 200 <= status < 300:
            raise Retryable(f"{who} answers {status}")

    def _get_context(self) -> ssl.SSLContext:
        if self._context is None:
            ca_file, cert_file, key_file, insecure, *_ = self._tls
            try:
                context = ssl.create_default_context(cafile=ca_file or None)
                if cert_file:
                    context.load_cert_chain(cert_file, key_file or None, password=lambda: "")
            except OSError as problem:
                named = ", ".join(str(file) for file in self._tls[:3] if file)
                raise Refused(f"TLS: {named}: {problem.strerror or 'not a certificate in PEM'}") from problem
            if insecure:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            self._context = context
        return self._context


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds in the header Retry-After, or None; a date is compared with the server's own time."""
    value = headers.get("retry-after", "").strip()
    if value.isascii() and value.isdecimal():
        return float(value[:9])
    if (until := date_of(value)) is None:
        return None
    return max(0.0, until - (date_of(headers.get("date", "")) or time.time_ns() / 1e9)) or None


def date_of(value: str) -> float | None:
    """Return the date in a header (RFC 9110, section 5.6.7) in seconds since the epoch; None if it is not a date."""
    try:
        _, day, month, year, clock, _ = value.split(" ")
        when = map(int, (year, f"{MONTHS.index(month) + 1}", day, *clock.split(":")))
        return datetime(*when, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]  # of six numbers
    except (ValueError, TypeError, OverflowError):
        return None


def proxy_of(url: str, env: Mapping[str, str] = os.environ) -> str | None:
    """
    Return the proxy for `url` by HTTPS_PROXY, HTTP_PROXY and NO_PROXY; None if there is none, and for loopback.

    Raise Refused if the proxy's address is not valid.
    """
    parts = urlsplit(url)
    host, scheme = parts.hostname or "", parts.scheme
    its_port = str(parts.port or (443 if scheme == "https" else 80))
    if is_loopback(host):
        return None

    def value(name: str) -> str:
        return env.get(name) or env.get(name.upper()) or ""

    proxy = value(f"{scheme}_proxy")
    for word in filter(None, (word.strip().lower() for word in value("no_proxy").split(","))):
        name, _, port = word.rpartition(":") if word.count(":") == 1 else (word, "", "")
        if word == "*" or (f".{host}".endswith(f".{name.lstrip('.')}") and port in ("", its_port)):
            return None
    if not proxy:
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    with suppress(ValueError):
        its = urlsplit(proxy)
        if its.scheme == "http" and its.hostname and its.port != 0:
            return proxy
    advice = "percent-encode / # ? @ [ ] in a password"
    raise Refused(f"{scheme.upper()}_PROXY: expected http://HOST:PORT or http://USER:PASSWORD@HOST:PORT; {advice}")


@lru_cache(maxsize=1)
def _secrets_of(query: str, headers: tuple[tuple[str, str], ...]) -> tuple[str, ...]:
    """Return the secrets in a request: values of the query and of headers, the latter also without `Bearer`."""
    values = [value for name, value in headers if name.lower() not in OPEN_HEADERS]
    parts = [value.partition(" ") for value in values]
    words = [word for _, _, word in parts]
    secrets = [*values, *words, *(word.rstrip("=") for word in words), *(value for _, value in parse_qsl(query))]
    for scheme, _, word in parts:
        if scheme.lower() == "basic":
            with suppress(ValueError):
                pair = base64.b64decode(word).decode()
                secrets += [pair, pair.partition(":")[2]]
    return tuple(filter(None, secrets))


def _login(proxy: str | None) -> dict[str, str]:
    """Return the header with the proxy's user and password, if its address has them."""
    parts = urlsplit(proxy or "")
    if "@" not in parts.netloc:
        return {}
    user = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(user.encode()).decode()}"}


def _has_news(sock: socket.socket) -> bool:
    """Return whether an idle connection is unusable, since the server closed it or sent something."""
    news = select.poll()
    news.register(sock, select.POLLIN)
    return bool(news.poll(0))
