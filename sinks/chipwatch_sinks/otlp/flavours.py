"""Addresses, settings and authentication of the kinds of receivers: any OTLP receiver, CloudWatch, or Google."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from urllib.parse import unquote

from chipwatch.contract.datapoint import HIDDEN
from chipwatch.contract.errors import BadBatch, ConfigError, Refused, Retryable
from chipwatch.net.faults import header_fault, read_secret, url_fault
from chipwatch.net.http_client import ClientTls
from chipwatch_sinks.otlp.answers import ADVICE, RECEIVERS

if TYPE_CHECKING:
    from chipwatch_sinks.otlp import OtlpSink
    from chipwatch_sinks.otlp.google_machine import MachineToken
    from chipwatch_sinks.otlp.google_token import GoogleToken

EXPORTER: Final = "OTEL_EXPORTER_OTLP_"
TEMPORALITY: Final = "METRICS_TEMPORALITY_PREFERENCE"
"""Variable for metrics alone; its value lowmemory means cumulative for counters that are read, as all of ours are."""
TIMEOUT: Final = 10.0
RESERVED: Final = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "content-type", "content-encoding", "accept-encoding",
})  # fmt: skip
"""Headers that the user may not set, since the sink sets them."""
PATH: Final = "/v1/metrics"


class OtlpSettings(NamedTuple):
    """The sink's options; an option that is not set comes from the environment's variables."""

    url: str
    """The address with the path of metrics; empty for the flavour's default."""
    headers: Mapping[str, str]
    is_zipped: bool
    timeout: float
    """Seconds to wait for an answer."""
    tls: ClientTls
    is_delta: bool
    resource: Mapping[str, str]
    """Attributes of the machine's OTLP resource."""
    ignored: Mapping[str, str]
    """Ignored variable -> what is wrong with its value."""


def settings_of(config: OtlpSink.Config, env: Mapping[str, str]) -> OtlpSettings:
    """Return the settings of `config` and `env`; raise ConfigError for an invalid address in a variable."""
    every = Variables(env)
    own = every if config.flavour == "plain" else Variables({})
    temporality = config.temporality or every.find(TEMPORALITY, _chosen_from("cumulative", "delta", "lowmemory"))
    resource = every.pairs("OTEL_RESOURCE_ATTRIBUTES", lambda _: None)
    if service := env.get("OTEL_SERVICE_NAME", "").strip():
        resource["service.name"] = service
    milliseconds = "" if config.timeout else own.find("TIMEOUT", _timeout_fault)
    own.find("PROTOCOL", _protocol_fault)  # to ignore another one aloud
    compression = config.compression or own.find("COMPRESSION", _chosen_from("gzip", "none")).lower()
    authority, certificate, key = map(own.find, ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"))
    pair = (config.cert_file, config.key_file) if config.cert_file else (certificate, key)
    return OtlpSettings(
        url=full_url(config.endpoint_url) if config.endpoint_url else own.url(),
        headers={**own.headers(), **config.headers},
        is_zipped=compression != "none",
        timeout=config.timeout or int(milliseconds or 0) / 1000 or TIMEOUT,
        tls=ClientTls(config.ca_file or authority, *pair),
        is_delta=temporality.lower() == "delta",
        resource={**resource, **config.resource_attributes},
        ignored=every.ignored,
    )


class Variables:
    """
    An exporter's variables; one for metrics wins over the same one for all signals (metrics, logs and traces).

    An invalid value is ignored, as the specification of the variables requires.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.ignored: dict[str, str] = {}
        """Ignored variable -> what is wrong with its value."""

    def find(self, name: str, fault_of: Callable[[str], str | None] = lambda _: None) -> str:
        """Return the value of the first variable that is set, not empty and has no fault, or ""."""
        for variable in (f"{EXPORTER}METRICS_{name}", f"{EXPORTER}{name}"):
            if value := self._env.get(variable, "").strip():
                if (fault := fault_of(value)) is None:
                    return value
                self.ignored[variable] = fault
        return ""

    def url(self) -> str:
        """Return the metrics variable's address, or the general one's with the path added; raise ConfigError."""
        for variable, is_whole in ((f"{EXPORTER}METRICS_ENDPOINT", True), (f"{EXPORTER}ENDPOINT", False)):
            if value := self._env.get(variable, "").strip():
                if fault := url_fault(value):
                    raise ConfigError(f"{variable}: {fault}")
                return value if is_whole else full_url(value)
        return ""

    def headers(self) -> dict[str, str]:
        """Return the headers to send; the variable has them percent-encoded."""
        names = (f"{EXPORTER}HEADERS", f"{EXPORTER}METRICS_HEADERS")
        return dict(pair for name in names for pair in self.pairs(name, headers_fault).items())

    def pairs(self, variable: str, fault_of: Callable[[Mapping[str, str]], str | None]) -> dict[str, str]:
        """Parse KEY=VALUE,... with percent-encoded values; messages about faults repeat no value."""
        pairs = {}
        for number, part in enumerate(self._env.get(variable, "").split(","), 1):
            if not part.strip():
                continue
            key, equals, value = part.partition("=")
            if not equals or not key.strip():
                self.ignored[variable] = f"expected KEY=VALUE,..., and part {number} has another form"
                return {}
            pairs[unquote(key.strip())] = unquote(value.strip())
        if fault := fault_of(pairs):
            self.ignored[variable] = fault
            return {}
        return pairs


def _chosen_from(*words: str) -> Callable[[str], str | None]:
    """Return a function that says what is wrong with a value that is not among `words`."""
    return lambda value: None if value.lower() in words else f"expected {' or '.join(words)}, got {value[:60]!a}"


def _protocol_fault(value: str) -> str | None:
    if value.lower() == "grpc":
        return "gRPC is not spoken here, HTTP is used; the port of a collector for HTTP is 4318, not 4317"
    return _chosen_from("http/protobuf")(value)


def _timeout_fault(value: str) -> str | None:
    if value.isascii() and value.isdecimal() and int(value[:9]) > 0 and len(value) < 9:
        return None
    return f"expected milliseconds above 0, got {value[:60]!a}"


def full_url(base: str) -> str:
    """Return an address with the path of metrics; the path is added unless `base` ends with it."""
    path, mark, query = base.partition("?")
    path = path.rstrip("/")
    return f"{path if path.endswith(PATH) else path + PATH}{mark}{query}"


def headers_fault(headers: Mapping[str, str]) -> str | None:
    """Return what is wrong with one of the headers, or None; a header's value is not repeated."""
    return next((fault for name, value in headers.items() if (fault := header_fault(name, value, RESERVED))), None)


Name = Literal["plain", "cloudwatch", "google"]
DAY: Final = 86_400.0
LOCATIONS: Final = ("location", "cloud.availability_zone", "cloud.region")
PLACES: Final = ("k8s_location", "gcp_zone", "availability_zone", "region")
"""Attributes of which Google makes the label `location`, and the machine's dimensions that give them."""
CLOUDWATCH: Final = re.compile(
    r"https://(?:[^/]+\.)?monitoring(?:-fips)?\.([a-z0-9-]+)\.(?:(?:vpce\.)?amazonaws\.com(?:\.cn)?|api\.aws)(?:[:/?].*)?"
)
"""Matches the addresses of CloudWatch; group 1 is the region."""
LOCAL: Final = "http://localhost:4318/v1/metrics"
"""OTLP's default address, on this machine."""
GOOGLE: Final = "https://telemetry.googleapis.com/v1/metrics"
STALE: Final = re.compile(r"ExpiredToken|InvalidClientTokenId|UnrecognizedClient|security token", re.IGNORECASE)
"""Words in AWS's answers about expired or unknown credentials."""


class Bounds(NamedTuple):
    """Most points and bytes of a request, and the greatest age of a point (s)."""

    points: int
    bytes: int
    age: float | None = None
    series: int | None = None
    """Default of the option max_series, set where points cost money."""
    labels: int | None = None
    """Most attributes of a point, its resource's included."""


BOUNDS: Final[Mapping[Name, Bounds]] = {
    "plain": Bounds(5000, 4_000_000),
    "cloudwatch": Bounds(1000, 1_000_000, 14 * DAY, 5000, 150),
    "google": Bounds(200, 4_000_000, DAY, 5000),
}
"""
A flavour's limits: CloudWatch takes 1000 points, 150 labels and 1 MB without compression, Google 200 points.

docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-OTLPEndpoint.html;
docs.cloud.google.com/stackdriver/quotas; OTLP's own limit is 64 MiB: opentelemetry-proto 1.11, docs/specification.md.
"""


class Flavour:
    """A receiver at a known address that the user's headers authenticate to; the other flavours derive from it."""

    advice: Mapping[int, str] = ADVICE
    """HTTP status -> advice for the user."""
    place = ""
    """Where a person finds the points; "" if only the address is known."""

    def __init__(self, config: OtlpSink.Config, settings: OtlpSettings) -> None:
        self._config, self._settings = config, settings
        self._url = settings.url or LOCAL

    def open(self) -> str:
        """Find what requests need, and return the address; raise Refused or Retryable."""
        return self._url

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        """Return all headers of a request; raise Refused or Retryable."""
        return {**headers, **self._settings.headers, **bearer(self._config.bearer_token_file)}

    def resource(self) -> dict[str, str]:
        """Return resource attributes that the receiver needs; called after `open`."""
        return {}

    def check(self, dims: Mapping[str, str], given: Mapping[str, str]) -> None:
        """Raise Refused if these dimensions and resource attributes lack what the receiver needs."""

    def judge(self, problem: Exception) -> Exception:
        """Return the exception to raise for an error of the receiver."""
        return problem

    def worked(self) -> None:
        """Note that the receiver took a request."""


class Cloudwatch(Flavour):
    """CloudWatch's OTLP endpoint; requests are signed by Signature Version 4, or carry an API key."""

    advice = ADVICE | {403: RECEIVERS["forbidden"]["cloudwatch"]}
    place = 'CloudWatch > Query Studio: {"@resource.service.name"="chipwatch"}'

    def __init__(self, config: OtlpSink.Config, settings: OtlpSettings) -> None:
        super().__init__(config, settings)
        self._has_key = bool(config.bearer_token_file) or "authorization" in map(str.lower, config.headers)

    def open(self) -> str:
        config = self._config
        if self._has_key:
            region = config.region or ""
            if not (region or config.endpoint_url):
                raise Refused("no AWS region: set --region or endpoint_url")
        else:
            from chipwatch.net.aws_signer import Login, Signer

            self._signer = Signer(Login(config.region, config.endpoint_url, config.profile, config.role_arn))
            region = self._signer.open().region
        suffix = ".cn" if region.startswith("cn-") else ""
        self._url = self._settings.url or full_url(f"https://monitoring.{region}.amazonaws.com{suffix}")
        return self._url

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        if self._has_key:
            return super().headers(body, headers)
        return self._signer.sign(self._url, body, {**headers, **self._settings.headers})

    def judge(self, problem: Exception) -> Exception:
        """Return the exception for an error; if AWS calls the credentials expired, read them again."""
        if not self._has_key and isinstance(problem, (Refused, BadBatch)) and STALE.search(str(problem)):
            return self._signer.expired(str(problem))
        return problem

    def worked(self) -> None:
        if not self._has_key:
            self._signer.worked()


class Google(Flavour):
    """Google's OTLP endpoint; requests carry the machine's token, or one from google-auth."""

    advice = ADVICE | {403: RECEIVERS["forbidden"]["google"]}

    def __init__(self, config: OtlpSink.Config, settings: OtlpSettings) -> None:
        super().__init__(config, settings)
        self._url, self._renewed = settings.url or GOOGLE, False
        self._token: MachineToken | GoogleToken

    def open(self) -> str:
        from chipwatch_sinks.otlp import google_machine

        self._token = google_machine.machine_token() or self._library()
        self._project = self._config.project or self._token.project
        return self._url

    @staticmethod
    def _library() -> GoogleToken:
        from chipwatch_sinks.otlp.google_token import GoogleToken

        return GoogleToken()

    def headers(self, body: bytes, headers: Mapping[str, str]) -> dict[str, str]:
        return {**headers, **self._settings.headers, **self._token.headers(self._url)}

    def resource(self) -> dict[str, str]:
        """Return the project as an attribute, unless only the machine's dimensions name it."""
        return {"gcp.project_id": self._project} if self._project else {}

    def check(self, dims: Mapping[str, str], given: Mapping[str, str]) -> None:
        """Raise Refused if the project or the location is not known."""
        if not (given.get("gcp.project_id") or dims.get(f"{HIDDEN}gcp_project")):
            raise Refused("no Google Cloud project: set --project; the credentials name none")
        known = (given.get(name) for name in LOCATIONS)
        if not (any(known) or any(dims.get(f"{HIDDEN}{word}") for word in PLACES)):
            raise Refused("Google needs a location: set resource_attributes.location to a region of Google Cloud")

    def judge(self, problem: Exception) -> Exception:
        """Return the exception for an error; if Google calls the token unknown, fetch a new one once."""
        if isinstance(problem, Refused) and "answer is 401" in str(problem) and not self._renewed:
            self._renewed = True
            self._token.expire()
            return Retryable(f"a new token of Google is fetched ({problem})")
        return problem

    def worked(self) -> None:
        self._renewed = False


FLAVOURS: Final[Mapping[Name, type[Flavour]]] = {"plain": Flavour, "cloudwatch": Cloudwatch, "google": Google}


def bearer(file: Path | None) -> dict[str, str]:
    """Return the header with a file's bearer token; raise Refused, without repeating the token."""
    if file is None:
        return {}
    try:
        return {"Authorization": f"Bearer {read_secret(file)}"}
    except ValueError as fault:
        raise Refused(f"bearer_token_file: {fault}") from None
