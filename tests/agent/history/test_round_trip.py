import random
from array import array

import pytest

from chipwatch.contract.datapoint import Datapoint, Dimensions, counter, gauge
from chipwatch.history.columns import load
from chipwatch.history.journal import Journal
from chipwatch.history.record_file import RecordFile

AT, S = 1_795_168_805_123_456_789, 10**9
POWER = gauge("gpu.power", "W", "P.", dims=("gpu",))
ENERGY = counter("gpu.energy", "J", "E.", dims=("gpu",))
HEADER = {"chipwatch": 1, "version": "0.9", "host": {"hostname": "node-7"}, "started": AT, "interval": 1.0}


def header():
    return HEADER


def ticks(many, gpus=2):
    source = random.Random(5)
    energy = [0.0] * gpus
    for n in range(many):
        at, points = AT + n * S, []
        for gpu in range(gpus):
            watts = source.gauss(600, 9)
            energy[gpu] += watts if n != many // 2 else -energy[gpu]
            dims = Dimensions(gpu=str(gpu))
            points += [POWER.point(at, watts, dims)] if n % 7 or gpu else []
            points += [ENERGY.point(at, energy[gpu], dims, start_time=AT - S if n < many // 2 else at)]
        yield at, points


def series(written):
    columns = {}
    for _, points in written:
        for point in points:
            columns.setdefault((point.metric.name, point.dims), []).append(point)
    return columns


def check(recorded, written, exact=("gpu.energy", "gpu.power")):
    expected = series(written)
    assert {(column.metric.name, column.dims) for column in recorded.columns} == {*expected}
    for column in recorded.columns:
        points = expected[column.metric.name, column.dims]
        assert [*column.times] == [point.at for point in points]
        starts = [point.start_time for point in points]
        assert column.starts == [(n, start) for n, start in enumerate(starts) if start and start != (None, *starts)[n]]
        values = array("d", [point.value for point in points])
        if column.metric.name in exact:
            assert column.values.tobytes() == values.tobytes()
            assert sum(column.values) == sum(values)
        else:
            assert list(column.values) == pytest.approx(list(values), rel=5e-6)


def test_rows_are_read_back_bit_by_bit(tmp_path):
    written = [*ticks(50)]
    journal = Journal(tmp_path / "a.chipwatch", header, lambda *_: True)
    for at, points in written:
        journal.add(points, at)
    check(load(journal.path), written)  # not closed: as after a kill
    journal.close()
    recorded = load(journal.path)
    check(recorded, written)
    assert (recorded.host["hostname"], recorded.interval, recorded.broken) == ("node-7", 1.0, 0)


def test_a_file_and_its_tail_are_read_as_one_with_exact_counters(tmp_path, monkeypatch):
    monkeypatch.setattr("chipwatch.history.record_file.MINUTE", 20 * S)
    written = [*ticks(50)]
    file = RecordFile(tmp_path / "run.chipwatch", header)
    for at, points in written:
        file.add(points, at)
    assert (tmp_path / "run.chipwatch.tail").exists()
    check(load(file.path), written, exact=("gpu.energy",))
    file.close()
    assert not (tmp_path / "run.chipwatch.tail").exists()
    check(load(file.path), written, exact=("gpu.energy",))


@pytest.mark.parametrize(
    ("value", "kept"),
    [(600.123456, 600.123), (123456.789012, 123456.789), (-0.0, -0.0), (1e300, 1e300), (0.1234567, 0.123457)],
)
def test_a_gauge_of_a_run_has_six_digits_or_thousandths(tmp_path, value, kept):
    file = RecordFile(tmp_path / "run.chipwatch", header)
    file.add([POWER.point(AT, value)], AT)
    file.close()
    (column,) = load(file.path).columns
    assert column.values.tobytes() == array("d", [kept]).tobytes()


def test_a_late_reading_keeps_its_time(tmp_path):
    journal = Journal(tmp_path / "a.chipwatch", header, lambda *_: True)
    journal.add([POWER.point(AT + S, 2.0), ENERGY.point(AT, 1.0, start_time=AT)], AT + S)
    recorded = load(journal.path)
    assert [[*column.times] for column in recorded.columns] == [[AT], [AT + S]]
    assert isinstance(POWER.point(AT, 1.0), Datapoint)
    journal.close()
