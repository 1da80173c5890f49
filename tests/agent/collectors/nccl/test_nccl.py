"""The collector `nccl` and fake RAS services of each version, real sockets on loopback."""

import itertools
import os
import re
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from contextlib import closing, contextmanager

import pytest
from tests.doubles.ras import FakeRas, ranks, render

from chipwatch.collectors.nccl import NcclCollector
from chipwatch.collectors.nccl.ras import BEHIND, MISSING, UnreadableAnswer, parse
from chipwatch.collectors.nccl.service import LASTING, RasService
from chipwatch.contract.owner import Owner
from chipwatch.jobs.recent import of_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="RAS is found by Linux's /proc")
VERSIONS = "2.24.3", "2.26.2", "2.27.5", "2.28.3", "2.28.7", "2.28.9", "2.29.7"
JSON = VERSIONS[-3:]
JOB = Owner("slurm", "41337")


def answer_of(text, wanted=()):
    return parse(text.encode(), wanted)


def service(*jobs):
    ras = RasService("127.0.0.1", 1)
    ras.jobs = dict(enumerate(jobs or [JOB]))
    return ras


def told(ras, reports, step=30.0):
    """Take reports one after the other; return the last facts."""
    for n, report in enumerate(reports):
        ras.take(answer_of(report), 0.01, 1000 + n * step, 10**9, 30.0)
    return ras.facts


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_names_the_rank_that_is_behind(version):
    members = ranks(32)
    members[21].counts = {"AllReduce": 6649}
    answer = answer_of(render(version, [members]))
    assert answer.devices == 32
    ((key, group),) = answer.groups.items()
    assert key[1:] == (BEHIND, "collective" if version < "2.26" else "AllReduce", 6649)
    assert group.number == 1
    assert group.ranks[0] == (21, "172.16.64.2", 400021, 5)


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_names_the_rank_that_does_not_answer(version):
    members = ranks(32)
    members[21].state = "unresponsive"
    ((key, group),) = answer_of(render(version, [members])).groups.items()
    assert (key[1], group.number) == (MISSING, 1)
    assert [*group.ranks] == [(21, "172.16.64.2", 400021, 5)]
    members[3].state = "dead"
    answer = answer_of(render(version, [members]))
    (group,) = answer.groups.values()
    assert {rank.rank for rank in group.ranks} == {3, 21}
    assert answer.dead == 1
    if version < "2.26":  # it lists ranks and processes apart: which is which is not known
        assert {rank.host for rank in group.ranks} == {""}


@pytest.mark.parametrize("is_listed", [True, False])
def test_dead_processes_are_named_where_their_ranks_are_not(is_listed):
    members = ranks(20)
    for n, one in enumerate(members[:12]):
        one.host, one.pid, one.gpu, one.state = "172.16.64.9", 4242 + n % 2, 5 + n % 2, "dead"
    text = render("2.28.3", [members])
    facts = told(service(), [text if is_listed else re.sub(r"#\S+ \(\w+\) INCOMPLETE\n.*\n", "", text)] * 3)
    assert [*facts.missing] == [(-1, "172.16.64.9", 4242, 5), (-1, "172.16.64.9", 4243, 6)]
    assert (facts.missing_count, facts.dead) == (12 if is_listed else 2, 2)
    words = {figure.name: figure.word for figure in of_ranks([facts])}
    who = "a rank (172.16.64.9 gpu 5, process 4242), a rank (172.16.64.9 gpu 6, process 4243)"
    assert words["ranks.missing"].startswith(who)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("state", ["init", "finalize", "gone"])
def test_nobody_is_behind_or_missing_where_ranks_begin_or_end(version, state):
    members = ranks(32)
    for one in members[10:]:
        one.state, one.counts = state, {"AllReduce": 6649}
    assert not answer_of(render(version, [members])).groups


@pytest.mark.parametrize("version", VERSIONS)
def test_a_rank_counts_as_behind_once_it_has_not_moved_for_half_a_minute(version):
    stuck = ranks(8)
    stuck[5].counts = {"AllReduce": 6649}
    report = render(version, [stuck])
    assert told(service(), [report]).behind_count == 0
    facts = told(service(), [report] * 3, step=LASTING / 2)
    assert [rank.rank for rank in facts.behind] == [5]
    assert facts.lag.startswith("collective 6649 of 6650" if version < "2.26" else "AllReduce 6649 of 6650")


@pytest.mark.parametrize("version", VERSIONS)
def test_a_difference_that_moves_names_nobody(version):
    def moving(step):
        members = ranks(8, launched=100 + 7 * step)
        members[step % 8].counts = {"AllReduce": 99 + 7 * step}
        return render(version, [members])

    facts = told(service(), map(moving, range(120)))
    assert (facts.behind_count, facts.missing_count) == (0, 0)


def test_of_ranks_that_wait_for_each_other_the_first_one_is_named():
    # 2 replicas of 4 ranks: rank 1 hangs, so its replica misses the next collective of all pairs of replicas
    inside = [ranks(8)[n : n + 4] for n in (0, 4)]
    inside[0][1].counts = {"AllReduce": 6649}
    across = [[ranks(8)[n], ranks(8)[n + 4]] for n in range(4)]
    for pair in across:
        pair[0].counts = {"AllReduce": 10}
        pair[1].counts = {"AllReduce": 11}
    facts = told(service(), [render("2.29.7", [*inside, *across])] * 3)
    assert [rank.rank for rank in facts.behind] == [1]
    assert facts.behind_count == 1


def test_collectives_are_counted_over_communicators_that_come_and_go():
    reports = [[ranks(8, launched=100)], [ranks(8, launched=130), ranks(4, launched=5)], [ranks(8, launched=131)]]
    assert told(service(), [render("2.29.7", members) for members in reports]).launched == 31
    assert told(service(), [render("2.26.2", [ranks(8)])]).launched is None


def test_where_two_jobs_share_an_address_the_pids_of_the_answer_decide():
    ras, other = service(), Owner("slurm", "41340")
    ras.jobs = {400_003: JOB, 99: other}
    ras.take(answer_of(render("2.29.7", [ranks(8)]), wanted=ras.jobs), 0.1, 1.0, 1, 30.0)
    assert ras.facts.owner == JOB
    assert ras.facts.ranks == 8
    ras.take(answer_of(render("2.26.2", [ranks(8)])), 0.1, 1.0, 1, 30.0)
    assert "2 jobs share" in ras.facts.problem


def test_questions_become_rarer_where_answers_take_long_and_more_frequent_while_a_rank_is_behind():
    ras, calm, stuck = service(), ranks(8), ranks(8)
    stuck[0].counts = {"AllReduce": 1}
    ras.take(answer_of(render("2.29.7", [calm])), 0.01, 0.0, 1, 30.0)
    assert ras.due == 30
    ras.take(answer_of(render("2.29.7", [calm])), 4.0, 0.0, 1, 30.0)
    assert ras.due == 120
    ras.take(answer_of(render("2.29.7", [stuck])), 0.01, 0.0, 1, 30.0)
    assert ras.due == 15
    ras.fail(TimeoutError(), 0.0)
    assert ras.due == 60
    assert "no answer in 10 s" in ras.facts.problem


def test_ten_thousand_ranks_take_little_memory():
    members = ranks(10_000)
    members[77].counts = {"AllReduce": 6649}
    data = render("2.29.7", [members]).encode()
    tracemalloc.start()
    assert parse(data).devices == 10_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(data) + peak < 20e6


@pytest.mark.parametrize(
    "text",
    ["", "HTTP/1.1 400 Bad Request\r\n\r\n", "{}\n", '{"rank":' * 1000, "NCCL version \n", "x" * 100_000,
     "NCCL version 2.28.3 x\n" + "y" * 10_000 + "\n", '{\n"hash": "0x1", "rank": ' + "9" * 5000 + "\nWarnings\n",
     "NCCL version 2.28.3 compiled\n#0-0 (ab) MISMATCH\n" + "  Rank 99999999999999999999 --\n" * 9],
)  # fmt: skip
def test_what_is_not_a_whole_answer_is_refused(text):
    with pytest.raises(ValueError, match=r"answer|limit|digits|range"):
        answer_of(text)


@pytest.mark.parametrize("version", VERSIONS)
def test_numbers_without_end_harm_nothing(version):
    members = ranks(4, launched=int("9" * 400))
    members[2].counts = {"AllReduce": int("8" * 400)}
    for _ in range(2):
        facts = told(service(), [render(version, [members])] * 3)
        assert float(facts.ranks + facts.behind_count + (facts.launched or 0)) < 1e30


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_that_ends_early_is_refused(version):
    report = render(version, [ranks(8)])
    for end in range(0, len(report) - 40, 211):
        with pytest.raises(UnreadableAnswer):
            answer_of(report[:end])


def test_ranks_that_fail_or_are_missing_for_a_moment_are_not_named():
    members = ranks(8)
    members[3].error, members[4].state = 6, "unresponsive"
    report = render("2.29.7", [members])
    assert told(service(), [report]).missing_count == 0
    facts = told(service(), [report] * 2)
    assert ([rank.rank for rank in facts.missing], [rank.rank for rank in facts.failed]) == ([4], [3])
    assert told(service(), [report, render("2.29.7", [ranks(8)]), report]).missing_count == 0


@pytest.fixture
def ras(at_the_end):
    return lambda *given, **more: at_the_end.enter_context(closing(FakeRas(*given, **more)))


@pytest.fixture
def collector(begun):
    """Make collectors that follow a process; they are closed at the end."""

    def follow(pid=None, **config):
        one = begun(NcclCollector(NcclCollector.Config(**config)))
        one.follow([pid or os.getpid()], ())
        return one

    return follow


def read(one, until, seconds=20):
    """Collect until the facts are as wanted; return the last points."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        points = [*one.collect(at=7)]
        if until(one.facts()):
            return {point.metric.name: point.value for point in points}
        time.sleep(0.02)
    raise AssertionError(one.facts())


@pytest.mark.parametrize("version", ["2.26.2", "2.29.7"])
def test_it_finds_the_service_by_the_sockets_of_the_job_s_processes(ras, collector, version):
    server = ras(lambda: render(version, [ranks(16)]), has_json=version in JSON)
    one = collector(port=server.port)
    values = read(one, lambda facts: facts and facts[0].ranks == 16)
    assert values["job.ranks"] == 16
    assert (values["job.ranks.behind"], values["job.ranks.missing"]) == (0, 0)
    assert ("job.collectives" in values) == (version in JSON), "absent is not zero"
    assert "16 ranks" in one.describe()


def test_nothing_is_asked_while_an_answer_is_awaited_and_no_reading_waits_for_it(ras, collector):
    read_five_times = threading.Event()

    def slowly(connection):
        read_five_times.wait(60)
        connection.sendall(render("2.29.7", [ranks(8)]).encode())

    server = ras(None, stream=slowly)
    one = collector(port=server.port, every=0.0)
    for _ in range(5):
        list(one.collect(at=1))
    read_five_times.set()
    read(one, lambda facts: facts and facts[0].ranks == 8)
    assert server.most_open == 1


def test_another_job_at_the_same_address_has_a_new_count(ras, collector):
    server = ras(lambda: render("2.29.7", [ranks(16)]))
    one = collector(port=server.port)
    read(one, lambda facts: facts and facts[0].ranks == 16)
    (first,) = one._endpoints.values()
    first.jobs = {1: JOB}  # it was another one's
    one._due = 0.0
    read(one, lambda _: [*one._endpoints.values()] != [first])
    assert [*one._endpoints] == [("127.0.0.1", server.port)]


def endless(connection):
    for _ in range(2000):
        connection.sendall(b"NCCL version 2.24.3 x\n" * 3000)


def dripping(connection):
    for letter in itertools.cycle(b"N"):
        connection.sendall(bytes([letter]))
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("stream", "why"),
    [(endless, "64 MiB"), (dripping, "no answer in"), (lambda connection: connection.close(), "not whole")],
)
def test_a_hostile_service_loses_only_its_own_data(ras, collector, monkeypatch, stream, why):
    monkeypatch.setattr("chipwatch.collectors.nccl.service.TIMEOUT", 5.0 if "MiB" in why else 0.5)
    bad = ras(None, stream=stream)
    one = collector(port=bad.port)
    values = read(one, lambda facts: facts and facts[0].problem, seconds=60)
    assert values == {}
    (facts,) = one.facts()
    assert why in facts.problem or (why == "64 MiB" and "no answer in" in facts.problem)
    list(one.collect(at=8))
    assert bad.asked == 1, "it is asked again after a minute"


@contextmanager
def job(*argv, **options):
    """Run a program that prints a line once it is ready; return its pid, and the line."""
    with subprocess.Popen(argv, stdout=subprocess.PIPE, **options) as child:
        try:
            yield child.pid, child.stdout.readline()
        finally:
            child.kill()


def test_a_service_in_another_network_namespace_is_not_asked_and_said_so(collector):
    code = "import socket, time; s = socket.create_server(('127.0.0.1', 28028)); print(1, flush=True); time.sleep(60)"
    alone = "unshare", "--net", "--", "sh", "-c", 'ip link set lo up; exec "$0" -c "$1"', sys.executable, code
    with job(*alone, stderr=subprocess.DEVNULL) as (pid, line):
        if not line:
            pytest.skip("unshare --net needs root")
        read(collector(pid), lambda facts: facts and "another network namespace" in facts[0].problem)


def test_a_port_in_the_job_s_environment_is_used(collector):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port, code = server.getsockname()[1], "import time; print(1, flush=True); time.sleep(60)"
        env = {**os.environ, "NCCL_RAS_ADDR": f"localhost:{port}"}
        with job(sys.executable, "-c", code, env=env, pass_fds=[server.fileno()]) as (pid, _):
            one = collector(pid)
            read(one, lambda _: [*one._endpoints] == [("127.0.0.1", port)])


def test_a_search_that_fails_ends_one_reading_and_is_tried_again(ras, collector, monkeypatch):
    server = ras(lambda: render("2.29.7", [ranks(16)]))
    one = collector(port=server.port)
    with monkeypatch.context() as patch:
        patch.setattr("chipwatch.collectors.nccl.service.listeners", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            read(one, lambda _: False)
    assert read(one, lambda facts: facts and facts[0].ranks)["job.ranks"] == 16


def test_without_processes_it_asks_nobody(begun):
    one = begun(NcclCollector(NcclCollector.Config()))
    assert ([*one.collect(at=1)], one.facts()) == ([], [])
