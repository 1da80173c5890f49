"""Rows: which file, which number in it, which metric."""

import re
from pathlib import Path

import pytest
from tests.doubles.sysfs import write

from chipwatch.contract.datapoint import Dimensions, Level, counter, gauge
from chipwatch.host import rows
from chipwatch.host.rows import FileRow, Folders, RowFiles, each, tool_number

HEAT = gauge("thing.temperature", "Cel", "Heat.", dims=("thing",))
HOTTEST = gauge("thing.hottest", "Cel", "The most heat.")
STATE = gauge("thing.state", "1", "Whether it works.", dims=("thing",))
SPEED = gauge("thing.speed", "GT/s", "Speed.", Level.ALL, ("thing",))
ERRORS = counter("thing.errors", "{error}", "Errors of one.", Level.DETAILED, ("thing", "kind"))
ALL_ERRORS = counter("things.errors", "{error}", "Errors of all.", dims=("kind",))
TABLE = (
    FileRow(HEAT, "new_input", 1e-3, total=HOTTEST),
    FileRow(HEAT, "old/temp*_input", 1e-3, total=HOTTEST),
    FileRow(STATE, "state", pattern=re.compile(rb"(live)|\S")),
    FileRow(SPEED, "speed", pattern=re.compile(rb"^(\d+(?:\.\d+)?) GT/s")),
    FileRow(
        ERRORS,
        "errors",
        pattern=re.compile(rb"^TOTAL (\d+)", re.MULTILINE),
        dims=Dimensions(kind="fatal"),
        total=ALL_ERRORS,
    ),
)


@pytest.fixture
def put(tmp_path):
    return lambda path, content: write(tmp_path / path, content)


def read(devices, at=7):
    return {
        " ".join([point.metric.name, *map("=".join, point.dims.items_sorted)]): point.value
        for point in devices.points(at)
    }


def test_each_row_is_a_point_in_the_unit_of_its_metric(tmp_path, put):
    for path, content in {
        "a/new_input": "41500", "b/old/temp1_input": "39000", "a/state": "live", "b/state": "resetting",
        "a/speed": "2.5 GT/s PCIe", "b/speed": "Unknown", "a/errors": "Rx 1\nTOTAL 3",
    }.items():  # fmt: skip
        put(path, content)
    devices = Folders(tmp_path, "*", each("thing", TABLE))
    put("b/errors", "TOTAL 1")
    assert read(devices) == {
        "thing.temperature thing=a": 41.5, "thing.temperature thing=b": 39, "things.errors kind=fatal": 0,
        "thing.hottest": 41.5, "thing.state thing=a": 1, "thing.state thing=b": 0, "thing.speed thing=a": 2.5,
        "thing.errors kind=fatal thing=a": 3, "thing.errors kind=fatal thing=b": 1,
    }  # fmt: skip
    put("b/errors", "TOTAL 3")
    assert read(devices)["things.errors kind=fatal"] == 2


@pytest.mark.parametrize("content", ["", "N/A", "EINVAL", "-274000", "4294967295000", "1 2", "nan", "9" * 400])
def test_what_cannot_be_read_or_cannot_be_true_is_absent(tmp_path, put, content):
    put("a/new_input", content)
    assert read(Folders(tmp_path, "*", each("thing", TABLE))) == {}


def test_a_sum_of_two_files_needs_both_and_leaves_its_place_to_the_next_row(tmp_path, put):
    rows = FileRow(HEAT, "a+b"), FileRow(HEAT, "c")
    put("a", "1")
    put("c", "9")
    assert [value for _, value in RowFiles(tmp_path).read(rows)] == [9]
    put("b", "2")
    assert [value for _, value in RowFiles(tmp_path).read(rows)] == [3]
    put("b", "odd")
    assert [value for _, value in RowFiles(tmp_path).read(rows)] == []


def test_a_count_keeps_all_its_digits(put):
    most = 2**63 - 1
    assert FileRow(ERRORS, "errors").value(str(most).encode()) == most


def test_a_level_without_a_row_does_not_open_its_file(tmp_path, put, monkeypatch):
    for path in ("new_input", "speed", "errors", "state"):
        put(f"a/{path}", "TOTAL 1")
    opened = []
    monkeypatch.setattr(rows, "read_small", lambda path: opened.append(path.rpartition("/")[2]) or b"1")
    read(Folders(tmp_path, "*", each("thing", TABLE), Level.BASIC))
    assert opened == ["new_input", "state", "errors"]  # the sum of all errors is basic


def test_a_file_of_several_rows_is_read_once(tmp_path, put, monkeypatch):
    put("ue_ce", "ue: 1\nce: 2")
    kinds = [
        FileRow(ERRORS, "ue_ce", pattern=re.compile(rb"%b: (\d+)" % kind), dims=Dimensions(kind=kind.decode()))
        for kind in (b"ue", b"ce")
    ]
    opened = []
    monkeypatch.setattr(rows, "read_small", lambda path: opened.append(path) or Path(path).read_bytes())
    assert [value for _, value in RowFiles(tmp_path).read(kinds)] == [1, 2]
    assert len(opened) == 1


def test_a_device_that_is_replaced_under_its_name_counts_from_its_first_reading(tmp_path, put):
    put("a/errors", "TOTAL 5")
    devices = Folders(tmp_path, "*", each("thing", TABLE))
    assert [point.start_time for point in devices.points(1) if point.metric is ERRORS] == [1]
    (tmp_path / "a").rename(tmp_path / "gone")
    put("a/errors", "TOTAL 900")
    (tmp_path / "gone/errors").unlink()
    points = list(devices.points(2))
    assert [(point.value, point.start_time) for point in points if point.metric is ERRORS] == [(900, 2)]
    assert [point.value for point in points if point.metric is ALL_ERRORS] == [0]


@pytest.mark.parametrize(
    "cell", ["N/A", "n/a", "N/A (Secondary die)", "", "1 mW", "12W extra", "nan", "inf", "9" * 400]
)
def test_a_cell_of_a_tool_that_is_not_a_number_is_absent(cell):
    assert tool_number(cell, "w") is None


def test_the_unit_of_a_cell_may_be_in_its_column_instead():
    assert (tool_number("12", "w"), tool_number("-4.5 W", "w")) == (12, -4.5)
    assert tool_number("12", "w", must_have_unit=True) is None
