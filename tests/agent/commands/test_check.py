import os
import re
import socket
from pathlib import Path

import pytest
from tests.doubles.cloudwatch import CloudwatchDouble, isolate

from chipwatch.commands.check import check, summary
from chipwatch.config.load import load
from chipwatch.net.status_socket import StatusServer

SOURCE = """
import threading, time
from chipwatch.contract.errors import PartlyCollected, Refused, Retryable, Unavailable
from optionless import *

LOAD = gauge("x.load", "1", "The load.")

class Base(Optionless, Collector):
    metrics = (LOAD,)

    def collect(self, at):
        yield LOAD.point(at, 1.0)

class Well(Base):
    def describe(self):
        return "3 things"

class Absent(Base):
    def open(self, given):
        raise Unavailable("no /dev/x; load its driver")

class Broken(Base):
    def collect(self, at):
        raise ValueError("odd answer")

class Partly(Base):
    def collect(self, at):
        yield LOAD.point(at, 1.0)
        raise PartlyCollected(["x 3 is lost"])

class Stammering(Base):
    said = False

    def collect(self, at):
        first, self.said = not self.said, True
        raise PartlyCollected(["its first words make no sense" if first else "it tells nothing"])
        yield

class Quiet(Base):
    def collect(self, at):
        return ()

class Slow(Base):
    def open(self, given):
        time.sleep(0.7)

class Hanging(Base):
    def collect(self, at):
        threading.Event().wait()

class Kept(Optionless, Sink):
    limits = Limits(max_points=10)

    def write(self, batch):
        raise AssertionError("a check sends nothing")

    def describe(self):
        return "a cloud"

class Refusing(Kept):
    def open(self):
        raise Refused("no such role")

class Unreachable(Kept):
    def open(self):
        raise Retryable("no route to host")
"""
COLLECTORS = ("Well", "Absent", "Broken", "Partly", "Stammering", "Quiet", "Slow", "Hanging")
SINKS = ("Kept", "Refusing", "Unreachable")


@pytest.fixture
def checked(others, tmp_path):
    """Check these plugins; return (fit, line) of each line but the identity's."""
    collectors, sinks = ([(name.lower(), name) for name in names] for names in (COLLECTORS, SINKS))
    others.add("theirs", SOURCE, collectors, sinks)

    def run(*collectors, sink=("stdout",), **options):
        given = {"collector": [*collectors], "sink": [*sink], "spool": str(tmp_path), "format": "json"}
        config = load(None, {"no_processor": ["jobs"], **given, **options}, {})
        lines = list(check(config, {}))
        return [(fit, re.sub(" +", " ", line)) for fit, line in lines if not line.startswith("identity")]

    return run


# -- check ------------------------------------------------------------------------------------------------------------


def test_the_last_line_counts_what_is_well():
    lines = ["collector cpu ok 3 series", "collector gpu absent no driver", "sink stdout ok", "sink otlp ok"]
    assert summary(lines, 0) == "fine: 1 collector read, 2 sinks ready"
    assert summary([*lines[:3], "collector memory ok"], 0) == "fine: 2 collectors read, 1 sink ready"


@pytest.mark.parametrize(
    ("name", "fit", "line"),
    [
        ("well", True, "ok 1 series: 3 things"),
        ("absent", False, "MISSING no /dev/x; load its driver"),
        ("broken", False, "FAILED ValueError: odd answer"),
        ("partly", False, "IN PART 1 series; in part: x 3 is lost"),
        ("stammering", False, "IN PART 0 series; in part: it tells nothing; its first words make no sense"),
        ("quiet", True, "ok 0 series at this level"),
        ("slow", True, "ok 1 series"),
    ],
)
def test_a_collector_is_listed_with_its_series_and_what_it_found_or_could_not_read(checked, name, fit, line):
    """Where nothing was read every failure is listed; one that was asked for and is absent is a fault."""
    sink = (True, "sink stdout ok standard output, json")
    assert checked(name) == [(fit, f"collector {name} {line}"), sink]


def test_a_processor_is_listed_with_its_series_and_what_it_found(checked):
    assert (True, "processor jobs ok 0 series: no accelerator") in checked("well", no_processor=[])


def test_a_reading_that_never_returns_is_a_fault_and_the_others_are_listed(checked, monkeypatch):
    monkeypatch.setattr("chipwatch.engine.clock.FIRST_READING", 0.3)
    lines = checked("hanging", "well")
    assert lines[:2] == [
        (False, "collector hanging FAILED its reading does not return"),
        (True, "collector well ok 1 series: 3 things"),
    ]


@pytest.mark.parametrize(
    ("sink", "line"),
    [
        ("kept", (True, "sink kept ok a cloud; not contacted: --send sends a test point")),
        ("refusing", (False, "sink refusing FAILED no such role")),
        ("unreachable", (False, "sink unreachable FAILED no route to host")),
    ],
)
def test_a_sink_is_opened_and_nothing_is_sent(checked, sink, line, tmp_path):
    assert checked("well", sink=[sink])[1:] == [line]
    assert not list(tmp_path.glob("*.db"))


@pytest.mark.parametrize("state", ["ok", "absent", None])
def test_a_port_that_the_running_agent_holds_is_not_a_fault_but_a_port_of_another_is(checked, tmp_path, state):
    with socket.create_server(("127.0.0.1", 0)) as held:
        answer = {"pid": 77, "sinks": {"prometheus": {"last_error": None if state == "ok" else "its port is taken"}}}
        server = StatusServer(tmp_path / "status.sock", {"status": lambda: answer}) if state else None
        options = {"sinks": {"prometheus": {"listen": f"127.0.0.1:{held.getsockname()[1]}"}}}
        _, (good, line) = checked("well", sink=["prometheus"], **options)
        if server:
            server.close()
    assert good is (state == "ok")
    assert good or "in use" in line
    assert (line == "sink prometheus ok the running agent (pid 77) holds its port") is good


@pytest.mark.parametrize(
    ("name", "make", "says"),
    [
        ("kept.db", Path.mkdir, "kept.db is not a regular file"),
        ("kept.db", os.mkfifo, "kept.db is not a regular file"),
        ("kept.db", lambda it: it.symlink_to("/x"), "kept.db: is a symbolic link, which is not followed: remove it"),
        ("kept.lock", Path.mkdir, "kept.lock is not a regular file"),
        ("kept.db-wal", os.mkfifo, "kept.db-wal is not a regular file"),
    ],
)
def test_a_spool_that_cannot_be_one_is_a_fault(checked, tmp_path, name, make, says):
    make(tmp_path / name)
    line = f"spool kept FAILED {tmp_path}/{says}; points would be kept in memory only: choose another --spool"
    assert checked("well", sink=["kept"])[2] == (False, line)


@pytest.mark.parametrize(
    ("folder", "says"),
    [("file", "Not a directory"), ("file/below", "Not a directory"), ("x" * 300, "too long"), ("/proc/self/below", "")],
)
def test_a_folder_that_can_hold_no_spool_is_a_fault_and_nothing_is_made(checked, tmp_path, folder, says):
    (tmp_path / "file").touch()
    fit, line = checked("well", sink=["kept"], spool=str(tmp_path / folder))[2]
    assert not fit
    assert says in line
    assert {path.name for path in tmp_path.iterdir()} <= {"file", "plugins"}


def test_what_this_machine_lacks_is_one_line_unless_the_reasons_are_asked_for(here):
    brief, full = here("check"), here("check", "-v")
    assert (brief.returncode, full.returncode) == (0, 0)
    *_, absent, last = brief.stdout.splitlines()
    assert re.fullmatch(r"absent here: .*\bipu\b.*\btextfile\b.* \(-v says why\)", absent)
    assert not re.search(" absent ", brief.stdout)
    assert re.search(r"(?m)^collector +ipu +absent +no IPU: ", full.stdout)
    assert last.startswith("fine: ")


def test_a_sink_is_contacted_only_if_a_point_is_to_be_sent(here, monkeypatch):
    isolate(monkeypatch)
    with CloudwatchDouble() as service:
        where = ("--region", "us-east-1", "--endpoint-url", service.url, "--dim", "team=a")
        done = here("check", "--sink", "cloudwatch", "--collector", "cpu", *where)
        assert done.returncode == 0, done.stdout
        assert "not contacted: --send sends a test point" in done.stdout
        assert not service.datums
        done = here("check", "--sink", "cloudwatch", "--collector", "cpu", *where, "--send")
        assert done.returncode == 0, done.stdout
        assert "agent.check: accepted" in done.stdout
        sent = [(datum.name, datum.dims, datum.value) for datum in service.datums]
        assert sent == [("agent.check", (("team", "a"),), 1)]


def test_an_endpoint_that_does_not_answer_is_not_ok(here, tmp_path):
    config = tmp_path / "chipwatch.toml"
    config.write_text('[collectors.openmetrics.endpoints.mine]\nurl = "http://127.0.0.1:1/metrics"\n')
    done = here("check", "--config", config)
    assert done.returncode == 1
    assert re.search("openmetrics +IN PART .*endpoint mine", done.stdout)
