"""A token of Google for each request, by google-auth."""

from __future__ import annotations

import functools
from typing import Final

from google.auth.exceptions import GoogleAuthError
from google.auth.transport.requests import Request

from agent.errors import Retryable
from sinks.common.google_credentials import UNEXPECTED, blame, find_credentials

SCOPES: Final = ("https://www.googleapis.com/auth/cloud-platform",)
TIMEOUT: Final = 10.0
"""Seconds for the server of tokens to answer."""


class GoogleToken:
    """The credentials of this machine; a token is fetched before it expires."""

    def __init__(self) -> None:
        """Find credentials; raise Refused if there are none, Retryable if their source does not answer."""
        self._credentials, project = find_credentials(SCOPES)
        self._request = functools.partial(Request(), timeout=TIMEOUT)
        self.project = project or ""
        """The project of the credentials, empty if they have none."""

    def headers(self, url: str) -> dict[str, str]:
        """Return the token, and the quota project if there is one; raise Refused or Retryable."""
        found: dict[str, str] = {}
        try:
            self._credentials.before_request(self._request, "POST", url, found)
        except GoogleAuthError as problem:
            raise blame(problem) from None
        except UNEXPECTED as problem:
            raise Retryable(f"Google credentials: the answer cannot be read ({type(problem).__name__})") from None
        return found

    def expire(self) -> None:
        """Fetch another token for the next request."""
        self._credentials.token = None
