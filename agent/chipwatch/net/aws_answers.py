"""Classifies the errors of AWS's services; messages that may hold a secret are not repeated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.http_client import HttpAnswer, retry_after

MAX_MESSAGE: Final = 100_000
"""Most characters that are read of an error message, which may name each of 1,000 datums."""
MEMBER: Final = re.compile(r"MetricData\.member\.(\d{1,9})\b(?:\.([A-Z]\w+))?")
"""CloudWatch's way to name a refused datum in a message: its number, counted from 1, and the field at fault."""
FIELDS: Final = frozenset(("MetricName", "Dimensions", "Timestamp", "Value", "Values", "Counts", "Unit"))
BUSY: Final = re.compile(
    r"Throttl|LimitExceeded|SlowDown|TooManyRequests|RequestTimeout(Exception)?$|PriorRequestNotComplete"
    r"|ServiceUnavailable|Internal(Failure|Server|Service)"
)
"""Codes of errors that pass: transient ones and throttling, as in botocore/retries/standard.py."""
STALE: Final = re.compile(r"ExpiredToken|InvalidClientTokenId|UnrecognizedClient|TokenRefreshRequired")
CLOCK: Final = re.compile(r"Signature (expired|not yet current)|RequestExpired|RequestTimeTooSkewed")
DENIED: Final = re.compile(r"AccessDenied|Unauthorized|NotAuthorized|AuthFailure")
DATA: Final = re.compile(r"InvalidParameter|Missing(Required)?Parameter|Validation|Serialization|Malformed")
PRINCIPAL: Final = re.compile(r"User: (arn:[\w+=,.@/:-]+) is not authorized to perform: ([\w:]+)")


def foreign(status: int, headers: Mapping[str, str], body: bytes) -> str | None:
    """
    Return why an answer cannot be CloudWatch's; None if it may be.

    CloudWatch's success has the status 200, a request id, and an empty body or a JSON object:
    https://smithy.io/2.0/aws/protocols/aws-json-1_0-protocol.html.
    """
    size = str(len(body))
    try:
        text = body.decode()
        found = json.loads((text if status < 300 else text.strip()) or "{}")
        types = {*map(type, map(found.get, ("__type", "message", "Message")))}
        is_known = types <= {str, type(None)} and (status >= 300 or headers.get("content-length", size) == size)
    except (ValueError, AttributeError, RecursionError):
        is_known = False
    if not is_known:
        kind = ascii(headers.get("content-type", "no content type")[:60])[1:-1]
        return f"with a body that is not CloudWatch's ({kind})"
    if status >= 300:
        return None
    if status != 200:
        return "instead of 200"
    return None if headers.get("x-amzn-requestid") else "without x-amzn-RequestId"


class Stale(Exception):
    """The credentials are expired or unknown; new ones may be available."""


class AwsError:
    """An error that a service of AWS answered."""

    def __init__(self, response: Any, operation: str, foreign: str | None = None) -> None:
        """Parse the `response` of botocore's ClientError; `foreign`: what shows that another server sent it."""
        error, metadata = response.get("Error", {}), response.get("ResponseMetadata", {})
        self.operation = operation
        self.code, self.message = ascii(str(error.get("Code", ""))[:100])[1:-1], str(error.get("Message", ""))
        self.status: int = metadata.get("HTTPStatusCode", 0)
        self.headers: dict[str, str] = metadata.get("HTTPHeaders", {})
        self._foreign = foreign

    @classmethod
    def of_json(cls, answer: HttpAnswer) -> AwsError | None:
        """Parse an answer to a PutMetricData request of the AWS JSON 1.0 protocol; return None for a success."""
        status, headers, body, _ = answer
        other = foreign(status, headers, body)
        error: Mapping[str, Any] = {} if other is not None else json.loads(body.decode().strip() or "{}")
        if status < 300 and other is None and "__type" not in error:
            return None
        # The code of the older protocol: https://smithy.io/2.0/aws/protocols/aws-query-protocol.html#compatibility
        code = headers.get("x-amzn-query-error", "").partition(";")[0]
        code = code or (error.get("__type") or str(status)).rpartition("#")[2].partition(":")[0]
        message = answer.says(error.get("message") or error.get("Message") or "", MAX_MESSAGE)
        metadata = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        return cls({"Error": {"Code": code, "Message": message}, "ResponseMetadata": metadata}, "PutMetricData", other)

    def members(self, count: int) -> dict[int, str]:
        """Return index -> reason for the refused ones among `count` datums; {} if the service names none."""
        if self.status != 400 or self.operation != "PutMetricData" or not DATA.match(self.code):
            return {}
        reasons: dict[int, str] = {}
        for number, field in MEMBER.findall(self.message):
            if 0 < int(number) <= count:
                reason = "refused by the service" + (f": {field}" if field in FIELDS else "")
                reasons.setdefault(int(number) - 1, reason)
        return reasons

    def blame(self) -> Exception:
        """Return the exception to raise: one that drops data (BadBatch) only where the data is surely at fault."""
        who = "CloudWatch" if self.operation == "PutMetricData" else self.operation
        says = f"{who} answers {self.status} {self.code}"
        if self._foreign is not None:
            says = f"{who} answers {self.status} {self._foreign}"
        if self.status < 300 or self.status >= 500 or self.status in {408, 429} or BUSY.search(self.code):
            advice = f": {self._advice()}" if self._foreign is not None else ""
            return Retryable(says + advice, after=retry_after(self.headers))
        if STALE.search(self.code):
            return Stale(says)
        data = self.status == 400 and DATA.match(self.code)
        if self.operation != "PutMetricData":
            return Refused(f"{self._advice()} ({says})")
        if self.status == 413 or (data and "parameter Namespace" not in self.message):
            return BadBatch(f"{says} {self.message[:200]}".strip())
        return Refused(f"{self._advice()} ({says})")

    def _advice(self) -> str:
        """Return what the user should do about an error that comes from a wrong set-up."""
        if self._foreign is not None:
            return "check endpoint and proxy"
        if DENIED.search(self.code):
            found = PRINCIPAL.search(self.message)
            own = "cloudwatch" if self.operation == "PutMetricData" else "sts"
            who, action = found.groups() if found else ("this machine's identity", f"{own}:{self.operation}")
            return f"{who} lacks the permission {action}; allow it in the policy of that role or user"
        if CLOCK.match(self.message) or CLOCK.match(self.code):
            return "the clock of this machine is wrong; synchronise it"
        if "Signature" in self.code:
            return "the secret key does not belong to the access key; set both again"
        if DATA.match(self.code):
            what = "namespace" if self.operation == "PutMetricData" else "role"
            return f"choose another {what} ({self.message[:200]})"
        return "unknown error; check endpoint, proxy and account"
