"""
Reads TLS, client certificates and basic auth from the web configuration file that Prometheus' exporters use.

https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md. The file and the files that it
names are read again when they change.
"""

from __future__ import annotations

import json
import logging
import stat
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from chipwatch.base.text import nearest
from chipwatch.contract.errors import os_text
from chipwatch.net.faults import is_printable
from chipwatch.net.page_server import Answer, Request, Response

if TYPE_CHECKING:
    import ssl

log = logging.getLogger(__name__)

MAX_BYTES: Final = 1_000_000
HEADERS, VERSIONS, CLIENTS = json.loads(Path(__file__).with_suffix(".json").read_bytes()).values()
"""Headers that the file may set; its words for TLS versions and for client authentication -> names in `ssl`."""
MAX_CHECKED: Final = 100
"""Most right passwords that are cached, and most wrong ones, since bcrypt takes 50 ms and more for each."""
NOBODY: Final = b"$2b$10$abcdefghijklmnopqrstuu5s2v8.iXieOjg/.AySBTTZIIVFJeBui"
"""Hash to check for unknown users, so that the time of an answer does not show which users exist."""


class WebError(Exception):
    """The web configuration file cannot be used; the message says why, without secrets."""


class ServerTls(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file's section tls_server_config: files and settings of TLS."""

    cert_file: str
    key_file: str
    client_auth_type: str = ""
    client_ca_file: str = ""
    cipher_suites: tuple[str, ...] = ()
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    prefer_server_cipher_suites: bool = True  # read, but without effect, as in Go since 1.17


class Http(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The file's section http_server_config."""

    http2: bool = True  # read, but without effect: this server speaks HTTP/1.1
    headers: dict[str, str] = {}


class File(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The content of a web configuration file."""

    tls_server_config: ServerTls | None = None
    http_server_config: Http = Http()
    basic_auth_users: dict[str, str] = {}

    @property
    def protects(self) -> bool:
        """True if a password or a client certificate is required."""
        tls = self.tls_server_config
        return bool(self.basic_auth_users or (tls and tls.client_auth_type == "RequireAndVerifyClientCert"))


class Web:
    """The settings from a web configuration file; without a file, there is neither TLS nor auth."""

    def __init__(self, path: Path | None) -> None:
        """Take the file's path; `load` reads it."""
        self._path = path
        self._file = File()
        self._context: ssl.SSLContext | None = None
        self._stamps: Mapping[Path, tuple[int, ...]] = {}
        self._checked: dict[bool, dict[bytes, None]] = {True: {}, False: {}}

    @property
    def protects(self) -> bool:
        """True if a password or a client certificate is required."""
        return self._file.protects

    @property
    def encrypts(self) -> bool:
        """True if the page is served over TLS."""
        return self._context is not None

    def load(self) -> None:
        """Read the file, if there is one; raise WebError, also if it would end the protection of an open page."""
        if self._path is None:
            return
        stamps = {self._path: _stamp(self._path)}
        file = parse(self._path)
        tls = file.tls_server_config
        names = (tls.cert_file, tls.key_file, tls.client_ca_file) if tls else ()
        stamps |= {path: _stamp(path) for path in (self._path.parent / name for name in names if name)}
        self._stamps = stamps  # kept even if a file cannot be used, so that it is read again once it changes
        for what, before, now in (
            ("TLS", self.encrypts, tls is not None),
            ("a password or a client certificate", self.protects, file.protects),
        ):
            if before and not now:
                raise WebError(f"{self._path}: it no longer asks for {what}; restart the agent if that is meant")
        _check_rights(self._path, secret=bool(file.basic_auth_users))
        if tls:
            _check_rights(self._path.parent / tls.key_file, secret=True)
        self._context = _context(tls, self._path.parent) if tls else None
        self._file = file
        self._checked = {True: {}, False: {}}

    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context for a new connection, or None without TLS; the server's thread calls this."""
        self._renew()
        return self._context

    def guard(self, answer: Answer) -> Answer:
        """Return a function that gives known users `answer`, and others the status 401."""

        def answered(request: Request, *, admitted: bool) -> Response:
            response = answer(request) if admitted else UNAUTHORIZED
            assert isinstance(response, Response)
            return response._replace(headers=(*response.headers, *self._file.http_server_config.headers.items()))

        def guarded(request: Request) -> Response | Callable[[], Response]:
            self._renew()
            admits = self._admits(request.headers.get("authorization", ""))
            if isinstance(admits, bool):
                return answered(request, admitted=admits)
            return lambda: answered(request, admitted=admits())

        return answer if self._path is None else guarded

    def _renew(self) -> None:
        """Read the files again if one has changed; if they cannot be used, keep the last settings."""
        changed = {path: _stamp(path) for path in self._stamps}
        if changed == self._stamps:
            return
        self._stamps = changed
        try:
            self.load()
        except WebError as problem:
            log.error("%s; the settings from before are kept", problem)  # noqa: TRY400  # a person's mistake, no bug

    def _admits(self, authorization: str) -> bool | Callable[[], bool]:
        """Return whether a user is admitted, or, where bcrypt must run first, a slow function that finds out."""
        if not (users := self._file.basic_auth_users):
            return True
        scheme, _, given = authorization.partition(" ")
        if scheme.lower() != "basic":
            return False
        from hashlib import sha256

        try:
            user, _, password = b64decode(given, validate=True).decode().partition(":")
        except ValueError:  # binascii's error is one
            return False
        key, checked = sha256(given.encode()).digest(), self._checked
        for right, keys in checked.items():
            if key in keys:
                return right

        def check() -> bool:
            from bcrypt import checkpw

            known = users.get(user)
            right = checkpw(password.encode()[:72], known.encode() if known else NOBODY) and known is not None
            if len(keys := checked[right]) >= MAX_CHECKED:
                keys.pop(next(iter(keys)))
            keys[key] = None
            return right

        return check


UNAUTHORIZED: Final = Response(
    401, b"A user and a password are needed.\n",
    (("Content-Type", "text/plain; charset=utf-8"), ("WWW-Authenticate", 'Basic realm="chipwatch"')),
)  # fmt: skip


def _stamp(path: Path) -> tuple[int, ...]:
    """Return a file's time, size and inode, which change with its content."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_mtime_ns, status.st_size, status.st_ino


def _check_rights(path: Path, *, secret: bool) -> None:
    """Raise WebError if everybody may write the file; warn if it is secret and everybody may read it."""
    try:
        mode = path.stat().st_mode
    except OSError as problem:
        raise WebError(f"{path}: {os_text(problem)}") from problem
    if mode & stat.S_IWOTH:
        raise WebError(f"{path}: every user may write it; chmod o-w")
    if secret and mode & stat.S_IROTH:
        log.warning("%s: every user may read it, and it is secret; chmod o-r", path)


def _context(tls: ServerTls, folder: Path) -> ssl.SSLContext:
    """Return the server's TLS context; raise WebError, also for an expired certificate."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate, authority = folder / tls.cert_file, folder / tls.client_ca_file
    try:
        context.minimum_version = getattr(ssl.TLSVersion, VERSIONS[tls.min_version])
        context.maximum_version = getattr(ssl.TLSVersion, VERSIONS[tls.max_version])
        context.load_cert_chain(certificate, folder / tls.key_file, password=lambda: "")
    except (OSError, ValueError) as problem:
        reasons = (getattr(problem, name, "") for name in ("reason", "strerror"))
        why = next(filter(None, reasons), "not a certificate with its key in PEM")
        raise WebError(f"tls_server_config: {certificate}, {tls.key_file}: {why}") from None
    _check_dates(context, certificate)
    try:
        if suites := ":".join(filter(None, map(_openssl_name, tls.cipher_suites))):
            context.set_ciphers(suites)
    except ssl.SSLError:
        raise WebError(
            f"tls_server_config.cipher_suites: none of them is known: {', '.join(tls.cipher_suites)}"
        ) from None
    try:
        if tls.client_ca_file:
            context.load_verify_locations(authority)
    except OSError as problem:
        raise WebError(f"tls_server_config.client_ca_file: {authority}: {problem.strerror or 'not PEM'}") from None
    context.verify_mode = getattr(ssl, CLIENTS[tls.client_auth_type])
    return context


def _openssl_name(suite: str) -> str:
    """Return OpenSSL's name for a suite such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256; "" for one of TLS 1.3."""
    if "_WITH_" not in suite:
        return ""
    name = suite.removeprefix("TLS_").removeprefix("RSA_WITH_").replace("_WITH_", "-")
    return name.replace("AES_", "AES").replace("POLY1305_SHA256", "POLY1305").replace("_CBC", "").replace("_", "-")


def _check_dates(server: ssl.SSLContext, certificate: Path) -> None:
    """Raise WebError if clients would refuse the certificate for its dates; try it by a handshake in memory."""
    import ssl

    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.minimum_version = server.minimum_version
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for side in (*sides, sides[0]):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as problem:
            raise WebError(f"tls_server_config.cert_file: {certificate}: {problem.verify_message}") from None
        except ssl.SSLError as problem:
            raise WebError(f"tls_server_config: {certificate}: no handshake: {problem.reason}") from None


def _content(path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise WebError(
            "web_config_file takes PyYAML and bcrypt; install chipwatch with the extra 'prometheus'"
        ) from None
    try:
        with path.open("rb") as file:
            content = yaml.safe_load(file.read(MAX_BYTES))
    except OSError as problem:
        raise WebError(f"{path}: {os_text(problem)}") from problem
    except (yaml.YAMLError, ValueError, LookupError, AttributeError, RecursionError) as problem:
        # PyYAML also lets the exceptions of its types through, such as ValueError for the date 2026-99-99.
        mark = getattr(problem, "problem_mark", None)
        raise WebError(f"{path}: not YAML{f', line {mark.line + 1}' if mark else ''}") from None
    if content is None:  # a file that is being written is empty; it must not open the page to everyone
        raise WebError(f"{path}: it is empty; write {{}} for neither TLS nor passwords")
    return content


def parse(path: Path) -> File:
    """Read and check a web configuration file; raise WebError."""
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
            raise WebError(f"{path}: {key}: {word!r} is not supported{nearest(word, filter(None, allowed))}")


def _check_hashes(path: Path, users: Mapping[str, str]) -> None:
    try:
        from bcrypt import checkpw
    except ImportError:
        raise WebError("basic_auth_users takes bcrypt; install chipwatch with the extra 'prometheus'") from None
    for user, hashed in users.items():
        try:
            checkpw(b"", hashed.encode())
        except ValueError:
            raise WebError(f"{path}: basic_auth_users.{user}: not a password hashed by bcrypt") from None
