"""Trouble that the kernel logs."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.doubles.kmsg.log import CannotBuild, Pipe, Ring, build, messages, record

from chipwatch.collectors.kernel import KINDS, KernelCollector, KernelLog, kind_of
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.engine.window import Window
from chipwatch.host.xid import ACTIONS, BY_CODE, action_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the log of Linux")
AT = 1_800_000_000 * 10**9
XID = "NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus."
OOM = "Out of memory: Killed process 1234 (python3) total-vm:1kB"


@pytest.fixture
def pipe():
    made = Pipe()
    yield made
    made.close()


@pytest.fixture
def proc(tmp_path):
    folder = tmp_path / "proc"
    (folder / "sys/kernel/random").mkdir(parents=True)
    (folder / "sys/kernel/random/boot_id").write_text("boot-1\n")
    (folder / "stat").write_text(f"btime {AT // 10**9 - 5000}\n")
    return folder


def opened(path, proc, state=None, level=Level.BASIC):
    collector = KernelCollector(KernelCollector.Config(path=path, proc=proc))
    collector.open(Given(level=level, state=state))
    return collector


def sparse(path, proc, state=None, zeros=False):
    """Return a collector that no sink asks for counters at 0."""
    collector = KernelCollector(KernelCollector.Config(path=path, proc=proc))
    collector.open(Given(level=Level.BASIC, state=state, zeros=zeros))
    return collector


def counts(collector, at=AT):
    return {p.dims["kind"]: p.value for p in collector.collect(at) if p.metric.name == "kernel.events"}


@pytest.mark.parametrize(("kind", "message"), messages())
def test_a_message_of_a_public_capture_has_its_kind(kind, message):
    assert kind_of(message.encode()) == (None if kind == "-" else kind)


def test_the_captures_have_every_kind():
    assert {kind for kind, _ in messages()} - {"-"} == {*KINDS}
    assert sum(kind == "-" for kind, _ in messages()) > 60  # ordinary lines beside them


def test_every_record_is_counted_once_by_kind(pipe, proc):
    pipe.write(*(record(n, message) for n, (_, message) in enumerate(messages())))
    collector = opened(pipe.path, proc)
    expected = Counter(kind for kind, _ in messages() if kind != "-")
    assert counts(collector) == expected
    assert counts(collector) == expected
    pipe.write(record(900, XID))
    assert counts(collector)["xid_restart"] == expected["xid_restart"] + 1
    collector.close()


def test_what_programs_write_into_the_log_is_not_counted(pipe, proc):
    pipe.write(record(0, XID, priority=(3 << 3) | 3), record(1, OOM))
    assert counts(opened(pipe.path, proc)) == dict.fromkeys(KINDS, 0) | {"oom_kill": 1}


def test_an_event_before_the_start_is_not_an_increase_and_the_first_of_its_kind_after_it_is(pipe, proc):
    pipe.write(record(0, OOM, age=100))
    collector, window = opened(pipe.path, proc), Window(0, born=AT)

    def increases(at):
        return {p.dims["kind"]: p.increase for p in window.add([*collector.collect(at)], at) if "kind" in p.dims}

    assert increases(AT + 1) == dict.fromkeys(KINDS)
    pipe.write(record(1, XID))
    assert increases(AT + 2) == dict.fromkeys(KINDS, 0) | {"xid_restart": 1}


def test_where_no_sink_needs_zeros_a_log_without_trouble_has_no_points(pipe, proc):
    pipe.write(record(0, "usb 1-1: new device"))
    collector = sparse(pipe.path, proc)
    assert [[p for p in collector.collect(AT + n) if p.metric.name in collector.needs.events] for n in range(3)] == [
        []
    ] * 3


def test_kinds_without_events_come_now_and_then_and_the_others_in_each_reading(pipe, proc):
    pipe.write(record(0, OOM))
    collector = opened(pipe.path, proc)
    paced = [n for n in range(0, 36, 5) if len(counts(collector, AT + n * 10**9)) == len(KINDS)]
    assert paced == [0, 5, 20, 35]
    pipe.write(record(1, XID))
    assert counts(collector, AT + 36 * 10**9) == {"oom_kill": 1, "xid_restart": 1}


@pytest.mark.parametrize("length", [0, 60])
@pytest.mark.parametrize("back", [0, 3600 * 10**9])
def test_the_first_event_is_whole_without_a_zero_before_it(pipe, proc, length, back):
    pipe.write(record(0, OOM, age=100))
    collector, window = sparse(pipe.path, proc), Window(length, born=AT - 1)
    done = window.add([*collector.collect(AT)], AT)
    later = AT - back + 10**9  # the clock may be set back by an hour between two readings
    done += window.add([*collector.collect(later)], later)
    pipe.write(record(1, XID), record(2, XID))
    done += window.add([*collector.collect(later + 10**9)], later + 10**9)
    done += window.close()
    first = next(p for p in done if p.dims.get("kind") == "xid_restart")
    assert (first.value, first.increase, first.start_time) == (2, 2, later)
    assert {p.increase for p in done if p.dims.get("kind") == "oom_kill"} <= {None, 0}


def test_an_event_keeps_its_start_over_a_restart(pipe, proc, tmp_path):
    pipe.write(record(0, OOM))
    collector = sparse(pipe.path, proc, tmp_path)
    list(collector.collect(AT))
    pipe.write(record(1, XID))
    before = {p.dims: (p.value, p.start_time) for p in collector.collect(AT + 5) if p.value}
    collector.close()
    assert {start - AT for _, start in before.values()} == {0, -5000 * 10**9}
    for zeros in (False, True):
        again = sparse(pipe.path, proc, tmp_path, zeros)
        after = {p.dims: (p.value, p.start_time) for p in again.collect(AT + 60 * 10**9) if p.value}
        assert after == before
        again.close()


def test_the_state_of_an_earlier_release_has_one_start_for_all(pipe, proc, tmp_path):
    kept = {"boot": "boot-1", "next": 5, "lost": 0, "since": 77, "counts": {"xid": 2, "nvme": 0}, "evidence": {}}
    (tmp_path / "kernel.json").write_text(json.dumps(kept))
    points = [*sparse(pipe.path, proc, tmp_path).collect(AT)]
    assert [(dict(p.dims), p.value, p.start_time) for p in points if p.dims] == [({"kind": "xid"}, 2, 77)]


@pytest.mark.parametrize("key", ["next", "lost", "since", "counts", "starts"])
@pytest.mark.parametrize("odd", ["-1", "1e999", "1e300", "NaN", f"{'[' * 5000}{']' * 5000}"], ids=lambda odd: odd[:5])
def test_a_state_with_an_impossible_number_is_as_none(pipe, proc, tmp_path, key, odd):
    kept = {"boot": "boot-1", "next": 5, "lost": 0, "since": 77, "counts": {"oom_kill": 2}, "starts": {"oom_kill": 77}}
    kept |= {"evidence": {}, key: {"oom_kill": "odd"} if key in ("counts", "starts") else "odd"}
    (tmp_path / "kernel.json").write_text(json.dumps(kept).replace('"odd"', odd))
    pipe.write(record(0, XID))
    assert counts(sparse(pipe.path, proc, tmp_path)) == {"xid_restart": 1}


def test_the_counts_begin_at_the_boot_while_its_first_message_is_there_else_now(pipe, proc):
    pipe.write(record(0, OOM))
    assert {point.start_time for point in opened(pipe.path, proc).collect(AT)} == {AT - 5000 * 10**9}
    pipe.write(record(7, OOM))
    assert {point.start_time for point in opened(pipe.path, proc).collect(AT)} == {AT}


def test_the_last_message_of_a_kind_is_evidence_with_its_time(pipe, proc):
    now = time.time_ns()
    pipe.write(record(0, OOM, age=300), record(1, OOM.replace("1234", "77"), age=200))
    collector = opened(pipe.path, proc)
    counts(collector, now)
    ((dims, at, text),) = collector.facts()
    assert (dict(dims), text) == ({"kind": "oom_kill"}, OOM.replace("1234", "77"))
    assert abs(at - (now - 200 * 10**9)) < 60 * 10**9


def test_something_else_at_that_path_is_named(tmp_path):
    (tmp_path / "kmsg").write_text("hello")
    with pytest.raises(OSError, match="is not a log of the kernel"):
        list(KernelLog(tmp_path / "kmsg").read())


def test_a_log_that_is_not_there_or_closed_to_us_is_one_line_with_what_to_do(tmp_path):
    with pytest.raises(Unavailable, match="kmsg: No such file or directory; in a container mount the host's"):
        KernelCollector(KernelCollector.Config(path=tmp_path / "kmsg")).open(Given())


def test_a_restricted_log_names_the_capability(tmp_path, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(Unavailable, match=r"denied: with kernel.dmesg_restrict = 1 a reader needs CAP_SYSLOG"):
        KernelCollector(KernelCollector.Config(path=tmp_path / "kmsg")).open(Given())


CHILD = """
import json, sys, time
from pathlib import Path
from chipwatch.collectors.kernel import KernelCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given
path, proc, state = map(Path, sys.argv[1:])
collector = KernelCollector(KernelCollector.Config(path=path, proc=proc))
collector.open(Given(level=Level.DETAILED, state=state))
for line in sys.stdin:
    points = [*collector.collect(time.time_ns())]
    told = {p.dims.get("kind", "lost"): p.value for p in points if p.value}
    print(json.dumps({**told, "starts": sorted({p.start_time for p in points})}), flush=True)
collector.close()
"""


class Reader:
    """A process that reads the log of the stand-in each time that it is asked."""

    def __init__(self, ring, proc, state):
        command = [sys.executable, "-c", CHILD, ring.path, proc, state]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **ring.env}
        )

    def ask(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def counts(self):
        told = self.ask()
        del told["starts"]
        return told

    def end(self, *, killed=False):
        if killed:
            self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    try:
        return build(tmp_path_factory.mktemp("kmsg"))
    except CannotBuild as reason:
        pytest.skip(str(reason))


@pytest.fixture
def reader(library, proc, tmp_path):
    """Start readers of one log and one state folder, one after the other."""
    ring, state, started = Ring(library, tmp_path), tmp_path / "state", []
    state.mkdir()

    def start():
        started.append(Reader(ring, proc, state))
        return started[-1]

    start.ring, start.state, start.proc = ring, state, proc
    yield start
    for one in started:
        if one.process.poll() is None:
            one.end(killed=True)


def test_overwritten_records_are_counted_and_reading_goes_on(reader):
    reader.ring.write(record(0, OOM), None, record(41, XID), None, None, record(50, OOM))
    one = reader()
    assert one.counts() == {"oom_kill": 2, "xid_restart": 1, "lost": 40 + 8}
    reader.ring.append(None, record(53, OOM))
    assert one.counts() == {"oom_kill": 3, "xid_restart": 1, "lost": 40 + 8 + 2}


@pytest.mark.parametrize("killed", [False, True])
def test_a_restart_counts_no_record_twice_and_none_of_the_time_between_is_left_out(reader, killed):
    reader.ring.write(record(0, OOM), record(1, XID))
    first = reader()
    before = first.ask()
    assert (before["oom_kill"], before["xid_restart"]) == (1, 1)
    first.end(killed=killed)
    reader.ring.append(record(2, OOM))
    after = reader().ask()
    assert (after["oom_kill"], after["xid_restart"]) == (2, 1)
    assert after["starts"] == before["starts"]


def test_what_was_overwritten_while_no_agent_ran_is_lost_and_the_counts_stay(reader):
    reader.ring.write(record(0, OOM), record(1, XID))
    first = reader()
    first.ask()
    first.end()
    reader.ring.write(record(7, OOM))
    assert reader().counts() == {"oom_kill": 2, "xid_restart": 1, "lost": 5}


def test_after_a_reboot_everything_is_counted_again(reader):
    reader.ring.write(record(0, OOM), record(1, XID))
    first = reader()
    first.ask()
    first.end()
    (reader.proc / "sys/kernel/random/boot_id").write_text("boot-2\n")
    reader.ring.write(record(0, OOM))
    assert reader().counts() == {"oom_kill": 1}


@pytest.mark.parametrize(
    "rot", [b"", b"[]", b'{"boot": "boot-1"}', b'{"boot": 3', b"\xff", b'{"boot":"boot-1","counts":{"xid":[1]}}']
)
def test_a_rotten_state_is_as_none(reader, rot):
    (reader.state / "kernel.json").write_bytes(rot)
    reader.ring.write(record(0, OOM))
    assert reader().counts() == {"oom_kill": 1}


def test_only_its_owner_can_read_the_state_in_a_folder_of_the_same_user(reader):
    reader.ring.write(record(0, OOM))
    one = reader()
    one.ask()
    one.end()
    assert (reader.state / "kernel.json").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in reader.state.iterdir()] == ["kernel.json"]


def test_this_kernels_log_is_read_where_it_may_be():
    collector = KernelCollector(KernelCollector.Config())
    try:
        check_collector(collector)
    except Unavailable as reason:
        pytest.skip(str(reason))
    own = KernelLog(Path("/dev/kmsg"))
    ours = len([*own.read()])
    own.close()
    shown = subprocess.run(["dmesg", "--raw", "--facility=kern"], capture_output=True, text=True, check=False).stdout
    assert ours > 0
    if shown:
        assert abs(ours - len(shown.splitlines())) <= max(5, 0.02 * ours)  # lines may come between the two


def test_every_code_of_nvidias_catalogue_has_one_row_and_a_known_action():
    assert sorted(BY_CODE) == [*range(1, 173)]
    assert {action_of(code) for code in range(200)} == {*ACTIONS}
    expected = {79: "restart_machine", 151: "restart_machine", 95: "reset_gpu", 31: "restart_app", 63: "ignore",
                48: "see_workflow", 149: "see_workflow", 54: "check_hardware", 78: "update_software", 167: "none"}  # fmt: skip
    assert {code: action_of(code) for code in expected} == expected
