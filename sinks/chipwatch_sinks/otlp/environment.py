"""The variables that every exporter of OpenTelemetry reads: https://opentelemetry.io/docs/specs/otel/protocol/exporter/."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from chipwatch.errors import ConfigError
from chipwatch.net.faults import header_fault, url_fault

EXPORTER: Final = "OTEL_EXPORTER_OTLP_"
PREFERENCE: Final = f"{EXPORTER}METRICS_TEMPORALITY_PREFERENCE"
RESERVED: Final = frozenset({
    "host", "connection", "content-length", "transfer-encoding", "content-type", "content-encoding", "accept-encoding",
})  # fmt: skip
"""Headers that this sink sets itself."""
PATH: Final = "/v1/metrics"


class Environment:
    """What the environment says of an exporter of metrics; the variable for metrics wins over the one for all."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env

    def _find(self, name: str) -> tuple[str, str]:
        """Return the variable that is set, and its text; an empty one counts as not set."""
        for variable in (f"{EXPORTER}METRICS_{name}", f"{EXPORTER}{name}"):
            if value := self._env.get(variable, "").strip():
                return variable, value
        return "", ""

    @property
    def url(self) -> str | None:
        """The address; that for metrics is complete, the path is added to the other."""
        variable, value = self._find("ENDPOINT")
        if not value:
            return None
        if fault := url_fault(value):
            raise ConfigError(f"{variable}: {fault}")
        return value if "METRICS" in variable else full_url(value)

    @property
    def headers(self) -> dict[str, str]:
        """The headers; values are percent-encoded."""
        found: dict[str, str] = {}
        for name in ("HEADERS", "METRICS_HEADERS"):
            variable = f"{EXPORTER}{name}"
            pairs = _pairs(variable, self._env.get(variable, ""))
            if fault := headers_fault(pairs):
                raise ConfigError(f"{variable}: {fault}")
            found |= pairs
        return found

    @property
    def timeout(self) -> float | None:
        """Seconds; the variable has milliseconds."""
        variable, value = self._find("TIMEOUT")
        if not value:
            return None
        if not value.isdecimal() or not int(value):
            raise ConfigError(f"{variable}={value!a}: expected milliseconds above 0")
        return int(value) / 1000

    @property
    def compression(self) -> str | None:
        """`gzip` or `none`."""
        return self._word("COMPRESSION", ("gzip", "none"))

    @property
    def protocol(self) -> str | None:
        """`protobuf` or `json`."""
        word = self._word("PROTOCOL", ("http/protobuf", "http/json"))
        return word.removeprefix("http/") if word else None

    def _word(self, name: str, known: tuple[str, ...]) -> str | None:
        variable, value = self._find(name)
        if value and value.lower() not in known:
            why = "; gRPC is not spoken here, and every collector has an HTTP port, 4318" if value == "grpc" else ""
            raise ConfigError(f"{variable}={value!a}: expected {' or '.join(known)}{why}")
        return value.lower() or None

    @property
    def files(self) -> tuple[Path | None, Path | None, Path | None]:
        """CA certificates, client certificate, and its key."""
        ca, certificate, key = (self._find(name)[1] for name in ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"))
        return Path(ca) if ca else None, Path(certificate) if certificate else None, Path(key) if key else None

    @property
    def delta(self) -> bool | None:
        """Whether counters are sent as deltas; lowmemory is cumulative for counters that are read, as ours are."""
        value = self._env.get(PREFERENCE, "").strip().lower()
        if value and value not in ("cumulative", "delta", "lowmemory"):
            raise ConfigError(f"{PREFERENCE}={value!a}: expected cumulative, delta or lowmemory")
        return value == "delta" if value else None

    @property
    def resource(self) -> dict[str, str]:
        """Attributes of OTEL_RESOURCE_ATTRIBUTES, and the service's name."""
        found = _pairs("OTEL_RESOURCE_ATTRIBUTES", self._env.get("OTEL_RESOURCE_ATTRIBUTES", ""))
        service = self._env.get("OTEL_SERVICE_NAME", "").strip()
        return found | ({"service.name": service} if service else {})


def _pairs(variable: str, text: str) -> dict[str, str]:
    """Return KEY=VALUE,... with percent-decoded values; errors do not repeat these, which may be secrets."""
    found = {}
    for number, part in enumerate(text.split(","), 1):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{variable}: expected KEY=VALUE,..., and part {number} has another form")
        found[unquote(key.strip())] = unquote(value.strip())
    return found


def full_url(base: str) -> str:
    """Return a base address with the path of metrics, or the address if it has that path already."""
    path, mark, query = base.partition("?")
    path = path.rstrip("/")
    return f"{path if path.endswith(PATH) else path + PATH}{mark}{query}"


def headers_fault(headers: Mapping[str, str]) -> str | None:
    """Return what is wrong with one of the headers, without its value, or None."""
    return next((fault for name, value in headers.items() if (fault := header_fault(name, value, RESERVED))), None)
