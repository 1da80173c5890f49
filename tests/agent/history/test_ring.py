import gzip
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chipwatch.contract.datapoint import Dimensions, counter, gauge
from chipwatch.history.columns import GZIP, NotARecording, checksummed, load, runs_of, tail_of
from chipwatch.history.event import Event
from chipwatch.history.record_file import RecordFile
from chipwatch.history.ring import MOST_INCIDENTS, Ring, recordings_in

AT, S = 1_795_168_805_000_000_000, 10**9
POWER = gauge("gpu.power", "W", "P.", dims=("gpu",))
ENERGY = counter("gpu.energy", "J", "E.", dims=("gpu",))


def header():
    return {"chipwatch": 1, "version": "0.9", "host": {"hostname": "node-7"}, "started": AT, "interval": 1.0}


def tick(n, gpus=3, at=None):
    at = AT + n * S if at is None else at
    points = [POWER.point(at, 100.0 + n % 17 / 8, Dimensions(gpu=str(gpu))) for gpu in range(gpus)]
    return [*points, ENERGY.point(at, 100.0 * n, start_time=AT - S)], at


def end_after(rows, monkeypatch):
    """End each journal of a file after so many rows."""
    monkeypatch.setattr("chipwatch.history.journal.FEWEST", rows)
    monkeypatch.setattr("chipwatch.history.record_file.MINUTE", rows * S)


def size(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def seconds(path):
    recorded = load(path)
    return (recorded.started - AT) // S, (recorded.ended - AT) // S


@pytest.fixture
def ring(tmp_path):
    made = Ring(tmp_path, 60.0, header)
    yield made
    made.close()


def test_an_incident_holds_the_minutes_before_it(ring, tmp_path):
    for n in range(200):
        ring.add(*tick(n))
    event = Event(AT + 190 * S, "xid", "gpu 1 had Xid 79", {"job": "41337"})
    path = ring.seal(event, AT + 199 * S)
    assert path == tmp_path / "incidents/20261120T100315Z-xid.chipwatch"
    first, last = seconds(path)
    assert 120 <= first <= 139
    assert last == 199
    assert load(path).events == [event]
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("ticks", "is_open", "kept"),
    [
        ([*range(200)], True, (0, 199)),  # nothing is deleted by age while an incident is open
        ([100, 101, 5, 6, 7], False, (5, 7)),  # a clock that is set back leaves the minutes after it
        ([*range(13), *range(12, 30)], False, (0, 29)),  # by a second it takes nothing away
    ],
)
def test_what_a_ring_keeps(ring, ticks, is_open, kept):
    ring.is_open = is_open
    for n in ticks:
        ring.add(*tick(n))
    assert seconds(ring.seal(Event(AT, "xid", "x"), AT)) == kept


def test_a_run_that_ends_well_leaves_no_ring(tmp_path):
    ring = Ring(tmp_path, 60.0, header)
    ring.add(*tick(0))
    ring.close()
    assert [path.name for path in (tmp_path / "recorder").iterdir()] == ["lock"]
    ring = Ring(tmp_path, 60.0, header)
    assert ring.left is None
    ring.close()


@pytest.mark.parametrize(("end", "step", "most"), [(14 * 86_400, 300, 20_000), (300, 1, 60_000)])
def test_a_ring_never_exceeds_its_bound(tmp_path, monkeypatch, end, step, most):
    monkeypatch.setattr("chipwatch.history.ring.MOST_BYTES", most)
    monkeypatch.setattr("chipwatch.history.journal.MOST_ROWS", most // 8)
    ring = Ring(tmp_path, 86_400.0, header)
    sizes = []
    for n in range(0, end, step):
        ring.add(*tick(n, gpus=20 if step > 1 else 300))
        if not n % (5 * step):
            sizes.append(size(tmp_path))
    assert most / 4 < max(sizes) <= most
    ring.close()


def test_journals_are_compressed_once_they_are_full_and_an_incident_has_them_all(ring, tmp_path):
    for n in range(30):
        ring.add(*tick(n))
    journals = sorted((tmp_path / "recorder").glob("*.chipwatch"))
    assert [path.read_bytes()[:2] == GZIP for path in journals] == [True, True, False]
    assert {path.stat().st_mode & 0o777 for path in journals} == {0o600}
    assert seconds(ring.seal(Event(AT, "xid", "x"), AT)) == (0, 29)


def is_zipped(path):
    return path.read_bytes()[:2] == GZIP


def test_nothing_stays_as_it_is_for_more_than_a_fifth_of_the_time_or_a_minute_of_a_file(tmp_path):
    ring, file = Ring(tmp_path, 300.0, header), RecordFile(tmp_path / "run.chipwatch", header)
    for n in range(150):
        ring.add(*tick(n))
        file.add(*tick(n))
        plain = [path for path in (tmp_path / "recorder").glob("*.chipwatch") if not is_zipped(path)]
        for path in (*plain, tail_of(file.path)):
            first, last = seconds(path)
            assert last == n
            assert last - first < 60
    assert seconds(file.path) == (0, 149)
    ring.close()
    file.close()


def test_a_journal_of_a_slow_agent_has_ten_rows(tmp_path):
    ring = Ring(tmp_path, 14_000.0, header)
    for n in range(30):
        ring.add(*tick(n * 300))
    assert len([*(tmp_path / "recorder").glob("*.chipwatch")]) == 3
    ring.close()


def test_a_tail_that_a_killed_agent_left_is_compressed_by_the_next_one(tmp_path):
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for n in range(30):
        file.add(*tick(n))
    with pytest.raises(NotARecording, match="another agent writes it; name another file"):
        RecordFile(file.path, header)
    assert seconds(file.path) == (0, 29)
    file.lock.close()  # as a kill does
    again = RecordFile(file.path, header)
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["run-1.chipwatch", "run.chipwatch"]
    assert is_zipped(tmp_path / "run-1.chipwatch")
    assert seconds(tmp_path / "run-1.chipwatch") == (0, 29)
    again.close()


def test_a_kill_in_the_middle_of_taking_a_journal_in_loses_no_tick(tmp_path, monkeypatch):
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for n in range(30):
        file.add(*tick(n))
    before = file.path.read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", lambda _: None)  # the kill comes before it
        file.close()
    whole, tail = file.path.read_bytes(), tail_of(file.path).read_bytes()
    for end in range(len(before), len(whole) + 1, 7):
        file.path.write_bytes(whole[:end])
        tail_of(file.path).write_bytes(tail)
        RecordFile(file.path, header).lock.close()
        (taken_in,) = tmp_path.glob("run-*.chipwatch")
        assert (seconds(taken_in), load(taken_in).broken) == ((0, 29), 0)
        taken_in.unlink()


MANY = """
import sys
from pathlib import Path
sys.path[:0] = {path!r}
import psutil
from tests.agent.history.test_ring import AT, POWER, Dimensions, Event, Ring, S, header
all_dims = [Dimensions(gpu=str(n), pod="trainer-abcdef-{{n}}") for n in range({series})]
ring = Ring(Path(sys.argv[1]), 900.0, header)
before, numbers = psutil.Process().memory_info().rss, set()
for n in range(16):
    ring.add([POWER.point(AT + n * S, float(n + k % 97), dims) for k, dims in enumerate(all_dims)], AT + n * S)
    numbers |= {{path.name for path in Path(sys.argv[1]).glob("recorder/*.chipwatch")}}
    assert sum(path.stat().st_size for path in Path(sys.argv[1]).rglob("*.chipwatch")) <= 8 << 20
used = psutil.Process().memory_info().rss - before
print(len(numbers), used >> 20, ring.is_short, ring.seal(Event(AT, "xid"), AT))
"""


@pytest.mark.parametrize(("series", "kept"), [(15_000, 15_000), (21_000, 20_000)])
def test_many_series_make_no_journal_at_each_tick_and_take_bounded_memory(tmp_path, series, kept):
    script = MANY.format(path=[path for path in sys.path if path], series=series)
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    journals, megabytes, is_short, path = done.stdout.split()
    assert int(journals) <= 4
    assert int(megabytes) <= 60
    assert is_short == str(series > kept)
    assert len(load(Path(path)).columns) == kept


def test_an_incident_of_series_that_do_not_change_can_be_loaded(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.ring.MOST_POINTS", 3000)
    ring = Ring(tmp_path, 300.0, header)
    for n in range(200):
        ring.add([POWER.point(AT + n * S, 1.0, Dimensions(gpu=str(gpu))) for gpu in range(20)], AT + n * S)
        if n % 20 == 19:
            first, last = seconds(ring.seal(Event(AT, "xid"), AT))
            assert last == n
            assert (last - first) * 20 < 3000
    ring.close()


def test_a_counter_that_has_no_place_for_another_start_has_no_value_with_the_former_one(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.journal.MOST_SERIES", 2)
    ring = Ring(tmp_path, 900.0, header)
    for n, start in enumerate((1, 1, 2, 2)):
        points = [POWER.point(AT + n * S, 1.0), ENERGY.point(AT + n * S, 10.0 * start, start_time=start)]
        ring.add(points, AT + n * S)
    energy, power = load(ring.seal(Event(AT, "xid"), AT)).columns
    assert ([*energy.values], energy.starts) == ([10.0, 10.0, 20.0], [(0, 1), (2, 2)])
    assert len(power.values) == 4
    assert ring.is_short
    ring.close()


def test_a_row_ends_with_its_last_value(ring, tmp_path):
    for n, gpus in enumerate((2, 40, 2)):
        ring.add(*tick(n, gpus=gpus))
    lines = next(tmp_path.rglob("*.chipwatch")).read_bytes().splitlines()
    assert [line.count(b",") - 1 for line in lines if b'"row"' in line] == [3, 41, 3]


def test_series_that_come_and_go_leave_an_incident_that_can_be_read(ring, monkeypatch):
    monkeypatch.setattr("chipwatch.history.journal.MOST_SERIES", 20)
    monkeypatch.setattr("chipwatch.history.ring.MOST_POINTS", 4000)
    for n in range(30):
        ring.add([POWER.point(AT + n * S, 1.0, Dimensions(gpu=f"{n}-{k}")) for k in range(10)], AT + n * S)
    path = ring.seal(Event(AT, "xid", "x"), AT)
    monkeypatch.setattr("chipwatch.history.columns.MOST_POINTS", 7000)
    assert load(path).ended == AT + 29 * S


def test_an_incident_is_whole_where_another_agent_seals_the_same(tmp_path):
    rings = [Ring(tmp_path, 60.0, header) for _ in range(2)]
    for ring in rings:
        ring.add(*tick(0))
    assert {path.name for path in tmp_path.iterdir()} == {"recorder", "recorder-1"}
    event = Event(AT, "xid", "x")
    (tmp_path / "incidents").mkdir()
    (tmp_path / "incidents" / "20261120T100005Z-xid.new").mkdir()  # the other agent writes it
    assert {seconds(ring.seal(event, AT)) for ring in rings} == {(0, 0)}
    for ring in rings:
        ring.close()


def test_a_ring_with_an_impossible_time_does_not_stop_the_next_agent(tmp_path):
    (tmp_path / "recorder").mkdir()
    for number, line in enumerate(('{"at": %d}', '{"event": {"at": %d, "cause": "x"}, "at": 5}')):
        (tmp_path / f"recorder/{number}.chipwatch").write_bytes(gzip.compress(checksummed((line % 10**30).encode())))
    Ring(tmp_path, 60.0, header).close()
    assert recordings_in(tmp_path / "incidents") == []


def samples(path):
    """Return all that can be read of a recording; nothing of a file that is refused."""
    try:
        recorded = load(path)
    except NotARecording:
        return set()
    return {
        (column.metric.name, column.dims, at, value)
        for column in recorded.columns
        for at, value in zip(column.times, column.values, strict=True)
    }


def damaged(data, rng):
    """Return data with a bit, a byte or a part of it changed; the length may change, too."""
    place, length = rng.randrange(len(data)), rng.randrange(1, 400)
    new = rng.choice(
        [bytes([data[place] ^ 1 << rng.randrange(8)]), b"\xff", b"7", b"", bytes(length), rng.randbytes(length)]
    )
    return data[:place] + new + data[place + (1 if len(new) == 1 else length) :]


def test_a_part_of_a_recording_that_is_damaged_gives_no_value_that_was_not_written(tmp_path, monkeypatch):
    end_after(20, monkeypatch)
    path, rng = tmp_path / "run.chipwatch", random.Random(1)
    recording = RecordFile(path, header)
    for n in range(35):
        recording.add(*tick(n))
    written = samples(path)
    assert len(written) == 4 * 35
    whole = {file: file.read_bytes() for file in (path, tail_of(path))}
    counts = set()
    for _ in range(100):
        for file, data in whole.items():
            file.write_bytes(data)
        file = rng.choice([*whole])
        file.write_bytes(damaged(whole[file], rng))
        left = samples(path)
        assert left <= written
        counts.add(len(left))
    assert len(counts) > 3


def test_a_ring_that_is_damaged_is_sealed_as_far_as_it_is_sound(tmp_path):
    made, rng = Ring(tmp_path, 600.0, header), random.Random(1)
    for n in range(30):
        made.add(*tick(n))
    made.note(Event(AT, "xid", "gpu 0 had Xid 79"))
    made._lock.close()
    (journal,) = (tmp_path / "recorder").glob("*.chipwatch")
    data, written = journal.read_bytes(), samples(journal)
    for n in range(60):
        journal.write_bytes(damaged(data, rng) if n else data.replace(b"Xid 79", b"Xid \xff9"))
        following = Ring(tmp_path, 600.0, header)
        following.close()
        assert following.left
        assert samples(following.left) <= written
        following.left.unlink()


def test_only_so_many_incidents_are_kept_and_the_oldest_goes(ring, tmp_path):
    ring.add(*tick(0))
    for n in range(MOST_INCIDENTS + 3):
        ring.seal(Event(AT + n * S, "oom"), AT)
    names = [path.name for path in recordings_in(tmp_path / "incidents")]
    assert len(names) == MOST_INCIDENTS
    assert names[-1] == "20261120T100008Z-oom.chipwatch"


KILLED = """
import sys, time
from pathlib import Path
sys.path[:0] = {path!r}
from tests.agent.history.test_ring import RecordFile, Ring, header, tick
ring, file = Ring(Path(sys.argv[1]), 60.0, header), RecordFile(Path(sys.argv[1], "run.chipwatch"), header)
for n in range(10**6):
    points, at = tick(n, at=time.time_ns())
    ring.add(points, at)
    file.add(points, at)
    print(at, flush=True)
"""


def test_a_kill_loses_nothing_that_was_written_and_the_next_start_seals_it(tmp_path):
    script = KILLED.format(path=[path for path in sys.path if path])
    with subprocess.Popen([sys.executable, "-c", script, tmp_path], stdout=subprocess.PIPE, cwd=os.curdir) as child:
        written = [int(child.stdout.readline()) for _ in range(1000)]
        child.send_signal(signal.SIGKILL)
        written += [int(line) for line in child.stdout]
    file = tmp_path / "run.chipwatch"
    assert tail_of(file).exists()
    ring = Ring(tmp_path, 60.0, header)
    for path in (ring.left, file):
        times = [*load(path).columns[0].times]
        assert len(written) <= len(times) <= len(written) + 1
        assert times[: len(written)] == written
    assert load(ring.left).events[0].cause == "killed"
    ring.close()
    again = RecordFile(file, header)
    again.add(*tick(0))
    again.close()
    assert len(load(file).columns[0].times) == 1
    assert len(load(tmp_path / "run-1.chipwatch").columns[0].times) >= len(written)


def test_an_event_before_the_kill_names_the_incident(tmp_path):
    ring = Ring(tmp_path, 60.0, header)
    ring.add(*tick(0))
    ring.note(Event(AT + S, "xid", "gpu 1 had Xid 79"))
    ring.add(*tick(1))
    ring._lock.close()  # as a kill does
    again = Ring(tmp_path, 60.0, header)
    assert again.left.name == "20261120T100006Z-xid.chipwatch"
    assert len(load(again.left).events) == 1
    again.close()


def test_what_several_agents_left_as_they_were_killed_is_sealed_by_the_next_one(tmp_path):
    rings = [Ring(tmp_path, 60.0, header) for _ in range(2)]
    for number, ring in enumerate(rings):
        for n in range(30):  # three journals
            ring.add(*tick(1000 * number + n))
    for ring in rings:
        ring._lock.close()  # as a kill does
    again = Ring(tmp_path, 60.0, header)
    assert {seconds(path) for path in recordings_in(again.incidents)} == {(0, 29), (1000, 1029)}
    assert not [*tmp_path.glob("recorder*/*.chipwatch")]
    second = Ring(tmp_path, 60.0, header)
    assert second._folder.name == "recorder-1", "its folder is free again"
    for ring in (again, second):
        ring.close()


def test_an_agent_that_is_killed_again_and_again_leaves_one_incident(tmp_path):
    now = time.time_ns()
    for n in range(4):
        ring = Ring(tmp_path, 60.0, header)
        ring.add(*tick(0, at=now + n * S))
        ring._lock.close()
    assert len(recordings_in(tmp_path / "incidents")) == 1


def test_a_recording_cut_anywhere_in_its_last_parts_has_all_before(tmp_path, monkeypatch):
    end_after(5, monkeypatch)
    file = RecordFile(tmp_path / "run.chipwatch", header)
    sizes = []
    for n in range(13):
        file.add(*tick(n))
        sizes.append((file.path.stat().st_size, tail_of(file.path).exists() and tail_of(file.path).stat().st_size))
    data, tail = file.path.read_bytes(), tail_of(file.path).read_bytes()
    cut = tmp_path / "cut.chipwatch"
    for end in range(sizes[8][0], len(data)):  # the last member
        cut.write_bytes(data[:end])
        first, last = seconds(cut)
        assert (first, last) in {(0, n) for n in range(4, 10)}
    cut.write_bytes(data)
    for end in range(len(tail)):
        tail_of(cut).write_bytes(tail[:end])
        expected = 9 + sum(end >= size for _, size in sizes[10:])
        assert seconds(cut)[1] >= expected
    file.close()


def test_a_file_of_another_kind_is_not_replaced(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello\n")
    with pytest.raises(NotARecording, match=r"notes\.txt"):
        RecordFile(path, header)
    assert path.read_text() == "hello\n"


def test_a_file_gets_a_number_once_it_is_large(tmp_path, monkeypatch):
    end_after(5, monkeypatch)
    monkeypatch.setattr("chipwatch.history.record_file.MOST_POINTS", 1)
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for n in range(12):
        file.add(*tick(n))
    file.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["run-1.chipwatch", "run-2.chipwatch", "run-3.chipwatch", "run.chipwatch"]
    assert [seconds(tmp_path / name) for name in names[:3]] == [(0, 4), (5, 9), (10, 11)]


def test_the_files_of_a_run_are_one_recording_in_whatever_order_and_an_earlier_run_is_another(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.record_file.MOST_POINTS", 1)
    end_after(5, monkeypatch)
    for started in (AT - S, AT):
        path = tmp_path / "run.chipwatch"
        file = RecordFile(path, lambda started=started: header() | {"started": started})
        for n in range(12):
            file.add(*tick(n))
        file.close()
    files = {path.stem: path for path in tmp_path.iterdir()}
    old, new = [[files[f"run-{n}"] for n in range(start, start + 3)] for start in (1, 5)]
    assert runs_of([path]) == runs_of([new[0]]) == [[*new, path]]
    assert runs_of([*reversed(new), *old]) == [[*new, path], [*old, files["run-4"]]]
    recorded = load(*new, path)
    assert [(*column.times,) for column in recorded.columns] == [tuple(AT + n * S for n in range(12))] * 4


def test_a_full_disk_takes_nothing_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "run.chipwatch"
    file = RecordFile(path, header)
    file.add(*tick(0))
    whole = path.read_bytes()
    monkeypatch.setattr("chipwatch.history.record_file.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        file.close()
    assert path.read_bytes() == whole
    assert seconds(path) == (0, 0)


def test_a_clock_that_is_set_back_begins_another_file(tmp_path):
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for n in (*range(30), *range(-3600, -3570)):
        file.add(*tick(n))
    file.close()
    assert seconds(tmp_path / "run-1.chipwatch") == (0, 29)
    assert seconds(tmp_path / "run.chipwatch") == (-3600, -3571)


def test_series_that_come_and_go_leave_files_that_can_be_read(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.journal.MOST_SERIES", 20)
    monkeypatch.setattr("chipwatch.history.record_file.MOST_POINTS", 4000)
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for n in range(30):
        file.add([POWER.point(AT + n * S, 1.0, Dimensions(gpu=f"{n}-{k}")) for k in range(10)], AT + n * S)
    file.close()
    monkeypatch.setattr("chipwatch.history.columns.MOST_POINTS", 7000)
    columns = [load(path).columns for path in tmp_path.iterdir() if path.suffix == ".chipwatch"]
    assert sum(map(len, columns)) == 300


def test_a_file_that_is_deleted_meanwhile_begins_with_a_header_again(tmp_path):
    file = RecordFile(tmp_path / "run.chipwatch", header)
    file.add(*tick(0))
    file.path.unlink()
    file.close()
    assert seconds(file.path) == (0, 0)
    assert load(file.path).host["hostname"] == "node-7"


def test_a_tick_without_points_does_not_end_a_recording(tmp_path):
    file = RecordFile(tmp_path / "run.chipwatch", header)
    file.add([], AT)
    file.close()
    file.add(*tick(1))
    file.close()
    assert seconds(file.path) == (1, 1)
