"""Waits of real processes."""

import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chipwatch.collectors.jobs import waits
from chipwatch.collectors.jobs.waits import Waits, unanswered_sockets
from chipwatch.contract.owner import JobFacts
from chipwatch.jobs.causes import Situation, cause
from chipwatch.jobs.evidence import Evidences

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
PROC = Path("/proc")
LOADER = """
import os
read, write = os.pipe()
if os.fork() == 0:
    while os.getppid() != 1:
        sum(range(10_000))
    os._exit(0)
os.read(read, 1)
"""
PAIR = """
import socket, sys, threading, time
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
server, _ = listener.accept()
"""
RECEIVES = PAIR + "client.recv(1)"
STREAMS = (
    PAIR
    + """
def send():
    while True:
        server.send(b"x")
        time.sleep(0.001)
threading.Thread(target=send, daemon=True).start()
while True:
    client.recv(1)
"""
)
ASKS = (
    PAIR
    + """
client.settimeout(600)
server.send(b"x")
client.recv(1)
time.sleep(0.05)
client.send(b"request")
client.recv(1)
"""
)
IDLES = (
    PAIR
    + """
client.settimeout(600)
time.sleep(0.05)
server.send(b"x")
client.recv(1)
client.recv(1)
"""
)
PIPE = (
    PAIR
    + """
import os, select
poll = select.poll()
poll.register(os.pipe()[0])
poll.poll(600_000)
"""
)


@pytest.fixture
def start(at_the_end):
    """Start a Python program; return its pid."""

    def begin(program):
        process = at_the_end.enter_context(subprocess.Popen([sys.executable, "-c", program]))
        at_the_end.callback(process.kill)
        return process.pid

    return begin


def facts(moment, processes):
    cpu = {pid: one.cpu for pid, one in processes.items()}
    return JobFacts(round(moment * 1e9), {}, cpu=cpu, processes=processes)


def cause_of(pid, first, last, seconds):
    """Return why a GPU is idle on which the process is, by two readings that are seconds apart."""
    evidences = Evidences()
    evidences.take(facts(0, first))
    evidences.take(facts(seconds, last))
    evidence = evidences.of((), (pid,))
    return cause(Situation(evidence))


def waited(pid, until, wchan, seconds=0.5):
    """Return the cause by two readings, while the process waits in a function of the kernel."""
    until(lambda: (PROC / f"{pid}/wchan").read_text().startswith(wchan))
    time.sleep(0.2)  # what it did before it waited is over
    waits, begun = Waits(PROC), time.monotonic()
    first = waits.read({pid}, {pid}, begun)
    time.sleep(seconds)
    ended = time.monotonic()
    return cause_of(pid, first, waits.read({pid}, {pid}, ended), ended - begun)


def test_a_process_that_sleeps_while_one_child_computes_waits_for_data(start, until):
    pid, waits = start(LOADER), Waits(PROC)

    def computed():
        used = waits.read({pid}, {pid}, 0.0)
        return used if sum(used[pid].children.values()) > 0.1 else None

    first = until(computed)
    before = sum(first[pid].children.values())

    def later():
        used = waits.read({pid}, {pid}, 0.0)
        return used if sum(used[pid].children.values()) > before + 0.5 else None

    last = until(later)
    seconds = sum(last[pid].children.values()) - before  # of a core that nobody else uses
    first, last = ({pid: used[pid]._replace(delays={})} for used in (first, last))
    assert cause_of(pid, first, last, seconds) == "data"
    assert cause_of(pid, first, last, 2 * seconds) == "other"


def test_a_child_that_is_on_a_gpu_itself_is_not_a_loader(start, until):
    pid, waits = start(LOADER), Waits(PROC)
    (child,) = until(lambda: [key for one in waits.read({pid}, {pid}, 0.0).values() for key in one.children])
    assert waits.read({pid}, {pid, child[0]}, 0.0)[pid].children == {}


def test_threads_without_children_are_asked_again_after_ten_seconds(tmp_path):
    for pid in (50, 60, 61):
        (tmp_path / f"{pid}/task/{pid}").mkdir(parents=True)
        (tmp_path / f"{pid}/stat").write_text(f"{pid} (python) S 1 1 1 0 -1 0 0 0 0 0 1 1 0 0 20 0 4 0 500 1000 25 0")
    (tmp_path / "50/task/51").mkdir()
    waits = Waits(tmp_path, lambda _: set())

    def children(now, **by_thread):
        for thread, pids in by_thread.items():
            (tmp_path / f"50/task/{thread[1:]}/children").write_text(pids)
        return {pid for pid, _ in waits.read({50}, {50}, now)[50].children}

    assert children(0.0, t50="", t51="") == set()
    assert children(1.0, t50="60", t51="61") == {60}, "the main thread is always asked"
    assert children(11.0) == {60, 61}
    assert children(12.0, t50="") == {61}


@pytest.mark.skipif(not (PROC / "self/syscall").exists(), reason="the kernel has no /proc/PID/syscall")
def test_a_process_that_waits_for_bytes_of_a_connection_waits_for_the_network(start, until):
    pid = start(RECEIVES)  # which waits also before it receives, as it connects
    until(lambda: waited(pid, until, ("wait_woken", "sk_wait_data")) == "network")


def test_a_process_to_which_bytes_come_does_not_wait_for_the_network(start, until):
    assert waited(start(STREAMS), until, ("wait_woken", "sk_wait_data"), 1.0) == "other"


def test_a_process_that_polls_for_an_answer_waits_for_the_network(start, until):
    pid = start(ASKS)
    until(lambda: (PROC / f"{pid}/wchan").read_text().startswith(("poll_", "do_")))
    time.sleep(0.6)
    if not unanswered_sockets(0.1):
        pytest.skip("sock_diag does not answer")
    until(lambda: waited(pid, until, ("poll_", "do_"), 0.3) == "network")


@pytest.mark.parametrize("program", [IDLES, PIPE])
def test_a_process_with_a_connection_that_owes_it_nothing_does_not_wait_for_the_network(start, until, program):
    assert waited(start(program), until, ("poll_", "do_")) == "other"


STAT = "7 (python) S 1 7 7 0 -1 0 0 0 0 0 150 50 0 0 20 0 1 0 100 0 10 0\n"
TCP = "  sl  local_address rem_address   st\n   0: 0100007F:9359 0100007F:1234 01 00000000:{} 00:00000000 00000000 0 0 {} 1\n"


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, True),
        ({"net/tcp": TCP.format("00000005", 42)}, False),  # something to read
        ({"net/tcp": TCP.format("00000000", 0), "fd/4": "pipe:[42]"}, False),  # not accepted yet, and a pipe
        ({"net/tcp": TCP.format("00000000", "x")}, False),
        ({"net/tcp": "\xff\n\xff\n"}, False),
        ({"syscall": "running"}, False),
        ({"syscall": "45 zz"}, False),
        ({"syscall": "-1 0x7ffc8a3e6f88 0x7f2d"}, False),
        ({"wchan": "0"}, False),
        ({"status": "Name: python\n"}, False),
        ({"ns/net": None}, True),
    ],
    ids=str,
)
def test_files_of_any_form_are_read(tmp_path, changes, waits):
    files = {
        "stat": STAT, "wchan": "wait_woken", "syscall": "45 0x4 0x7f", "status": "voluntary_ctxt_switches:\t12\n",
        "net/tcp": TCP.format("00000000", 42), "fd/4": "socket:[42]", "ns/net": "net:[1]", **changes,
    }  # fmt: skip
    for name, text in files.items():
        path = tmp_path / "7" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if text is not None and name.startswith(("fd/", "ns/")):
            path.symlink_to(text)
        elif text is not None:
            path.write_text(text)
    read = Waits(tmp_path, lambda _: set()).read
    assert [read({7}, {7}, float(second))[7].waits for second in (0, 5, 10)] == [False, waits, waits]


def test_processes_that_have_ended_are_left_out(start):
    assert Waits(PROC).read({2**22 + 1}, set(), 0.0) == {}


@pytest.mark.parametrize(
    ("unread", "sent", "received", "answers", "found"),
    [
        (0, 10, 20, 1, 7),
        (0, 19, 20, 1, 7),
        (0, 20, 20, 1, None),
        (0, 10, 19, 1, None),
        (0, 10, 20, 0, None),
        (1, 10, 20, 1, None),
    ],
)
def test_a_socket_waits_for_an_answer_from_the_moment_that_counts(unread, sent, received, answers, found):
    other = struct.pack("=HH4x", 8, waits.INFO + 1)
    traffic = struct.pack("=HH", 4 + waits.TRAFFIC.size, waits.INFO) + waits.TRAFFIC.pack(sent, received, answers)
    assert waits._unanswered(waits.MESSAGE.pack(unread, 7) + other + traffic, 20.0) == found


BOUND = """
import os, sys
first = min(os.sched_getaffinity(0))
def child():
    if os.fork() == 0:
        os.sched_setaffinity(0, {first})
        while os.getppid() != 1:
            sum(range(10_000))
        os._exit(0)
read, write = os.pipe()
child(), child()
os.read(read, 1)
"""


def test_children_that_are_bound_to_one_cpu_wait_for_data_and_not_for_others(start, until):
    pid, waits = start(BOUND), Waits(PROC)

    def bound():
        use = Waits(PROC).read({pid}, {pid}, time.monotonic())[pid]  # one alone keeps CPUs for a minute
        return use if len(use.children) == 2 and use.cpus == 1 else None

    until(bound)
    first, begun = waits.read({pid}, {pid}, time.monotonic()), time.monotonic()
    time.sleep(1.0)
    last, ended = waits.read({pid}, {pid}, time.monotonic()), time.monotonic()
    assert last[pid].shares_cpus == (len(os.sched_getaffinity(0)) == 1)
    waited = sum(last[pid].delays.values()) - sum(first[pid].delays.values())
    assert waited > 0.5, "each of the two waits for the other half of the time"
    # As on a CPU that no stranger uses.
    used = sum(last[pid].children.values()) - sum(first[pid].children.values())
    assert used > 0.01
    assert cause_of(pid, first, last, min(used, ended - begun)) == "data"
