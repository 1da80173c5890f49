"""One request: its body put in place, its answer judged, the service's clock compared with this one."""

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
from sinks.cloudwatch.answers import Answer, Stale, foreign
from sinks.cloudwatch.session import ODD, bounded, make_client, renew

if TYPE_CHECKING:
    from sinks.cloudwatch import CloudwatchSink

log = logging.getLogger(__name__)

NOT_NOW: Final = (failures.ConnectionError, failures.HTTPClientError)
"""What may be better at the next try: the network."""
COMPRESS_FROM: Final = 10_240
"""Bytes from which a body is compressed: botocore's own threshold."""
MOST_SKEW: Final = 60.0
"""Seconds between this clock and the service's that are worth a warning; from 300 on it refuses signatures."""


class Client:
    """A botocore client, told a body that is ready, where it speaks the protocol for which that was made."""

    def __init__(self, config: CloudwatchSink.Config, clock: Callable[[], int], hear: Callable[[int], None]) -> None:
        """Take the sink's configuration, the wall clock (ns since the epoch), and who is to hear the service's time."""
        self._config, self._clock, self._hear = config, clock, hear
        self._client: Any = None
        self._credentials: Any = None
        self._compress = True
        self._foreign: str | None = None
        self._renewed = self._skew_said = False
        self._body: bytes | None = None
        self._probed: dict[str, Any] | None = None
        self.endpoint = ""
        """Where it sends to, once that is known."""
        self.region = ""

    def connect(self) -> None:
        """Find region and credentials and build the client; raise Refused or Retryable."""
        try:
            self._client, self._credentials, self._compress = make_client(self._config)
        except (failures.BotoCoreError, ValueError, OSError) as problem:
            raise Refused(str(problem)) from problem
        bounded(self._client)
        self.region = str(self._client.meta.region_name)
        self._client.meta.events.register("before-call.cloudwatch.PutMetricData", self._before_call)
        self._client.meta.events.register("before-parse.cloudwatch.PutMetricData", self._before_parse)

    def speaks(self, datums: Sequence[dict[str, Any]], body: bytes) -> bool:
        """Tell whether botocore would send `datums` as what `body` says; nothing is sent. Raise Refused."""
        self._probed = {}
        try:
            self._client.put_metric_data(Namespace=self._config.namespace, MetricData=datums)
            probed = self._probed
        except (failures.BotoCoreError, ValueError) as problem:  # of the rules of endpoints, asked with the first call
            raise Refused(str(problem)) from problem
        finally:
            self._probed = None
        self.endpoint = str(probed["url"]).rstrip("/")
        if probed["headers"].get("Content-Type") != "application/x-amz-json-1.0":
            return False
        return bool(json.loads(probed["body"]) == json.loads(body))

    def put(self, datums: Sequence[dict[str, Any]], body: bytes | None, count: int) -> dict[int, str]:
        """
        Send `body`, or `datums` where that is None, in one request; raise Retryable, Refused or BadBatch.

        Return which of the `count` datums the service names as refused, with reasons: then it took none of them.
        """
        if self._client is None:
            self.connect()
        self._body, self._foreign = body, None
        try:
            renew(self._credentials)
            response = self._client.put_metric_data(Namespace=self._config.namespace, MetricData=datums)
        except (Retryable, Refused):  # of the credentials: those that may be had later are read anew
            self.close()
            raise
        except failures.ClientError as error:
            answer = Answer(error.response, error.operation_name, self._foreign)
            self._compare_clocks(answer.headers)
            if named := answer.members(count):
                return named
            blame = answer.blame()
            raise (self._renew(blame) if isinstance(blame, Stale) else blame) from error
        except NOT_NOW as problem:
            if "CERTIFICATE_VERIFY_FAILED" in str(problem):
                raise Refused(f"{problem}; is AWS_CA_BUNDLE right?") from problem
            raise Retryable(str(problem)) from problem
        except failures.BotoCoreError as problem:
            self.close()
            raise Refused(str(problem)) from problem
        except ODD as problem:
            raise Retryable(f"CloudWatch gives an answer that botocore cannot read: {type(problem).__name__}") from None
        finally:
            self._body = None
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
        """Put the body in place that is ready, before it is signed; or answer in the service's place, for `speaks`."""
        if self._probed is not None:
            self._probed = params
            return AWSResponse(None, 200, {}, None), {}
        if self._body is not None:
            params["body"] = self._body
            if self._compress and len(self._body) >= COMPRESS_FROM:
                params["body"] = gzip.compress(self._body, 1, mtime=0)
                params["headers"]["Content-Encoding"] = "gzip"
        return None

    def _before_parse(self, response_dict: dict[str, Any], **_: Any) -> None:
        """Keep from botocore's parsers a body that is not of the service's shape."""
        headers = {name.lower(): word for name, word in response_dict["headers"].items()}
        self._foreign = foreign(response_dict["status_code"], headers, response_dict["body"])
        if self._foreign is not None:
            response_dict["body"] = b"{}"

    def _renew(self, why: Stale) -> Exception:
        """Drop credentials that the service knows no more; return what the frame is to be told."""
        self.close()
        if self._renewed:
            return Refused(f"{why}: the credentials are expired or unknown, and no better ones are found")
        self._renewed = True
        return Retryable(f"{why}; the credentials are read anew")

    def _compare_clocks(self, headers: dict[str, str]) -> None:
        """Tell the service's time; warn, once, where this clock is far off it."""
        try:
            told = parsedate_to_datetime(headers["date"]).timestamp()
        except (LookupError, ValueError):
            return
        self._hear(int(told * 1e9))
        skew = self._clock() / 1e9 - told
        if abs(skew) > MOST_SKEW and not self._skew_said:
            self._skew_said = True
            way = "ahead of" if skew > 0 else "behind"
            log.warning("sink cloudwatch: the clock of this machine is %.0f s %s the service's", abs(skew), way)
