"""Sends one request with a pre-encoded body, classifies the answer, and compares the clocks."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from botocore import exceptions as failures
from botocore.awsrequest import AWSResponse

from agent.errors import Refused, Retryable
from sinks.cloudwatch.session import make_client
from sinks.common.aws_answers import Answer, Stale, foreign
from sinks.common.aws_session import UNEXPECTED, renew

if TYPE_CHECKING:
    from sinks.cloudwatch import CloudwatchSink

log = logging.getLogger(__name__)

TRANSIENT: Final = (failures.ConnectionError, failures.HTTPClientError)
"""Network errors; a retry may succeed."""
COMPRESS_FROM: Final = 10_240
"""Bytes from which a body is compressed: botocore's threshold."""
MAX_SKEW: Final = 60.0
"""Seconds between this clock and the service's that cause a warning; from 300 on the service refuses signatures."""


class Client:
    """Sends requests through botocore, with pre-encoded bodies if it uses AWS JSON 1.0."""

    def __init__(self, config: CloudwatchSink.Config, clock: Callable[[], int], on_time: Callable[[int], None]) -> None:
        """Take the wall clock (ns since the epoch), and a function to call with the service's time (ns)."""
        self._config, self._clock, self._on_time = config, clock, on_time
        self._client: Any = None
        self._credentials: Any = None
        self._compress = True
        self._foreign: str | None = None
        self._renewed = self._skew_logged = False
        self._body = b""
        self._probed: dict[str, Any] | None = None
        self.endpoint = ""
        """The service's address, once it is known."""
        self.region = ""

    def connect(self) -> None:
        """Find region and credentials and build the client; raise Refused or Retryable."""
        try:
            self._client, self._credentials, self._compress = make_client(self._config)
        except (failures.BotoCoreError, ValueError, OSError) as problem:
            raise Refused(str(problem)) from problem
        self.region = str(self._client.meta.region_name)
        self._client.meta.events.register("before-call.cloudwatch.PutMetricData", self._before_call)
        self._client.meta.events.register("before-parse.cloudwatch.PutMetricData", self._before_parse)

    def speaks(self, datums: Sequence[dict[str, Any]], body: bytes) -> bool:
        """Return whether botocore would encode `datums` as `body`; send nothing. Raise Refused."""
        self._probed = {}
        try:
            self._client.put_metric_data(Namespace=self._config.namespace, MetricData=datums)
            probed = self._probed
        except (failures.BotoCoreError, ValueError) as problem:  # the first call resolves the endpoint
            raise Refused(str(problem)) from problem
        finally:
            self._probed = None
        self.endpoint = str(probed["url"]).rstrip("/")
        if probed["headers"].get("Content-Type") != "application/x-amz-json-1.0":
            return False
        return bool(json.loads(probed["body"]) == json.loads(body))

    def put(self, datums: Sequence[dict[str, Any]], body: bytes, count: int) -> dict[int, str]:
        """
        Send `datums`, or `body` if there are none, in one request; raise Retryable, Refused or BadBatch.

        Return which of the `count` datums the service names as refused, with reasons; then it has stored none.
        """
        if self._client is None:
            self.connect()
        self._body, self._foreign = b"" if datums else body, None
        try:
            renew(self._credentials)
            response = self._client.put_metric_data(Namespace=self._config.namespace, MetricData=datums)
        except (Retryable, Refused):  # raised by `renew`: the next call reads the credentials again
            self.close()
            raise
        except failures.ClientError as error:
            answer = Answer(error.response, error.operation_name, self._foreign)
            self._compare_clocks(answer.headers)
            if named := answer.members(count):
                return named
            blame = answer.blame()
            raise (self._renew(blame) if isinstance(blame, Stale) else blame) from error
        except TRANSIENT as problem:
            if "CERTIFICATE_VERIFY_FAILED" in str(problem):
                raise Refused(f"{problem}; check AWS_CA_BUNDLE") from problem
            raise Retryable(str(problem)) from problem
        except failures.BotoCoreError as problem:
            self.close()
            raise Refused(str(problem)) from problem
        except UNEXPECTED as problem:
            raise Retryable(f"botocore cannot read CloudWatch's answer: {type(problem).__name__}") from None
        finally:
            self._body = b""
        if self._foreign is not None:
            raise Answer(response, "PutMetricData", self._foreign).blame()
        self._compare_clocks(response["ResponseMetadata"]["HTTPHeaders"])
        self._renewed = False
        return {}

    def close(self) -> None:
        """Drop the connection and the credentials; the next `put` makes new ones."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _before_call(self, params: dict[str, Any], **_: Any) -> Any:
        """Replace the body before it is signed; for `speaks`, return an empty answer instead of sending."""
        if self._probed is not None:
            self._probed = params
            return AWSResponse(None, 200, {}, None), {}
        if self._body:
            params["body"] = self._body
            if self._compress and len(self._body) >= COMPRESS_FROM:
                params["body"] = gzip.compress(self._body, 1, mtime=0)
                params["headers"]["Content-Encoding"] = "gzip"
        return None

    def _before_parse(self, response_dict: dict[str, Any], **_: Any) -> None:
        """Replace a body that is not the service's: botocore's parsers may fail on it."""
        headers = {name.lower(): word for name, word in response_dict["headers"].items()}
        self._foreign = foreign(response_dict["status_code"], headers, response_dict["body"])
        if self._foreign is not None:
            response_dict["body"] = b"{}"

    def _renew(self, why: Stale) -> Exception:
        """Drop credentials that the service refused; return the exception to raise."""
        self.close()
        if self._renewed:
            return Refused(f"the AWS credentials are expired or unknown, and no valid ones are found ({why})")
        self._renewed = True
        return Retryable(f"the AWS credentials are read again ({why})")

    def _compare_clocks(self, headers: dict[str, str]) -> None:
        """Report the service's time; warn once if this clock differs much."""
        try:
            service_time = parsedate_to_datetime(headers["date"]).timestamp()
        except (LookupError, ValueError):
            return
        self._on_time(int(service_time * 1e9))
        skew = self._clock() / 1e9 - service_time
        if abs(skew) > MAX_SKEW and not self._skew_logged:
            self._skew_logged = True
            way = "ahead of" if skew > 0 else "behind"
            log.warning(
                "cloudwatch: the clock of this machine is %.0f s %s the service's; synchronise it", abs(skew), way
            )
