"""Finds credentials and project for Google's client, and sends one request at a time."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.api_core import exceptions as failures
from google.auth import exceptions as auth
from google.protobuf.message import DecodeError

from chipwatch.net.faults import UNEXPECTED
from chipwatch.net.http_client import proxy_of
from chipwatch_sinks.common.google_credentials import blame, find_credentials
from chipwatch_sinks.google import metric_service
from chipwatch_sinks.google.answers import MonitoringError
from chipwatch_sinks.google.wire import SentPoint, request

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
