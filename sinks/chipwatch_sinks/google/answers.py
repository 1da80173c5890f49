"""Classifies the errors of Google Cloud Monitoring: which points are refused, and whether a retry may help."""

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
"""A message's list of the refused series of a request: ranges of numbers, counted from 0."""
WHY: Final = re.compile(r"failed with:\s*(.*)", re.DOTALL)
EXAMPLE: Final = re.compile(r"\s*\(example ")
FIELD: Final = re.compile(r"^(:|[.\w\[\]]* had an invalid value)")
"""Matches the text after PLACES if the reason is in it; otherwise the reason is in the text before PLACES."""
TIMES: Final = re.compile(r"Youngest Existing: '([^']*)', New: '([^']*)'")
"""End times of the stored and the refused point in a message; as texts they sort by time."""
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
Reasons to refuse a point for the time of another point of its series: the same, a later one, or too near.

A point that Google already has is refused as out of order (github.com/googleapis/python-monitoring/issues/57). A point
that is refused as too frequent is newer than all stored ones, so it was not stored before.
"""
PERHAPS_STORED: Final = frozenset((
    StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL, StatusCode.ABORTED,
    StatusCode.CANCELLED, StatusCode.UNKNOWN,
))  # fmt: skip
"""Errors after which Google may have stored the points."""
TRANSIENT: Final = PERHAPS_STORED | {StatusCode.RESOURCE_EXHAUSTED}
OF_DATA: Final = frozenset((StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION, StatusCode.OUT_OF_RANGE))
CODES: Final = {code.value[0]: code for code in StatusCode}
PROJECT: Final = re.compile(r"\b(project|name)\b", re.IGNORECASE)
RATE: Final = re.compile("quota metric|per minute", re.IGNORECASE)
"""Messages about quotas of a rate, where a retry helps; the quota of series is not refilled."""
SUMMARY: Final = "google.monitoring.v3.CreateTimeSeriesSummary"
INFO: Final = "google.rpc.ErrorInfo"
DELAY: Final = "google.rpc.RetryInfo"
SHAPES: Final = {SUMMARY: metric_service.types.CreateTimeSeriesSummary.pb(), INFO: ErrorInfo, DELAY: RetryInfo}
"""Name of a status detail that is read -> its message type."""


class MonitoringError:
    """An error that Google Cloud Monitoring answered, parsed from google.api_core's exception."""

    def __init__(self, error: failures.GoogleAPICallError, count: int) -> None:
        """Parse the exception; `count` is how many series the request had."""
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
        """Return index -> reason for the refused series; None if Google does not name all of them."""
        if self._summary is None or self.is_transient:  # without a summary the other points may not be stored
            return None
        reasons_by_place: dict[int, str] = {}
        parts = PLACES.split(self.message)
        for places, text, before in zip(parts[1::2], parts[2::2], parts[0:-2:2], strict=True):
            why = WHY.search(text)
            if not why and EXAMPLE.match(text):  # Google cut the message before the reason
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
        """Return the exception to raise: one that drops data (BadBatch) only where the data is surely at fault."""
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
    """Return a status detail's type name and the detail itself, unpacked from google.protobuf.Any."""
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
    """Return our reason for a rejected point, for a text of Google's."""
    reason = next((reason for reason, pattern in REASONS.items() if pattern.search(text)), UNCLEAR)
    times = TIMES.search(text)
    return NOT_NEWER if reason == FREQUENT and times and times[2] <= times[1] else reason


def _numbers(places: str, count: int) -> list[int]:
    """Return the numbers below `count` that a text such as `0-37,40` lists."""
    numbers: list[int] = []
    for part in places.split(","):
        first, _, last = part.strip().partition("-")
        if len(part) < 20 and first.isdecimal() and (not last or last.isdecimal()):
            numbers += range(int(first), min(int(last or first) + 1, count))
    return numbers
