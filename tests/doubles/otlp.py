"""
A strict receiver of OTLP over HTTP on loopback: parses each request with opentelemetry-proto, and answers by the rules.

Faults are scripted: `will`. By hand:

    python -m tests.doubles.otlp --port 4318 --seconds 600
"""

import argparse
import socket
import ssl
import struct
import sys
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from google.protobuf import json_format
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)

MAX_BODY = 64 << 20
PROTOBUF, JSON = "application/x-protobuf", "application/json"
RESET, LOST, HANG, HALF = "reset", "lost", "hang", "half"
"""Reset the connection unheard; take the points and close without an answer; never answer; half of a 200's body."""


class Reply(NamedTuple):
    """An answer that is not a plain success."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    kind: str = PROTOBUF


def partial(rejected: int, words: str, kind: str = PROTOBUF) -> Reply:
    """Return the answer that rejects so many points."""
    made = ExportMetricsServiceResponse()
    made.partial_success.rejected_data_points, made.partial_success.error_message = rejected, words
    body = made.SerializeToString() if kind == PROTOBUF else json_format.MessageToJson(made).encode()
    return Reply(200, body, kind=kind)


def status(code: int, words: str, *headers: tuple[str, str]) -> Reply:
    """Return an error whose body is a google.rpc.Status with this message."""
    text = words.encode()
    return Reply(code, b"\x08\x03" + (b"\x12" + _varint(len(text)) + text if text else b""), headers)


def _varint(number: int) -> bytes:
    return bytes([number & 127 | 128]) + _varint(number >> 7) if number > 127 else bytes([number])


class Point(NamedTuple):
    """A stored point."""

    resource: tuple[tuple[str, str], ...]
    name: str
    unit: str
    kind: str
    attributes: tuple[tuple[str, str], ...]
    start: int
    at: int
    value: Any
    """None: no recorded value."""


class Request(NamedTuple):
    """A request and its end: a status, or the name of a fault of the wire."""

    end: int | str
    path: str
    headers: dict[str, str]
    raw: bytes
    body: bytes
    points: tuple[Point, ...]


class Wrong(Exception):
    """The request breaks a rule of OTLP."""


class OtlpDouble:
    """The server; a context manager."""

    def __init__(self, *, port: int = 0, listen: bool = True, limit: int = 1_000_000, token: str = "") -> None:
        """Take `limit` points a request; require `token` as Authorization if there is one."""
        self.requests: list[Request] = []
        self.weather: Callable[[], Reply | str | None] = lambda: None
        """Asked for a fault with each request that has none scripted by `will`."""
        self.limit, self.token = limit, token
        self.connections = 0
        self._script: deque[Reply | str] = deque()
        self._lock, self._closing = threading.Lock(), threading.Event()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", port))
        self._context: ssl.SSLContext | None = None
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        if listen:
            self.listen()

    def listen(self) -> None:
        """Begin to answer; before that connections are refused."""
        self._socket.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def encrypt(self, certificate: Path, key: Path, ca: Path | None = None) -> str:
        """Speak TLS from now on, with a certificate of the client if `ca` is given; return the address."""
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        if ca:
            self._context.load_verify_locations(ca)
            self._context.verify_mode = ssl.CERT_REQUIRED
        self.url = self.url.replace("http:", "https:")
        return self.url

    def will(self, *faults: Reply | str) -> None:
        """Meet the next requests with these faults, one each."""
        self._script.extend(faults)

    @property
    def points(self) -> list[Point]:
        """Stored points, in order."""
        return [point for request in self.requests if request.end in (200, LOST, HALF) for point in request.points]

    def close(self) -> None:
        """Stop."""
        self._closing.set()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._socket.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._context:
                sock = self._context.wrap_socket(sock, server_side=True)
            with sock, sock.makefile("rb") as stream:
                while not self._closing.is_set() and self._one(sock, stream):
                    pass
        except (OSError, ValueError):
            sock.close()

    def _one(self, sock: socket.socket, stream: Any) -> bool:
        """Answer one request; return whether the connection stays."""
        line = stream.readline(65536).decode("latin-1").split()
        if len(line) != 3:
            return False
        headers = {}
        while head := stream.readline(65536).strip():
            name, _, value = head.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip()
        raw = stream.read(int(headers.get("content-length", "0")))
        with self._lock:
            fault = self._script.popleft() if self._script else self.weather()
        return self._end(sock, fault, (line, headers, raw))

    def _end(
        self, sock: socket.socket, fault: Reply | str | None, asked: tuple[list[str], dict[str, str], bytes]
    ) -> bool:
        """Answer a request, or meet it with a fault; return whether the connection stays."""
        line, headers, raw = asked
        if fault in (RESET, HANG):
            return self._break(sock, fault, asked)
        if isinstance(fault, Reply) and fault.status != 200:
            self._note(fault.status, asked)
            return self._answer(sock, fault)
        try:
            body, points = self._judge(line, headers, raw)
        except Wrong as problem:
            self._note(400, asked)
            return self._answer(sock, status(400, str(problem)))
        end = fault if isinstance(fault, str) else 200
        self._note(end, asked, body, points)
        if fault == LOST:
            return False
        if fault == HALF:
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 40\r\n\r\n\n\x26")
            return False
        kind = headers["content-type"]
        return self._answer(sock, fault or Reply(200, b"{}" if kind == JSON else b"", kind=kind))

    def _break(self, sock: socket.socket, how: Any, asked: Any) -> bool:
        """End the connection without an answer."""
        if how == HANG:
            self._closing.wait(60)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._note(how, asked)
        return False

    def _answer(self, sock: socket.socket, reply: Reply) -> bool:
        lines = [f"HTTP/1.1 {reply.status} Words", f"Content-Length: {len(reply.body)}", f"Content-Type: {reply.kind}"]
        lines += [f"{name}: {value}" for name, value in reply.headers]
        sock.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + reply.body)
        return True

    def _note(self, end: int | str, asked: Any, body: bytes = b"", points: Any = ()) -> None:
        line, headers, raw = asked
        with self._lock:
            self.requests.append(Request(end, line[1], headers, raw, body, tuple(points)))

    def _judge(self, line: list[str], headers: dict[str, str], raw: bytes) -> tuple[bytes, list[Point]]:
        if line[0] != "POST" or line[2] != "HTTP/1.1" or not line[1].partition("?")[0].endswith("/v1/metrics"):
            raise Wrong(f"not POST /v1/metrics: {line}")
        if self.token and headers.get("authorization") != self.token:
            raise Wrong("no token")
        if headers.get("content-type") not in (PROTOBUF, JSON):
            raise Wrong("content type")
        encoding = headers.get("content-encoding")
        if encoding not in (None, "gzip"):
            raise Wrong("content encoding")
        try:
            body = zlib.decompress(raw, wbits=31) if encoding else raw
            points = [*read(body, headers["content-type"])]
        except Exception as problem:
            raise Wrong(f"cannot be parsed: {problem}") from problem
        if len(body) > MAX_BODY or len(points) > self.limit:
            raise Wrong("too much")
        return body, points


def parse(body: bytes, kind: str = PROTOBUF) -> ExportMetricsServiceRequest:
    """Return the request, by opentelemetry-proto; unknown fields are an error."""
    if kind == JSON:
        return json_format.Parse(body, ExportMetricsServiceRequest())
    made = ExportMetricsServiceRequest.FromString(body)
    again = ExportMetricsServiceRequest()
    json_format.ParseDict(json_format.MessageToDict(made), again)  # keeps no field that it does not know
    if again != made:
        raise Wrong("a field that is not known")
    return made


def read(body: bytes, kind: str = PROTOBUF) -> Iterator[Point]:
    """Yield the points of a request; raise Wrong where it breaks a rule."""
    for of in parse(body, kind).resource_metrics:
        resource = _pairs(of.resource.attributes)
        if not dict(resource).get("service.instance.id") or not dict(resource).get("service.name"):
            raise Wrong("a resource without service.instance.id or service.name")
        for scope in of.scope_metrics:
            for metric in scope.metrics:
                data = metric.WhichOneof("data")
                points = getattr(metric, data).data_points
                if not (metric.name and points):
                    raise Wrong("an empty envelope")
                for point in points:
                    yield Point(
                        resource, metric.name, metric.unit, _kind(metric, data), _pairs(point.attributes),
                        point.start_time_unix_nano, point.time_unix_nano, _value(point, data),
                    )  # fmt: skip


def _kind(metric: Any, data: str) -> str:
    if data == "gauge":
        return data
    way = {1: "delta", 2: "cumulative"}[getattr(metric, data).aggregation_temporality]
    if data == "sum" and not metric.sum.is_monotonic:
        raise Wrong("a sum that is not monotonic")
    return f"{data} {way}"


def _value(point: Any, data: str) -> Any:
    if not point.time_unix_nano:
        raise Wrong("a point without a time")
    if point.flags & 1:
        if data != "exponential_histogram" and point.WhichOneof("value"):
            raise Wrong("a value where none was recorded")
        return None
    if data != "exponential_histogram":
        if (kind := point.WhichOneof("value")) is None:
            raise Wrong("no value")
        return getattr(point, kind)
    if sum(point.positive.bucket_counts) + sum(point.negative.bucket_counts) + point.zero_count != point.count:
        raise Wrong("counts of buckets that are not the count")
    if point.HasField("sum") == (point.min < 0):
        raise Wrong("the sum of negative values, or none of others")
    return point.count, point.sum, point.min, point.max


def _pairs(attributes: Any) -> tuple[tuple[str, str], ...]:
    keys = [pair.key for pair in attributes]
    if len({*keys}) < len(keys) or not all(pair.value.WhichOneof("value") == "string_value" for pair in attributes):
        raise Wrong("an attribute twice, or of another type than text")
    return tuple((pair.key, pair.value.string_value) for pair in attributes)


def main() -> None:
    """Serve for a while, then say what came."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--port", type=int, default=4318)
    options.add_argument("--seconds", type=float, default=600.0, help="how long to serve (600)")
    options.add_argument("--tls", type=Path, nargs=2, metavar=("CERTIFICATE", "KEY"), help="speak TLS")
    asked = options.parse_args()
    with OtlpDouble(port=asked.port) as double:
        if asked.tls:
            double.encrypt(*asked.tls)
        sys.stdout.write(f"{double.url}\n")
        sys.stdout.flush()
        with suppress(KeyboardInterrupt):
            time.sleep(asked.seconds)
        sys.stdout.write(f"{len(double.requests)} requests, {len(double.points)} points\n")
        for (name, kind), count in sorted(Counter((point.name, point.kind) for point in double.points).items()):
            sys.stdout.write(f"{count:8} {kind:22} {name}\n")


if __name__ == "__main__":
    main()
