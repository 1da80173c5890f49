"""One small HTTP request to a service that a platform puts next to the machine."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from agent.net.timed_socket import Endless, TimedSocket

if TYPE_CHECKING:
    from http.client import HTTPMessage

TIMEOUT: Final = 1.0
"""Seconds for the connection, and for each part of the answer."""
LONGEST: Final = 3.0
"""Seconds for the whole answer: a service next door that takes longer does not work."""
MOST: Final = 1 << 16
"""Bytes of a body that are read, and of what stands before it; what is longer is no metadata."""
ENDLESS: Final = "gives an answer without end"
EC2_IPV6: Final = ipaddress.IPv6Network("fd00:ec2::/32")
"""Where AWS keeps its services for one machine: fd00:ec2::254 metadata, ::23 and ::170:2 credentials."""
GCE_IPV6: Final = ipaddress.IPv6Network("fd20:ce::/32")
"""Where Google does: fd20:ce::254 metadata (https://cloud.google.com/compute/docs/metadata/querying-metadata)."""


class Reply(NamedTuple):
    """What a service answered."""

    status: int
    body: bytes
    headers: HTTPMessage


class NoService(Exception):
    """There is nobody to ask, and there will be none: switched off, or at an address that is not asked."""


class Silent(Exception):
    """The service gave no useful answer; it may do so later."""


class Service:
    """
    A metadata service at a loopback or link-local address, asked without proxies; a redirection is not followed.

    So a variable of the environment cannot send us, or what we carry, anywhere else.
    """

    def __init__(self, url: str, variable: str) -> None:
        """Take the address that `variable` says; raise NoService if it is none that may be asked."""
        try:
            parts = urlsplit(url.strip())
            host, port = parts.hostname or "", parts.port or 80
        except ValueError:
            raise NoService(f"{variable} is no address") from None
        if parts.scheme != "http" or not _is_near(host) or not parts.path.isascii():
            raise NoService(f"{variable} is refused: only http://, to a loopback or link-local address, not {host!r}")
        self._host, self._port, self._path = host, port, parts.path.rstrip("/")
        at = f"[{host}]" if ":" in host else host
        self.url = f"http://{at}{'' if port == 80 else f':{port}'}{self._path}"

    def request(self, method: str, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Return the status and the body; raise Silent."""
        reply = self.ask(method, path, headers)
        return reply.status, reply.body

    def ask(self, method: str, path: str, headers: Mapping[str, str], most: int = MOST) -> Reply:
        """Return the whole answer, whose body has at most `most` bytes; raise Silent."""
        from http.client import HTTPConnection, HTTPException  # noqa: PLC0415  # a MB, and only where it is needed

        connection, deadline = HTTPConnection(self._host, self._port), time.monotonic() + LONGEST
        try:
            with socket.create_connection((self._host, self._port), TIMEOUT) as sock:
                connection.sock = TimedSocket(sock, deadline, pause=TIMEOUT, most=MOST + 2 * most)  # 2: its framing
                connection.request(method, self._path + path, headers=dict(headers))
                response = connection.getresponse()
                reply = Reply(response.status, response.read(most + 1), response.headers)
        except Endless:
            raise Silent(f"{self.url} {ENDLESS}") from None
        except TimeoutError:
            raise Silent(f"{self.url} does not answer") from None
        except OSError as problem:
            raise Silent(f"{self.url} cannot be reached: {problem.strerror or problem}") from None
        except (HTTPException, ValueError) as problem:
            raise Silent(f"{self.url} does not speak HTTP: {type(problem).__name__}") from None
        if len(reply.body) > most:
            raise Silent(f"{self.url} {ENDLESS}")
        return reply


def _is_near(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_link_local or address in EC2_IPV6 or address in GCE_IPV6
