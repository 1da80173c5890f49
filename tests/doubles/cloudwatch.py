"""
A strict CloudWatch on loopback: takes what the service takes, refuses what it refuses, in its words.

Where the service's documents are silent it is strict. Faults are scripted: see `will` and `weather`.
"""

import gzip
import hashlib
import hmac
import json
import os
import re
import socket
import ssl
import struct
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import parse_qs, urlsplit

KEY, SECRET = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
"""The credentials that AWS's own documents use as an example."""
HEADERS = {
    "x-amz-target": "GraniteServiceVersion20100801.PutMetricData",
    "content-type": "application/x-amz-json-1.0",
    "x-amzn-query-mode": "true",
}
"""Headers of a request beside its date and signature: AWS JSON 1.0, and the historic codes of errors."""
SIZES: tuple[str, ...] = ("Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes")
SIZES += ("Bits", "Kilobits", "Megabits", "Gigabits", "Terabits")
TIMES = ("Seconds", "Microseconds", "Milliseconds")
UNITS = {*TIMES, *SIZES, *(f"{size}/Second" for size in SIZES), "Percent", "Count", "Count/Second", "None"}
FORTNIGHT, TWO_HOURS = 14 * 86_400, 2 * 3_600


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment for a client of the double: its key, nothing else of AWS, no way out."""
    ours = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    others = {key: value for key, value in os.environ.items() if not re.match(r"AWS_|\w+_PROXY$", key, re.IGNORECASE)}
    return others | ours | more


def isolate(monkeypatch: Any) -> None:
    """Make that the environment of this test and of the processes that it starts."""
    wanted = environment()
    for name in os.environ.keys() - wanted.keys():
        monkeypatch.delenv(name)
    for name, value in wanted.items():
        monkeypatch.setenv(name, value)


def signature(
    path: str, headers: Mapping[str, str], raw: bytes, *, scope: Sequence[str], names: str, secret: str
) -> tuple[str, str]:
    """Return the signature (Version 4) of a request within a scope of day, region and service, and what it is of."""
    lines = [f"{name}:{headers.get(name, '').strip()}" for name in names.split(";")]
    parts = ["POST", urlsplit(path).path or "/", "", *lines, "", names, hashlib.sha256(raw).hexdigest()]
    canonical, scope = "\n".join(parts), (*scope, "aws4_request")
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{'/'.join(scope)}\n{hashed}"
    key = f"AWS4{secret}".encode()
    for part in scope:
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.new(key, text.encode(), "sha256").hexdigest(), canonical


class Datum(NamedTuple):
    """A stored datum."""

    namespace: str
    name: str
    dims: tuple[tuple[str, str], ...]
    timestamp: int
    value: float | None
    values: tuple[float, ...]
    counts: tuple[float, ...]
    unit: str
    resolution: int


class Request(NamedTuple):
    """A request and its end: a status, or the name of a fault of the wire."""

    at: float
    end: int | str
    code: str
    headers: dict[str, str]
    wire_bytes: int
    body: bytes
    datums: tuple[Datum, ...]


class Answer(NamedTuple):
    """An answer that is not a success; `headers` stand beside the usual ones."""

    status: int
    code: str
    message: str
    headers: tuple[tuple[str, str], ...] = ()


Fault = Answer | str
THROTTLED = Answer(400, "Throttling", "Rate exceeded")
TOO_LARGE = Answer(413, "RequestEntityTooLarge", "Request size exceeded")
BROKEN = Answer(500, "InternalServiceError", "")
AWAY = Answer(503, "ServiceUnavailable", "Service Unavailable", (("Retry-After", "7"),))
DENIED = Answer(
    403,
    "AccessDenied",
    "User: arn:aws:sts::123456789012:assumed-role/web/i-0abc is not authorized to perform: cloudwatch:PutMetricData "
    "because no identity-based policy allows the cloudwatch:PutMetricData action",
)
UNKNOWN_KEY = Answer(403, "InvalidClientTokenId", "The security token included in the request is invalid.")
EXPIRED = Answer(403, "ExpiredToken", "The security token included in the request is expired")
HANG, RESET, LOST = "hang", "reset", "lost"
"""Never answer; reset the connection unheard; take the datums and close without an answer."""


def refusing(*members: int, field: str = "Timestamp") -> Answer:
    """Return the answer that refuses those datums, counted from 1."""
    said = {"Timestamp": "must specify a time within the past two weeks.", "Values": "is refused."}
    lines = [f"The parameter MetricData.member.{n}.{field} {said.get(field, 'is required.')}" for n in members]
    return Answer(400, "InvalidParameterValue", "\n".join(lines))


class CloudwatchDouble:
    """The server; a context manager. All attributes may be read and set at any moment."""

    def __init__(self, *, port: int = 0, listen: bool = True) -> None:
        """Take a port of 127.0.0.1, and listen: else connections are refused until `listen` is called."""
        self.datums: list[Datum] = []
        """Stored datums, in order."""
        self.requests: list[Request] = []
        """Requests of PutMetricData."""
        self.weather: Callable[[], Fault | None] = lambda: None
        """Asked for a fault with each request that has none scripted by `will`."""
        self.skew = 0.0
        """Seconds that the server's clock is ahead of this machine's."""
        self.credentials: dict[str, tuple[str, str | None]] = {KEY: (SECRET, None)}
        """Access key -> secret key, session token."""
        self.expired: set[str] = set()
        """Access keys whose session token has expired."""
        self.roles: dict[str, str | None] = {}
        """ARN of a role that may be assumed -> external id that it asks for."""
        self.role_seconds = 3_600
        """Lifetime of a role's credentials."""
        self.assumed: list[str] = []
        """The access keys handed out for roles, in order."""
        self._script: deque[Fault] = deque()
        self.lock = threading.Lock()
        self.closing = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _Handler, bind_and_activate=False)
        self._server.daemon_threads = True
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client may leave
        self._server.double = self  # type: ignore[attr-defined]
        self._server.server_bind()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        if listen:
            self.listen()

    def listen(self) -> None:
        """Begin to answer."""
        self._server.server_activate()
        self._thread.start()

    def encrypt(self, certificate: Path, key: Path) -> str:
        """Speak TLS from now on; return the address."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = self.url.replace("http:", "https:")
        return self.url

    def will(self, *faults: Fault) -> None:
        """Meet the next requests with these faults, one each."""
        self._script.extend(faults)

    def fault(self) -> Fault | None:
        """Return the fault for this request."""
        with self.lock:
            return self._script.popleft() if self._script else self.weather()

    def now(self) -> float:
        """Return the server's time (s since the epoch)."""
        return time.time() + self.skew

    def close(self) -> None:
        """Stop."""
        self.closing.set()
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what the service checks ------------------------------------------------------------------------------------

    def judge(self, path: str, headers: dict[str, str], raw: bytes) -> Answer | tuple[Datum, ...]:
        """Return the datums of a PutMetricData request, or why it is refused."""
        refusal = self._judge_signature(path, headers, raw, "monitoring")
        if not refusal and any(headers.get(name) != wanted for name, wanted in HEADERS.items()):
            refusal = Answer(400, "UnknownOperationException", "")
        if refusal:
            return refusal
        try:
            body = _inflate(raw, headers.get("content-encoding"))
            if len(body) > 1_000_000:
                return TOO_LARGE
            return self._judge_body(json.loads(body, parse_constant=_no_constant))
        except (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError) as problem:
            return Answer(400, "SerializationException", f"not the shape of PutMetricData: {problem!r}")

    def _judge_body(self, asked: dict[str, Any]) -> Answer | tuple[Datum, ...]:
        if unknown := asked.keys() - {"Namespace", "MetricData"}:
            raise ValueError(f"unknown {unknown}")
        namespace, data = asked["Namespace"], asked["MetricData"]
        if not _is_word(namespace, 255) or namespace[0] == ":" or namespace.startswith("AWS/"):
            return Answer(400, "InvalidParameterValue", f"The value {namespace} for parameter Namespace is invalid.")
        if not data:
            return Answer(400, "MissingParameter", "The parameter MetricData is required.")
        if len(data) > 1000:
            text = "The collection MetricData must not have a size greater than 1000."
            return Answer(400, "InvalidParameterValue", text)
        now = self.now()
        wrong = [line for n, datum in enumerate(data, 1) for line in _faults(datum, f"MetricData.member.{n}", now)]
        if wrong:
            return Answer(400, "InvalidParameterValue", "\n".join(wrong))
        return tuple([_datum(namespace, datum) for datum in data])

    def _judge_signature(self, path: str, headers: dict[str, str], raw: bytes, service: str) -> Answer | None:
        """Check the clock, the key, the token and the signature, by AWS's Signature Version 4."""
        form = r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/(\w+)/aws4_request, SignedHeaders=([\w;-]+), "
        found = re.fullmatch(form + r"Signature=([0-9a-f]{64})", headers.get("authorization", ""))
        stamp = headers.get("x-amz-date", "")
        if not found or not re.fullmatch(r"\d{8}T\d{6}Z", stamp):
            return Answer(403, "MissingAuthenticationToken", "Missing Authentication Token")
        key, day, region, scope, names, given = found.groups()
        if key not in self.credentials or headers.get("x-amz-security-token") != self.credentials[key][1]:
            return UNKNOWN_KEY
        if key in self.expired:
            return EXPIRED
        when = datetime.strptime(stamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        now = datetime.fromtimestamp(self.now(), UTC)
        if abs(now - when) > timedelta(minutes=5):
            edge = now - timedelta(minutes=5) if when < now else now + timedelta(minutes=5)
            word = "expired" if when < now else "not yet current"
            relation = "earlier" if when < now else "later"
            message = f"Signature {word}: {stamp} is now {relation} than {edge:%Y%m%dT%H%M%SZ}"
            return Answer(403, "SignatureDoesNotMatch", message)
        scopes, secret = (day, region, scope), self.credentials[key][0]
        right, canonical = signature(path, headers, raw, scope=scopes, names=names, secret=secret)
        if (
            not {"host", "x-amz-date"} <= {*names.split(";")}
            or scope != service
            or not hmac.compare_digest(right, given)
        ):
            told = "The request signature we calculated does not match the signature you provided. The Canonical String"
            return Answer(403, "SignatureDoesNotMatch", f"{told} for this request should have been '{canonical}'")
        return None

    def assume(self, path: str, headers: dict[str, str], raw: bytes) -> tuple[int, str]:
        """Answer sts:AssumeRole."""
        refusal = self._judge_signature(path, headers, raw, "sts")
        asked = {name: values[0] for name, values in parse_qs(raw.decode()).items()}
        arn = asked.get("RoleArn", "")
        if not refusal and (arn not in self.roles or asked.get("ExternalId") != self.roles[arn]):
            who = "User: arn:aws:iam::123456789012:user/agent"
            text = f"{who} is not authorized to perform: sts:AssumeRole on resource: {arn}"
            refusal = Answer(403, "AccessDenied", text)
        if refusal:
            error = f"<Code>{refusal.code}</Code><Message>{refusal.message}</Message>"
            return refusal.status, f"<ErrorResponse><Error>{error}</Error></ErrorResponse>"
        key, secret, token = f"ASIA{len(self.assumed)}", uuid.uuid4().hex, uuid.uuid4().hex
        self.credentials[key] = (secret, token)
        self.assumed.append(key)
        until = datetime.fromtimestamp(self.now() + self.role_seconds, UTC).isoformat().replace("+00:00", "Z")
        handed = f"<AccessKeyId>{key}</AccessKeyId><SecretAccessKey>{secret}</SecretAccessKey>"
        handed += f"<SessionToken>{token}</SessionToken><Expiration>{until}</Expiration>"
        result = f"<AssumeRoleResult><Credentials>{handed}</Credentials></AssumeRoleResult>"
        return 200, f"<AssumeRoleResponse>{result}</AssumeRoleResponse>"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    @property
    def double(self) -> CloudwatchDouble:
        return self.server.double  # type: ignore[attr-defined, no-any-return]

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        raw = self.rfile.read(int(headers.get("content-length", 0)))
        if raw.startswith(b"Action=AssumeRole") or b"Action=AssumeRole" in raw[:4096]:
            status, text = self.double.assume(self.path, headers, raw)
            self._answer(status, text.encode(), "text/xml", ())
            return
        fault = self.double.fault()
        if fault in {HANG, RESET}:
            self._note(headers, raw, fault, "", ())
            self._break(fault)
            return
        verdict = fault if isinstance(fault, Answer) else self.double.judge(self.path, headers, raw)
        if isinstance(verdict, Answer):
            self._note(headers, raw, verdict.status, verdict.code, ())
            self._refuse(verdict)
            return
        with self.double.lock:
            self.double.datums.extend(verdict)
        self._note(headers, raw, LOST if fault == LOST else 200, "", verdict)
        if fault == LOST:
            self._break(LOST)
        else:
            self._answer(200, b"{}", "application/x-amz-json-1.0", ())

    def _note(self, headers: dict[str, str], raw: bytes, end: int | str, code: str, datums: tuple[Datum, ...]) -> None:
        try:
            body = _inflate(raw, headers.get("content-encoding"))
        except (OSError, EOFError, ValueError):
            body = raw
        with self.double.lock:
            self.double.requests.append(Request(time.monotonic(), end, code, headers, len(raw), body, datums))

    def _refuse(self, answer: Answer) -> None:
        told = {"__type": f"com.amazonaws.cloudwatch#{answer.code}", "message": answer.message}
        more = (("x-amzn-query-error", f"{answer.code};{'Sender' if answer.status < 500 else 'Receiver'}"),)
        self._answer(answer.status, json.dumps(told).encode(), "application/x-amz-json-1.0", more + answer.headers)

    def _answer(self, status: int, body: bytes, kind: str, headers: tuple[tuple[str, str], ...]) -> None:
        self.send_response(status)
        self.send_header("x-amzn-RequestId", str(uuid.uuid4()))
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _break(self, how: str) -> None:
        self.close_connection = True
        if how == HANG:
            self.double.closing.wait(60)
        elif how == RESET:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def date_time_string(self, timestamp: float | None = None) -> str:  # type: ignore[override]
        return formatdate(self.double.now() if timestamp is None else timestamp, usegmt=True)

    def log_message(self, *_: object) -> None:
        pass


def _inflate(raw: bytes, encoding: str | None) -> bytes:
    if encoding not in {None, "gzip"}:
        raise ValueError(f"encoding {encoding}")
    return gzip.decompress(raw) if encoding else raw


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _is_word(text: Any, most: int) -> bool:
    """Tell whether `text` is 1 to `most` characters of ASCII without control characters, one of them no space."""
    return isinstance(text, str) and bool(re.fullmatch(r"(?=.*[!-~])[ -~]+", text)) and len(text) <= most


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -(2**360) <= value <= 2**360


def _faults(datum: dict[str, Any], who: str, now: float) -> Iterator[str]:
    """Yield a sentence for each fault of a datum, as the service words it where that is known."""
    known = {"MetricName", "Dimensions", "Timestamp", "Value", "Values", "Counts", "Unit", "StorageResolution"}
    if unknown := datum.keys() - known:
        raise ValueError(f"unknown {unknown}")
    if not _is_word(datum.get("MetricName"), 255):
        yield f"The parameter {who}.MetricName is required."
    yield from _dimension_faults(datum.get("Dimensions", []), who)
    stamp = datum.get("Timestamp")
    if type(stamp) is not int:
        raise TypeError("a time that is no whole number of seconds")
    if not now - FORTNIGHT <= stamp <= now + TWO_HOURS:
        yield f"The parameter {who}.Timestamp must specify a time within the past two weeks."
    if datum.get("Unit", "None") not in UNITS:
        yield f"The parameter {who}.Unit must be a value in the set [ {', '.join(sorted(UNITS))} ]."
    if datum.get("StorageResolution", 60) not in {1, 60}:
        yield f"The parameter {who}.StorageResolution must be 1 or 60."
    yield from _number_faults(datum, who)


def _dimension_faults(dims: list[dict[str, Any]], who: str) -> Iterator[str]:
    if len(dims) > 30:
        yield f"The collection {who}.Dimensions must not have a size greater than 30."
    if len({dim["Name"] for dim in dims}) < len(dims):
        yield f"The parameter {who}.Dimensions names a dimension twice."
    for n, dim in enumerate(dims, 1):
        if dim.keys() != {"Name", "Value"}:
            raise ValueError(f"a dimension of {[*dim]}")
        if not _is_word(dim["Name"], 255) or dim["Name"][0] == ":":
            yield f"The parameter {who}.Dimensions.member.{n}.Name is required."
        if not _is_word(dim["Value"], 1024):
            yield f"The parameter {who}.Dimensions.member.{n}.Value is required."


def _number_faults(datum: dict[str, Any], who: str) -> Iterator[str]:
    if ("Value" in datum) == ("Values" in datum):
        yield f"Exactly one of the parameters {who}.Value and {who}.Values must be specified."
    if "Value" in datum and not _is_number(datum["Value"]):
        yield f"The value {datum['Value']} for parameter {who}.Value is invalid."
    values, counts = datum.get("Values", []), datum.get("Counts")
    if "Values" in datum and not 0 < len(values) <= 150:
        yield f"The collection {who}.Values must not have a size greater than 150."
    if len({*values}) < len(values) or not all(map(_is_number, values)):
        yield f"The parameter {who}.Values is invalid."
    if counts is not None and (len(counts) != len(values) or not all(_is_number(n) and n > 0 for n in counts)):
        yield f"The parameters {who}.Values and {who}.Counts must be of one size."


def _datum(namespace: str, datum: dict[str, Any]) -> Datum:
    values = tuple(datum.get("Values", ()))
    return Datum(
        namespace,
        datum["MetricName"],
        tuple((dim["Name"], dim["Value"]) for dim in datum.get("Dimensions", ())),
        datum["Timestamp"],
        datum.get("Value"),
        values,
        tuple(datum.get("Counts", (1,) * len(values))),
        datum.get("Unit", "None"),
        datum.get("StorageResolution", 60),
    )
