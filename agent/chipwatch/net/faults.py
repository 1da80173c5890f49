"""Faults of addresses and headers, described without their values, which may be secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chipwatch.base.system import NO_WAIT

HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of a header: RFC 9110, section 5.6.2."""

UNEXPECTED: Final = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError)
"""Exceptions of the clouds' libraries for malformed files and answers, and for credentials that have expired."""
LONGEST: Final = 600
"""Seconds that a request may take at most."""
MAX_SECRET: Final = 65_536
"""Bytes of a file with a secret; a server takes a header of 8 kB or so."""


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


def check_timeout(seconds: float | None) -> None:
    """Raise ValueError if a request cannot have these seconds; None is the default."""
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise ValueError(f"timeout: expected seconds above 0, at most {LONGEST}, got {seconds:g}")


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


def read_secret(file: Path) -> str:
    """Return the value of a header that a file holds; raise ValueError without repeating it. A pipe counts as empty."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | NO_WAIT), "rb") as opened:
            secret = (opened.read(MAX_SECRET) or b"").decode().strip()
    except (OSError, ValueError) as problem:
        raise ValueError(f"cannot read {file} ({type(problem).__name__})") from None
    return checked(secret, str(file))


def checked(secret: str, where: str) -> str:
    """Return the value of a header; raise ValueError with its place, and without it, if HTTP does not allow it."""
    if not secret or not is_printable(secret):
        raise ValueError(f"{where} {'has characters that HTTP does not allow' if secret else 'is empty'}")
    return secret
