"""Checks addresses, headers and secrets; its messages never repeat a value, which may be secret."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from chipwatch.base.system import NO_WAIT

HEADER: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""The name of an HTTP header: RFC 9110, section 5.6.2."""

UNEXPECTED: Final = (ValueError, TypeError, LookupError, AttributeError, RuntimeError, ArithmeticError, OSError)
"""Exceptions that the clouds' libraries raise for malformed files or answers, and for expired credentials."""
LONGEST: Final = 600
"""Longest timeout of a request in seconds."""
MAX_SECRET: Final = 65_536
"""Most bytes of a file with a secret; servers accept headers of about 8 kB."""


def url_fault(url: str, *, may_have_user: bool = False) -> str | None:
    """Return what is wrong with the address of a server, without repeating it; None if nothing is."""
    try:
        parts = urlsplit(url)
        labels, port = (parts.hostname or "").removesuffix(".").split("."), parts.port
    except ValueError:
        return "not a valid URL"
    if parts.scheme not in ("http", "https") or port == 0 or not all(0 < len(label) < 64 for label in labels):
        return "expected http://HOST:PORT, or https"
    if not may_have_user and (parts.username is not None or parts.password is not None):
        return "it has a user name; use a header"
    return None if is_printable(url) and " " not in url else "it has characters that must be percent-encoded"


def check_timeout(seconds: float | None) -> None:
    """Raise ValueError if this cannot be the timeout of a request; None stands for the default."""
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise ValueError(f"timeout: expected seconds above 0, at most {LONGEST}, got {seconds:g}")


def header_fault(name: str, value: str, reserved: Collection[str]) -> str | None:
    """Return what is wrong with a user's header, without its value, or None; the agent itself sets `reserved` ones."""
    if not HEADER.fullmatch(name):
        return f"{name!a} is not a valid name of a header"
    if name.lower() in reserved:
        return f"{name} is set by the agent; remove it"
    return None if is_printable(value) else f"{name} has characters that HTTP does not allow"


def is_printable(value: str) -> bool:
    """Return whether HTTP allows `value` in a header or an address."""
    return value.isascii() and value.isprintable()


def read_secret(file: Path) -> str:
    """Return a file's content as a header's value; raise ValueError, which does not repeat it. A pipe is empty."""
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | NO_WAIT), "rb") as opened:
            secret = (opened.read(MAX_SECRET) or b"").decode().strip()
    except (OSError, ValueError) as problem:
        raise ValueError(f"cannot read {file} ({type(problem).__name__})") from None
    return checked_header(secret, str(file))


def checked_header(secret: str, where: str) -> str:
    """Return `secret`; if HTTP does not allow it in a header, raise ValueError that names only where it came from."""
    if not secret or not is_printable(secret):
        raise ValueError(f"{where} {'has characters that HTTP does not allow' if secret else 'is empty'}")
    return secret
