"""
The far side of all programs: a port for each, which takes everything and counts it.

`python -m tests.peers.receiver NAME=KIND[=CERTIFICATE=KEY] ...` prints the addresses as JSON, then, for each line on its input, the bytes so far.
"""

import json
import ssl
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.doubles.mlflow import MlflowDouble
from tests.doubles.web import give

XML = b'<PutMetricDataResponse xmlns="http://monitoring.amazonaws.com/doc/2010-08-01/"/>'
taken: Counter[str] = Counter()
"""Bytes of the bodies of requests, by program."""


class Receiver(BaseHTTPRequestHandler):
    """Answers CloudWatch's three protocols, and OTLP."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def __init__(self, name: str, *words: object) -> None:
        self._name = name
        super().__init__(*words)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length")
        taken[self._name] += len(self.rfile.read(int(length)) if length else self._chunks())
        kind = self.headers.get("Content-Type", "")
        answer = b"\xa0" if "cbor" in kind else b"{}" if "json" in kind else b"" if "protobuf" in kind else XML
        more = {"smithy_protocol": "rpc-v2-cbor"} if "cbor" in kind else {}
        give(self, 200, answer, Content_Type=kind if answer is not XML else "text/xml", x_amzn_RequestId="0", **more)

    def _chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline().partition(b";")[0] or b"0", 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def http(name: str, *_: str) -> str:
    """Serve what posts; return the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Receiver, name))
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


def mlflow(name: str, *pair: str) -> str:
    """Serve a tracking server with one run, r1; return the address."""
    context = None
    if pair:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*pair)
    double = MlflowDouble(context, keeps=False)
    double.add("r1")

    answer = double.handle

    def count(request: BaseHTTPRequestHandler) -> None:
        taken[name] += int(request.headers.get("Content-Length") or 0)
        answer(request)

    double.handle = count
    return double.url


def grpc(name: str, *pair: str) -> str:
    """Serve CreateTimeSeries; return the address."""
    import grpc

    def take(raw: bytes, context: object) -> bytes:
        taken[name] += len(raw)
        return b""

    server = grpc.server(ThreadPoolExecutor(2))
    calls = {"CreateTimeSeries": grpc.unary_unary_rpc_method_handler(take)}
    handler = grpc.method_handlers_generic_handler("google.monitoring.v3.MetricService", calls)
    server.add_generic_rpc_handlers((handler,))
    if pair:
        certificate, key = (Path(word).read_bytes() for word in pair)
        port = server.add_secure_port("127.0.0.1:0", grpc.ssl_server_credentials(((key, certificate),)))
    else:
        port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    kept.append(server)
    return f"127.0.0.1:{port}"


kept: list[object] = []
"""Servers that end when they are collected."""
KINDS: dict[str, Callable[..., str]] = {"http": http, "mlflow": mlflow, "grpc": grpc}


def main(words: list[str]) -> None:
    """Serve until the input ends."""
    wanted = (word.split("=") for word in words)
    sys.stdout.write(json.dumps({name: KINDS[kind](name, *pair) for name, kind, *pair in wanted}) + "\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps(taken) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
