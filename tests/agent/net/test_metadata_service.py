import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.load import seconds_since
from tests.ports import free_port

from chipwatch.net.metadata_service import MAX_BYTES, MetadataService, NoMetadata, NoService


def serve(handle):
    """Serve GET with `handle`; return the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            handle(self)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    return server


@pytest.fixture
def answering(at_the_end):
    def start(handle):
        server = at_the_end.enter_context(serve(handle))
        at_the_end.callback(server.shutdown)
        return MetadataService(f"http://127.0.0.1:{server.server_port}/base/", "X")

    return start


def body(data, status=200, **headers):
    def handle(http):
        http.send_response(status)
        for key, value in headers.items():
            http.send_header(key.replace("_", "-"), value)
        http.end_headers()
        http.wfile.write(data)

    return handle


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254",
        "http://169.254.170.2/v4/x",
        "http://127.0.0.1:51679",
        "http://localhost:1338/",
        "http://[::1]:80",
        "http://[fe80::1]",
        "http://[fd00:ec2::254]",
        "http://[fd00:ec2::23]/v1",
    ],
)
def test_loopback_and_link_local_addresses_are_allowed(url):
    MetadataService(url, "X")


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("https://169.254.169.254", "'169.254.169.254'"),
        ("http://10.0.0.1", "'10.0.0.1'"),
        ("http://metadata.google.internal", "'metadata.google.internal'"),
        ("http://169.254.169.254.evil.example", "'169.254.169.254.evil.example'"),
        ("http://169.254.169.254@evil.example/", "'evil.example'"),
        ("http://[2600:1f13::1]", "'2600:1f13::1'"),
        ("http://0x7f000001", "'0x7f000001'"),
        ("file:///etc/passwd", "''"),
        ("169.254.169.254", "''"),
    ],
)
def test_other_addresses_are_refused_and_named(url, named):
    with pytest.raises(NoService) as refused:
        MetadataService(url, "SOME_VARIABLE")
    text = "SOME_VARIABLE: expected http:// and a loopback or link-local address, got host "
    assert str(refused.value) == text + named


@pytest.mark.parametrize("url", ["http://[", "http://127.0.0.1:port", "http://127.0.0.1:99999"])
def test_an_invalid_address_is_refused(url):
    with pytest.raises(NoService, match="X: not a valid URL"):
        MetadataService(url, "X")


@given(st.text())
def test_any_text_is_a_local_address_or_refused(url):
    with suppress(NoService):
        assert MetadataService(url, "X").url.startswith("http://")


def test_messages_do_not_contain_a_password_of_the_address():
    with pytest.raises(NoService) as refused:
        MetadataService("http://user:secret@evil.example", "X")
    assert "secret" not in str(refused.value)
    assert "secret" not in MetadataService("http://user:secret@127.0.0.1", "X").url


def test_the_path_of_the_address_is_a_prefix(answering):
    seen = []

    def handle(http):
        seen.append((http.path, http.headers["X-Key"]))
        body(b"yes")(http)

    assert answering(handle).request("GET", "/task", {"X-Key": "value"})[:2] == (200, b"yes")
    assert seen == [("/base/task", "value")]


def test_redirects_are_not_followed(answering):
    service = answering(body(b"", 302, Location="http://127.0.0.1:1/"))
    assert service.request("GET", "", {})[:2] == (302, b"")


def test_proxies_are_not_used(answering, monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert answering(body(b"direct")).request("GET", "", {})[:2] == (200, b"direct")


def test_a_body_of_the_maximum_size_is_read_and_one_byte_more_is_refused(answering):
    assert answering(body(b"x" * MAX_BYTES)).request("GET", "", {})[1] == b"x" * MAX_BYTES
    with pytest.raises(NoMetadata, match="too large"):
        answering(body(b"x" * (MAX_BYTES + 1))).request("GET", "", {})


def test_a_part_of_a_value_is_refused(answering):
    service = answering(body(b"i-0abc", Content_Length="19"))
    with pytest.raises(NoMetadata, match="gives an answer that is cut off"):
        service.request("GET", "/id", {})


def test_a_closed_port_has_a_message():
    port = free_port()
    with pytest.raises(NoMetadata, match=f"http://127.0.0.1:{port} cannot be reached: Connection refused"):
        MetadataService(f"http://127.0.0.1:{port}", "X").request("GET", "", {})


def test_an_answer_that_is_not_http_is_refused():
    with socket.create_server(("127.0.0.1", 0)) as server:
        service = MetadataService(f"http://127.0.0.1:{server.getsockname()[1]}", "X")

        def talk():
            with server.accept()[0] as connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example ESMTP\r\n")

        talker = threading.Thread(target=talk)
        talker.start()
        with pytest.raises(NoMetadata, match="does not speak HTTP: BadStatusLine"):
            service.request("GET", "", {})
        talker.join()


def test_an_ipv6_address_works(answering):
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    from tests.doubles.imds import Imds

    try:
        double = Imds("::1")
    except OSError:
        pytest.skip("no IPv6 loopback here")
    with double:
        assert MetadataService(double.url, "X").request("GET", "/", {})[:2] == (401, b"")
        assert double.url.startswith("http://[::1]:")


# -- endless answers --------------------------------------------------------------------------------

HEAD = b"HTTP/1.1 200 OK\r\n"
SLOW = {
    "a slow status line": (b"H", b"T"),
    "a slow header": (HEAD, b"x"),
    "a slow body": (HEAD + b"\r\n", b"."),
    "a slow body of known length": (HEAD + b"Content-Length: 1000\r\n\r\n", b"."),
    "slow chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n.\r\n"),
    "slow interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
}
ENDLESS = {
    "a status line without an end": (b"HTTP/1.1 200 ", b"x" * 4096),
    "a header without an end": (HEAD + b"X: ", b"x" * 4096),
    "headers without an end": (HEAD, b"X: y\r\n" * 512),
    "interim answers without an end": (b"", b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" * 64),
    "headers of interim answers without an end": (b"HTTP/1.1 100 Continue\r\n", b"X: y\r\n" * 512),
    "a body without an end": (HEAD + b"\r\n", b"." * 4096),
    "a body with a huge length": (HEAD + b"Content-Length: 99999999999999999999\r\n\r\n", b"." * 4096),
    "chunks without an end": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n.\r\n" * 512),
    "a chunk's size without an end": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"0" * 4096),
    "trailers without an end": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 512),
}


@pytest.fixture
def raw():
    """Start a raw server that sends a beginning, then repeats a part; return a service at its address."""
    ended, listeners, talkers = threading.Event(), [], []

    def start(begin, part, pause):
        listener = socket.create_server(("127.0.0.1", 0))

        def talk():
            with suppress(OSError), listener.accept()[0] as connection:
                connection.sendall(begin)
                while not ended.wait(pause):
                    connection.sendall(part)

        listeners.append(listener)
        talkers.append(threading.Thread(target=talk))
        talkers[-1].start()
        return MetadataService(f"http://127.0.0.1:{listener.getsockname()[1]}", "X")

    yield start
    ended.set()
    for talker in talkers:
        talker.join(60)
    for listener in listeners:
        listener.close()


@pytest.mark.parametrize("name", SLOW)
def test_any_slow_part_of_an_answer_times_out_by_the_deadline(raw, monkeypatch, name):
    monkeypatch.setattr("chipwatch.net.metadata_service.TOTAL_TIMEOUT", 0.5)
    service = raw(*SLOW[name], 0.05)
    begun = time.monotonic()
    with pytest.raises(NoMetadata, match="does not answer"):
        service.request("GET", "/", {})
    assert seconds_since(begun) < 30  # the answer has no end


@pytest.mark.parametrize("name", ENDLESS)
def test_any_endless_part_of_an_answer_is_refused_before_the_deadline(raw, monkeypatch, name):
    monkeypatch.setattr("chipwatch.net.metadata_service.TOTAL_TIMEOUT", 60.0)
    with pytest.raises(NoMetadata, match=r"gives an answer that is too large|does not speak HTTP"):
        raw(*ENDLESS[name], 0).request("GET", "/", {})


def test_interim_answers_are_read_past(answering):
    def early(http):
        http.wfile.write(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n")
        body(b"i-0abc")(http)

    assert answering(early).request("GET", "/id", {})[:2] == (200, b"i-0abc")
