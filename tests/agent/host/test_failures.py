"""The failures of a machine outlast kills, jumps of the clock and a second agent, and stay small."""

import os
import signal

import pytest

from chipwatch.collectors.hardware import HardwareCollector
from chipwatch.contract.plugin import Given
from chipwatch.host.failures import DAY, MOST, Failure, counted, file_of, note, read, sentence
from chipwatch.jobs.verdict.rules import Seen, reasons

NOW = 1_795_168_800 * 10**9


def failed(days_ago=0.0, kind="gpu-lost", job="", text="gpu 6 is lost"):
    return Failure(int(NOW - days_ago * DAY), kind, text, job)


def numbers(path, now=NOW):
    return {tuple(dims.values()): len(found) for dims, found in counted(path, now)}


def test_a_kind_has_counts_once_it_failed_and_zeros_until_its_last_failure_is_90_days_old(tmp_path):
    path = tmp_path / "failures.json"
    assert numbers(path) == {}
    for days in (13, 6.5, 0):
        note(path, failed(days))
        note(path, failed(days - 0.5))  # the same failure goes on
    assert numbers(path) == {("7", "gpu-lost"): 2, ("30", "gpu-lost"): 3}
    assert numbers(path, NOW + 80 * DAY) == {("7", "gpu-lost"): 0, ("30", "gpu-lost"): 0}
    assert numbers(path, NOW + 91 * DAY) == {}


@pytest.mark.parametrize("clock", [-9 * 365, -0.5, NOW / DAY])
def test_a_clock_that_jumps_loses_no_failure_and_makes_none(tmp_path, clock):
    for days in (5, clock, 0):
        note(tmp_path / "f.json", failed(days))
    expected = 2 if abs(clock) > 1 else 1
    assert numbers(tmp_path / "f.json")["30", "gpu-lost"] == expected


def test_what_was_noted_outlasts_a_kill_at_any_moment(tmp_path):
    for kill in range(1, 6):
        path, (reader, writer) = tmp_path / f"{kill}.json", os.pipe()
        if not (child := os.fork()):
            for n in range(MOST):
                note(path, failed(2 * n))
                os.write(writer, b".")
            os._exit(0)
        os.close(writer)
        told = sum(len(os.read(reader, 1)) for _ in range(5 * kill))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told += len(os.read(reader, MOST))
        os.close(reader)
        assert told <= len(read(path)) <= told + 1


def test_two_agents_of_one_folder_note_each_failure_once(tmp_path):
    path, agents = tmp_path / "f.json", []
    for _ in range(2):
        if not (agent := os.fork()):
            for n in range(MOST):
                note(path, failed(-2 * n))
            os._exit(0)
        agents.append(agent)
    assert [os.waitpid(agent, 0)[1] for agent in agents] == [0, 0]
    assert {one.at for one in read(path)} == {failed(-2 * n).at for n in range(MOST)}
    assert len(read(path)) == MOST


def test_the_newest_failures_stay_in_a_few_kilobytes(tmp_path):
    for n in range(MOST + 9, 0, -1):
        note(tmp_path / "f.json", failed(n, job="41337"))
    assert [one.at for one in read(tmp_path / "f.json")] == [failed(n).at for n in range(MOST, 0, -1)]
    assert (tmp_path / "f.json").stat().st_size < 8192


def test_another_machine_begins_without_and_a_new_installation_goes_on(tmp_path):
    files = [file_of(tmp_path, tmp_path, tmp_path)]
    for path, text in ((tmp_path / "etc/machine-id", "a"), (tmp_path / "class/dmi/id/board_asset_tag", "i-0123")):
        path.parent.mkdir(parents=True)
        path.write_text(text)
        files.append(file_of(tmp_path, tmp_path, tmp_path))
    assert len({*files}) == 3
    assert file_of(tmp_path, tmp_path, tmp_path) == files[-1]


def test_the_third_time_in_a_month_is_a_reason_with_dates_and_jobs_by_the_collector(tmp_path):
    config = HardwareCollector.Config(root=tmp_path, proc=tmp_path, sys=tmp_path)
    for days in (13, 7, 0):
        note(file_of(tmp_path, tmp_path, tmp_path), failed(days, job=f"4{days}"))
    collector = HardwareCollector(config)
    collector.open(Given(state=tmp_path))
    points = {point.dims: point.value for point in collector.collect(NOW)}
    texts = {fact.dims: fact.text for fact in collector.facts()}
    (reason,) = reasons(Seen("node.failures", dims, value, text=texts[dims]) for dims, value in points.items())
    assert reason.says == "failed 3 times in 30 days (gpu-lost)"
    assert reason.shown_by.text.startswith("the third time in 14 days: gpu 6 is lost (")
    assert [reason.shown_by.text.count(f"job 4{days}") for days in (13, 7, 0)] == [1, 1, 1]
    assert sentence([failed()] * 12).startswith("time number 12 in 1 days")
    file_of(tmp_path, tmp_path, tmp_path).unlink()
    assert {point.dims: point.value for point in collector.collect(NOW)} == dict.fromkeys(points, 0)
    assert [*collector.facts()] == []
