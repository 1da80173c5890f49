"""A request and its answer, over a pair of sockets; what is slow, endless or cut off is in the tests of the clients."""

import socket
import ssl
import time

import pytest

from chipwatch.net.exchange import BadStatusLine, Exchange, Incomplete, NotHttp, TooLarge, host_of


@pytest.fixture
def talk(at_the_end):
    """Send a request to a server that gives `answer` and ends the connection; return the head, the body, the request."""

    def ask(answer, method="GET", headers=(), body=None, *, most=1000, target="/x"):
        ours, theirs = map(at_the_end.enter_context, socket.socketpair())
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        exchange = Exchange(ours, "a.example", time.monotonic() + 60, max_bytes=6000)
        head = exchange.ask(method, target, dict(headers), body)
        return head, exchange.body(head, most), theirs.recv(10_000)

    return ask


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: Chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("answer", "status", "body", "is_last"),
    [
        (OK + b"Content-Length: 2\r\n\r\nabcd", 200, b"ab", False),
        (OK + b"content-length:2\r\nConnection: Close\r\n\r\nab", 200, b"ab", True),
        (b"HTTP/1.1 200\nA: b\nContent-Length: 2\n\nab", 200, b"ab", False),
        (OK + b"\r\nab", 200, b"ab", True),
        (OK + b"Content-Length: x\r\n\r\nab", 200, b"ab", False),
        (CHUNKED + b"1;q=1\r\na\r\n2\r\nbc\r\n0\r\nX: y\r\n\r\n", 200, b"abc", False),
        (b"HTTP/1.1 204 Nothing\r\nContent-Length: 5\r\n\r\n", 204, b"", False),
        (b"HTTP/1.0 500 Words\r\nContent-Length: 1\r\n\r\na", 500, b"a", True),
        (b"HTTP/1.0 500 Words\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", 500, b"a", False),
        (b"HTTP/1.1 103 Early\r\nContent-Length: 9\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\na", 200, b"a", False),
    ],
)
def test_the_length_of_a_body_and_the_end_of_a_connection(talk, answer, status, body, is_last):
    head, found, _ = talk(answer)
    assert (head.status, found, head.is_last) == (status, body, is_last)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", ConnectionResetError),
        (b"HTTP/1.1 20", Incomplete),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", BadStatusLine),
        (b"HTTP/1.1 2000 OK\r\n\r\n", BadStatusLine),
        (b"HTTP/1.1 101 Other\r\n\r\n", BadStatusLine),
        (OK + b"Content-Length: 3\r\n\r\nab", Incomplete),
        (OK + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", NotHttp),
        (OK + b"A: b\r\n" * 101 + b"\r\n", NotHttp),
        *((CHUNKED + size + b"\r\nab\r\n0\r\n\r\n", NotHttp) for size in (b"zz", b"-2", b"+2", b"0x2", b"0_2", b"")),
        (CHUNKED + b"2\r\nabc\r\n0\r\n\r\n", NotHttp),
        (OK + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\nab", Incomplete),
        (CHUNKED + b"5\r\nab", Incomplete),
        (OK + b"\r\n" + b"x" * 7000, TooLarge),
    ],
)
def test_an_answer_that_is_cut_off_or_malformed_or_too_large(talk, answer, problem):
    with pytest.raises(problem):
        talk(answer, most=7000)


@pytest.mark.parametrize("line", [b"\xff\xfe: c", b"no colon", b"two words: c"])
def test_headers_after_a_malformed_one_are_left_out(talk, line):
    head, body, _ = talk(OK + b"Content-Length: 1\r\nA: b\r\n folded\r\nC: d\r\n" + line + b"\r\nE: f\r\n\r\na")
    assert (head.headers, body) == ({"content-length": "1", "a": "b", "c": "d"}, b"a")


def test_a_body_is_read_up_to_the_most_that_is_wanted(talk):
    for answer in (OK + b"Content-Length: 9\r\n\r\n123456789", OK + b"\r\n123456789", CHUNKED + b"9\r\n123456789\r\n"):
        assert talk(answer, most=4)[1] == b"1234"


def test_a_request_has_its_length_and_the_headers_that_are_given_win(talk):
    answer = OK + b"Content-Length: 0\r\n\r\n"
    assert talk(answer, "POST", {"A": "b"}, b"body")[2] == (
        b"POST /x HTTP/1.1\r\nHost: a.example\r\nAccept-Encoding: identity\r\nContent-Length: 4\r\nA: b\r\n\r\nbody"
    )
    assert b"Content-Length: 0\r\n" in talk(answer, "PUT")[2]
    assert b"Content-Length" not in talk(answer)[2]
    request = talk(answer, headers={"host": "b.example", "accept-encoding": "gzip"})[2]
    assert request == b"GET /x HTTP/1.1\r\nhost: b.example\r\naccept-encoding: gzip\r\n\r\n"


def test_a_request_that_is_taken_bit_by_bit_ends_at_the_deadline():
    class Slow(ssl.SSLSocket):
        __init__, __del__, settimeout = (lambda *_: None,) * 3
        _sslobj = True

        def send(self, data, flags=0):
            time.sleep(0.01)
            return 1

    with pytest.raises(TimeoutError):
        Exchange(Slow(), "a.example", time.monotonic() + 0.1).ask("POST", "/x", {}, b"x" * 500)


@pytest.mark.parametrize("value", ["b\r\nHost: c", "b\nc", "b\rc", "b\0"])
def test_a_header_cannot_bring_another_one(talk, value):
    with pytest.raises(ValueError, match="control character"):
        talk(OK, headers={"A": value})


def test_a_target_has_no_space(talk):
    with pytest.raises(ValueError, match="control character"):
        talk(OK, target="/a HTTP/1.1 b")


def test_the_host_of_a_header():
    assert [host_of("a.example", port) for port in (80, 81)] == ["a.example", "a.example:81"]
    assert host_of("fe80::1%eth0", 443, default=443) == "[fe80::1]"
    assert host_of("bücher.example", 80) == "xn--bcher-kva.example"
