"""The page of a recording that goes on: its lines, once each, and only to who has the address."""

import json
import os
from pathlib import Path

import pytest
from tests.agent.show.report.page.worlds import SECOND, START

from chipwatch.contract.datapoint import gauge
from chipwatch.history.columns import LONGEST, checksummed, load
from chipwatch.history.record_file import RecordFile
from chipwatch.net.page_server import Request
from chipwatch.show.report.page.live import LivePage

LINE = checksummed(b'{"at":1,"row":[]}')


@pytest.fixture
def live(tmp_path):
    path = tmp_path / "run.chipwatch"
    path.touch()
    made = LivePage(lambda first: str(load(path) and first), path)
    yield made
    made._file.close()


def lines_from(live, number):
    answer = json.loads(live.answer(Request("GET", f"{live.place}{number}", {}))().body)
    return answer["first"], answer["next"], answer["lines"]


def test_each_row_comes_once_and_none_is_lost_when_a_new_tail_begins(live, tmp_path):
    times, seen, following = [START + 10 * n * SECOND for n in range(40)], [], 0
    file = RecordFile(tmp_path / "run.chipwatch", lambda: {"chipwatch": 1})
    for n, at in enumerate(times):
        file.add([gauge("cpu.load", "1", "L.").point(at, float(n))], at)
        if n % 3 == 0:
            live.follow()
            _, following, lines = lines_from(live, following)
            seen += [line["at"] for line in lines if "row" in line]
    file.close()
    assert seen == times
    assert 0 < int(live.whole().body) < following  # the page asks from the tail before the last on


def test_lines_that_are_gone_are_missed_and_half_a_line_waits_for_its_rest(live, tmp_path):
    for text in (LINE * 2000 + LINE[:9], LINE * 2001):
        (tmp_path / "run.chipwatch.tail").write_bytes(text)
        live.follow()
    assert lines_from(live, 0) == (1001, 2001, [json.loads(LINE)] * 1000)
    for path in ("/", "/0", live.place[:-1], f"/x{live.place[2:]}", "//"):  # without the secret
        assert live.answer(Request("GET", path, {})).status == 404
    assert lines_from(live, "9" * 9999)[2] == []


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, lambda tail: tail.symlink_to("/dev/zero")])
def test_a_pipe_folder_or_device_in_place_of_a_tail_has_no_line_and_the_page_is_served(live, tmp_path, make):
    path = tmp_path / "run.chipwatch"
    path.write_text('{"chipwatch":1}\n{"series":[{"name":"a"}]}\n{"at":1,"row":[1]}\n')
    make(tmp_path / "run.chipwatch.tail")
    live.follow()
    assert lines_from(live, 0)[2] == []
    assert live.answer(Request("GET", live.place, {}))().status == 200


def test_why_it_cannot_be_read_is_a_sentence_until_it_can_be_read_again(live, tmp_path):
    path, tail = tmp_path / "run.chipwatch", tmp_path / "run.chipwatch.tail"
    path.unlink()
    live.follow()
    gone = (503, f"{path}: No such file or directory\n".encode())
    assert [live.answer(Request("GET", live.place + each, {}))()[:2] for each in ("", "0")] == [gone, gone]
    path.touch()
    tail.symlink_to("/proc/self/mem")
    live.follow()
    assert live.answer(Request("GET", f"{live.place}0", {}))().body == f"{tail}: Input/output error\n".encode()
    tail.unlink()
    tail.write_bytes(b"0" * LONGEST + b"\n" + LINE)  # what is longer than a line can be is left out
    for _ in range(3):
        live.follow()
    assert lines_from(live, 0)[2] == [json.loads(LINE)]
