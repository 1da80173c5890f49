"""The usage of a program is the sum over its processes and threads."""

import os

import pytest
from tests.peers.measure import Process, counters, process, tree, usage

TICKS = os.sysconf("SC_CLK_TCK")


class Proc:
    """A /proc made of files."""

    def __init__(self, root):
        self.root, self.cpu = root, {}

    def put(
        self, pid, parent=1, *, cpu=0.0, children=0, threads=((0, 0),), calls=(0, 0), written=0, rss=0, pss=0, state="S"
    ):
        folder = self.root / str(pid)
        for number, (voluntary, forced) in enumerate(threads):
            task = folder / "task" / str(pid + number)
            task.mkdir(parents=True, exist_ok=True)
            (task / "status").write_text(
                f"Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t{forced}\n"
            )
        times = f"0 0 {children} 0"
        (folder / "stat").write_text(f"{pid} (a )(b) {state} {parent} 1 1 0 -1 0 0 0 0 0 {times} 20 0 1 0 5 0 0\n")
        (folder / "io").write_text(
            f"rchar: 9\nwchar: 9\nsyscr: {calls[0]}\nsyscw: {calls[1]}\nread_bytes: 9\nwrite_bytes: {written}\n"
        )
        (folder / "status").write_text(f"Name:\tx\nThreads:\t{len(threads)}\n")
        (folder / "smaps_rollup").write_text(f"0-1 ---p\nRss:   {rss} kB\nPss:   {pss} kB\nPss_Anon:  1 kB\n")
        self.cpu[pid] = cpu

    def read(self, pid, at=None):
        moment, members = counters(pid, self.root, self.cpu.__getitem__)
        return at or moment, members


@pytest.fixture
def proc(tmp_path):
    return Proc(tmp_path)


def test_a_tree_has_the_children_of_children_and_no_zombie(proc):
    proc.put(10)
    proc.put(11, 10)
    proc.put(12, 11)
    proc.put(13, 10, state="Z")
    proc.put(20)
    assert tree(10, proc.root) == [10, 11, 12]
    assert tree(99, proc.root) == []


def test_the_counters_of_a_process_sum_its_threads_and_its_ended_children(proc):
    proc.put(10, cpu=1.5, children=TICKS // 2, threads=((5, 1), (7, 2)), calls=(3, 4), written=4096)
    assert process(10, proc.root, proc.cpu.__getitem__) == Process(cpu=2.0, switches=15, calls=7, written=4096)


def test_usage_is_a_rate_and_memory_is_as_at_the_end(proc):
    proc.put(10, cpu=1.0, threads=((100, 0),), calls=(10, 10), written=0, rss=1000, pss=500)
    before = proc.read(10, 50.0)
    proc.put(10, cpu=1.2, threads=((150, 10),), calls=(30, 30), written=8000, rss=2000, pss=600)
    proc.put(11, 10, cpu=0.1, threads=((5, 0),), rss=500, pss=400)
    used = usage(before, proc.read(10, 60.0), proc.root)
    assert used.cpu == pytest.approx(30)  # 0.2 s and the whole 0.1 s of the new process, in 10 s
    assert (used.switches, used.calls, used.written, used.threads) == (6.5, 4.0, 800.0, 2)
    assert (used.rss, used.pss) == (2500 * 1024 / 1e6, 1000 * 1024 / 1e6)


def test_a_process_or_thread_that_ends_before_it_is_read_counts_nothing_and_takes_nothing_off_the_others(proc):
    proc.put(10, rss=1000, threads=((100, 0), (900, 0)))
    proc.put(20, 10, rss=500)
    before = proc.read(10, 0.5)
    (proc.root / "10/task/11/status").unlink()
    after = proc.read(10, 1.5)
    (proc.root / "20/smaps_rollup").unlink()
    used = usage(before, after, proc.root)
    assert (used.rss, used.switches) == (1000 * 1024 / 1e6, 0)
