"""A client for metadata services: local servers that tell a machine what it is in its cloud."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Mapping
from typing import Final, TypeVar
from urllib.parse import urlsplit

import msgspec

from chipwatch.net.address import plain
from chipwatch.net.exchange import Exchange, Incomplete, NotHttp, TooLarge, host_of

T = TypeVar("T")

TIMEOUT: Final = 1.0
"""Seconds to wait for the connection, and for each part of the answer."""
TOTAL_TIMEOUT: Final = 3.0
"""Seconds to wait for the whole answer."""
MAX_BYTES: Final = 1 << 16
"""Most bytes of the headers and, by default, of the body."""
LOCAL_IPV6: Final = "fd00:ec2::/32", "fd20:ce::/32"
"""Networks of local services, of AWS (fd00:ec2::254) and Google (compute/docs/metadata/querying-metadata)."""
ROOT: Final = "/computeMetadata/v1"
FLAVOR: Final = {"Metadata-Flavor": "Google"}
"""Header of requests to Google and of its answers; AWS has the same address, and no such header."""
ADDRESS: Final = "169.254.169.254"
NAME: Final = "metadata.google.internal"
"""Host name of ADDRESS, which is used in its place: outside Google Cloud, a DNS lookup may take long."""
HOSTS: Final = ("GCE_METADATA_HOST", "GCE_METADATA_ROOT", "GCE_METADATA_IP")
"""Variables that set another address; the first that is set counts (google.auth.environment_vars)."""
OFF: Final = "NO_GCE_CHECK"
"""Variable that forbids requests if it is `true` (google.auth.environment_vars)."""


class NoService(Exception):
    """The service cannot be asked, now or later: it is disabled, or its address is not allowed."""


class NoMetadata(Exception):
    """The service gave no useful answer. A later request may succeed if `retry` is set or the platform was detected."""

    def __init__(self, why: str, *, retry: bool = False) -> None:
        super().__init__(why)
        self.retry = retry


class MetadataService:
    """
    A client for one metadata service, which must have a loopback or link-local address.

    It uses no proxy and follows no redirect, so an environment variable cannot send our tokens elsewhere.
    """

    def __init__(self, url: str, variable: str) -> None:
        """Take the address that came from `variable`; raise NoService if it is not allowed."""
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname or "", parts.port or 80
        except ValueError:
            raise NoService(f"{variable}: not a valid URL") from None
        if parts.scheme != "http" or not _is_local(host) or not parts.path.isascii():
            raise NoService(f"{variable}: expected http:// and a loopback or link-local address, got host {host!r}")
        self._host, self._port, self._path = host, port, parts.path.rstrip("/")
        at = f"[{host}]" if ":" in host else host
        self.url = f"http://{at}{'' if port == 80 else f':{port}'}{self._path}"

    def request(
        self, method: str, path: str, headers: Mapping[str, str], max_bytes: int = MAX_BYTES
    ) -> tuple[int, bytes, Mapping[str, str]]:
        """
        Return the status, the body (at most `max_bytes`) and the headers of an answer, by name in lower case.

        Raise NoMetadata.
        """
        host, deadline = host_of(self._host, self._port), time.monotonic() + TOTAL_TIMEOUT
        try:
            with socket.create_connection((plain(self._host), self._port), TIMEOUT) as sock:  # type: ignore[arg-type]
                limit = MAX_BYTES + 2 * max_bytes  # headers, and a body with its chunk sizes
                exchange = Exchange(sock, host, deadline, pause=TIMEOUT, max_bytes=limit)
                head = exchange.ask(method, self._path + path, headers)
                body = exchange.body(head, max_bytes + 1)
        except TooLarge:
            raise NoMetadata(f"{self.url} gives an answer that is too large") from None
        except TimeoutError:
            raise NoMetadata(f"{self.url} does not answer") from None
        except OSError as problem:
            raise NoMetadata(f"{self.url} cannot be reached: {problem.strerror or problem}") from None
        except Incomplete:
            raise NoMetadata(f"{self.url} gives an answer that is cut off") from None
        except (NotHttp, ValueError) as problem:
            raise NoMetadata(f"{self.url} does not speak HTTP: {type(problem).__name__}") from None
        if len(body) > max_bytes:
            raise NoMetadata(f"{self.url} gives an answer that is too large")
        return head.status, body, head.headers


def parse_json(body: bytes, shape: type[T], wrong: str, *, strict: bool = True) -> T:
    """
    Return the JSON in `body` as a `shape`; raise NoMetadata with the message `wrong` if it is something else.

    If not `strict`, a number may also be a text.
    """
    try:
        return msgspec.json.decode(body, type=shape, strict=strict)
    except (ValueError, RecursionError):  # malformed, or nested too deep
        raise NoMetadata(wrong) from None


def _is_local(host: str) -> bool:
    if host == ADDRESS:  # usually; saves the 0.3 MB of ipaddress
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    is_local = address.is_loopback or address.is_link_local
    return is_local or any(address in ipaddress.IPv6Network(network) for network in LOCAL_IPV6)


def google_service(env: Mapping[str, str]) -> MetadataService:
    """Return a client for Google's metadata server; `env` may set another address. Raise NoService."""
    variable = next((name for name in HOSTS if env.get(name)), HOSTS[0])
    host = env.get(variable) or ADDRESS
    host = host.replace(NAME, ADDRESS, 1) if host.partition(":")[0] == NAME else host
    return MetadataService(f"http://{host}", variable)
