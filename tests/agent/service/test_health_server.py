import http.client
import json
import socket

import pytest

from chipwatch.net.address import parse_address
from chipwatch.service.health_server import health_server


class Probes:
    """Answers of the probes."""

    def __init__(self):
        self.healthy, self.ready = (True, {"a": 1}), (True, {})


@pytest.fixture
def probes():
    return Probes()


@pytest.fixture
def server(probes):
    made = health_server("0", lambda: probes.healthy, lambda: probes.ready)
    yield made
    made.close()


def ask(server, path: str, method: str = "GET"):
    connection = http.client.HTTPConnection(server.host, server.port, timeout=10)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("8080", ("127.0.0.1", 8080)),
        (":8080", ("127.0.0.1", 8080)),
        ("0.0.0.0:80", ("0.0.0.0", 80)),
        ("[::1]:80", ("::1", 80)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_an_address_is_a_port_on_loopback_unless_a_host_is_given(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", "x", "host:", "host:x", "host:65536", "8080:host", "-1", "host:-1", "1.5"])
def test_an_invalid_listen_address_is_refused(text):
    with pytest.raises(ValueError, match=r"expected \[HOST:\]PORT, got "):
        parse_address(text)


def test_a_good_answer_is_200_and_a_line_of_json(server):
    status, body = ask(server, "/healthz")
    assert status == 200
    assert body.endswith(b"}\n")
    assert json.loads(body) == {"ok": True, "a": 1}


def test_a_bad_answer_is_503_with_the_facts(server, probes):
    probes.healthy = False, {"seconds_since_tick": 99}
    assert ask(server, "/healthz")[0] == 503
    assert json.loads(ask(server, "/healthz")[1]) == {"ok": False, "seconds_since_tick": 99}


def test_health_and_readiness_differ(server, probes):
    probes.ready = False, {"refused": {"cloud": "no such role"}}
    assert ask(server, "/healthz")[0] == 200
    assert ask(server, "/readyz")[0] == 503
    assert json.loads(ask(server, "/readyz")[1])["refused"] == {"cloud": "no such role"}


@pytest.mark.parametrize("path", ["/", "/metrics", "/healthz/", "/../etc/passwd"])
def test_any_other_path_is_not_found(server, path):
    status, body = ask(server, path)
    assert (status, json.loads(body)) == (404, {"ok": False, "error": "only /healthz and /readyz"})


def test_an_address_in_use_is_an_error_at_once(server):
    with pytest.raises(OSError, match=r"[Aa]ddress already in use"):
        health_server(f"127.0.0.1:{server.port}", dict, dict)


def test_no_name_server_is_asked(monkeypatch):
    def slow(*_):
        raise AssertionError("the name server was asked")

    monkeypatch.setattr(socket, "getfqdn", slow)
    monkeypatch.setattr(socket, "gethostbyaddr", slow)
    health_server("0.0.0.0:0", dict, dict).close()
