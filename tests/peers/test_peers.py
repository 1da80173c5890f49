"""Programs run side by side, and what each uses and sends is counted."""

import gzip
import sys
import urllib.request

import pytest
from tests.bench.figure import CannotMeasure
from tests.peers import __main__ as command
from tests.peers.programs import PROGRAMS, Program, system
from tests.peers.receiver import KINDS
from tests.peers.running import one_round, receiving

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
ENDS = Program("ends", "a program that ends", lambda place: [sys.executable, "-c", "raise SystemExit('no such file')"])
ABSENT = Program("absent", "a program that is absent", lambda place: [system("nothing", "no-such-program-anywhere")])
WRITES = Program(
    "writes", "a program that writes and forks",
    lambda place: ["sh", "-c", "sleep 60 & while :; do echo 0123456789; sleep 0.1; done"],
)  # fmt: skip
POSTS = Program("posts", "a program that posts", lambda place: [], "http")


def test_a_short_run_prints_the_loop_and_the_agent(monkeypatch, capsys):
    monkeypatch.setattr(command, "PAGE", None)  # it is not written
    command.main(["--seconds", "1", "--warm", "1", "--runs", "1", "--only", "psutil,stdout"])
    rows = {line.split(" | ")[0].strip("| *"): line.split(" | ") for line in capsys.readouterr().out.splitlines()}
    agent, loop = rows["chipwatch: JSON lines, basic"], rows["loop with psutil, 64 values"]
    assert 0 < float(loop[1].split(" ")[0]) < float(agent[1].split(" ")[0]) * 50
    assert loop[2] == "1.00"
    assert 8 < float(loop[3]) < 30 < 10 * float(agent[3])
    assert float(agent[-1].strip(" |").replace(",", "")) > 1000  # bytes of JSON a second


def test_a_program_that_is_absent_or_ends_is_left_out_with_the_reason():
    absent = {}
    results = one_round([ENDS, ABSENT, WRITES], 1.0, 0.5, absent)
    assert list(results) == ["writes"]
    assert 10 < results["writes"].sent < 200  # bytes a second on its standard output
    assert results["writes"].threads >= 2  # the shell and its child
    assert absent["ends"] == "it ended with 1: no such file"
    assert absent["absent"] == "`nothing` is not installed"


def test_each_receiver_answers():
    with receiving([POSTS]) as (addresses, taken):
        body = gzip.compress(b"x" * 100)
        request = urllib.request.Request(addresses["posts"], body, {"Content-Type": "application/cbor"})
        with urllib.request.urlopen(request) as answer:
            assert answer.headers["smithy-protocol"] == "rpc-v2-cbor"
            assert answer.read() == b"\xa0"
        assert taken()["posts"] == len(body)
    assert {of.receiver for of in PROGRAMS} - {"", "scraped"} == KINDS.keys()


def test_a_run_is_bounded_and_unknown_programs_are_refused(capsys):
    for words, text in (
        (["--runs", "99"], "12 minutes"),
        (["--only", "psutil,nothing"], "no such program: nothing"),
        *((["--seconds", text, "--only", "psutil"], "must be 1 or more") for text in ("nan", "0", "-5")),
        (["--runs", "0", "--only", "psutil"], "must be 1 or more"),
    ):
        with pytest.raises(SystemExit) as ended:
            command.main(words)
        assert ended.value.code == 2
        assert text in capsys.readouterr().err


def test_a_missing_program_of_the_system_names_its_package():
    with pytest.raises(CannotMeasure, match="`sysstat` is not installed"):
        system("sysstat", "/no/such/sadc")
