"""Classifies errors of the service."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any, Final

from google.api_core import exceptions as failures
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc import StatusCode

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch_sinks.google import metric_service

PLACES: Final = re.compile(r"timeSeries\[([\d,\s-]+)\]")
"""The service's notation for refused series of a request, counted from 0."""
WHY: Final = re.compile(r"failed with:\s*(.*)", re.DOTALL)
EXAMPLE: Final = re.compile(r"\s*\(example ")
FIELD: Final = re.compile(r"^(:|[.\w\[\]]* had an invalid value)")
"""Text after the notation if the reason follows it; otherwise the reason precedes it."""
TIMES: Final = re.compile(r"Youngest Existing: '([^']*)', New: '([^']*)'")
"""End times of the stored point and of the refused one, which sort as text."""
RESET: Final = "start older than the stored one"
FREQUENT: Final = "too frequent"
NOT_NEWER: Final = "out of order"
DESCRIBED: Final = "unit or description differs from the stored one"
RESOURCE: Final = "resource refused"
UNCLEAR: Final = "refused by the service"
TEXTS: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
REASONS: Final = {reason: re.compile(pattern, re.IGNORECASE) for reason, pattern in TEXTS["reasons"].items()}
ORDER: Final = frozenset((FREQUENT, NOT_NEWER, RESET))
"""
Reasons for a point whose series has a point of this time or of a later one, or one that is too near.

A point that the series already has is out of order: https://github.com/googleapis/python-monitoring/issues/57. One that
is too frequent is newer than all that is stored, so it was not stored before.
"""
PERHAPS_STORED: Final = frozenset((
    StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL, StatusCode.ABORTED,
    StatusCode.CANCELLED, StatusCode.UNKNOWN,
))  # fmt: skip
"""Codes after which the points may have been stored."""
TRANSIENT: Final = PERHAPS_STORED | {StatusCode.RESOURCE_EXHAUSTED}
OF_DATA: Final = frozenset((StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION, StatusCode.OUT_OF_RANGE))
CODES: Final = {code.value[0]: code for code in StatusCode}
PROJECT: Final = re.compile(r"\b(project|name)\b", re.IGNORECASE)
RATE: Final = re.compile("quota metric|per minute", re.IGNORECASE)
"""Messages about rate quotas, which are refilled, unlike the quota of series."""
SUMMARY: Final = "google.monitoring.v3.CreateTimeSeriesSummary"
INFO: Final = "google.rpc.ErrorInfo"
DELAY: Final = "google.rpc.RetryInfo"
SHAPES: Final = {SUMMARY: metric_service.types.CreateTimeSeriesSummary.pb(), INFO: ErrorInfo, DELAY: RetryInfo}
"""Status details that are read."""


class MonitoringError:
    """An error of the service, from the exception of google.api_core."""

    def __init__(self, error: failures.GoogleAPICallError, count: int) -> None:
        """Parse the exception; `count` series were in the request."""
        self.code: StatusCode = error.grpc_status_code or StatusCode.UNKNOWN
        self.message, self._count = str(error.message), count
        details = dict(map(_unpacked, error.details or ()))
        self._summary, self._info, self._delay = map(details.get, (SUMMARY, INFO, DELAY))

    @property
    def is_transient(self) -> bool:
        """True if a retry of all or some of the points may succeed."""
        if self._summary is None:
            return self.code in TRANSIENT
        codes = {CODES.get(one.status.code) for one in self._summary.errors}
        is_of_rate = StatusCode.RESOURCE_EXHAUSTED in codes and RATE.search(self.message) is not None
        return is_of_rate or not codes.isdisjoint(PERHAPS_STORED)

    @property
    def perhaps_stored(self) -> bool:
        """True if all or some of the points may have been stored."""
        return self.code in PERHAPS_STORED or self._summary is not None

    def refused(self) -> dict[int, str] | None:
        """Return the refused series (from 0), each with its reason; None if the service does not name all of them."""
        if self._summary is None or self.is_transient:  # without a summary, it is unknown whether the others are stored
            return None
        reasons_by_place: dict[int, str] = {}
        parts = PLACES.split(self.message)
        for places, text, before in zip(parts[1::2], parts[2::2], parts[0:-2:2], strict=True):
            why = WHY.search(text)
            if not why and EXAMPLE.match(text):  # the message is cut before the reason
                return None
            reason = reason_of(why[1] if why else text if FIELD.match(text) else before)
            if reason == UNCLEAR and self._count > 1 and self.message.endswith("..."):
                return None
            reasons_by_place |= dict.fromkeys(_numbers(places, self._count), reason)
        failed = self._summary.total_point_count - self._summary.success_point_count
        reasons = {reason_of(text) for text in self.message.split(";")}
        if failed == self._count and not reasons_by_place and len(reasons) == 1:
            return dict.fromkeys(range(self._count), reasons.pop())
        return reasons_by_place if len(reasons_by_place) == failed else None

    def blame(self, project: str) -> Exception:
        """Return the exception to raise; data is dropped only if the error is known to be the data's fault."""
        says = f"Cloud Monitoring answers {self.code.name}"
        for pattern, text in TEXTS["set_up"].items():
            if re.search(pattern, self.message, re.DOTALL):
                return Refused(text.format(message=self.message[:300]))
        if self.is_transient:
            delay = None if self._delay is None else self._delay.retry_delay
            after = None if delay is None else delay.seconds + delay.nanos / 1e9
            return Retryable(f"{says}: {self.message[:200]}", after=after)
        is_of_project = PROJECT.search(self.message) and "timeSeries" not in self.message
        if self.code in OF_DATA and (self._summary is not None or not is_of_project):
            return BadBatch(f"{says}: {self.message[:300]}")
        text = f"{self.code.name} {self._info.reason if self._info is not None else ''} {self.message}"
        advice = next(advice for pattern, advice in TEXTS["advice"].items() if re.search(pattern, text))
        return Refused(f"{advice.format(project=project, message=self.message[:200])} ({says})")


def _unpacked(detail: Any) -> tuple[str, Any]:
    """Return the name of a status detail and the detail, unpacked if it is a google.protobuf.Any."""
    name = detail.DESCRIPTOR.full_name
    if name != "google.protobuf.Any":
        return name, detail
    name = detail.TypeName()
    message = SHAPES[name]() if name in SHAPES else None
    try:
        return name, message if message is not None and detail.Unpack(message) else None
    except DecodeError:
        return name, None


def reason_of(text: str) -> str:
    """Return the reason for a text of the service."""
    reason = next((reason for reason, pattern in REASONS.items() if pattern.search(text)), UNCLEAR)
    times = TIMES.search(text)
    return NOT_NEWER if reason == FREQUENT and times and times[2] <= times[1] else reason


def _numbers(places: str, count: int) -> list[int]:
    """Return the numbers below `count` in a notation such as `0-37,40`."""
    numbers: list[int] = []
    for part in places.split(","):
        first, _, last = part.strip().partition("-")
        if len(part) < 20 and first.isdecimal() and (not last or last.isdecimal()):
            numbers += range(int(first), min(int(last or first) + 1, count))
    return numbers
