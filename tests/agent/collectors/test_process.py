import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.told import reading

from chipwatch.collectors.process import (
    COUNT,
    CPU_LIMIT,
    CPU_UTILIZATION,
    MEMORY_UTILIZATION,
    OPEN_FILES,
    READ,
    REFRESH,
    RSS,
    THREADS,
    WRITTEN,
    ProcessCollector,
)
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.host import procfs
from chipwatch.host.process_tree import ProcTree, PsutilTree, Stat, parse_stat
from chipwatch.host.reaped_total import MAX_READINGS

LINUX = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc here")
SECOND = 1_000_000_000
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Machine:
    """A /proc in a folder, with 2 CPUs, 1 GiB and the watched process 10; a process is a folder with `stat`, `io` and `fd`."""

    def __init__(self, folder: Path) -> None:
        self.proc = folder / "proc"
        self.now = 100 * SECOND
        self.proc.mkdir()
        (self.proc / "stat").write_text("cpu  1\ncpu0 1\ncpu1 1\nbtime 1000\n")
        (self.proc / "meminfo").write_text("MemTotal:       1048576 kB\n")
        self.process("self", 1, began=0)
        self.process(10, 1)

    def process(
        self, pid, parent, *, own=0, reaped=0, began=500, state="S", threads=1, pages=10, name="x", io=(0, 0), files=3
    ):
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True, exist_ok=True)
        for n in range(files):
            (folder / "fd" / str(n)).touch()
        user, reaped_user = own // 2, reaped // 2
        (folder / "stat").write_bytes(
            f"{pid} ({name}) {state} {parent} 1 1 0 -1 4194304 1 2 3 4 "
            f"{user} {own - user} {reaped_user} {reaped - reaped_user} "
            f"20 0 {threads} 0 {began} 1000000 {pages} 18446744073709551615 1 1 0 0\n".encode()
        )
        (folder / "io").write_text(
            f"rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: {io[0]}\nwrite_bytes: {io[1]}\ncancelled_write_bytes: 7\n"
        )

    def gone(self, pid):
        for name in "stat", "io":  # of a process that has ended, open files cannot be read either
            os.truncate(self.proc / f"{pid}/{name}", 0)
        shutil.rmtree(self.proc / str(pid))

    def collector(self, pid=10, level=Level.ALL):
        collector = ProcessCollector(ProcessCollector.Config(proc=self.proc, sys=self.proc, pid=pid))
        collector._clock = lambda: self.now
        collector.open(Given(level=level))
        return collector


@pytest.fixture
def machine(tmp_path, monkeypatch):
    # A folder's size is its number of files in /proc only.
    monkeypatch.setattr(
        ProcTree, "_open_files", lambda tree, pid: len([*Path(tree._config.proc, str(pid), "fd").iterdir()])
    )
    monkeypatch.setattr(sys, "platform", "linux")
    return Machine(tmp_path)


@pytest.fixture
def watch(machine):
    """Collect one second after the last call; return the points by metric."""
    collector = None

    def look(seconds=1):
        nonlocal collector
        if collector is None:
            collector = machine.collector()
        else:
            machine.now += seconds * SECOND
        return {point.metric: point.value for point in collector.collect(7)}

    return look


def share(ticks, seconds=1):
    """Return the share of 2 CPUs (%)."""
    return pytest.approx(100 * ticks / TICKS / seconds / 2)


def test_a_tree_of_three_processes_is_summed(machine, watch):
    machine.process(10, 1, threads=4, pages=100, io=(4096, 100))
    machine.process(11, 10, threads=2, pages=50, io=(1, 2), files=5)
    machine.process(12, 11, pages=6)
    machine.process(13, 1, pages=1000)
    assert watch() == {
        CPU_LIMIT: 2,
        THREADS: 7,
        RSS: 156 * PAGE,
        MEMORY_UTILIZATION: 100 * 156 * PAGE / (1 << 30),
        COUNT: 3,
        READ: 4097,
        WRITTEN: 102,
        OPEN_FILES: 11,
    }


@pytest.mark.parametrize("most", [0, 1, 99])
def test_a_tree_has_the_same_sums_however_many_files_stay_open(machine, watch, monkeypatch, most):
    monkeypatch.setattr(procfs, "MAX_OPEN", most)
    machine.process(10, 1)
    machine.process(11, 10, own=100, io=(5, 0))
    watch()
    watch()
    machine.process(10, 1, own=20, pages=7, io=(1, 0))
    machine.process(12, 11, own=30, threads=3)
    points = watch()
    assert (points[COUNT], points[THREADS], points[RSS], points[READ]) == (3, 5, 27 * PAGE, 6)
    assert points[CPU_UTILIZATION] == share(50)
    machine.gone(12)
    machine.process(11, 10, own=100, reaped=30, io=(5, 0))
    points = watch()
    assert (points[COUNT], points[CPU_UTILIZATION]) == (2, 0.0)


def test_the_files_of_a_process_are_closed_after_its_end(machine, watch):
    watch()
    before = len([*Path("/dev/fd").iterdir()])
    machine.process(11, 10)
    watch()
    watch()
    assert len([*Path("/dev/fd").iterdir()]) > before
    machine.gone(11)
    watch()
    assert len([*Path("/dev/fd").iterdir()]) <= before + 2


def test_an_agent_that_the_process_started_is_not_in_the_tree(machine, watch):
    machine.process(11, 10, pages=1000)
    machine.process(12, 11, name="a program of the agent")
    machine.gone("self")
    (machine.proc / "self").symlink_to("11")
    assert watch()[COUNT] == 1


@LINUX
@pytest.mark.parametrize("kind", ["ProcTree", "PsutilTree"])
def test_a_process_does_not_find_itself_in_the_tree_of_its_parent(kind):
    program = f"""if True:
        import os
        from chipwatch.collectors.process import ProcessCollector
        from chipwatch.host.process_tree import {kind}
        tree = {kind}(ProcessCollector.Config(), os.getppid(), detailed=False)
        print(tree.read(rescan=True).processes, os.getpid() in tree.pids())
    """
    starts_it = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {program!r}])"
    done = subprocess.run([sys.executable, "-c", starts_it], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("1 False\n", "")


def test_level_basic_reads_neither_io_nor_open_files(machine):
    (machine.proc / "10/io").unlink()
    (machine.proc / "10/fd").rename(machine.proc / "10/away")
    points = machine.collector(level=Level.BASIC).collect(0)
    assert {point.metric for point in points} == {CPU_LIMIT, THREADS, RSS, MEMORY_UTILIZATION, COUNT}


def test_cpu_utilization_is_the_share_of_the_cpus_since_the_last_reading(machine, watch):
    machine.process(10, 1, own=1000)
    machine.process(11, 10, own=500)
    assert CPU_UTILIZATION not in watch()
    machine.process(10, 1, own=1010)
    machine.process(11, 10, own=590)
    assert watch()[CPU_UTILIZATION] == share(100)
    assert watch()[CPU_UTILIZATION] == 0.0


def test_shares_do_not_depend_on_the_timestamp_of_a_point(machine):
    collector = machine.collector()
    list(collector.collect(9 * SECOND))
    machine.process(10, 1, own=50)
    machine.now += SECOND
    points = {point.metric: point for point in collector.collect(2 * SECOND)}
    assert points[CPU_UTILIZATION].value == share(50)
    assert points[CPU_UTILIZATION].at == 2 * SECOND


def test_too_short_an_interval_is_added_to_the_next(machine, watch):
    watch()
    machine.process(10, 1, own=1)
    assert CPU_UTILIZATION not in watch(0.01)
    machine.process(10, 1, own=50)
    assert watch(0.99)[CPU_UTILIZATION] == share(50)
    machine.process(10, 1, own=50 + 2 * TICKS + 1)
    assert watch()[CPU_UTILIZATION] == 100.0


def test_the_limits_come_from_the_processs_cgroup_and_are_read_again_after_a_minute(machine, watch):
    machine.process(10, 1, pages=256)
    (machine.proc / "10/cgroup").write_text("0::/box\n")
    (machine.proc / "self/mountinfo").write_text("30 23 0:26 / /sys/cg rw - cgroup2 cgroup2 rw\n")
    box = machine.proc / "cg/box"
    box.mkdir(parents=True)
    (box / "memory.max").write_text(f"{512 * PAGE}\n")
    (box / "cpu.max").write_text("50000 100000\n")
    points = watch()
    assert (points[CPU_LIMIT], points[MEMORY_UTILIZATION]) == (0.5, 50.0)
    machine.process(10, 1, pages=256, own=TICKS // 4)
    (box / "memory.max").write_text(f"{1024 * PAGE}\n")
    points = watch()
    assert points[CPU_UTILIZATION] == pytest.approx(50.0)
    assert points[MEMORY_UTILIZATION] == 50.0
    assert watch(REFRESH // SECOND)[MEMORY_UTILIZATION] == 25.0


def test_memory_utilization_is_at_most_100_despite_shared_pages(machine, watch):
    machine.process(10, 1, pages=(1 << 30) // PAGE)
    machine.process(11, 10, pages=(1 << 30) // PAGE)
    points = watch()
    assert points[RSS] == 2 << 30
    assert points[MEMORY_UTILIZATION] == 100.0


def test_a_parent_that_ignores_its_children_is_corrected_for_a_limited_time(machine, watch):
    machine.process(11, 10, own=10_000)
    watch()
    machine.gone(11)
    for _ in range(MAX_READINGS + 1):
        assert watch()[CPU_UTILIZATION] == 0.0
    machine.process(10, 1, reaped=40)
    assert watch()[CPU_UTILIZATION] == share(40)


def test_an_orphan_and_its_children_stay_in_the_tree(machine, watch):
    machine.process(10, 1, began=400)
    machine.process(11, 10)
    watch()
    machine.gone(10)
    machine.process(11, 1, own=20)
    machine.process(12, 11, own=30)
    points = watch()
    assert points[COUNT] == 2
    assert points[CPU_UTILIZATION] == share(50)


def test_a_reused_pid_is_not_in_the_tree(machine, watch):
    machine.process(11, 10, own=100)
    watch()
    machine.process(11, 1, own=5000, began=900)
    points = watch()
    assert points[COUNT] == 1
    assert points[CPU_UTILIZATION] == 0.0


def test_after_the_tree_ended_a_reused_pid_is_ignored(machine, watch):
    watch()
    machine.gone(10)
    assert watch() == {}
    machine.process(10, 1, own=100, began=900)
    assert watch(REFRESH // SECOND) == {}


def test_a_counter_that_falls_adds_nothing(machine, watch):
    machine.process(10, 1, own=1000, reaped=1000, io=(50, 50))
    watch()
    machine.process(10, 1, own=10, reaped=10, io=(5, 5))
    points = watch()
    assert points[CPU_UTILIZATION] == 0.0
    assert (points[READ], points[WRITTEN]) == (50, 50)
    machine.process(10, 1, own=15, reaped=15, io=(6, 7))
    points = watch()
    assert points[CPU_UTILIZATION] == share(10)
    assert (points[READ], points[WRITTEN]) == (51, 52)


def test_a_zombie_counts_only_with_its_cpu_time(machine, watch):
    machine.process(11, 10, own=10, threads=3)
    watch()
    machine.process(11, 10, own=25, threads=1, pages=0, state="Z")
    points = watch()
    assert (points[COUNT], points[THREADS], points[RSS]) == (1, 1, 10 * PAGE)
    assert points[CPU_UTILIZATION] == share(15)
    machine.gone(11)
    machine.process(10, 1, reaped=25)
    assert watch()[CPU_UTILIZATION] == 0.0


def test_a_tree_of_zombies_yields_nothing(machine, watch):
    watch()
    machine.process(10, 1, state="Z", pages=0)
    assert watch() == {}


def test_a_process_that_is_being_reaped_counts_as_ended(machine, watch):
    machine.process(11, 10, own=100)
    watch()
    machine.process(10, 1, reaped=110)
    machine.process(11, 10, own=110, state="X")
    assert watch()[CPU_UTILIZATION] == share(10)


def test_a_missed_process_is_found_after_a_minute_without_a_jump(machine, watch):
    machine.process(11, 1)
    watch()
    machine.process(11, 10, own=90_000, io=(90_000, 0))
    assert watch()[COUNT] == 1
    points = watch(REFRESH // SECOND)
    assert (points[COUNT], points[READ]) == (2, 0)
    assert points[CPU_UTILIZATION] == 0.0
    machine.process(11, 10, own=90_010, io=(90_003, 0))
    points = watch()
    assert points[CPU_UTILIZATION] == share(10)
    assert points[READ] == 3


def test_bytes_of_children_are_counted_once(machine, watch):
    machine.process(10, 1, io=(0, 1000))
    machine.process(11, 10, io=(0, 500))
    assert watch()[WRITTEN] == 1500
    machine.process(11, 10, io=(0, 600))
    assert watch()[WRITTEN] == 1600
    machine.gone(11)
    machine.process(10, 1, io=(0, 1650))  # 600 of 11, 50 more that it wrote at the end
    assert watch()[WRITTEN] == 1650


def test_the_bytes_of_a_tree_that_is_older_than_the_agent_start_at_the_first_reading(machine):
    """An earlier agent may have counted a process that is gone and that no parent waited for."""
    machine.process("self", 1, began=900)
    machine.process(10, 1, began=500, io=(9000, 9000))
    for at in (7, 70):
        collector = machine.collector()
        for n in range(2):
            machine.process(10, 1, began=500, io=(9000 + 5 * n, 9000))
            points = [point for point in collector.collect(at + n) if point.metric in (READ, WRITTEN)]
            assert points == [
                READ.point(at + n, 5 * n, start_time=at), WRITTEN.point(at + n, 0, start_time=at)
            ]  # fmt: skip


def test_the_counters_start_with_the_first_process(machine):
    machine.process(10, 1, began=5 * TICKS)
    points = [point for point in machine.collector().collect(0) if point.metric in (READ, WRITTEN)]
    assert [point.start_time for point in points] == [1005 * SECOND] * 2


@pytest.mark.parametrize(("user", "system"), [(30, 0), (0, 30), (10, 20)])
def test_user_and_system_time_both_count(machine, watch, user, system):
    def spent(user, system, reaped_user, reaped_system):
        machine.process(10, 1)
        stat = machine.proc / "10/stat"
        name, fields = stat.read_text().split(") ")
        words = fields.split(" ")
        words[11:15] = map(str, (user, system, reaped_user, reaped_system))
        stat.write_text(f"{name}) {' '.join(words)}")

    spent(1, 2, 4, 8)
    watch()
    spent(1 + user, 2 + system, 4, 8)
    assert watch()[CPU_UTILIZATION] == share(30)
    spent(1 + user, 2 + system, 4 + user, 8 + system)
    assert watch()[CPU_UTILIZATION] == share(30)


@pytest.mark.parametrize(("ask", "metrics"), [("_io", {READ, WRITTEN}), ("_open_files", {OPEN_FILES})])
def test_a_sum_is_absent_if_a_member_cannot_be_read(machine, monkeypatch, ask, metrics):
    machine.process(11, 10)
    collector = machine.collector()
    honest = getattr(collector._tree, ask)

    def secret(pid):
        if pid == 11:
            raise PermissionError(13, "Permission denied")
        return honest(pid)

    monkeypatch.setattr(collector._tree, ask, secret)
    points, (problem,) = reading(collector)
    assert "permission denied for a process of the tree" in problem
    everything = set(ProcessCollector.metrics) - {CPU_UTILIZATION}
    assert {point.metric for point in points} == everything - metrics
    monkeypatch.undo()


def test_without_io_statistics_the_io_is_absent(machine, watch):
    (machine.proc / "10/io").unlink()
    points = watch()
    assert READ not in points
    assert OPEN_FILES in points


@pytest.mark.parametrize("name", ["a b", "(x) R 1 2", ") R 1 ", "\n", "", "))((", "ÿ", "tmux: server"])
def test_a_process_name_may_contain_anything(machine, watch, name):
    machine.process(10, 1, own=5, threads=3, name=name)
    assert watch()[THREADS] == 3


@given(st.binary())
def test_an_invalid_stat_line_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011  whatever int() says
        parse_stat(data)


def test_without_a_pid_the_message_says_how_to_give_one():
    with pytest.raises(Unavailable, match="set --pid N, or run `chipwatch -- COMMAND`"):
        ProcessCollector(ProcessCollector.Config()).open(Given())


def test_the_message_about_a_missing_pid_says_where_it_looked(machine):
    with pytest.raises(Unavailable, match=r"no process 99 \(.*proc/99 is absent\)"):
        machine.collector(99)


def test_close_is_safe_unopened_and_twice(machine):
    ProcessCollector(ProcessCollector.Config()).close()
    machine.process(10, 1)
    collector = machine.collector()
    list(collector.collect(0))
    assert collector.describe() == "process 10, 1 in its tree"
    collector.close()
    collector.close()
    assert list(collector.collect(0)) == []


@dataclass
class Life:
    parent: int
    began: int
    own: int = 0
    reaped: int = 0
    state: str = "S"


@dataclass
class Kernel:
    """Processes in memory: pid 1 is not in the tree; pid 10 is watched, never ends and adopts orphans."""

    lives: dict[int, Life] = field(default_factory=lambda: {1: Life(0, 0), 10: Life(1, 1)})
    used: int = 0
    """Time used by the tree so far: the expected value."""
    clock: int = 1
    reuse: bool = False
    heirs: bool = True

    def do(self, action: str, which: int, amount: int) -> None:
        pids = sorted(pid for pid, life in self.lives.items() if pid != 1 and (action == "reap") == (life.state == "Z"))
        if not pids:
            return
        pid = pids[which % len(pids)]
        life = self.lives[pid]
        self.clock += 1
        if action == "fork":
            free = (n for n in range(11, 999) if n not in self.lives) if self.reuse else iter([10 + self.clock])
            self.lives[next(free)] = Life(pid, self.clock)
        elif action == "burn":
            life.own += amount
            self.used += amount
        elif action == "exit" and pid != 10:
            life.state = "Z"
            for child in self.lives.values():
                child.parent = 10 if child.parent == pid else child.parent
        elif action == "reap":
            del self.lives[pid]
            if self.heirs:
                self.lives[life.parent].reaped += life.own + life.reaped


class SimulatedTree(ProcTree):
    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.race: list[tuple[str, int, int]] = []
        """Actions during a reading: one before each process is read."""
        super().__init__(ProcessCollector.Config(proc=Path("/nowhere")), 10, detailed=False)

    def _list(self):
        return set(self.kernel.lives)

    def _stat(self, pid):
        if self.race:
            self.kernel.do(*self.race.pop())
        life = self.kernel.lives.get(pid)
        return life and Stat(life.state, life.parent, life.own, life.reaped, 1, life.began, 1)


ACTIONS = st.lists(
    st.tuples(st.sampled_from(["fork", "burn", "burn", "exit", "reap"]), st.integers(0, 20), st.integers(0, 1000)),
    max_size=12,
)


def readings(kernel, intervals):
    """Yield the CPU time found and the time used after each interval of actions and a reading with races."""
    tree = SimulatedTree(kernel)
    begin = tree.read(rescan=True).cpu - kernel.used
    for actions, race in intervals:
        for action in actions:
            kernel.do(*action)
        tree.race = list(race)
        yield tree.read(rescan=False).cpu - begin, kernel.used
        tree.race = []
    for _ in range(2):  # what a parent inherited during a reading is seen by the next
        yield tree.read(rescan=False).cpu - begin, kernel.used


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(ACTIONS, st.just([])), max_size=8))
def test_the_cpu_time_is_exact_however_processes_start_and_end(intervals):
    for found, used in readings(Kernel(reuse=True), intervals):
        assert found == used


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(ACTIONS, ACTIONS), max_size=8))
def test_changes_during_a_reading_are_counted_by_the_next(intervals):
    last = 0
    for found, used in readings(Kernel(), intervals):
        assert last <= found <= used
        last = found
    assert found == used


FORK, LAST = ("fork", 0, 0), ("exit", 1, 0)
REUSED = [FORK, LAST, LAST, ("reap", 0, 0), ("fork", 1, 0), ("burn", 1, 1), LAST]
"""The pid of a child is less than its parent's, and the parent reaps it while new processes are read."""


@settings(max_examples=examples(300), deadline=None)
@given(st.lists(st.tuples(ACTIONS, ACTIONS), max_size=8), st.booleans(), st.booleans())
@example([([FORK, FORK], []), (REUSED, [("reap", 0, 0), *[FORK] * 4])], True, True)
def test_the_cpu_time_never_falls_and_is_never_too_large(intervals, reuse, heirs):
    last = 0
    for found, used in readings(Kernel(reuse=reuse, heirs=heirs), intervals):
        assert last <= found <= used
        last = found


WORKLOAD = """
import os, sys, time

def burn(seconds):
    ends = time.process_time() + seconds
    while time.process_time() < ends:
        pass

print(sum(os.times()[:4]), flush=True)
sys.stdin.readline()
burn(0.1)
for _ in range(3):
    if not os.fork():
        burn(0.1)
        os._exit(0)
    os.wait()
with open(sys.argv[1], "wb") as file:
    file.write(bytes(1 << 20))
    file.flush()
    os.fsync(file.fileno())
print(sum(os.times()[:4]), flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def workload(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", WORKLOAD, str(tmp_path / "file")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        process.kill()


@LINUX
def test_real_processes_use_the_time_that_they_report(workload):
    tree = ProcTree(ProcessCollector.Config(), workload.pid, detailed=True)
    before = float(workload.stdout.readline())
    first = tree.read(rescan=True)
    workload.stdin.write("\n")
    workload.stdin.flush()
    used = float(workload.stdout.readline()) - before
    last = tree.read(rescan=False)
    assert (last.cpu - first.cpu) / TICKS == pytest.approx(used, abs=0.03)
    assert last.written == psutil.Process(workload.pid).io_counters().write_bytes
    assert last.written >= first.written
    assert last.files == psutil.Process(workload.pid).num_fds()
    assert tree.start_time == pytest.approx(psutil.Process(workload.pid).create_time() * SECOND, abs=2 * SECOND)


@pytest.fixture
def family():
    """A process with three sleeping children."""
    code = "import os, time\nfor _ in range(3):\n    if not os.fork(): time.sleep(60)\nprint('up', flush=True); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as process:
        process.stdout.readline()
        yield process
        os.killpg(process.pid, signal.SIGKILL)


@LINUX
def test_a_real_process_tree_agrees_with_psutil(family):
    collector = ProcessCollector(ProcessCollector.Config(pid=family.pid))
    collector.open(Given())
    points = {point.metric: point.value for point in collector.collect(0)}
    root = psutil.Process(family.pid)
    members = [root, *root.children(recursive=True)]
    assert points[COUNT] == len(members) == 4
    assert points[THREADS] == sum(member.num_threads() for member in members)
    assert points[RSS] == pytest.approx(
        sum(member.memory_info().rss for member in members), rel=0.3
    )  # they have only just been forked
    assert points[OPEN_FILES] == sum(member.num_fds() for member in members)
    assert points[READ] == sum(member.io_counters().read_bytes for member in members)


@LINUX
def test_psutil_reads_the_same_tree(family):
    tree = PsutilTree(ProcessCollector.Config(), family.pid, detailed=True)
    linux = ProcTree(ProcessCollector.Config(), family.pid, detailed=True)
    first, other = tree.read(rescan=True), linux.read(rescan=True)
    assert first._replace(cpu=0, rss=0) == other._replace(cpu=0, rss=0)
    assert first.rss == pytest.approx(other.rss, rel=0.1)
    assert tree.start_time == pytest.approx(linux.start_time, abs=2 * SECOND)
    assert tree.limits().memory == psutil.virtual_memory().total
    kept = dict(tree._kept)
    again = tree.read(rescan=False)
    assert again.cpu >= first.cpu
    assert all(tree._kept[pid] is process for pid, process in kept.items() if pid in tree._kept)
    assert len(tree._kept) >= 4


@LINUX
def test_psutil_counts_cpu_time_and_detects_the_end():
    def used() -> float:
        times = psutil.Process(busy.pid).cpu_times()
        return 1000 * (times.user + times.system)

    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        tree = PsutilTree(ProcessCollector.Config(), busy.pid, detailed=False)
        before, first, after = used(), tree.read(rescan=True).cpu, used()
        ends = time.monotonic() + 30
        while used() < after + 200:
            assert time.monotonic() < ends
        least, last, most = used() - after, tree.read(rescan=False).cpu, used() - before
        busy.kill()
        busy.wait()
        assert least - 1 <= last - first <= most + 1
        assert tree.read(rescan=False) is None
        assert tree.read(rescan=True) is None


@LINUX
def test_psutil_counts_user_and_system_time_without_children(monkeypatch):
    times = SimpleNamespace(user=1.5, system=0.25, children_user=100.0, children_system=100.0)

    def cpu_times(_):
        return times

    cpu_times.cache_activate = cpu_times.cache_deactivate = lambda _: None  # psutil's own remembers within `oneshot`
    monkeypatch.setattr(psutil.Process, "cpu_times", cpu_times)
    with subprocess.Popen(["sleep", "60"]) as alone:  # this process may have children of other tests
        tree = PsutilTree(ProcessCollector.Config(), alone.pid, detailed=False)
        before = tree.read(rescan=False).cpu
        times.user, times.system = 2.5, 0.75
        after = tree.read(rescan=False).cpu
        alone.kill()
    assert after - before == 1500


def test_with_psutil_a_missing_pid_is_unavailable(monkeypatch):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(Unavailable, match=f"no process {ended.pid}"):
        ProcessCollector(ProcessCollector.Config(pid=ended.pid)).open(Given())


@LINUX
def test_with_psutil_an_unreadable_member_is_reported_and_what_a_system_lacks_is_absent(family, monkeypatch):
    tree = PsutilTree(ProcessCollector.Config(), family.pid, detailed=True)
    monkeypatch.delattr(psutil.Process, "io_counters")
    reading = tree.read(rescan=True)
    assert (reading.read, reading.written, reading.files is None, tree.denied) == (None, None, False, set())

    def denied(process):
        raise psutil.AccessDenied(process.pid)

    monkeypatch.setattr(psutil.Process, "io_counters", denied, raising=False)
    monkeypatch.delattr(psutil.Process, "num_fds")
    reading = tree.read(rescan=True)
    assert (reading.read, reading.files, tree.denied) == (None, None, {"process.io"})
