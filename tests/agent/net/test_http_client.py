"""The client that sinks send with: bounds of time and size, and proxies. Its answers are judged in tests/sinks/otlp."""

import socketserver
import threading
import time

import pytest
from tests.doubles.raw import RawServer, http

from chipwatch.contract.errors import Refused, Retryable
from chipwatch.net.http_client import HttpClient, proxy_of


@pytest.mark.parametrize("begun", [b"", http(200, length=9)], ids=["nothing", "no body"])
def test_an_answer_that_hangs_ends_with_the_timeout(begun):
    ended = threading.Event()

    def drip(_):
        yield begun
        ended.wait(60)

    with RawServer([drip]) as server:
        client = HttpClient(server.url, timeout=0.5, max_bytes=1000)
        with pytest.raises(Retryable, match=r"no complete answer in 0\.5 s"):
            client.post(b"x", {})
        ended.set()


@pytest.mark.parametrize("endless", [b"A: b\r\n" * 100_000, b"\r\n" + b"x" * 5_000_000], ids=["headers", "body"])
def test_an_answer_without_end_is_bounded(endless):
    with RawServer([b"HTTP/1.1 200 OK\r\n" + endless]) as server, pytest.raises(Retryable) as problem:
        HttpClient(server.url, timeout=60, max_bytes=1_000_000).post(b"x", {})
    assert "no complete answer" not in str(problem.value)


def test_an_error_of_tls_names_a_port_without_tls():
    class Plain(socketserver.StreamRequestHandler):
        def handle(self):
            self.request.recv(100)
            self.request.sendall(http(400))

    with socketserver.TCPServer(("127.0.0.1", 0), Plain) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        client = HttpClient(f"https://127.0.0.1:{server.server_address[1]}", timeout=5, max_bytes=1000)
        with pytest.raises(Retryable, match=r"TLS: the port does not speak TLS; is it http://\?"):
            client.post(b"x", {})


def interim(status, *headers):
    return "\r\n".join([f"HTTP/1.1 {status} Words", *headers, "", ""]).encode()


EARLY = (interim(100), interim(102), interim(103, "Link: </a.css>; rel=preload", "Content-Length: 5"))


@pytest.mark.parametrize("before", [*EARLY, b"".join(EARLY), interim(199) * 20])
def test_interim_answers_are_read_past_and_the_connection_is_kept(before):
    final = before + b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with RawServer([final]) as server:
        client = HttpClient(server.url, timeout=5, max_bytes=10_000)
        for _ in range(3):
            assert client.post(b"x", {})[::2] == (200, b"{}")
        client.close()
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        interim(100) * 21 + http(200),
        interim(103) * 100_000,
        interim(102, *["A: b"] * 99) * 20 + http(200),
        interim(101, "Upgrade: h2c") + http(200),
        interim(103, "A: b")[:-2],
        interim(103),
    ],
    ids=["too many", "endless", "too many bytes", "another protocol", "cut", "no final"],
)
def test_interim_answers_are_skipped_and_bounded_in_number_and_bytes(answer):
    with RawServer([lambda _: answer]) as server:
        client = HttpClient(server.url, timeout=30, max_bytes=10_000)
        with pytest.raises(Retryable) as problem:
            client.post(b"x", {})
        assert "no complete answer" not in str(problem.value)


@pytest.mark.parametrize(
    ("url", "env", "proxy"),
    [
        ("https://a.example:443/x", {"HTTPS_PROXY": "http://p:3128"}, "http://p:3128"),
        ("https://a.example/x", {"https_proxy": "p:3128", "HTTPS_PROXY": "http://q"}, "http://p:3128"),
        ("http://a.example/x", {"HTTPS_PROXY": "http://p:3128"}, None),
        ("http://a.example/x", {"http_proxy": "http://p", "no_proxy": "example"}, None),
        ("http://a.example/x", {"http_proxy": "http://p", "NO_PROXY": ".example, b"}, None),
        ("http://aexample/x", {"http_proxy": "http://p", "NO_PROXY": ".example"}, "http://p"),
        ("http://a.example:4318/x", {"http_proxy": "http://p", "NO_PROXY": "a.example:4318"}, None),
        ("http://a.example:4319/x", {"http_proxy": "http://p", "NO_PROXY": "a.example:4318"}, "http://p"),
        ("https://a.example/x", {"https_proxy": "http://p", "NO_PROXY": "a.example:443"}, None),
        ("http://[2001:db8::1]:4318/x", {"http_proxy": "http://p", "NO_PROXY": "2001:db8::1"}, None),
        ("http://a.example/x", {"http_proxy": "http://p", "NO_PROXY": "*"}, None),
        ("http://a.example/x", {}, None),
        ("http://localhost:4318/x", {"http_proxy": "http://p"}, None),
    ],
)
def test_the_proxy_of_an_address(url, env, proxy):
    assert proxy_of(url, env) == proxy


def test_the_password_of_a_header_is_a_secret_in_the_words_of_an_answer():
    with RawServer([http(400, b"user:sesame is wrong, sesame too")]) as server:
        login = {"Authorization": "Basic dXNlcjpzZXNhbWU="}
        answer = HttpClient(server.url, timeout=5, max_bytes=1000).post(b"x", login)
    assert "sesame" not in answer.says(answer.body.decode(), 100)


SECURE = "https://collector.example/v1/metrics"


def asked_through(proxy, monkeypatch, problem):
    """Return the message and the seconds of a request by TLS through a proxy."""
    monkeypatch.setenv("https_proxy", f"http://user:secret@127.0.0.1:{proxy.port}")
    begun = time.monotonic()
    with pytest.raises(problem) as caught:
        HttpClient(SECURE, timeout=0.5, max_bytes=10_000).post(b"x", {})
    return str(caught.value), time.monotonic() - begun


@pytest.mark.parametrize(("status", "problem"), [(407, Refused), (502, Retryable), (302, Retryable)])
def test_tls_goes_through_a_tunnel_of_the_proxy_whose_words_are_not_repeated(status, problem, monkeypatch):
    with RawServer([http(status, b"", "Location: http://other.example").replace(b"Words", b"user:secret")]) as proxy:
        text, _ = asked_through(proxy, monkeypatch, problem)
    assert proxy.requests[0].startswith(b"CONNECT collector.example:443 ")
    assert b"Host: collector.example\r\n" in proxy.requests[0]
    assert b"Proxy-Authorization: Basic dXNlcjpzZWNyZXQ=" in proxy.requests[0]
    assert len(proxy.requests) == 1
    assert text.startswith(f"the proxy 127.0.0.1:{proxy.port} answers {status}")
    assert "secret" not in text


def drip(_):
    """Send a part of a head twenty times a second."""
    for number in range(100):
        yield b"HTTP/1.1 200 OK\r\n" if not number else b"A"
        time.sleep(0.05)


def flood(_):
    """Send a head without an end."""
    yield b"HTTP/1.1 200 OK\r\n"
    for _ in range(20_000):
        yield b"A: b\r\n" * 1000


@pytest.mark.parametrize("answer", [b"", b"\x16\x03secret\r\n\r\n"])
def test_a_proxy_that_does_not_speak_http_is_named(answer, monkeypatch):
    with RawServer([answer]) as proxy:
        text, _ = asked_through(proxy, monkeypatch, Retryable)
    assert text.startswith(f"the proxy 127.0.0.1:{proxy.port} gives no valid answer")
    assert "secret" not in text


@pytest.mark.parametrize("answer", [drip, flood])
def test_a_proxy_that_drips_or_floods_is_left_in_time(answer, monkeypatch):
    with RawServer([answer]) as proxy:
        _, seconds = asked_through(proxy, monkeypatch, Retryable)
    assert seconds < 4


@pytest.mark.parametrize(
    "proxy",
    ["http://user:se#cret@h:1", "http://h:1a", "http://user:se[cret@h:1", "http://h:99999", "socks5://h:1", "h:0"],
)
def test_a_proxy_that_is_not_an_address_is_refused_by_the_name_of_its_variable(proxy):
    with pytest.raises(Refused, match=r"^HTTPS_PROXY: expected http://HOST:PORT") as caught:
        proxy_of(SECURE, {"HTTPS_PROXY": proxy})
    assert "cret" not in str(caught.value)
