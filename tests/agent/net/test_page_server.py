"""The server of pages, spoken to over real sockets."""

import contextlib
import http.client
import socket
import struct
import threading
import time

import pytest

from chipwatch.net.page_server import MAX_HEAD, PageServer, Response

LONG = 60.0


def hello(request):
    return Response(200, f"{request.method} {request.path} {request.headers.get('x', '-')}\n".encode())


@pytest.fixture
def serve(at_the_end):
    def make(answer=hello, **options):
        return at_the_end.enter_context(contextlib.closing(PageServer(("127.0.0.1", 0), answer, **options))).port

    return make


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=LONG)


def rest(sock):
    """Return what comes until the far side ends the connection."""
    data = b""
    while True:
        try:
            part = sock.recv(65536)
        except ConnectionResetError:
            part = b""
        if not part:
            return data
        data += part


def asked(port, request):
    with connect(port) as sock:
        sock.sendall(request)
        return rest(sock)


def test_a_get_is_answered_and_a_head_without_the_body(serve):
    connection = http.client.HTTPConnection("127.0.0.1", serve(), timeout=LONG)
    connection.request("GET", "/a?b=c", headers={"X": "1"})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"GET /a 1\n")
    connection.request("HEAD", "/a")  # over the same connection
    answer = connection.getresponse()
    assert (answer.status, answer.headers["Content-Length"], answer.read()) == (200, "10", b"")
    connection.close()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_another_method_is_not_allowed(serve, method):
    answer = asked(serve(), f"{method} / HTTP/1.1\r\nContent-Length: 2\r\n\r\nab".encode())
    assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert b"\r\nAllow: GET, HEAD\r\n" in answer


def test_requests_that_come_at_once_are_answered_in_turn(serve):
    answer = asked(serve(), b"GET /1 HTTP/1.1\r\n\r\n\r\nGET /2 HTTP/1.0\r\n\r\n")
    assert answer.index(b"GET /1 -\n") < answer.index(b"GET /2 -\n")


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"rubbish\r\n\r\n", 400),
        (b"GET / HTTP/2\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n x: folded\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * MAX_HEAD + b"\r\n\r\n", 431),
        (b"GET / HTTP/1.1\r\nx: " + b"a" * MAX_HEAD, 431),
    ],
)
def test_a_malformed_request_ends_its_connection_with_a_reason(serve, request_, status):
    assert asked(serve(), request_).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_request_that_is_too_slow_ends_and_others_are_answered_meanwhile(serve):
    port = serve(seconds=0.5)
    with connect(port) as slow:
        begun = time.monotonic()
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert asked(port, b"GET /other HTTP/1.0\r\n\r\n").endswith(b"GET /other -\n")
        ended = threading.Event()
        threading.Thread(target=lambda: (rest(slow), ended.set()), daemon=True).start()
        while not ended.wait(0.05):  # a byte now and then does not prolong it
            assert time.monotonic() - begun < LONG
            try:
                slow.sendall(b"x")
            except OSError:
                break
        assert ended.wait(LONG)


def test_an_answer_that_nobody_takes_ends(serve):
    port = serve(lambda _: Response(200, bytes(50_000_000)), seconds=0.5)
    with connect(port) as lazy:
        lazy.sendall(b"GET / HTTP/1.1\r\n\r\n")
        time.sleep(1)  # the server's time passes while nothing is read
        assert len(rest(lazy)) < 50_000_000


def test_an_idle_connection_outlives_the_time_of_a_request(serve):
    port = serve(seconds=0.2)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=LONG)
    connection.request("GET", "/1")
    connection.getresponse().read()
    sock = connection.sock
    time.sleep(0.5)
    connection.request("GET", "/2")
    assert connection.getresponse().read() == b"GET /2 -\n"
    assert connection.sock is sock
    connection.close()


def test_a_connection_too_many_ends_the_one_that_has_waited_longest(serve):
    port = serve(connections=4)
    waiting = [connect(port) for _ in range(4)]
    assert asked(port, b"GET /new HTTP/1.0\r\n\r\n").endswith(b"GET /new -\n")
    assert rest(waiting[0]) == b""
    waiting[3].sendall(b"GET /old HTTP/1.0\r\n\r\n")
    assert rest(waiting[3]).endswith(b"GET /old -\n")
    for sock in waiting:
        sock.close()


@pytest.mark.parametrize("flood", [b"HEAD / HTTP/1.1\r\n\r\n", b"\r\n"])
def test_a_client_that_never_stops_sending_keeps_nobody_waiting(serve, flood):
    port = serve()
    with connect(port) as busy, contextlib.ExitStack() as threads:
        for goes_on in (lambda: busy.sendall(flood * 5000) is None, lambda: busy.recv(65536)):
            thread = threading.Thread(target=repeat, args=(goes_on,))
            thread.start()
            threads.callback(thread.join)
        for _ in range(20):
            assert asked(port, b"GET /other HTTP/1.0\r\n\r\n").endswith(b"GET /other -\n")
        with contextlib.suppress(OSError):
            busy.shutdown(socket.SHUT_RDWR)


def test_answers_that_take_long_let_others_pass_and_all_are_given(serve):
    gate, begun = threading.Semaphore(0), threading.Semaphore(0)

    def slow():
        begun.release()
        gate.acquire()
        return Response(200, b"slow\n")

    port = serve(lambda request: slow if request.path == "/slow" else hello(request))
    with contextlib.ExitStack() as opened:
        waiting = [opened.enter_context(connect(port)) for _ in range(5)]
        for sock in waiting:
            sock.sendall(b"GET /slow HTTP/1.0\r\n\r\n")
        for _ in waiting:
            begun.acquire()
            with connect(port) as other:  # comes while a slow answer is made, and before the next one
                other.sendall(b"GET /other HTTP/1.0\r\n\r\n")
                gate.release()
                assert rest(other).endswith(b"GET /other -\n")
        assert [rest(sock)[-5:] for sock in waiting] == [b"slow\n"] * 5


def test_a_slow_answer_that_nobody_waits_for_any_more_harms_nobody(serve):
    port = serve(lambda request: (lambda: Response(200, b"slow\n")) if request.path == "/slow" else hello(request))
    for _ in range(20):
        with connect(port) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            gone.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
    assert asked(port, b"HEAD /slow HTTP/1.0\r\n\r\n").endswith(b"\r\n\r\n")
    assert asked(port, b"GET http://h:1/metrics?x=://y HTTP/1.0\r\n\r\n").endswith(b"GET /metrics -\n")


def repeat(goes_on):
    with contextlib.suppress(OSError):
        while goes_on():
            pass


def test_nothing_is_answered_after_the_last_request_of_a_connection(serve):
    last, more = b"GET /a HTTP/1.1\r\nConnection: close\r\n\r\n", b"GET /b HTTP/1.1\r\n\r\n"
    assert asked(serve(), last + more).count(b"HTTP/1.1") == 1


def test_after_the_close_nobody_listens_and_connections_are_ended():
    server = PageServer(("127.0.0.1", 0), hello)
    with connect(server.port) as sock:
        server.close()
        server.close()
        assert rest(sock) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(server.port)


def test_a_close_sends_the_rest_of_an_answer(monkeypatch):
    monkeypatch.setattr("chipwatch.net.page_server.CHUNK", 1)
    server = PageServer(("127.0.0.1", 0), lambda _: Response(200, bytes(10_000)))
    with connect(server.port) as sock:
        sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        begun = sock.recv(1)
        server.close()
        assert (begun + rest(sock)).endswith(b"\r\n\r\n" + bytes(10_000))


@pytest.mark.parametrize("is_slow", [False, True])
def test_a_bug_in_an_answer_ends_its_connection_is_logged_once_and_harms_nobody(serve, caplog, is_slow):
    def broken():
        raise OverflowError("too large")

    port = serve(lambda request: hello(request) if request.path == "/a" else broken if is_slow else broken())
    for _ in range(3):
        assert b" 500 " in asked(port, b"GET /b HTTP/1.1\r\n\r\n")
    assert asked(port, b"GET /a HTTP/1.0\r\n\r\n").endswith(b"GET /a -\n")
    (error,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert error.getMessage() == f"port {port}: cannot answer: too large"


@pytest.mark.parametrize("length", ["-1", "+5", "x", "", "5, 5", "\xb2", "9" * 5000, "5\r\nContent-Length: 6"])
def test_a_malformed_length_is_refused_and_what_follows_is_not_answered(serve, length):
    head = f"POST /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n".encode("latin-1")
    answer = asked(serve(), head + b"GET /b HTTP/1.1\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1") == 1


def test_ipv6_is_served():
    try:
        server = PageServer(("::1", 0), hello)
    except OSError:
        pytest.skip("no IPv6 here")
    with socket.create_connection(("::1", server.port), timeout=LONG) as sock:
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert rest(sock).endswith(b"GET / -\n")
    server.close()
