"""The variables that every exporter of OpenTelemetry reads: https://opentelemetry.io/docs/specs/otel/protocol/exporter/."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import unquote

from chipwatch.contract.errors import ConfigError
from chipwatch.net.faults import header_fault, url_fault

EXPORTER: Final = "OTEL_EXPORTER_OTLP_"
PREFERENCE: Final = f"{EXPORTER}METRICS_TEMPORALITY_PREFERENCE"
RESERVED: Final = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "content-type", "content-encoding", "accept-encoding",
})  # fmt: skip
"""Headers that this sink sets itself."""
PATH: Final = "/v1/metrics"


class Environment:
    """
    Variables for an exporter of metrics; the variable for metrics wins over the one for all signals.

    An invalid value is ignored, as the specification of the variables requires.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self.ignored: dict[str, str] = {}
        """Variable -> fault of its value."""

    def _find(self, name: str, fault_of: Callable[[str], str | None] = lambda _: None) -> str:
        """Return the text of the first variable that is set and has no fault; an empty one counts as not set."""
        for variable in (f"{EXPORTER}METRICS_{name}", f"{EXPORTER}{name}"):
            if value := self._env.get(variable, "").strip():
                if (fault := fault_of(value)) is None:
                    return value
                self.ignored[variable] = fault
        return ""

    @property
    def url(self) -> str | None:
        """The address: the variable for metrics as it is, the other one with the path added. Raise ConfigError."""
        for variable, is_whole in ((f"{EXPORTER}METRICS_ENDPOINT", True), (f"{EXPORTER}ENDPOINT", False)):
            if value := self._env.get(variable, "").strip():
                if fault := url_fault(value):
                    raise ConfigError(f"{variable}: {fault}")
                return value if is_whole else full_url(value)
        return None

    @property
    def headers(self) -> dict[str, str]:
        """The headers; values are percent-encoded."""
        pairs: dict[str, str] = {}
        for name in ("HEADERS", "METRICS_HEADERS"):
            pairs |= self._pairs(f"{EXPORTER}{name}", headers_fault)
        return pairs

    @property
    def timeout(self) -> float | None:
        """Seconds; the variable has milliseconds."""
        value = self._find("TIMEOUT", _timeout_fault)
        return int(value) / 1000 if value else None

    @property
    def compression(self) -> str | None:
        """`gzip` or `none`."""
        return self._find("COMPRESSION", _chosen_from("gzip", "none")).lower() or None

    @property
    def protocol(self) -> str | None:
        """`protobuf` or `json`."""
        return self._find("PROTOCOL", _protocol_fault).lower().removeprefix("http/") or None

    @property
    def files(self) -> list[str]:
        """CA certificates, client certificate, and its key; empty where they are not set."""
        return [self._find(name) for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")]

    @property
    def delta(self) -> bool | None:
        """True if counters are sent as deltas; lowmemory is cumulative for counters that are read, as ours are."""
        value = self._env.get(PREFERENCE, "").strip().lower()
        if value and (fault := _chosen_from("cumulative", "delta", "lowmemory")(value)):
            self.ignored[PREFERENCE] = fault
            return None
        return value == "delta" if value else None

    @property
    def resource(self) -> dict[str, str]:
        """Attributes of OTEL_RESOURCE_ATTRIBUTES, and the service's name."""
        found = self._pairs("OTEL_RESOURCE_ATTRIBUTES", lambda _: None)
        service = self._env.get("OTEL_SERVICE_NAME", "").strip()
        return found | ({"service.name": service} if service else {})

    def _pairs(self, variable: str, fault_of: Callable[[Mapping[str, str]], str | None]) -> dict[str, str]:
        """Return KEY=VALUE,... with percent-decoded values; faults do not repeat these, which may be secrets."""
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
    """Return a function that describes the fault of a value outside of `words`."""
    return lambda value: None if value.lower() in words else f"expected {' or '.join(words)}, got {value[:60]!a}"


def _protocol_fault(value: str) -> str | None:
    if value.lower() == "grpc":
        return "gRPC is not spoken here, HTTP is used; the port of a collector for HTTP is 4318, not 4317"
    return _chosen_from("http/protobuf", "http/json")(value)


def _timeout_fault(value: str) -> str | None:
    if value.isascii() and value.isdecimal() and int(value[:9]) > 0 and len(value) < 9:
        return None
    return f"expected milliseconds above 0, got {value[:60]!a}"


def full_url(base: str) -> str:
    """Return a base address with the path of metrics, or the address if it has that path already."""
    path, mark, query = base.partition("?")
    path = path.rstrip("/")
    return f"{path if path.endswith(PATH) else path + PATH}{mark}{query}"


def headers_fault(headers: Mapping[str, str]) -> str | None:
    """Return what is wrong with one of the headers, without its value, or None."""
    return next((fault for name, value in headers.items() if (fault := header_fault(name, value, RESERVED))), None)
