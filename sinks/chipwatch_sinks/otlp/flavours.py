"""Address and authentication of receivers: any OTLP receiver, CloudWatch, or Google."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

from chipwatch.contract.datapoint import HIDDEN
from chipwatch.contract.errors import BadBatch, Refused, Retryable
from chipwatch.net.faults import read_secret
from chipwatch_sinks.otlp.answers import ADVICE, RECEIVERS
from chipwatch_sinks.otlp.environment import full_url

if TYPE_CHECKING:
    from chipwatch_sinks.otlp import OtlpSink
    from chipwatch_sinks.otlp.google_machine import MachineToken
    from chipwatch_sinks.otlp.google_token import GoogleToken

Name = Literal["plain", "cloudwatch", "google"]
DAY: Final = 86_400.0
LOCATIONS: Final = ("location", "cloud.availability_zone", "cloud.region")
PLACES: Final = ("k8s_location", "gcp_zone", "availability_zone", "region")
"""Resource attributes of which Google makes the label `location`, and dimensions of the machine that give them."""
GOOGLE: Final = "https://telemetry.googleapis.com/v1/metrics"
STALE: Final = re.compile(r"ExpiredToken|InvalidClientTokenId|UnrecognizedClient|security token", re.IGNORECASE)
"""AWS's words for credentials that are expired or unknown."""


class Bounds(NamedTuple):
    """Limits of a request, and of a point's age (s)."""

    points: int
    bytes: int
    age: float | None = None
    series: int | None = None
    """Default of max_series, where points cost."""


BOUNDS: Final[Mapping[Name, Bounds]] = {
    "plain": Bounds(5000, 4_000_000),
    "cloudwatch": Bounds(1000, 1_000_000, 14 * DAY, 5000),
    "google": Bounds(200, 4_000_000, DAY, 5000),
}
"""
Limits of a request: of CloudWatch 1000 points and 1 MB without compression, of Google 200 points.

docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-OTLPEndpoint.html;
docs.cloud.google.com/stackdriver/quotas; OTLP's own limit is 64 MiB: opentelemetry-proto 1.11, docs/specification.md.
"""


class Flavour(Protocol):
    """One kind of receiver."""

    advice: Mapping[int, str] = ADVICE
    """Status -> advice for the user."""

    def open(self) -> str:
        """Return the address; raise Refused or Retryable."""

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return all headers of a request; raise Refused or Retryable."""

    def resource(self) -> dict[str, str]:
        """Return attributes that the receiver needs; asked after `open`."""
        return {}

    def check(self, dims: Mapping[str, str], given: Mapping[str, str]) -> None:
        """Raise Refused if a point with these dimensions and resource attributes lacks what the receiver needs."""
        return

    def judge(self, problem: Exception) -> Exception:
        """Return the exception to raise for an answer that is an error."""
        return problem

    def worked(self) -> None:
        """Note a success."""
        return


class Plain(Flavour):
    """A receiver at a known address; headers authenticate the agent."""

    def __init__(self, url: str, given: Mapping[str, str], token_file: Path | None) -> None:
        """Take headers, and a file with a bearer token, which is read for each request."""
        self._url, self._given, self._token_file = url, given, token_file

    def open(self) -> str:
        return self._url

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **self._given, **bearer(self._token_file)}


class Cloudwatch(Flavour):
    """CloudWatch's endpoint: signed by Signature Version 4, or with an API key as bearer token."""

    def __init__(self, config: OtlpSink.Config, timeout: float) -> None:
        self._config, self._timeout, self._url = config, timeout, ""
        self._has_key = bool(config.bearer_token_file) or "authorization" in map(str.lower, config.headers)
        self.advice = {**ADVICE, 403: RECEIVERS["forbidden"]["cloudwatch"]}

    def open(self) -> str:
        config = self._config
        if self._has_key:
            region = config.region or ""
            if not (region or config.endpoint_url):
                raise Refused("no AWS region: set --region or endpoint_url")
        else:
            from chipwatch_sinks.common.aws_session import Login, Signer  # noqa: PLC0415  # takes 9 MB, only if it signs

            login = Login(config.region, config.endpoint_url, config.profile, config.role_arn)
            self._signer = Signer("monitoring", login, self._timeout)
            self._signer.open()
            region = self._signer.region
        suffix = ".cn" if region.startswith("cn-") else ""
        self._url = full_url(config.endpoint_url or f"https://monitoring.{region}.amazonaws.com{suffix}")
        return self._url

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        every = {**headers, **self._config.headers}
        if self._has_key:
            return {**every, **bearer(self._config.bearer_token_file)}
        return self._signer.sign(self._url, body, every)

    def judge(self, problem: Exception) -> Exception:
        """Read the credentials again where AWS calls them expired."""
        if not self._has_key and isinstance(problem, (Refused, BadBatch)) and STALE.search(str(problem)):
            return self._signer.expired(str(problem))
        return problem

    def worked(self) -> None:
        if not self._has_key:
            self._signer.worked()


class Google(Flavour):
    """Google's telemetry endpoint, with a token of the machine, else of google-auth."""

    def __init__(self, config: OtlpSink.Config) -> None:
        self._config, self._renewed = config, False
        self._token: MachineToken | GoogleToken
        self._url = full_url(config.endpoint_url) if config.endpoint_url else GOOGLE
        self.advice = {**ADVICE, 403: RECEIVERS["forbidden"]["google"]}

    def open(self) -> str:
        from chipwatch_sinks.otlp import google_machine  # noqa: PLC0415

        self._token = google_machine.find() or self._library()
        self._project = self._config.project or self._token.project
        return self._url

    @staticmethod
    def _library() -> GoogleToken:
        from chipwatch_sinks.otlp.google_token import GoogleToken  # noqa: PLC0415  # takes 15 MB, only if it is used

        return GoogleToken()

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **self._config.headers, **self._token.headers(self._url)}

    def resource(self) -> dict[str, str]:
        """Return the project, if it is known before the machine's."""
        return {"gcp.project_id": self._project} if self._project else {}

    def check(self, dims: Mapping[str, str], given: Mapping[str, str]) -> None:
        """Raise Refused without a project or a location."""
        if not (given.get("gcp.project_id") or dims.get(f"{HIDDEN}gcp_project")):
            raise Refused("no Google Cloud project: set --project; the credentials name none")
        known = (given.get(name) for name in LOCATIONS)
        if not (any(known) or any(dims.get(f"{HIDDEN}{word}") for word in PLACES)):
            raise Refused("Google needs a location: set resource_attributes.location to a region of Google Cloud")

    def judge(self, problem: Exception) -> Exception:
        """Fetch a new token once where Google calls this one unknown."""
        if isinstance(problem, Refused) and "answer is 401" in str(problem) and not self._renewed:
            self._renewed = True
            self._token.expire()
            return Retryable(f"a new token of Google is fetched ({problem})")
        return problem

    def worked(self) -> None:
        self._renewed = False


def bearer(file: Path | None) -> dict[str, str]:
    """Return the header with the token of a file; raise Refused without repeating it."""
    if file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {read_secret(file)}"}
    except ValueError as fault:
        raise Refused(f"bearer_token_file: {fault}") from None
