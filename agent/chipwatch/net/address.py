"""Parses addresses, and opens sockets that listen."""

from __future__ import annotations

import ipaddress
import socket
from contextlib import suppress


def parse_address(text: str) -> tuple[str, int]:
    """Return the host and the port in `[HOST:]PORT`, by default the loopback host; raise ValueError."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"expected [HOST:]PORT, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    with suppress(ValueError):
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    return False


def plain(host: str) -> str | bytes:
    """Return an ASCII name as bytes. For a str, Python would load tables of international names, 0.4 MB."""
    return host.encode() if host.isascii() else host


def listener(address: tuple[str, int], waiting: int) -> socket.socket:
    """Return a non-blocking socket that listens, with room for `waiting` connections; raise OSError."""
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        server = socket.create_server(address, family=family, backlog=waiting)
    except OSError as problem:  # Python adds the address to its text
        raise OSError(problem.errno, str(problem.strerror).partition(" (while")[0]) from None
    server.setblocking(False)
    return server
