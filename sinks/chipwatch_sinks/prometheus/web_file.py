"""The web configuration file of Prometheus' exporters: what may stand in it, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from chipwatch.net.faults import is_printable

MAX_BYTES: Final = 1_000_000
HEADERS: Final = (
    "Content-Security-Policy",
    "Strict-Transport-Security",
    "X-Content-Type-Options",
    "X-Frame-Options",
    "X-XSS-Protection",
)
VERSIONS: Final = {"TLS10": "TLSv1", "TLS11": "TLSv1_1", "TLS12": "TLSv1_2", "TLS13": "TLSv1_3"}
CLIENTS: Final = {
    "": "CERT_NONE",
    "NoClientCert": "CERT_NONE",
    "VerifyClientCertIfGiven": "CERT_OPTIONAL",
    "RequireAndVerifyClientCert": "CERT_REQUIRED",
}


class WebError(Exception):
    """The file cannot be used; the message says why, without secrets."""


class ServerTls(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Files and settings of TLS."""

    cert_file: str
    key_file: str
    client_auth_type: str = ""
    client_ca_file: str = ""
    cipher_suites: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    prefer_server_cipher_suites: bool = True  # without a meaning since Go 1.17


class Http(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Settings of HTTP."""

    http2: bool = True  # this server speaks HTTP/1.1 in any case
    headers: dict[str, str] = {}


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The whole file."""

    tls_server_config: ServerTls | None = None
    http_server_config: Http = Http()
    basic_auth_users: dict[str, str] = {}


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MAX_BYTES)
    except OSError as problem:
        raise WebError(f"{path}: {problem.strerror}") from problem


def _content(path: Path) -> Any:
    try:
        import yaml  # noqa: PLC0415  # only with this file
    except ImportError:
        raise WebError(
            "web_config_file takes PyYAML and bcrypt; install chipwatch with the extra 'prometheus'"
        ) from None
    try:
        content = yaml.safe_load(_read(path))
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as problem:
        # PyYAML passes on exceptions of its types, for the date 2026-99-99 for instance.
        mark = getattr(problem, "problem_mark", None)
        raise WebError(f"{path}: not YAML{f', line {mark.line + 1}' if mark else ''}") from None
    if content is None:  # a file is empty while it is written; it must not open the page to everyone
        raise WebError(f"{path}: it is empty; write {{}} for neither TLS nor passwords")
    return content


def parse(path: Path) -> File:
    """Read and check the file; raise WebError."""
    try:
        file = msgspec.convert(_content(path), File)
    except msgspec.ValidationError as problem:
        raise WebError(f"{path}: {problem}") from None
    tls = file.tls_server_config
    _choose(path, "http_server_config.headers", file.http_server_config.headers, HEADERS)
    if tls:
        _choose(path, "tls_server_config.min_version", [tls.min_version], VERSIONS)
        _choose(path, "tls_server_config.max_version", [tls.max_version], VERSIONS)
        _choose(path, "tls_server_config.client_auth_type", [tls.client_auth_type], CLIENTS)
        if bool(tls.client_ca_file) is (CLIENTS[tls.client_auth_type] == "CERT_NONE"):
            raise WebError(f"{path}: tls_server_config: client_ca_file and client_auth_type need each other")
        if not all(name.isprintable() for name in (tls.cert_file, tls.key_file, tls.client_ca_file)):
            raise WebError(f"{path}: tls_server_config: the name of a file has characters that no name has")
    for header, value in file.http_server_config.headers.items():
        if not is_printable(value):
            raise WebError(f"{path}: http_server_config.headers: {header} has characters that HTTP does not allow")
    if file.basic_auth_users:
        _check_hashes(path, file.basic_auth_users)
    return file


def _choose(path: Path, key: str, given: Any, allowed: Any) -> None:
    for word in given:
        if word not in allowed:
            raise WebError(f"{path}: {key}: {word!r} is not supported; choose from: {', '.join(filter(None, allowed))}")


def _check_hashes(path: Path, users: Mapping[str, str]) -> None:
    try:
        from bcrypt import checkpw  # noqa: PLC0415  # only with passwords
    except ImportError:
        raise WebError("basic_auth_users takes bcrypt; install chipwatch with the extra 'prometheus'") from None
    for user, hashed in users.items():
        try:
            checkpw(b"", hashed.encode())
        except ValueError:
            raise WebError(f"{path}: basic_auth_users.{user}: not a password hashed by bcrypt") from None
