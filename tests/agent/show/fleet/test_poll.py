"""Many nodes are asked at once; a dead, slow or lying one costs its line only."""

import gzip
import json
import os
import re
import socket
import ssl
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.doubles.fleet import FINE, LYING, PAGE, FleetDouble, answer

from chipwatch.contract.errors import ConfigError
from chipwatch.show.fleet import poll
from chipwatch.show.fleet.hosts import addresses
from chipwatch.show.fleet.poll import Access, Poller, complete
from chipwatch.show.fleet.screen import FleetView, compose

LONG = 60.0
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="every address of 127.0.0.0/8 is this machine's on Linux"
)
DEAD, SLOW, LIAR, LOGIN, LOST, ENDLESS = (f"127.0.0.{number}" for number in (7, 8, 9, 10, 11, 12))


def mixed(address):
    if address == DEAD:
        return b"Connection: close"
    if address == SLOW:
        return None
    bodies = {LIAR: LYING, LOGIN: b"<html>log in</html>", LOST: PAGE}
    if address == ENDLESS:
        return b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 1000
    return answer(bodies.get(address, FINE))


def asked(words, access=None, **options):
    source = Poller(addresses(words, by_ssh=False), access or Access(), options.get("interval", 2.0), lambda: None)
    source.start()
    try:
        return {node.node.partition(":")[0]: node for node in complete(source, LONG)}
    finally:
        source.close()


def test_of_fifty_nodes_bad_ones_cost_only_their_lines(monkeypatch):
    monkeypatch.setattr(poll, "TIMEOUT", 1.0)
    with FleetDouble(mixed) as double:
        nodes = asked([f"127.0.0.[1-50]:{double.port}"])
        bad = (DEAD, SLOW, LIAR, LOGIN, LOST, ENDLESS)
        assert {node.word for name, node in nodes.items() if name not in bad} == {""}
        assert {node.busy for node in nodes.values()} == {None, 7, 6}
        assert nodes[DEAD].error == "the answer is incomplete"
        assert nodes[SLOW].error == nodes[ENDLESS].error == "no complete answer in 1 s"
        assert (nodes[LIAR].word, nodes[LIAR].reason) == ("not believed", "gpu.utilization is 4000 %")
        assert nodes[LOGIN].error == "its page has no metrics that are known here"
        assert nodes[LOST].word == "not fit"
        check("fleet-120x40", nodes, (120, 40))
        check("fleet-80x24", nodes, (80, 24))


def check(name, nodes, size):
    """Compare the screen of nodes with the kept one, without the time of day and the ports."""
    order = sorted(nodes.values(), key=lambda node: node.place)
    lines = compose(order, FleetView(), size, "every 2 s", clock=0.0)
    assert {sum(len(text) for text, _ in line) for line in lines} == {size[0]}
    assert len(lines) == size[1]
    text = "\n".join("".join(text for text, _ in line) for line in lines)
    text = re.sub(r":\d{5}\b", ":PPPPP", re.sub(r"\d\d:\d\d:\d\d", "HH:MM:SS", text)) + "\n"
    golden = Path(__file__).with_name(f"{name}.txt")
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


def test_a_node_that_nothing_listens_on_is_silent_and_keeps_when_it_was_last_seen():
    with FleetDouble() as double:
        source = Poller(addresses([f"127.0.0.1:{double.port}"], by_ssh=False), Access(), 0.1, lambda: None, "user")
        source.start()
        (node,) = complete(source, LONG)
        assert (node.word, node.jobs, source.labels) == ("", ["41337"], {node.node: ["ada"]})
    wait(lambda: source.lines()[0].error)
    node = source.lines()[0]
    assert (node.word, node.jobs, node.gpus) == ("silent", ["41337"], 0)
    assert node.seen
    with FleetDouble(port=double.port):
        wait(lambda: not source.lines()[0].error)
    source.close()


def wait(condition):
    deadline = time.monotonic() + LONG
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("said", "error"),
    [(answer(b"Nothing was read yet.\n", "503 x"), "status 503: Nothing was read yet."),
     (answer(b"<html>", "302 Found", "Location: http://elsewhere/"), "status 302"),
     (answer(b"a 1\n" * 60_000), "its page has more than 50,000 lines"),
     (answer(gzip.compress(FINE), "200 OK", "Content-Encoding: gzip"),
      "the answer is compressed, which was not asked for"),
     (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "the answer is not valid HTTP (BadStatusLine)")],
)  # fmt: skip
def test_an_answer_without_a_page_is_named(said, error):
    with FleetDouble(lambda _: said) as double:
        assert asked([f"127.0.0.1:{double.port}"])["127.0.0.1"].error == error


def test_a_name_that_does_not_exist_is_an_error_of_its_line():
    assert "no such host name" in asked(["no-such-host.invalid"])["no-such-host.invalid"].error


def test_a_name_server_that_does_not_answer_costs_the_lines_of_its_names_only(monkeypatch):
    over, look = threading.Event(), socket.getaddrinfo

    def hang(host, *more, **rest):
        return over.wait(LONG) and [] if "n" in str(host, "ascii") else look(host, *more, **rest)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    monkeypatch.setattr(poll, "TIMEOUT", 0.2)
    with FleetDouble() as double:
        nodes = asked(["n[1-40]", f"127.0.0.1:{double.port}"])
        over.set()
    assert nodes.pop("127.0.0.1").busy == 7
    assert {node.error for node in nodes.values()} == {"no complete answer in 0.2 s"}


def test_a_secret_goes_by_https_only_and_a_certificate_must_be_trusted(tmp_path):
    (tmp_path / "token").write_text("s3cret\n")
    with pytest.raises(ConfigError, match="by https only"):
        asked(["node-7"], Access(token_file=tmp_path / "token"))
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.sign("localhost", hosts=["localhost"]))
    with FleetDouble(tls=context) as double:
        url = f"https://localhost:{double.port}"
        assert asked([url], Access(tmp_path / "token"))["localhost"].error.startswith(
            "the certificate of localhost is not trusted"
        )
        assert not double.heads
        node = asked([url], Access(tmp_path / "token", ca_file=authority.file))["localhost"]
        assert node.busy == 7
        assert b"Authorization: Bearer s3cret\r\n" in double.heads[0]
        other = asked([f"https://127.0.0.2:{double.port}"], Access(ca_file=authority.file))["127.0.0.2"]
        assert "mismatch" in other.error
        assert "--ca-file" not in other.error


@pytest.mark.parametrize("text", ["", "two\nlines", "\x00", "gl\u00fcck", None])
def test_a_file_without_a_secret_and_a_device_are_refused(tmp_path, text):
    (tmp_path / "token").write_text(text or "")
    file = Path("/dev/zero") if text is None else tmp_path / "token"
    with pytest.raises(ConfigError, match=r"is empty|characters that HTTP does not allow"):
        asked(["localhost"], Access(token_file=file))


SSH = Path(__file__).with_name("ssh.txt").read_text()


def test_agents_are_asked_by_ssh_and_keep_answering(tmp_path, monkeypatch):
    log, program = tmp_path / "log", tmp_path / "ssh"
    program.write_text(SSH.format(python=sys.executable, log=str(log)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    nodes = asked(["ssh://ada@n1:2222", "ssh://bad", "ssh://deep"], Access(remote="/opt/chip watch"), interval=0.3)
    node = nodes["ada@n1"]
    assert (node.node, node.verdict, node.gpus, node.busy) == ("ada@n1:2222", "fit", 8, 3)
    assert "\x1b" not in node.jobs[0]
    assert nodes["deep"].error == "its chipwatch has another version"
    said = "ssh: connect to host 10.0.0.7 port 2222: refused, password=..."
    assert nodes["bad"].error == f"ssh ended with 1; it is started again later (it said: {said})"
    words = next(words for line in log.read_text().splitlines() if "2222" in (words := json.loads(line)["words"]))
    assert words[-5:] == ["-p", "2222", "--", "ada@n1", "'/opt/chip watch' top --json --every 0.3"]
    assert "BatchMode=yes" in words
