"""
A strict Cloud Monitoring on loopback: takes what the service takes, refuses what it refuses, in its words.

Where the service's documents are silent it is strict. Faults are scripted: see `answer_next`, `fail_points`, `weather`. By
hand, or in a process that can be killed (`Child`):

    python -m tests.doubles.monitoring --port 8126 --seconds 600
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

import grpc
from google.cloud.monitoring_v3 import MetricServiceClient, types
from google.cloud.monitoring_v3.services.metric_service.transports import MetricServiceGrpcTransport
from google.protobuf.empty_pb2 import Empty
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status
from tests.doubles.monitoring.answers import (
    AWAY,
    BROKEN,
    DENIED,
    DISABLED,
    EXHAUSTED,
    LATE,
    LOST,
    NO_PROJECT,
    SCOPES,
    UNKNOWN_CALLER,
    Answer,
    code_of,
)
from tests.doubles.monitoring.child import Child
from tests.doubles.monitoring.rules import Key, Point
from tests.doubles.monitoring.store import SUMMARY, WRITE, Store
from tests.doubles.monitoring.words import Fault

__all__ = [
    "AWAY",
    "BROKEN",
    "DENIED",
    "DISABLED",
    "EXHAUSTED",
    "LATE",
    "LOST",
    "NO_PROJECT",
    "SCOPES",
    "UNKNOWN_CALLER",
    "Answer",
    "Child",
    "Key",
    "MonitoringDouble",
    "Point",
    "Request",
    "client_of",
    "summary_of",
]

SERVICE = "google.monitoring.v3.MetricService"


class Request(NamedTuple):
    """A request and its end: `code` is a status, `stored` the number of points taken."""

    at: float
    method: str
    project: str
    series: tuple[Any, ...]
    metadata: dict[str, str]
    wire_bytes: int
    code: grpc.StatusCode
    message: str
    stored: int


class _Call(NamedTuple):
    method: str
    request: Any
    wire_bytes: int
    context: Any


class MonitoringDouble(Store):
    """The server; a context manager. All attributes, the store's too, may be read and set at any moment."""

    def __init__(
        self, *, port: int = 0, listen: bool = True, min_gap: float = 10.0, journal: Path | None = None
    ) -> None:
        """Take a port of 127.0.0.1, and listen: else connections are refused until `start` is called."""
        super().__init__(journal, min_gap)
        self.requests: deque[Request] = deque(maxlen=1_000)
        """The last requests: CreateTimeSeries and the few calls that read."""
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
        calls = {
            "CreateTimeSeries": self._create,
            "ListTimeSeries": self._reader("ListTimeSeries", self.list_series),
            "ListMetricDescriptors": self._reader("ListMetricDescriptors", self.list_metrics),
            "GetMonitoredResourceDescriptor": self._reader("GetMonitoredResourceDescriptor", self.describe_resource),
        }
        handlers = {
            name: grpc.unary_unary_rpc_method_handler(call, None, lambda reply: reply.SerializeToString())
            for name, call in calls.items()
        }
        self._ending.clear()
        self._pool = ThreadPoolExecutor(8, "monitoring-double")
        server = grpc.server(self._pool, options=(("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)))
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
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

    def fail_points(self, ending: str, code: grpc.StatusCode | int | str, message: str = "", n: int = 1) -> None:
        """Fail the next `n` good points of metrics whose type ends so, each for itself, as the store does."""
        self.fail_next(ending, Fault(message or BROKEN.message, code_of(code).value[0], late=True), n)

    def writes(self) -> list[Request]:
        """Return the requests that wrote, or tried to."""
        with self.lock:
            return [request for request in self.requests if request.method == "CreateTimeSeries"]

    # -- what clients call ------------------------------------------------------------------------------------------

    def _create(self, raw: bytes, context: grpc.ServicerContext) -> Message:
        with self.lock:
            answer = self._script.popleft() if self._script else self.weather()
        try:
            call = _Call("CreateTimeSeries", WRITE.FromString(raw), len(raw), context)
        except DecodeError:  # our words
            text = "Request contains an invalid argument: not a message, or a string in it is not UTF-8."
            call = _Call("CreateTimeSeries", WRITE(), len(raw), context)
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
        with self.lock:
            self.answered[answer.code.name] += 1
            self._note(call, answer, stored)
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

    def _note(self, call: _Call, answer: Answer, stored: int = 0) -> None:
        metadata = {name: value for name, value in call.context.invocation_metadata() if isinstance(value, str)}
        project = call.request.name.partition("/")[2].partition("/")[0]
        series = tuple(getattr(call.request, "time_series", ()))
        assert answer.code
        end = (call.wire_bytes, answer.code, answer.message, stored)
        with self.lock:
            self.requests.append(Request(time.monotonic(), call.method, project, series, metadata, *end))

    def _reader(self, method: str, answer: Callable[[Any], Message]) -> Callable[..., Message]:
        kind = getattr(types, f"{method}Request").pb()

        def read(raw: bytes, context: grpc.ServicerContext) -> Message:
            request = kind.FromString(raw)
            self._note(_Call(method, request, len(raw), context), Answer(grpc.StatusCode.OK))
            return answer(request)

        return read


def client_of(target: str) -> MetricServiceClient:
    """Return Google's own client for a double, quick to reconnect; end it with `client.transport.close()`."""
    quick = [(f"grpc.{which}_reconnect_backoff_ms", 50) for which in ("initial", "min", "max")]
    return MetricServiceClient(transport=MetricServiceGrpcTransport(channel=grpc.insecure_channel(target, quick)))


def summary_of(error: Any) -> Any:
    """Return the CreateTimeSeriesSummary in an error of Google's client or of grpc; None where there is none."""
    status = rpc_status.from_call(error if isinstance(error, grpc.Call) else error.errors[0])
    for detail in status.details if status else ():
        summary = SUMMARY()
        if detail.Unpack(summary):
            return summary
    return None
