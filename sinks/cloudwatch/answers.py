"""Who is to blame for an answer that is no success; nothing here repeats a message that could hold a secret."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from agent.errors import BadBatch, Refused, Retryable

MEMBER: Final = re.compile(r"MetricData\.member\.(\d{1,9})\b(?:\.([A-Z]\w+))?")
"""How the service names a datum that it refuses, counted from 1, and the field."""
FIELDS: Final = frozenset(("MetricName", "Dimensions", "Timestamp", "Value", "Values", "Counts", "Unit"))
BUSY: Final = re.compile(
    r"Throttl|LimitExceeded|SlowDown|TooManyRequests|RequestTimeout(Exception)?$|PriorRequestNotComplete"
    r"|ServiceUnavailable|Internal(Failure|Server|Service)"
)
"""The codes that botocore, too, calls transient or throttling (botocore/retries/standard.py)."""
STALE: Final = re.compile(r"ExpiredToken|InvalidClientTokenId|UnrecognizedClient|TokenRefreshRequired")
CLOCK: Final = re.compile(r"Signature (expired|not yet current)|RequestExpired|RequestTimeTooSkewed")
DENIED: Final = re.compile(r"AccessDenied|Unauthorized|NotAuthorized|AuthFailure")
DATA: Final = re.compile(r"InvalidParameter|Missing(Required)?Parameter|Validation|Serialization|Malformed")
PRINCIPAL: Final = re.compile(r"User: (arn:[\w+=,.@/:-]+) is not authorized to perform: ([\w:]+)")


def foreign(status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """
    Return what an answer looks like that no CloudWatch gives, None for one that may be its own.

    botocore takes any 2xx for a success, and fails in many ways on errors that are not of the service's shape.
    """
    try:
        text = body.decode().strip()
        if status < 300:
            size = str(len(body))
            whole = "content-encoding" in headers or headers.get("content-length", size) == size
            known = whole and ("x-amzn-requestid" in headers or text == "{}" or "<PutMetricDataResponse" in text)
        elif text.startswith("<ErrorResponse"):  # of the protocol that botocore spoke before 1.42.7
            known = True
        else:
            told = json.loads(text or "{}")
            words = {*map(type, map(told.get, ("__type", "message", "Message")))}
            known = words <= {str, type(None)}
    except (ValueError, AttributeError, RecursionError):
        known = False
    return None if known else ascii(headers.get("content-type", "no content type")[:60])[1:-1]


class Stale(Exception):
    """The credentials are expired or unknown: others may be had by now."""


class Answer:
    """An answer of the service that is no success, from the `response` of botocore's ClientError."""

    def __init__(self, response: Any, operation: str, foreign: str | None = None) -> None:
        """Take it apart; `foreign` is what it looks like if it is no answer of the service."""
        error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
        self.operation = operation
        self.code, self.message = ascii(str(error.get("Code", ""))[:100])[1:-1], str(error.get("Message", ""))
        self.status: int = metadata.get("HTTPStatusCode", 0)
        self.headers: dict[str, str] = metadata.get("HTTPHeaders", {})
        self._foreign = foreign

    def members(self, count: int) -> dict[int, str]:
        """Return which of `count` datums (from 0) the service names as refused, each with a reason; {} if none."""
        if self.status != 400 or self.operation != "PutMetricData" or not DATA.match(self.code):
            return {}
        found: dict[int, str] = {}
        for number, field in MEMBER.findall(self.message):
            if 0 < int(number) <= count:
                reason = "refused by the service" + (f": {field}" if field in FIELDS else "")
                found.setdefault(int(number) - 1, reason)
        return found

    def blame(self) -> Exception:
        """Return what the frame is to be told; what is not known to be the data's fault never ends data."""
        who = "CloudWatch" if self.operation == "PutMetricData" else self.operation
        says = f"{who} answers {self.status} {self.code}"
        if self._foreign is not None:
            says = f"{who} answers {self.status} with what is no answer of the service ({self._foreign})"
        if self.status < 300 or self.status >= 500 or self.status in {408, 429} or BUSY.search(self.code):
            after = self.headers.get("retry-after", "")
            advice = f": {self._advice()}" if self._foreign is not None else ""
            return Retryable(says + advice, after=float(after) if after.isdecimal() else None)
        if STALE.search(self.code):
            return Stale(says)
        data = self.status == 400 and DATA.match(self.code)
        if self.operation != "PutMetricData":
            return Refused(f"{says}: {self._advice()}")
        if self.status == 413 or (data and "parameter Namespace" not in self.message):
            return BadBatch(f"{says} {self.message[:200]}".strip())
        return Refused(f"{says}: {self._advice()}")

    def _advice(self) -> str:
        """Say what to do where the set-up is at fault."""
        if self._foreign is not None:
            return "check endpoint and proxy"
        if DENIED.search(self.code):
            found = PRINCIPAL.search(self.message)
            own = "cloudwatch" if self.operation == "PutMetricData" else "sts"
            who, action = found.groups() if found else ("this machine's identity", f"{own}:{self.operation}")
            return f"{who} lacks the permission {action}; allow it in the policy of that role or user"
        if CLOCK.match(self.message) or CLOCK.match(self.code):
            return "the clock of this machine is wrong; set up its synchronisation"
        if "Signature" in self.code:
            return "the secret key is not that of the access key"
        if DATA.match(self.code):
            what = "another namespace" if self.operation == "PutMetricData" else "another role"
            return f"choose {what}; {self.message[:200]}"
        return "not an answer that is known; check endpoint, proxy and account"
