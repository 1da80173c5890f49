"""Dumps of PyTorch's flight recorder, made by real jobs of four ranks that got stuck, and files without one."""

import functools
import math
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import suppress
from io import BytesIO
from pathlib import Path

import pytest

from chipwatch.collectors.nccl import NcclCollector, flight
from chipwatch.collectors.nccl.flight import MAX_BYTES, MAX_CODES, MAX_WHAT, OLDEST, WAITS, read_dumps, report, steps
from chipwatch.collectors.nccl.service import start_of
from chipwatch.contract.owner import Owner
from chipwatch.jobs.reasons import Figures, reasons
from chipwatch.jobs.recent import of_ranks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the environment of a job is Linux's")
DUMPS = Path(__file__).parents[3] / "fixtures/flight"
JOB = Owner("slurm", "41337")


def dumps(name, late=0):
    """Return the dumps of a case by rank, each as old as its last collective and WAITS, less `late` ns."""
    told = {rank: (DUMPS / f"{name}_{rank}").read_bytes() for rank in range(4)}
    last = max(entry["time_created_ns"] for data in told.values() for entry in pickle.loads(data)["entries"])
    return {rank: steps(data, last + WAITS - late) for rank, data in told.items()}


@pytest.mark.parametrize(
    ("name", "rank", "lag"),
    [
        ("late", 2, "all_reduce 4 of default_pg, in which 3 of 4 ranks wait"),
        ("mismatch", 3, "all_reduce 4 of default_pg, in which 3 of 4 ranks wait"),
        ("chain", 1, "all_reduce 2 of tp, in which 1 of 2 ranks wait"),
    ],
)
def test_the_rank_the_collective_and_its_number_are_named(name, rank, lag):
    figures = [*of_ranks([*report(JOB, dumps(name))])]
    numbers, words = ({figure.name: getattr(figure, key) for figure in figures} for key in ("number", "word"))
    (cause,) = reasons(Figures(numbers, words, 300, 8)).causes
    assert cause.says == f"rank {rank} has not joined {lag}"
    assert not reasons(Figures({**numbers, "collectives": 1}, words, 300, 8)).causes, "it goes on by now"


def test_nobody_is_named_where_nothing_waited_long_or_the_rank_s_dump_is_not_here():
    assert [*report(JOB, dumps("late", late=WAITS // 10)), *report(JOB, {})] == []
    others = dumps("late")
    del others[2]
    (fact,) = report(JOB, others)
    assert fact.problem.endswith("launched all_reduce 4 of default_pg, in which 3 of 3 ranks wait")
    assert steps((DUMPS / "stacks_0").read_bytes(), 0)[hash("0"), 0].last == 5, "its stacks are passed over"


def forged(ranks="[0, 1]", count=2, groups=2, **given):
    """Return a dump as NCCL's would be: the group `tp` and others, and a collective that waits in it."""
    entry = {"process_group": ["1", "tp"], "pg_id": 0, "collective_seq_id": 5, "is_p2p": False, "state": "started",
             "profiling_name": "nccl:all_gather", "time_created_ns": 1, **given}  # fmt: skip
    pg_config = {str(number): {"ranks": ranks, "desc": "tp"} for number in range(groups)}
    return pickle.dumps({"pg_config": pg_config, "entries": [entry] * count}, 2)


@pytest.mark.parametrize("given", [{"count": MAX_CODES // 32}, {"groups": 128}, {"ranks": "," * (MAX_BYTES // 3)}])
def test_a_dump_that_would_take_long_is_refused_by_its_counts(given):
    assert steps(forged(**given) + b"N" * (MAX_CODES // 2), 0), "such a one is read"
    for data in forged(**{name: most * 2 for name, most in given.items()}), forged() + b"N" * MAX_CODES:
        with suppress(ValueError):
            assert steps(data, 0) == {}
    said = steps(forged(profiling_name="n" * 10**6), WAITS + 1).values()
    assert {each.what for each in said} == {"", "n" * MAX_WHAT}, "long texts are cut"
    assert flight.PlainUnpickler(BytesIO(b"}(X\xff\0\0\0" + b"k" * 255 + b"Nu.")).load() == {"k" * MAX_WHAT: None}


def test_a_rank_that_launched_nothing_in_its_group_is_named_and_one_of_another_group_of_that_name_is_not():
    told = [forged(), forged(count=0), forged(ranks="[2, 3]", count=0), forged(state="completed")]
    (fact,) = report(JOB, {rank: steps(data, WAITS + 1) for rank, data in enumerate(told)})
    assert ([one.rank for one in fact.absent], fact.lag) == ([1], "all_gather 5 of tp, in which 1 of 2 ranks wait")


WHOLE = (DUMPS / "late_0").read_bytes()
DEEP = functools.reduce(lambda inner, _: [inner, inner], range(64), [])


@pytest.mark.parametrize(
    "data",
    [b"", WHOLE[:-1], WHOLE[:700], WHOLE + bytes(MAX_BYTES), pickle.dumps(os.system), b"cos\nsystem\n(S'true'\ntR.", b"}.",
     b"X\xff\xff\xff\xff.", b"K\x01r\xff\xff\xff\xff.", b"}(K\x01K\x02\x86K\x01u.", forged(state=DEEP, pg_id=math.inf),
     WHOLE.replace(b"pg_config", b"pg_confih"), forged(process_group=["1", DEEP]), forged(pg_id=DEEP), forged(ranks=DEEP),
     forged(extra=[[] for _ in range(1 << 19)]), forged(time_created_ns="x")], ids=len,
)  # fmt: skip
def test_a_file_that_is_not_a_whole_dump_is_one_line_and_nothing_is_called(tmp_path, data):
    (tmp_path / "fr0").write_bytes(data)
    (fact,) = read_dumps(Path("/proc"), [(f"{tmp_path}/fr", os.getpid(), JOB)], time.time_ns())
    assert fact.problem.startswith(f"PyTorch's dump {tmp_path}/fr0: not a whole dump")


def test_files_are_read_once_and_only_if_the_job_s_user_has_them(tmp_path, monkeypatch):
    now, owner = time.time_ns(), JOB

    def told(at=now, start=f"{tmp_path}/fr"):
        return [*read_dumps(Path("/proc"), [(start, os.getpid(), owner)], at)]

    for rank in range(4):
        (tmp_path / f"fr{rank}").write_bytes((DUMPS / f"late_{rank}").read_bytes())
        os.utime(tmp_path / f"fr{rank}", ns=(now - 10**11 * (rank == 3),) * 2)  # that one is of another time
    os.mkfifo(tmp_path / "fr4")
    (tmp_path / "fr5").symlink_to(tmp_path / "fr0")
    for other in "fr00", "fr\u0660", "0", "fr6":
        (tmp_path / other).write_text("not a rank, or of another time")
    os.utime(tmp_path / "fr6", (4102444800,) * 2)
    written = [sorted(dict(flight._written(f"{tmp_path}/fr", uid, now))) for uid in (os.getuid(), os.getuid() + 1)]
    assert written == [[0, 1, 2, 3], []], "what others put into a shared folder does not count"
    (fact,) = told()
    assert ([one.rank for one in fact.absent], fact.lag.partition(", ")[2]) == ([2], "in which 2 of 3 ranks wait")
    assert [rank for rank in range(6) if flight._read(f"{tmp_path}/fr{rank}", os.getuid(), 0)] == [0, 1, 2, 3]
    assert flight._read(f"{tmp_path}/fr0", os.getuid() + 1, 0) == {}
    monkeypatch.setattr(flight, "steps", None)
    assert told() == [fact]
    assert told(at=now + 2 * OLDEST) == []
    monkeypatch.setattr(flight, "MAX_CPU", -1.0)
    assert told()[0].problem.endswith(": 0 of 3 are read so far")
    owner = JOB._replace(since=now + 10**12)
    assert told() == [], "another job's"
    assert "/no/such/fr: " in told(start="/no/such/fr")[0].problem


def test_the_place_is_in_the_environment_of_the_job_and_a_slow_reading_has_a_line(tmp_path, until, begun, monkeypatch):
    assert start_of(b"A=1\0TORCH_NCCL_DEBUG_INFO_TEMP_FILE=/a/b_\0TORCH_FR_DUMP_TEMP_FILE=/c/d_\0") == "/c/d_"
    assert start_of(b"XTORCH_FR_DUMP_TEMP_FILE=/c\0TORCH_FR_DUMP_TEMP_FILE=d\0") == ""
    env = {**os.environ, "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": f"{tmp_path}/fr"}
    collector = begun(NcclCollector(NcclCollector.Config(every=0.3)))
    dead = threading.Event()
    with subprocess.Popen(["sleep", "600"], env=env) as child:
        for rank in range(4):
            (tmp_path / f"fr{rank}").write_bytes((DUMPS / f"late_{rank}").read_bytes())
            os.utime(tmp_path / f"fr{rank}", ns=(time.time_ns() + 10**9,) * 2)  # after the job's start by that clock
        collector.follow([child.pid], ())
        with monkeypatch.context() as patch:
            patch.setattr("chipwatch.collectors.nccl.PATIENCE", 0.01)
            patch.setattr(flight, "read_dumps", lambda *_: iter(dead.wait, True))
            until(lambda: [*collector.collect(time.time_ns())] == [] and collector.facts())
            assert collector.facts()[0].problem == "PyTorch's dumps take too long to read"
        dead.set()
        until(lambda: [*collector.collect(time.time_ns())] == [] and any(fact.lag for fact in collector.facts()))
        child.kill()
    (fact,) = collector.facts()
    assert (fact.lag.partition(",")[0], fact.owner.since is None) == ("all_reduce 4 of default_pg", False)
