"""Google's access token from the library google-auth."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import closing
from types import SimpleNamespace
from typing import Any, Final

from google.auth.exceptions import GoogleAuthError, TransportError

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net.faults import UNEXPECTED
from chipwatch.net.http_client import ClientTls, HttpClient
from chipwatch_sinks.common.google_credentials import blame, find_credentials

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT: Final = 10.0
"""Seconds to wait for the server that gives tokens."""
MAX_BYTES: Final = 1 << 20
"""Most bytes of an answer with a token."""
BUNDLE: Final = "REQUESTS_CA_BUNDLE"
"""Variable that names a file of trusted certificates; google-auth's usual transport obeys it too."""


class GoogleToken:
    """The credentials that google-auth finds; a new token is fetched before the old one expires."""

    def __init__(self) -> None:
        """Find credentials; raise Refused if there are none, Retryable if their source does not answer."""
        self._credentials, project = find_credentials(SCOPES, send)
        self.project = project or ""
        """The credentials' project, empty if they name none."""

    def headers(self, url: str) -> dict[str, str]:
        """Return the headers with the token, and the quota project if there is one; raise Refused or Retryable."""
        headers: dict[str, str] = {}
        try:
            self._credentials.before_request(send, "POST", url, headers)
        except GoogleAuthError as problem:
            raise blame(problem) from None
        except UNEXPECTED as problem:
            raise Retryable(f"Google credentials: the answer cannot be read ({type(problem).__name__})") from None
        return headers

    def expire(self) -> None:
        """Have the next request fetch another token."""
        self._credentials.token = None


def send(
    url: str,
    method: str = "GET",
    body: bytes | str | None = None,
    headers: Mapping[str, str] | None = None,
    timeout: float | None = None,
    **_: Any,
) -> SimpleNamespace:
    """
    Send a request for google-auth, which calls this as its google.auth.transport.Request; raise TransportError.

    The result has what google-auth reads of a google.auth.transport.Response: `status`, `headers` and `data`. Its own
    transport loads the library requests, which takes 7 MB of memory.
    """
    tls = ClientTls(ca_file=os.environ.get(BUNDLE), ca_option=BUNDLE)
    seconds = TIMEOUT if timeout is None else min(timeout, TIMEOUT)
    sent = body.encode() if isinstance(body, str) else body
    try:
        with closing(HttpClient(url, timeout=seconds, max_bytes=MAX_BYTES, tls=tls)) as client:
            answer = client.request(method, "", sent, headers or {})
    except (Refused, Retryable) as problem:
        raise TransportError(problem) from problem  # type: ignore[no-untyped-call]
    return SimpleNamespace(status=answer.status, headers=answer.headers, data=answer.body)
