"""Addresses to listen on."""

from __future__ import annotations


def parse_address(text: str) -> tuple[str, int]:
    """Return host (default: loopback) and port of `[HOST:]PORT`; raise ValueError."""
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdigit() and int(port) <= 65535):
        raise ValueError(f"expected [HOST:]PORT, got {text!r}")
    return host.strip("[]") or "127.0.0.1", int(port)


def is_loopback(host: str) -> bool:
    """Tell whether only this machine reaches `host`."""
    return host in ("localhost", "::1") or host.startswith("127.")
