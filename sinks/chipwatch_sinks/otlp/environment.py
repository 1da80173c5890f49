"""Reads OpenTelemetry's variables for exporters: https://opentelemetry.io/docs/specs/otel/protocol/exporter/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import unquote

from chipwatch.contract.errors import ConfigError
from chipwatch.net.faults import header_fault, url_fault
from chipwatch.net.http_client import ClientTls

if TYPE_CHECKING:
    from chipwatch_sinks.otlp import OtlpSink

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
