"""Finds credentials and project for Google's client, sends one request at a time, and classifies the errors."""

from __future__ import annotations

import logging
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.api_core import exceptions as failures
from google.auth import exceptions as auth
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc import StatusCode

from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.faults import UNEXPECTED
from chipwatch.net.http_client import proxy_of
from chipwatch_sinks.common.google_credentials import blame, find_credentials
from chipwatch_sinks.google import metric_service
from chipwatch_sinks.google.wire import SentPoint, request

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
TEXTS: Final = tomllib.loads(Path(__file__).with_name("answers.toml").read_text(encoding="utf-8"))
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


if TYPE_CHECKING:
    from chipwatch_sinks.google import GoogleSink

Transport: Final = metric_service.transports.MetricServiceGrpcTransport
SCOPES: Final = ("https://www.googleapis.com/auth/monitoring.write",)
HOST: Final = "monitoring.googleapis.com"
NO_PROXY: Final = ("grpc.enable_http_proxy", 0)
OPTIONS: Final = (
    ("grpc.max_reconnect_backoff_ms", 10_000),  # else gRPC waits up to 2 minutes after an outage
    ("grpc.keepalive_time_ms", 120_000),
)


def proxy_options(host: str) -> tuple[tuple[str, str | int], ...]:
    """Return the channel's proxy options for `host`, since gRPC itself reads only lower-case proxy variables."""
    proxy = proxy_of(f"https://{host}")
    return (("grpc.http_proxy", proxy),) if proxy else (NO_PROXY,)


class GoogleClient:
    """A gRPC channel to Cloud Monitoring, and the project to write to."""

    def __init__(self, config: GoogleSink.Config) -> None:
        self._config = config
        self._client: Any = None
        logging.getLogger("grpc._plugin_wrapping").setLevel(logging.CRITICAL)  # its errors are in the answer too
        self.project = config.project or ""
        """The project's id, empty while it is not known."""

    def connect(self) -> None:
        """Find credentials and project; raise Refused if there are none, Retryable if their source does not answer."""
        host = self._config.endpoint or HOST
        if self._config.insecure:
            channel = grpc.insecure_channel(host, (*OPTIONS, NO_PROXY))
        else:
            credentials, project = find_credentials(SCOPES)
            self.project = self.project or project or ""
            channel = Transport.create_channel(host, credentials=credentials, options=(*OPTIONS, *proxy_options(host)))
        self._client = metric_service.service.MetricServiceClient(transport=Transport(host=host, channel=channel))

    def send(self, project: str, sent: Sequence[SentPoint]) -> MonitoringError | None:
        """Send points in one request; return the error that Google answers, or None. Raise Refused or Retryable."""
        if self._client is None:
            self.connect()
        wrapped = metric_service.types.CreateTimeSeriesRequest.wrap(request(project, sent))
        try:
            self._client.create_time_series(wrapped, timeout=self._config.timeout)
        except failures.GoogleAPICallError as error:
            return MonitoringError(error, len(sent))
        except auth.GoogleAuthError as problem:
            raise blame(problem) from problem
        except (*UNEXPECTED, DecodeError) as problem:  # the request was sent, so Google may have stored the points
            self.close()
            unknown: Any = failures.Unknown  # its __init__ has no types
            return MonitoringError(unknown(f"the answer cannot be read ({type(problem).__name__})"), len(sent))
        return None

    def close(self) -> None:
        """Close the channel; safe to call twice."""
        client, self._client = self._client, None
        if client is not None:
            client.transport.close()
