"""Faults of addresses and headers, described without their values, which may be secrets."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header: RFC 9110, section 5.6.2."""


def url_fault(url: str) -> str | None:
    """Return what is wrong with an address to ask, without repeating it, or None."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return "not a valid URL"
    if parts.scheme not in ("http", "https") or not host or port == 0:
        return "expected http://HOST:PORT, or https"
    if parts.username is not None or parts.password is not None:
        return "it has a user name; use a header"
    return None if is_printable(url) and " " not in url else "it has characters that must be percent-encoded"


def header_fault(name: str, value: str, reserved: Collection[str]) -> str | None:
    """Return what is wrong with a header of the user, without its value, or None; we set those `reserved`."""
    if not HEADER.fullmatch(name):
        return f"{name!a} is not a valid name of a header"
    if name.lower() in reserved:
        return f"{name} is set by the agent; remove it"
    return None if is_printable(value) else f"{name} has characters that HTTP does not allow"


def is_printable(value: str) -> bool:
    """Tell whether HTTP allows `value` in a header or an address."""
    return value.isascii() and value.isprintable()
