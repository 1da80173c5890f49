"""
A strict Cloud Monitoring on loopback: takes what the service takes, refuses what it refuses, in its words.

Where the service's documents are silent it is strict. Faults are scripted: see `answer_next`, `weather`. By hand:

    python -m tests.doubles.monitoring --port 8126 --seconds 600
"""

import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from tests.doubles.monitoring.answers import Answer, code_of
from tests.doubles.monitoring.store import WRITE, Store

SERVICE = "google.monitoring.v3.MetricService"


class Request(NamedTuple):
    """A request and its end: `code` is a status, `stored` the number of points taken."""

    at: float
    project: str
    series: tuple[Any, ...]
    metadata: dict[str, str]
    wire_bytes: int
    code: grpc.StatusCode
    message: str
    stored: int


class _Call(NamedTuple):
    request: Any
    wire_bytes: int
    context: Any


class MonitoringDouble(Store):
    """The server, which takes writes alone; a context manager. All attributes may be read and set at any moment."""

    def __init__(self, *, port: int = 0, listen: bool = True) -> None:
        """Take a port of 127.0.0.1, and listen: else connections are refused until `start` is called."""
        super().__init__()
        self.requests: deque[Request] = deque(maxlen=1_000)
        """The last requests."""
        self.answered: Counter[str] = Counter()
        """Number of writes by status."""
        self.weather: Callable[[], Answer | None] = lambda: None
        """Asked for an answer with each write that has none scripted."""
        self._script: deque[Answer] = deque()
        self._ending = threading.Event()
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._place = socket.socket()
        self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._place.bind(("127.0.0.1", port))
        self.port: int = self._place.getsockname()[1]
        if sys.platform != "linux":  # there a bound socket that never listens keeps the port for us while we are down
            self._place.close()
        self.target = f"127.0.0.1:{self.port}"
        if listen:
            self.start()

    def start(self) -> None:
        """Listen; after `stop`, on the same port, with all that was stored."""
        if self._server:
            return
        create = grpc.unary_unary_rpc_method_handler(self._create, None, lambda reply: reply.SerializeToString())
        self._ending.clear()
        self._pool = ThreadPoolExecutor(8, "monitoring-double")
        server = grpc.server(self._pool, options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"CreateTimeSeries": create}),))
        server.add_insecure_port(self.target)
        server.start()
        self._server = server

    def stop(self) -> None:
        """Break connections and refuse new ones; what was stored stays."""
        self._ending.set()
        if self._server and self._pool:
            self._server.stop(0).wait(10)
            self._pool.shutdown()
            self._server = self._pool = None

    def close(self) -> None:
        """Stop for good."""
        self.stop()
        self._place.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- what tests script ------------------------------------------------------------------------------------------

    def answer_next(
        self, code: Answer | grpc.StatusCode | int | str | None, message: str = "", n: int = 1, **more: Any
    ) -> None:
        """Answer so to the next `n` writes; `more` is `stored`, `delay`, `details`: see Answer."""
        answer = code if isinstance(code, Answer) else Answer(None if code is None else code_of(code))
        with self.lock:
            self._script.extend([answer._replace(message=message or answer.message, **more)] * n)

    def writes(self) -> list[Request]:
        """Return the requests that wrote, or tried to."""
        with self.lock:
            return [*self.requests]

    # -- what clients call ------------------------------------------------------------------------------------------

    def _create(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        with self.lock:
            answer = self._script.popleft() if self._script else self.weather()
        try:
            call = _Call(WRITE.FromString(raw), len(raw), context)
        except DecodeError:  # our words
            text = "Request contains an invalid argument: not a message, or a string in it is not UTF-8."
            call = _Call(WRITE(), len(raw), context)
            return self._end(call, Answer(grpc.StatusCode.INVALID_ARGUMENT, text))
        if answer and not answer.stored:
            if not self._pause(context, answer.delay):
                return self._end(call, Answer(grpc.StatusCode.CANCELLED))
            if answer.code:
                return self._end(call, answer)
        deserved, stored = self.write(call.request)
        told = answer if answer and answer.code else deserved
        return self._end(call, told, stored, answer.delay if answer and answer.stored else 0.0)

    def _end(self, call: _Call, answer: Answer, stored: int = 0, delay: float = 0.0) -> Message:
        assert answer.code
        metadata = {name: value for name, value in call.context.invocation_metadata() if isinstance(value, str)}
        project, series = call.request.name.partition("/")[2], tuple(call.request.time_series)
        end = (call.wire_bytes, answer.code, answer.message, stored)
        with self.lock:
            self.answered[answer.code.name] += 1
            self.requests.append(Request(time.monotonic(), project, series, metadata, *end))
        self._pause(call.context, delay)
        if answer.code is not grpc.StatusCode.OK:
            call.context.abort_with_status(answer.status())
        return Empty()

    def _pause(self, context: grpc.ServicerContext, seconds: float) -> bool:
        """Wait; tell whether the client is still there, and the server."""
        until = time.monotonic() + seconds
        while context.is_active() and (left := until - time.monotonic()) > 0 and not self._ending.is_set():
            self._ending.wait(min(left, 0.02))
        return bool(context.is_active()) and not self._ending.is_set()
