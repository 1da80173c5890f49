"""Who is to blame for an answer that is no success."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from google.api_core import exceptions as failures
from google.protobuf.message import DecodeError
from google.rpc.error_details_pb2 import ErrorInfo, RetryInfo
from grpc import StatusCode

from agent.errors import BadBatch, Refused, Retryable
from sinks.google import metric_service

PLACES: Final = re.compile(r"timeSeries\[([\d,\s-]+)\]")
"""How the service names the series of a request that it refuses, counted from 0."""
WHY: Final = re.compile(r"failed with:\s*(.*)", re.DOTALL)
EXAMPLE: Final = re.compile(r"\s*\(example ")
FIELD: Final = re.compile(r"^(:|[.\w\[\]]* had an invalid value)")
"""What follows a place where the reason comes after it; else it stands before."""
RESET: Final = "start older than the stored one"
DESCRIBED: Final = "unit or description differs from the stored one"
RESOURCE: Final = "resource refused"
UNCLEAR: Final = "refused by the service"
REASONS: Final[Sequence[tuple[str, re.Pattern[str]]]] = (
    (RESET, re.compile(r"reset timestamp", re.IGNORECASE)),
    ("too frequent", re.compile(r"more frequently than|maximum sampling period|too frequent", re.IGNORECASE)),
    ("out of order", re.compile(r"in order|older start time|end time before|out of order|most recent", re.IGNORECASE)),
    (DESCRIBED, re.compile(r"\b(unit|description)\b.*(cannot be changed|must be|differ)", re.IGNORECASE)),
    ("over a quota of the project", re.compile(r"quota|too many time series|exhausted", re.IGNORECASE)),
    ("twice in a request", re.compile(r"Duplicate TimeSeries|more than one point", re.IGNORECASE)),
    ("type differs from the first ever sent", re.compile(r"(Value type|Metric kind|kind).* must be", re.IGNORECASE)),
    ("too old or too far ahead", re.compile(r"(in the past|in the future|25 hours|too old)", re.IGNORECASE)),
    (
        RESOURCE,
        re.compile(
            r"resource (type|labels?)\b|resource\.labels|region or location|cannot be written to", re.IGNORECASE
        ),
    ),
    ("labels refused", re.compile(r"label", re.IGNORECASE)),
)
"""What the service's texts come down to; reasons are counted, so they are few."""
ORDER: Final = frozenset(("too frequent", "out of order", RESET))
"""What a point gets whose series has that time already: sent before, or by somebody else."""
NOT_NOW: Final = frozenset((
    StatusCode.UNAVAILABLE,
    StatusCode.DEADLINE_EXCEEDED,
    StatusCode.INTERNAL,
    StatusCode.RESOURCE_EXHAUSTED,
    StatusCode.ABORTED,
    StatusCode.CANCELLED,
    StatusCode.UNKNOWN,
))  # fmt: skip
PERHAPS_STORED: Final = NOT_NOW - {StatusCode.RESOURCE_EXHAUSTED}
"""Answers after which the points may be stored all the same."""
OF_DATA: Final = frozenset((StatusCode.INVALID_ARGUMENT, StatusCode.FAILED_PRECONDITION, StatusCode.OUT_OF_RANGE))
CODES: Final = {code.value[0]: code for code in StatusCode}
PLUGIN: Final = "Getting metadata from plugin failed.*"
SET_UP: Final[Sequence[tuple[re.Pattern[str], str]]] = (
    (
        re.compile(f"{PLUGIN}(invalid_|unauthorized_client|deleted_client|access_denied|disabled)", re.DOTALL),
        "the credentials are not valid: {message}",
    ),
    (
        re.compile(f"{PLUGIN}metadata service.*Status: 40[34]", re.DOTALL),
        "the machine has no service account that may be used; give it one: {message}",
    ),
    (
        re.compile("CERTIFICATE_VERIFY_FAILED"),
        "the endpoint's certificate is not trusted; for a proxy's own, set GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    ),
)
"""What grpc tells as UNAVAILABLE, and does not pass by itself."""
RATE: Final = re.compile("quota metric|per minute", re.IGNORECASE)
"""How a quota is told that fills again, and not by the number of series."""
ADVICE: Final[Sequence[tuple[re.Pattern[str], str]]] = (
    (
        re.compile("SERVICE_DISABLED|has not been used in project"),
        "the API is switched off in {project}; gcloud services enable monitoring.googleapis.com --project={project}",
    ),
    (re.compile("BILLING_DISABLED"), "the project {project} has no billing account"),
    (
        re.compile("ACCESS_TOKEN_SCOPE_INSUFFICIENT|insufficient authentication scopes"),
        "the machine's access scopes lack monitoring.write; set them to cloud-platform and restart the VM",
    ),
    (
        re.compile("^PERMISSION_DENIED"),
        (
            "the credentials may not write metrics in {project}; gcloud projects add-iam-policy-binding {project} "
            "--role=roles/monitoring.metricWriter --member=serviceAccount:EMAIL"
        ),
    ),
    (
        re.compile("^UNAUTHENTICATED"),
        "it does not know these credentials, or no more; gcloud auth application-default login, or another key",
    ),
    (re.compile("^(NOT_FOUND|INVALID_ARGUMENT)"), "is {project} the right project? {message}"),
)
"""What mends a set-up, by code, reason and message of the service."""
UNKNOWN: Final = "not an answer that is known; check endpoint and project ({message})"


SUMMARY: Final = "google.monitoring.v3.CreateTimeSeriesSummary"
INFO: Final = "google.rpc.ErrorInfo"
DELAY: Final = "google.rpc.RetryInfo"
SHAPES: Final = {SUMMARY: metric_service.types.CreateTimeSeriesSummary.pb(), INFO: ErrorInfo, DELAY: RetryInfo}
"""The details of a status that are of use."""


class Answer:
    """An answer of the service that is no success, from the exception of google.api_core."""

    def __init__(self, error: failures.GoogleAPICallError, count: int) -> None:
        """Take it apart; `count` series were in the request."""
        self.code: StatusCode = error.grpc_status_code or StatusCode.UNKNOWN
        self.message, self._count = str(error.message), count
        details = dict(map(_unpacked, error.details or ()))
        self._summary, self._info = details.get(SUMMARY), details.get(INFO)
        self._delay = details.get(DELAY)

    @property
    def is_passing(self) -> bool:
        """Whether the same points may succeed later: the request's, or some of them."""
        if self._summary is None:
            return self.code in NOT_NOW
        codes = {CODES.get(one.status.code) for one in self._summary.errors}
        return not codes.isdisjoint(PERHAPS_STORED) or (
            StatusCode.RESOURCE_EXHAUSTED in codes and RATE.search(self.message) is not None
        )

    @property
    def perhaps_stored(self) -> bool:
        """Whether the points of the request, or some of them, may have been stored all the same."""
        return self.code in PERHAPS_STORED or self._summary is not None

    def refused(self) -> dict[int, str] | None:
        """Return which series (from 0) the service refuses, each with its reason; None where it does not say all."""
        if self._summary is None or self.is_passing:  # without a summary, nobody says that the others were taken
            return None
        found: dict[int, str] = {}
        parts = PLACES.split(self.message)
        for places, text, before in zip(parts[1::2], parts[2::2], parts[0:-2:2], strict=True):
            why = WHY.search(text)
            if not why and EXAMPLE.match(text):  # cut before it said why
                return None
            reason = reason_of(why[1] if why else text if FIELD.match(text) else before)
            if reason == UNCLEAR and self._count > 1 and self.message.endswith("..."):
                return None
            found |= dict.fromkeys(_numbers(places, self._count), reason)
        failed = self._summary.total_point_count - self._summary.success_point_count
        if (
            failed == self._count
            and not found
            and len(said := {reason_of(text) for text in self.message.split(";")}) == 1
        ):
            return dict.fromkeys(range(self._count), said.pop())
        return found if len(found) == failed else None

    def blame(self, project: str) -> Exception:
        """Return what the frame is to be told; what is not known to be the data's fault never ends data."""
        says = f"Cloud Monitoring answers {self.code.name}"
        for told, text in SET_UP:
            if told.search(self.message):
                return Refused(text.format(message=self.message[:300]))
        if self.is_passing:
            return Retryable(f"{says}: {self.message[:200]}", after=self._after())
        if self.code in OF_DATA and (self._summary is not None or not self._is_of_project()):
            return BadBatch(f"{says}: {self.message[:300]}")
        return Refused(f"{says}: {self._advice(project)}")

    def _after(self) -> float | None:
        """Return the seconds that the service asks us to wait, None where it names none."""
        return None if self._delay is None else self._delay.retry_delay.seconds + self._delay.retry_delay.nanos / 1e9

    def _is_of_project(self) -> bool:
        return bool(re.search(r"\b(project|name)\b", self.message, re.IGNORECASE)) and "timeSeries" not in self.message

    def _advice(self, project: str) -> str:
        """Say what to do where the set-up is at fault."""
        told = f"{self.code.name} {self._info.reason if self._info is not None else ''} {self.message}"
        advice = next((advice for says, advice in ADVICE if says.search(told)), UNKNOWN)
        return advice.format(project=project, message=self.message[:200])


def _unpacked(detail: Any) -> tuple[str, Any]:
    """Return the name of a detail of a status, and itself: some come unpacked, some as google.protobuf.Any."""
    name = detail.DESCRIPTOR.full_name
    if name != "google.protobuf.Any":
        return name, detail
    name = detail.TypeName()
    found = SHAPES[name]() if name in SHAPES else None
    try:
        return name, found if found is not None and detail.Unpack(found) else None
    except DecodeError:
        return name, None


def reason_of(text: str) -> str:
    """Return what a text of the service comes down to."""
    return next((reason for reason, says in REASONS if says.search(text)), UNCLEAR)


def _numbers(places: str, count: int) -> list[int]:
    """Return the numbers below `count` of places such as `0-37,40`."""
    found: list[int] = []
    for part in places.split(","):
        first, _, last = part.strip().partition("-")
        if len(part) < 20 and first.isdecimal() and (not last or last.isdecimal()):
            found += range(int(first), min(int(last or first) + 1, count))
    return found
