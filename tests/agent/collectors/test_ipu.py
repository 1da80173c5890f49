import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.told import reading

from chipwatch.collectors.ipu import ATTRIBUTES, IpuCollector, values
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

FIXTURES = Path(__file__).parents[2] / "fixtures/ipu"
DEVICES = json.loads((FIXTURES / "get_devices.json").read_text())
C600 = dict(re.findall(r"^  (.+?): (.*)$", (FIXTURES / "gc_info_c600.txt").read_text(), re.MULTILINE))
AT = 1_800_000_000_000_000_000

BUSY = [("ipu.clock", 1300.0), ("ipu.power", 120.0), ("ipu.utilization", 21.25), ("ipu.session.utilization", 15.65)]
EXPECTED = {
    "0": [("ipu.board.temperature", 20.0), ("ipu.die.temperature", 25.0), *BUSY],
    "1": [("ipu.board.temperature", 30.0), ("ipu.die.temperature", 39.0), *BUSY],
    "2": [("ipu.board.temperature", 20.0), ("ipu.die.temperature", 39.0), *BUSY],
}

DOUBLE = """
import json, pathlib
FILE = pathlib.Path({file!r})

class gcipuinfo:
    updates = False
    def setUpdateMode(self, on):
        self.updates = on
    def getDevices(self):
        assert self.updates
        found = json.loads(FILE.read_text())
        if isinstance(found, str):
            raise RuntimeError(found)
        return found
"""


class Bench:
    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch, self.collector = folder, monkeypatch, None
        self.file = folder / "devices.json"

    def library(self, devices):
        (self.folder / "gcipuinfo.py").write_text(DOUBLE.format(file=str(self.file)))
        self.monkeypatch.syspath_prepend(self.folder)
        self.monkeypatch.delitem(sys.modules, "gcipuinfo", raising=False)
        self.tells(devices)
        return self

    def tells(self, devices):
        self.file.write_text(json.dumps(devices))

    def open(self, **config):
        self.collector = IpuCollector(IpuCollector.Config(**config))
        self.collector.open(Given())
        return self

    def tick(self):
        (points, problems), found = reading(self.collector, AT), {}
        for point in points:
            assert point.at == AT
            found.setdefault(point.dims["ipu"], []).append((point.metric.name, point.value))
        return found, problems


@pytest.fixture
def bench(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gcipuinfo", None)  # as where it is not installed
    made = Bench(tmp_path, monkeypatch)
    yield made
    if made.collector:
        made.collector.close()


def read(device):
    problems = []
    return [(metric.name, value) for metric, value in values(device, problems)], problems


def test_attributes_of_a_c600_are_read():
    assert read(C600) == (
        [
            ("ipu.board.temperature", 17.8),
            ("ipu.die.temperature", 20.0),
            ("ipu.clock", 20.0),
            ("ipu.utilization", 0.0),
            ("ipu.session.utilization", 0.0),
            ("ipu.link.speed", 16.0),
        ],
        [],
    )


@pytest.mark.parametrize("absent", ["N/A", "n/a", "", "unknown", "-", "nan", None])
def test_not_available_is_absent_in_any_spelling(absent):
    assert read(dict.fromkeys(ATTRIBUTES, absent)) == ([], [])


@pytest.mark.parametrize(
    "bad", ["20", "20 F", "20CC", "2 0C", "20W/C", "1e3C", "0x14C", "20,5C", "²C", 20, 20.5, True, [], {"C": 1}]
)
def test_a_value_that_is_not_a_number_with_its_unit_is_refused_and_reported(bad):
    found, problems = read({"average die temp": bad, "clock": "1300MHz"})
    assert found == [("ipu.clock", 1300.0)]
    assert len(problems) <= 1
    if any(map(str.isdigit, str(bad))):
        assert problems[0].startswith("average die temp is ")


@pytest.mark.parametrize(("name", "text"), [("ipu power", "-1W"), ("ipu utilisation", "100.1%"), ("clock", "-5MHz"),
    ("average die temp", "255C"), ("ipu power", "65535W"), ("clock", "65535MHz")])  # fmt: skip
def test_impossible_values_are_refused(name, text):
    assert read({name: text})[0] == []


def test_a_negative_temperature_is_accepted():
    assert read({"average board temp": "-3.5 C"})[0] == [("ipu.board.temperature", -3.5)]


def test_a_truncated_attribute_gives_no_false_value():
    whole = dict(read(C600)[0])
    for name, text in C600.items():
        for end in range(len(text)):
            for metric, value in read({name: text[:end]})[0]:
                assert whole[metric] == value


def test_all_devices_are_read_by_the_library(bench):
    bench.library(DEVICES).open()
    assert bench.tick() == (EXPECTED, [])
    assert bench.collector.describe() == "gcipuinfo, 3 devices"


def test_a_key_that_appears_later_is_read(bench):
    bench.library([{"id": "0", "clock": "20MHz", "ipu power": "N/A"}]).open()
    assert bench.tick()[0] == {"0": [("ipu.clock", 20.0)]}
    bench.tells([{"id": "0", "clock": "20MHz", "ipu power": "33.5 W"}])
    assert bench.tick()[0] == {"0": [("ipu.clock", 20.0), ("ipu.power", 33.5)]}


def test_devices_without_a_unique_id_are_left_out_and_the_rest_is_read(bench):
    bench.library(
        [*DEVICES, DEVICES[0], {"clock": "1MHz"}, {"id": "x", "clock": "1MHz"}, "N/A", None, {"id": 3}]
    ).open()
    assert bench.tick() == (EXPECTED, ["a device has no unique id"])


def test_with_watched_only_the_devices_of_the_process_tree_are_read(bench):
    supervised_process = subprocess.Popen(["sleep", "60"])
    try:
        mine = [DEVICES[0] | {"user process id": str(supervised_process.pid)}, *DEVICES[1:]]
        bench.library(mine).open(pid=os.getpid(), watched=True)
        assert bench.tick()[0] == {"0": EXPECTED["0"]}
    finally:
        supervised_process.kill()
        supervised_process.wait()


def test_without_watched_all_devices_are_read_even_with_a_pid(bench):
    bench.library(DEVICES).open(pid=os.getpid())
    assert bench.tick()[0] == EXPECTED


def test_a_missing_process_is_unavailable(bench):
    with pytest.raises(Unavailable, match="no process 4194305 \\(/proc/4194305 is absent\\)"):
        bench.library(DEVICES).open(pid=4194305, watched=True)


def test_an_error_of_the_library_is_reported(bench):
    bench.library(DEVICES).open()
    bench.tells("lost the server at 10.1.5.12")
    assert bench.tick() == ({}, ["gcipuinfo: lost the server at N.N.N.N"])
    bench.tells(DEVICES)
    assert bench.tick() == (EXPECTED, [])


def test_the_contract_is_kept(bench):
    bench.library([*DEVICES, C600 | {"id": "3"}])
    assert len(check_collector(IpuCollector(IpuCollector.Config()))) == 3 * 24


def test_a_missing_library_is_named_with_what_to_do(bench):
    with pytest.raises(
        Unavailable, match=r"no IPU: gcipuinfo: .*gcipuinfo.*; see that PYTHONPATH has the Poplar SDK's"
    ):
        bench.open()


def test_a_library_without_devices_is_unavailable_until_it_has_some(bench):
    with pytest.raises(Unavailable, match="no IPU: gcipuinfo lists no device"):
        bench.library([]).open()
    bench.tells(DEVICES)
    bench.open()
    assert bench.tick() == (EXPECTED, [])
