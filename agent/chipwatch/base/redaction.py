"""Makes text from outside safe for messages: one line of limited length, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

MAX_LENGTH: Final = 2000
"""Most characters of a line."""
SHORTEST: Final = 4
"""Length of the shortest secret that is replaced; a shorter one would be found inside other words."""
WORD: Final = r"[^\s\"'`,;&<>(){}\[\]\\]"
NAME: Final = (
    r"(?:secret|token|passw|credential|auth|cookie|signature|session"
    r"|(?:api|access|account|encryption|ingestion|license|private|shared|write)[_-]?key)"
)
FILE_NAME: Final = r"(?<!file)(?<!path)"
"""Leaves out options whose value is not a secret, but the path of a file with one."""
PROGRAM: Final = (
    r"(retrieving credentials from custom-process: |Executable exited with non-zero return code \d+\. Error: )"
    r"(?:(?!\n\n).)+"
)
"""Messages of botocore and google-auth about a credential process, with the program's output after them."""
RULES: Final = tuple(
    (re.compile(pattern, re.DOTALL), instead)
    for pattern, instead in (
        (PROGRAM, r"\1..."),
        (r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", "..."),
        # http://user:password@host; a password may hold / and @
        (r"""//(?:[^\s/"]*|[^\s/:"]*:(?!\d*/)[^\s"]*)@""", "//...@"),
        # user:password@host:port
        (r"""(?<![^\s"'=(,])[^\s/:@"'=(,]+:[^\s/@"]+@(?=[^\s/:@"]+:\d)""", "...@"),
        # the query of an address, and secrets of a query that stands alone
        (r"(://[^\s\"'<>?]{1,500}\?)[^\s\"'<>]+", r"\1..."),
        (rf"""([?&;](?i:[^\s=&"?;]{{0,60}}(?:sig|key|{NAME})[^\s=&"]{{0,60}})=)[^\s&"']+""", r"\1..."),
        # headers: Authorization with a scheme, then names with a hyphen such as X-Api-Key
        (r"""((?i:\bauthorization)["'\\]*\s{0,9}[:=]\s{0,9}["'\\]*)[^\s"',][^\r\n"']*""", r"\1..."),
        (
            rf"""((?i:\b[a-z]+-(?:[a-z]+-){{0,5}}(?:key|{NAME})[a-z]*)["'\\]*\s{{0,9}}[:=]\s{{0,9}}["'\\]*){WORD}+""",
            r"\1...",
        ),
        (r"((?i:\b(?:set-)?cookie)\s{0,9}:\s{0,9})[^\r\n\"']+", r"\1..."),
        # Bearer TOKEN; Basic and Token only with a word that contains a digit or an equals sign
        (rf"((?i:\bbearer)\s{{1,9}})(?!(?i:tokens?|auth\w*|was|is|and|or|for|in|of)\b|\.\.\.){WORD}{{4,}}", r"\1..."),
        (rf"((?i:\b(?:basic|token|apikey|digest))\s{{1,9}})(?=[A-Za-z+/_.~-]{{0,99}}[0-9=]){WORD}{{8,}}", r"\1..."),
        (r"\bAWS4-HMAC-SHA256\s[^\r\n\"']*", "AWS4-HMAC-SHA256 ..."),
        # name=value, 'name': 'value', "name": "value"; not the name of a file, and not a sentence after a colon
        (rf"(\b(?i:\w{{0,60}}{NAME}\w{{0,60}}{FILE_NAME}\s{{0,3}}=\s{{0,3}})[\"'\\]*){WORD}+", r"\1..."),
        (rf"((?i:[\"'][\w.-]{{0,60}}{NAME}[\w.-]{{0,60}})[\"'\\]+\s{{0,9}}:\s{{0,9}}[\"'\\]+)[^\"'\\]+", r"\1..."),
        (rf"((?i:\b(?:passwd|password|secret|token|api_?key)\s?:\s?))(?=[^\s\d]{{0,99}}\d){WORD}{{4,}}", r"\1..."),
        # forms of well-known keys
        (r"\b(?:sk|gh[a-z]|github_pat|glpat|hf|xox[a-z]|ya29|npm|dckr_pat)[-_.][\w.-]{16,}", "..."),
        (r"\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?", "..."),
        (r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b|\bAIza[\w-]{30,}|\bdapi[0-9a-f]{32}\b", "..."),
    )
)
"""Patterns of secrets, which are found by their form or by the words before them, and replacements."""


def without_secrets(text: str) -> str:
    """
    Return `text` with "..." in place of secrets, as far as they can be recognised.

    Secrets are the user, password and query of an address, a header or a value whose name means a secret, the output of
    a credential process, and words that look like a key.
    """
    for pattern, instead in RULES:
        text = pattern.sub(instead, text)
    return text


def without(text: str, secrets: Collection[str]) -> str:
    """Return `text` with "..." in place of each of `secrets`."""
    for secret in sorted((one for one in secrets if len(one) >= SHORTEST), key=len, reverse=True):
        text = text.replace(secret, "...")
    return text


def one_line(text: str, max_length: int = MAX_LENGTH) -> str:
    """Return `text` on one line: without secrets, with escapes for unprintable characters, cut to `max_length`."""
    line = printable(without_secrets(text[: 2 * max_length].strip()))
    return line if len(line) <= max_length else f"{line[:max_length]}..."


def printable(text: str) -> str:
    """Return `text` with escapes for unprintable characters, since a terminal obeys some of them."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def redacted(value: Any, clean: Callable[[str], str] = without_secrets) -> Any:
    """Return a value of JSON with each text in it cleaned: by default, secrets are removed."""
    if isinstance(value, Mapping):
        return {clean(str(key)): redacted(inner, clean) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [redacted(inner, clean) for inner in value]
    return clean(value) if isinstance(value, str) else value
