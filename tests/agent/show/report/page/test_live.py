"""The page of a recording that goes on: its lines, once each, and only to who has the address."""

import json

import pytest
from tests.agent.show.report.page.worlds import SECOND, START

from chipwatch.contract.datapoint import gauge
from chipwatch.history.columns import checksummed
from chipwatch.history.record_file import RecordFile
from chipwatch.net.page_server import Request
from chipwatch.show.report.page.live import LivePage


@pytest.fixture
def live(tmp_path):
    made = LivePage(str, tmp_path / "run.chipwatch")
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
    line = checksummed(b'{"at":1,"row":[]}')
    for text in (line * 2000 + line[:9], line * 2001):
        (tmp_path / "run.chipwatch.tail").write_bytes(text)
        live.follow()
    assert lines_from(live, 0) == (1001, 2001, [json.loads(line)] * 1000)
    for path in ("/", "/0", live.place[:-1], f"/x{live.place[2:]}", "//"):  # without the secret
        assert live.answer(Request("GET", path, {})).status == 404
    assert lines_from(live, "9" * 9999)[2] == []
