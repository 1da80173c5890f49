"""The one renderer of tables."""

import pytest
from rich.cells import cell_len

from chipwatch.base.table import TableColumn, table
from chipwatch.show.report.devices import DeviceState, device_states


def test_columns_are_aligned_by_the_cells_of_a_terminal():
    names = TableColumn(["NAME", "日本語", "a"])
    numbers = TableColumn(["N", "5", "1,000"], right=True)
    lines = [*table([names, numbers])]
    assert lines == ["NAME        N", "日本語      5", "a       1,000"]
    assert {cell_len(line) for line in lines} == {13}


def test_a_column_is_left_out_if_all_its_cells_are_empty_ones():
    kept, empty = TableColumn(["A", "-", "1"], empty=("-",)), TableColumn(["B", "-", "-"], empty=("-",))
    assert [*table([kept, empty])] == ["A", "-", "1"]


@pytest.mark.parametrize(("width", "lines"), [
    (26, ["JOB    EFF  COST  NOW", "41337    9  $2    4,5 held"]),
    (20, ["JOB    EFF  NOW", "41337    9  4,5 held"]), (15, ["JOB    NOW", "41337  4,5 held"]), (9, ["JOB    N…", "41337  4…"]),
])  # fmt: skip
def test_columns_go_where_there_is_no_room_then_lines_are_cut_and_none_ends_in_blanks(width, lines):
    job, share = TableColumn(["JOB", "41337"]), TableColumn(["EFF", "9"], right=True)
    columns = [job, share, TableColumn(["COST", "$2"]), TableColumn(["NOW", "4,5 held"])]
    assert [*table(columns, width=width, spare=("COST", "EFF"))] == lines


def test_a_device_of_an_older_or_newer_agent_has_the_fields_that_both_know():
    (state,) = device_states({"devices": [{"place": {"gpu": "0"}, "state": "stalled", "cause": "data", "new": 1}]})
    assert state == DeviceState(place={"gpu": "0"}, state="stalled", cause="data")
    assert (state.key, state.doing("held")) == ((("gpu", "0"),), "stalled: data")
