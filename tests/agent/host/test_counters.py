from __future__ import annotations

import itertools
import sys
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chipwatch.host.counters import ChangingSum, counting_since

PROC = Path(__file__).parents[2] / "fixtures/host/node_exporter/proc"


def test_the_sum_begins_with_the_total_and_adds_each_increase():
    total = ChangingSum()
    assert total.add({"a": 10, "b": 5}) == 15
    assert total.add({"a": 12, "b": 5}) == 17
    assert total.total == 17


def test_a_new_member_adds_nothing_in_its_first_reading():
    total = ChangingSum()
    total.add({"a": 10})
    assert total.add({"a": 10, "b": 1000}) == 10
    assert total.add({"a": 10, "b": 1001}) == 11


def test_a_member_that_disappears_and_returns_leaves_the_sum_as_it_is():
    total = ChangingSum()
    total.add({"a": 10, "b": 500})
    assert total.add({"a": 11}) == 511
    assert total.add({"a": 11, "b": 9000}) == 511
    assert total.add({"a": 11, "b": 9001}) == 512


def test_a_member_that_falls_adds_nothing_in_that_reading():
    total = ChangingSum()
    total.add({"a": 1000})
    assert total.add({"a": 3}) == 1000
    assert total.add({"a": 5}) == 1002


def test_members_absent_from_the_first_reading_add_only_their_increase():
    total = ChangingSum()
    assert total.add({}) == 0
    assert total.add({"a": 7}) == 0
    assert total.add({"a": 9}) == 2


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2**64)), min_size=1))
def test_the_sum_never_falls_and_never_rises_by_more_than_the_present_members_gained(readings):
    total = ChangingSum()
    before = total.add(readings[0])
    assert before == sum(readings[0].values())
    for last, now in itertools.pairwise(readings):
        after = total.add(now)
        assert 0 <= after - before <= sum(max(0, now[name] - last[name]) for name in now.keys() & last.keys())
        before = after


def test_counters_of_linux_count_since_boot():
    assert counting_since(PROC) == 1418183276 * 10**9


def test_without_a_stat_file_the_boot_time_is_unknown(tmp_path):
    assert counting_since(tmp_path) is None


def test_other_systems_take_the_boot_time_from_psutil(monkeypatch, tmp_path):
    expected = psutil.boot_time()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert counting_since(tmp_path) == pytest.approx(expected * 1e9, abs=2e9)


def test_a_sum_of_nothing_yet_is_zero():
    assert ChangingSum().total == 0
