"""Skips interim answers (1xx). http.client skips only 100, without a limit, and takes 103 for the final answer."""

from __future__ import annotations

from http.client import BadStatusLine, HTTPException, HTTPResponse, parse_headers
from typing import Final

MAX_INTERIM: Final = 20
"""Most interim answers to a request."""
SWITCHING: Final = 101


class FinalResponse(HTTPResponse):
    """The final answer to a request; answers with status 1xx before it are skipped (RFC 9110, section 15.2)."""

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM + 1):
            version, status, reason = super()._read_status()  # type: ignore[misc]  # not in typeshed
            if status >= 200:
                return version, status, reason
            if status == SWITCHING:  # another protocol follows, which nobody asked for
                raise BadStatusLine(str(status))
            parse_headers(self.fp)
        raise HTTPException(f"more than {MAX_INTERIM} interim answers")
