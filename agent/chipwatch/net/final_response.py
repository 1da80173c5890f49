"""Reads past interim answers; http.client does so for 100 alone, without a limit, and takes 103 for a final one."""

from __future__ import annotations

from http.client import BadStatusLine, HTTPException, HTTPResponse, parse_headers
from typing import Final

MAX_INTERIM: Final = 20
"""Interim answers to one request; their bytes count against the limit of the whole answer."""
SWITCHING: Final = 101


class FinalResponse(HTTPResponse):
    """The final answer to a request; 1xx before it are skipped: RFC 9110, section 15.2."""

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM + 1):
            version, status, reason = super()._read_status()  # type: ignore[misc]  # not in typeshed
            if status >= 200:
                return version, status, reason
            if status == SWITCHING:  # what follows is another protocol, for which nobody asked
                raise BadStatusLine(str(status))
            parse_headers(self.fp)
        raise HTTPException(f"more than {MAX_INTERIM} interim answers")
