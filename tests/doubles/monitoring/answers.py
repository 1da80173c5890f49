"""Answers that have nothing to do with the points: of the quota, of permissions, of trouble."""

from typing import NamedTuple

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.message import Message
from google.rpc import error_details_pb2, status_pb2
from grpc_status import rpc_status

CODES = {code.value[0]: code for code in grpc.StatusCode}


class Answer(NamedTuple):
    """
    An answer other than the one deserved; without a code it is that one, late.

    `delay` (s) passes before the points are looked at: a client that has gone by then was not heard. With `stored` they
    are judged and taken first, and the delay follows.
    """

    code: grpc.StatusCode | None
    message: str = ""
    details: tuple[Message, ...] = ()
    stored: bool = False
    delay: float = 0.0

    def status(self) -> grpc.Status:
        """Return it as grpc sends it."""
        assert self.code
        status = status_pb2.Status(code=self.code.value[0], message=self.message)
        for detail in self.details:
            packed = Packed()
            packed.Pack(detail)
            status.details.append(packed)
        return rpc_status.to_status(status)


def code_of(code: grpc.StatusCode | int | str) -> grpc.StatusCode:
    """Return a code that is given as itself, a number or a name."""
    if isinstance(code, int):
        return CODES[code]
    return grpc.StatusCode[code] if isinstance(code, str) else code


def _info(reason: str, **metadata: str) -> error_details_pb2.ErrorInfo:
    facts = {"service": "monitoring.googleapis.com", "consumer": "projects/123456789012"} | metadata
    return error_details_pb2.ErrorInfo(reason=reason, domain="googleapis.com", metadata=facts)


_CONSOLE = "https://console.developers.google.com/apis/api/monitoring.googleapis.com/overview?project=123456789012"
DENIED = Answer(
    grpc.StatusCode.PERMISSION_DENIED,
    "Permission monitoring.timeSeries.create denied (or the resource may not exist).",
)
"""The role roles/monitoring.metricWriter is missing, or the project."""
SCOPES = Answer(
    grpc.StatusCode.PERMISSION_DENIED,
    "Request had insufficient authentication scopes.",
    (_info("ACCESS_TOKEN_SCOPE_INSUFFICIENT", method="google.monitoring.v3.MetricService.CreateTimeSeries"),),
)
"""The machine was made without the scope monitoring.write."""
DISABLED = Answer(
    grpc.StatusCode.PERMISSION_DENIED,
    "Cloud Monitoring API has not been used in project 123456789012 before or it is disabled. Enable it by visiting "
    f"{_CONSOLE} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
    "systems and retry.",
    (
        error_details_pb2.Help(
            links=[error_details_pb2.Help.Link(description="Google developers console API activation", url=_CONSOLE)]
        ),
        _info("SERVICE_DISABLED"),
    ),
)
NO_PROJECT = Answer(grpc.StatusCode.NOT_FOUND, "Requested entity was not found.")
UNKNOWN_CALLER = Answer(
    grpc.StatusCode.UNAUTHENTICATED,
    "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.",
    (_info("ACCESS_TOKEN_EXPIRED"),),
)
EXHAUSTED = Answer(
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    "Quota exceeded for quota metric 'Time series ingestion requests' and limit 'Time series ingestion requests per "
    "minute' of service 'monitoring.googleapis.com' for consumer 'project_number:123456789012'.",
    (_info("RATE_LIMIT_EXCEEDED", quota_limit="IngestionRequestsPerMinutePerProject"),),
)
AWAY = Answer(grpc.StatusCode.UNAVAILABLE, "The service is currently unavailable.")
BROKEN = Answer(
    grpc.StatusCode.INTERNAL,
    "Internal error encountered. Please retry after a few seconds. If internal errors persist, contact support at "
    "https://cloud.google.com/support/docs.",
)
LATE = Answer(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline expired before operation could complete.")
LOST = LATE._replace(stored=True)
"""The points are taken, and the client gets a deadline error."""
