"""Signs requests to AWS with botocore's signer and credentials; the caller sends them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore import exceptions as failures
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest

from chipwatch.errors import Refused, Retryable
from chipwatch_sinks.common.aws_session import Login, Session, open_session, renew


class Signer:
    """Signature Version 4 for one service; credentials are refreshed before they expire."""

    def __init__(self, service: str, login: Login, timeout: float) -> None:
        """Take the service's name in signatures, and the seconds for a source of credentials to answer."""
        self._service, self._login, self._timeout = service, login, timeout
        self._credentials: Any = None
        self._renewed = False
        self.region = login.region or ""

    def open(self) -> Session:
        """
        Find region and credentials, and return where they were found.

        Raises Refused if there are none, Retryable if their source does not answer.
        """
        try:
            session, self.region, self._credentials = open_session(self._login, self._timeout)
        except (failures.BotoCoreError, ValueError, OSError) as problem:
            raise Refused(str(problem)) from problem
        return session

    def sign(self, url: str, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return `headers` and the signature of this request; raise Retryable or Refused without credentials."""
        if self._credentials is None:
            self.open()
        try:
            now = renew(self._credentials)
        except (Retryable, Refused):  # the next call reads the credentials again
            self._credentials = None
            raise
        request = AWSRequest("POST", url, data=body, headers=dict(headers))
        SigV4Auth(now, self._service, self.region).add_auth(request)
        return dict(request.headers.items())

    def worked(self) -> None:
        """Note that the service took a signature."""
        self._renewed = False

    def expired(self, why: str) -> Exception:
        """Drop credentials that the service calls expired or unknown; return the exception to raise."""
        self._credentials = None
        if self._renewed:
            return Refused(f"the AWS credentials are expired or unknown, and no valid ones are found ({why})")
        self._renewed = True
        return Retryable(f"the AWS credentials are read again ({why})")
