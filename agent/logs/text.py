"""Text from outside, as it is told to people: one line of bounded length, without the secrets of addresses."""

from __future__ import annotations

import re
from typing import Final

LONGEST: Final = 2000
"""Characters of a line."""
USER_INFO: Final = re.compile(
    r"""//(?:[^\s/"]*|[^\s/:"]*:(?!\d*/)[^\s"]*)@"""  # http://user:password@host; a password may hold / and @
    r"""|(?<![^\s"'=(,])[^\s/:@"'=(,]+:[^\s/@"]+@(?=[^\s/:@"]+:\d)"""  # user:password@host:port
)
QUERY: Final = re.compile(
    r"""([?&;][^\s=&"]*(?:secret|token|passw|credential|auth|key|sig)[^\s=&"]*=)[^\s&"']+""", re.IGNORECASE
)
PROGRAM: Final = re.compile(
    r"(retrieving credentials from custom-process: |Executable exited with non-zero return code \d+\. Error: )"
    r"(?:(?!\n\n).)+",
    re.DOTALL,
)
"""What botocore and google-auth say of a program that gives credentials: it goes on with what the program printed."""


def without_secrets(text: str) -> str:
    """Return `text` with three dots for user, password and secrets of a query, and for what a program printed."""
    text = USER_INFO.sub(lambda found: "//...@" if found[0].startswith("//") else "...@", text)
    return PROGRAM.sub(r"\1...", QUERY.sub(r"\1...", text))


def one_line(text: str, longest: int = LONGEST) -> str:
    """Return `text` without secrets, with escapes for what is no visible character, and cut to `longest`."""
    told = without_secrets(text[: 2 * longest].strip())
    if not told.isprintable():
        told = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in told)
    return told if len(told) <= longest else f"{told[:longest]}..."


def is_address(text: str) -> bool:
    """Tell whether `text` is an address of HTTP that every library reads alike; a fault of theirs may repeat parts."""
    from urllib.parse import urlsplit  # noqa: PLC0415  # `agent health` goes without

    try:
        parts = urlsplit(text)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0 and " " not in text
    except ValueError:
        return False


def is_utf8(text: str) -> bool:
    """Tell whether `text` is UTF-8: an argument and a variable of the environment may hold any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
