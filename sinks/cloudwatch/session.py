"""Sets up botocore's client of CloudWatch: endpoint, timeouts, size limits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as failures
from botocore.awsrequest import AWSResponse
from urllib3.exceptions import HTTPError

from sinks.common.aws_session import Login, open_session, options

if TYPE_CHECKING:
    from sinks.cloudwatch import CloudwatchSink

MAX_ANSWER: Final = 1 << 20
"""Size limit of an answer; the service's answers are smaller than a tenth of it."""


def make_client(config: CloudwatchSink.Config) -> tuple[Any, Any, bool]:
    """
    Return a CloudWatch client without retries, its credentials, and whether it may compress.

    Raises Refused without a region or credentials, Retryable, and botocore's exceptions for a wrong configuration.
    """
    login = Login(config.region, config.endpoint_url, config.profile, config.role_arn, config.external_id)
    session, region, credentials = open_session(login, config.timeout)
    own = options(
        config.timeout,
        disable_request_compression=True,  # the sink compresses faster
        use_fips_endpoint=config.use_fips or None,  # None: from the environment or the profile
        use_dualstack_endpoint=config.use_dualstack or None,
    )
    client = session.create_client("cloudwatch", region, endpoint_url=config.endpoint_url, config=own)
    _limit_answers(client)
    return client, credentials, not session.get_config_variable("disable_request_compression")


def _limit_answers(client: Any) -> None:
    """Limit the answers that `client` reads to MAX_ANSWER bytes; botocore itself has no limit."""
    http = client._endpoint.http_session  # noqa: SLF001  # there is no public attribute
    send = http.send

    def send_and_read(request: Any) -> AWSResponse:
        request.stream_output = True
        answer = send(request)
        try:
            content = answer.raw.read(MAX_ANSWER)
            if len(content) == MAX_ANSWER:
                answer.raw.close()
            else:
                answer.raw.release_conn()
        except (HTTPError, OSError) as problem:
            raise failures.HTTPClientError(error=type(problem).__name__) from problem
        body = SimpleNamespace(stream=lambda: [content])
        return AWSResponse(answer.url, answer.status_code, answer.headers, body)

    http.send = send_and_read
