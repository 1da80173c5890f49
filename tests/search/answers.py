"""Services on loopback that answer in every way that went wrong for somebody, and note what they took."""

import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import grpc
from tests.doubles.cloudwatch import Answer as Refusal
from tests.doubles.cloudwatch import CloudwatchDouble, Datum, _Handler
from tests.doubles.monitoring.answers import Answer
from tests.doubles.raw import http

RUBBISH = (b"<!DOCTYPE html><title>S\xe9curit\xe9</title>", b"OK", b"\x00\x01\x02", b"{", b"[1,", b"\xff\xfe{\x00}\x00")
STATUSES = (200, 400, 403, 404, 407, 429, 500, 502, 503, 504)
Dice = random.Random


def told(status: int, code: str, *headers: str) -> bytes:
    """Return an error as the service words it."""
    body = f'{{"__type":"com.amazonaws.cloudwatch#{code}","message":"{code}"}}'.encode()
    return http(
        status, body, "Content-Type: application/x-amz-json-1.0", f"x-amzn-query-error: {code};Sender", *headers
    )


def odd(body: bytes) -> Callable[[Dice], bytes]:
    """Return an answer with this body under any status."""
    return lambda dice: http(dice.choice(STATUSES), body, "Content-Type: application/x-amz-json-1.0")


def _lying(dice: Dice) -> bytes:
    return http(dice.choice(STATUSES), b"{}", length=dice.choice([1, 3, 9999, -1, "many", "2, 3", "", 10**30]))


ID = "x-amzn-RequestId: 1"
HTML = "<!DOCTYPE html>\n<html><title>Indisponibilit\xe9</title></html>"
KINDS: dict[str, Callable[[Dice], bytes]] = {
    "good": lambda _: http(200, b"{}", "Content-Type: application/x-amz-json-1.0", ID),
    "4xx": lambda d: told(403, d.choice(["AccessDenied", "InvalidClientTokenId", "SignatureDoesNotMatch", "Odd"])),
    "5xx": lambda d: told(d.choice([500, 502, 503, 504]), d.choice(["InternalServiceError", "Unknown", ""])),
    "throttle": lambda d: told(d.choice([400, 429]), "Throttling", f"Retry-After: {d.choice(['-1', 'soon', 'nan'])}"),
    "latin-1": lambda d: http(d.choice((407, 502, 503)), HTML.encode("latin-1"), "Content-Type: text/html"),
    "utf-16": lambda d: http(d.choice((407, 502, 503)), HTML.encode("utf-16"), "Content-Type: text/html"),
    "list": odd(b"[]"),
    "text": odd(b'"text"'),
    "null": odd(b"null"),
    "number": odd(b"17"),
    "type": odd(b'{"__type":5}'),
    "deep": odd(b'{"a":' * 50_000 + b"1" + b"}" * 50_000),
    "rubbish": lambda d: http(200, d.choice(RUBBISH)),
    "gzip": lambda d: http(d.choice(STATUSES), b"\x1f\x8b no gzip", "Content-Encoding: gzip"),
    "length": _lying,
    "no http": lambda d: d.choice([b"SSH-2.0-Odd\r\n", b"\x15\x03\x01\x00\x02\x02\x46", b"HTTP/9.9 hello\r\n\r\n"]),
    "cut": lambda _: b"",
    "half": lambda d: http(d.choice([200, 503]), b'{"a":1}')[: d.randrange(1, 50)],
    "slow": lambda d: http(d.choice([200, 503]), b"{}", ID),
    "reset": lambda _: b"",
    "silence": lambda _: b"",
}
"""Twenty ways to fail, and a good answer."""
BAD = [name for name in KINDS if name != "good"]


class StormyCloudwatch(CloudwatchDouble):
    """Answers well with a chance of `well`, else in one of the ways that go wrong, of which it hears a quarter."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self.dice, self.well = dice, 1.0
        self._next: list[str] = []
        self.on_taken: Callable[[], object] = lambda: None
        """Called when the datums of a request are taken, before it is answered."""
        self.taken: list[tuple[Datum, ...]] = []
        """The datums of each request whose datums were taken, whatever was answered."""
        self.refused: list[Refusal] = []
        """Faults of whole requests."""
        self.asked: dict[str, int] = {}
        self._server.RequestHandlerClass = _StormyHandler

    def choose(self) -> tuple[str, bytes, bool]:
        """Return the kind of the next answer, its bytes, and whether the datums are taken."""
        with self.lock:
            self._next = self._next or self.dice.sample(BAD, len(BAD))  # each comes equally often
            name = "good" if self.dice.random() < self.well else self._next.pop()
            self.asked[name] = self.asked.get(name, 0) + 1
            answer = KINDS[name](self.dice)
            # A slow answer of success, and only that, says the truth beside the good one.
            good = name == "good" or (name == "slow" and b" 200 " in answer)
            return name, answer, good or self.dice.random() < 0.25


class _StormyHandler(_Handler):
    def do_POST(self) -> None:  # noqa: N802  # http.server's name
        double: StormyCloudwatch = self.server.double
        headers = {name.lower(): value for name, value in self.headers.items()}
        length = int(headers.get("content-length", 0))
        raw = self.rfile.read(length)
        if len(raw) < length:  # it was killed
            self.close_connection = True
            return
        name, answer, takes = double.choose()
        if takes:
            verdict = double.judge(self.path, headers, raw)
            if isinstance(verdict, Refusal):
                double.refused.append(verdict)
                self._refuse(verdict)
                return
            with double.lock:
                double.taken.append(verdict)
            double.on_taken()
        self.close_connection = name != "good"
        with suppress(OSError):
            if name == "reset":
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif name == "silence":
                double.closing.wait(3.0)
            elif name == "slow":
                for at in range(0, len(answer), 4):
                    self.connection.sendall(answer[at : at + 4])
                    double.closing.wait(0.02)
            else:
                self.connection.sendall(answer)


# -- Cloud Monitoring ---------------------------------------------------------------------------------------------------

NEVER_STORED = ("NOT_FOUND", "ALREADY_EXISTS", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "DATA_LOSS")
NEVER_STORED += ("UNAUTHENTICATED",)
PERHAPS_STORED = ("CANCELLED", "UNKNOWN", "DEADLINE_EXCEEDED", "ABORTED", "INTERNAL", "UNAVAILABLE")


def statuses(dice: Dice, well: Callable[[], float]) -> Callable[[], Answer | None]:
    """Return the weather of a Cloud Monitoring that answers well with a chance of `well`, else by any status."""

    def weather() -> Answer | None:
        if dice.random() < well():
            return None
        name = dice.choice((*NEVER_STORED, *PERHAPS_STORED, "late"))
        if name == "late":
            return Answer(None, delay=0.7)
        stored = name in PERHAPS_STORED and dice.random() < 0.5
        return Answer(grpc.StatusCode[name], dice.choice(["", "Odd.", "\x00\u2028" * 100]), stored=stored)

    return weather


FRAMES = {
    "http/1.1": http(503, HTML.encode("latin-1")),
    "goaway": b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x08\x07\0\0\0\0\0" + b"\0\0\0\0\0\0\0\x0b",
    "settings": b"\0\0\x06\x04\0\0\0\0\0" + b"\0\x04\xff\xff\xff\xff",
    "huge frame": b"\xff\xff\xff\x00\0\0\0\0\x01",
    "garbage": b"\x8f\x00\xff" * 40,
}


class Gate:
    """Stands before a service of gRPC; a connection passes with a chance of `well`, else it goes wrong somehow."""

    def __init__(self, port: int, dice: Dice) -> None:
        self._port, self._dice, self.well = port, dice, 1.0
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        """Stop to listen."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            well = self._dice.random() < self.well
            manner = "pass" if well else self._dice.choice(["reset", "mute", "cut", "garble", "slow", *FRAMES])
            threading.Thread(target=self._meet, args=(near, manner, self._dice.randrange(400)), daemon=True).start()

    def _meet(self, near: socket.socket, manner: str, most: int) -> None:
        with near, suppress(OSError):
            if manner == "reset":
                near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            elif manner == "mute":
                time.sleep(0.5)
            elif manner in FRAMES:
                near.recv(1 << 12)
                near.sendall(FRAMES[manner])
            else:
                self._pass(near, manner, most)

    def _pass(self, near: socket.socket, manner: str, most: int) -> None:
        with socket.create_connection(("127.0.0.1", self._port)) as far:
            threading.Thread(target=_pump, args=(near, far), daemon=True).start()
            sent = 0
            while data := far.recv(1 << 16):
                if manner in {"cut", "garble"} and self.well < 1 and sent + len(data) > most:
                    near.sendall(data[: most - sent] + (b"\xa5" * 30 if manner == "garble" else b""))
                    break
                if manner == "slow":
                    time.sleep(0.05)
                near.sendall(data)
                sent += len(data)
            for end in (near, far):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def _pump(near: socket.socket, far: socket.socket) -> None:
    with suppress(OSError):
        while data := near.recv(1 << 16):
            far.sendall(data)
        far.shutdown(socket.SHUT_RDWR)
