from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chipwatch.collectors.ipu import ATTRIBUTES, IpuCollector, parsed, values
from chipwatch.errors import PartlyCollected, Unavailable
from chipwatch.host import supervised_process
from chipwatch.testing import check_collector

FIXTURES = Path(__file__).parents[2] / "fixtures/ipu"
DEVICES = json.loads((FIXTURES / "get_devices.json").read_text())
C600 = dict(re.findall(r"^  (.+?): (.*)$", (FIXTURES / "gc_info_c600.txt").read_text(), re.MULTILINE))
AT = 1_800_000_000_000_000_000

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="gc-monitor is a shell script here")

BUSY = [
    ("ipu.clock", 1300.0),
    ("ipu.power", 120.0),
    ("ipu.utilization", 21.25),
    ("ipu.session.utilization", 15.65),
]
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


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Bench:
    def __init__(self, folder, monkeypatch):
        self.folder, self.monkeypatch, self.clock, self.collector = folder, monkeypatch, Clock(), None
        self.file, self.path = folder / "devices.json", folder / "gc-monitor"

    def library(self, devices):
        (self.folder / "gcipuinfo.py").write_text(DOUBLE.format(file=str(self.file)))
        self.monkeypatch.syspath_prepend(self.folder)
        self.monkeypatch.delitem(sys.modules, "gcipuinfo", raising=False)
        self.tells(devices)
        return self

    def tells(self, devices):
        self.file.write_text(json.dumps(devices))

    def program(self, body):
        self.path.write_text(f"#!/bin/sh\n{body}\n")
        self.path.chmod(0o755)
        return self

    def open(self, **config):
        self.collector = IpuCollector(IpuCollector.Config(**config), clock=self.clock)
        self.collector.open()
        return self

    def tick(self):
        found, problems = {}, []
        try:
            for point in self.collector.collect(AT):
                assert point.at == AT
                found.setdefault(point.dims["ipu"], []).append((point.metric.name, point.value))
        except PartlyCollected as partly:
            problems = list(partly.problems)
        return found, problems


def took(bench):
    """Return the duration of a reading in seconds."""
    begun = time.monotonic()
    bench.tick()
    return time.monotonic() - begun


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


# -- attributes -------------------------------------------------------------------------------------------------


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


# -- the library ------------------------------------------------------------------------------------------------


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


# -- the program ------------------------------------------------------------------------------------------------


LAYOUTS = {
    "a list": DEVICES,
    "an object": {"devices": DEVICES},
    "cards": {"version": 1, "cards": [{"serial": "0", "ipus": DEVICES[:2]}, {"serial": "1", "ipus": DEVICES[2:]}]},
    "numbers as ids": [device | {"id": int(device["id"])} for device in DEVICES],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("indent", [None, 2])
def test_devices_are_found_anywhere_in_the_output_of_the_program(layout, indent):
    text = json.dumps(LAYOUTS[layout], indent=indent).encode()
    for before in (b"", b"warning: [x] is {old}\n", b"[notice]\n{\n"):
        found = {device["id"]: read(device)[0] for device in parsed(before + text)}
        assert found == EXPECTED


def test_output_full_of_brackets_is_parsed_quickly():
    with pytest.raises(ValueError, match="no device"):
        parsed(b"[\n" * 1_000_000)


@pytest.mark.parametrize("text", [b"", b"No devices", b"[]", b"{}", b"[1]", b'{"id": "0"}', b"[" * 100_000, b"\xff"])
def test_output_without_a_device_is_refused(text):
    with pytest.raises(ValueError, match="gc-monitor printed no device"):
        parsed(text)


def test_truncated_output_is_refused():
    text = json.dumps(DEVICES).encode()
    for end in range(len(text)):
        with pytest.raises(ValueError, match="no device"):
            parsed(text[:end])


def test_the_first_run_is_awaited(bench):
    bench.program(f"sleep 0.2; echo '{json.dumps(DEVICES)}'").open(path=bench.path)
    assert bench.tick() == (EXPECTED, [])


def test_a_program_that_hangs_is_awaited_until_the_limit(bench, monkeypatch):
    monkeypatch.setattr(supervised_process, "STARTUP_WAIT", 0.8)
    bench.program("exec sleep 60").open(path=bench.path)
    assert 0.7 < took(bench) < 10
    assert bench.tick() == ({}, ["gc-monitor has printed nothing yet"])
    assert min(took(bench) for _n in range(5)) < 0.5


def test_a_reading_waits_for_less_than_the_interval(bench, monkeypatch):
    monkeypatch.setattr(supervised_process, "STARTUP_WAIT", 60.0)
    bench.program("exec sleep 60").open(path=bench.path, interval=0.2)
    assert min(took(bench) for _n in range(3)) < 1.5
    assert bench.tick() == ({}, [])


def test_a_failed_first_run_ends_the_wait(bench, monkeypatch):
    monkeypatch.setattr(supervised_process, "STARTUP_WAIT", 60.0)
    bench.program("exit 5").open(path=bench.path, interval=60.0)
    assert took(bench) < 20
    assert bench.tick() == ({}, ["gc-monitor ended with 5; it is started again later"])


def test_once_prints_values_that_arrive_after_a_while(bench, agent):
    bench.program(f"sleep 0.5; echo '{json.dumps(DEVICES)}'")
    config = bench.folder / "agent.toml"
    config.write_text(f'collector = ["ipu"]\n[collectors.ipu]\npath = "{bench.path}"\n')
    done = agent.run("--once", "--level", "all", "--format", "json", "--config", config)
    assert done.returncode == 0
    names = {(point["name"], point["dims"].get("ipu")) for point in map(json.loads, done.stdout.splitlines())}
    assert {(name, index) for index, said in EXPECTED.items() for name, _ in said} <= names


@pytest.mark.skipif(sys.platform != "linux", reason="the pid is looked up in /proc")
def test_close_does_not_wait_for_a_program_that_hangs_and_ends_it(bench, agent, until):
    bench.program(f"echo $$ > {bench.folder}/pid; exec sleep 60")
    config = bench.folder / "agent.toml"
    config.write_text(f'collector = ["ipu"]\n[collectors.ipu]\npath = "{bench.path}"\n')
    running = agent.start("--format", "json", "--config", config)
    pid = until(lambda: (bench.folder / "pid").exists() and (bench.folder / "pid").read_text().strip())
    code, seconds = running.stop()
    assert code == 0
    assert seconds < 2
    until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_the_program_runs_every_ten_seconds_and_later_runs_are_not_awaited(bench, until):
    text = json.dumps({"devices": DEVICES}, indent=1)
    bench.program(f"echo \"$@\" >> {bench.path}.args; cat <<'END'\n{text}\nEND").open(path=bench.path)
    assert until(lambda: bench.tick()[0]) == EXPECTED
    assert bench.collector.describe() == f"{bench.path}, 3 devices"
    bench.clock.now += 9.9
    assert bench.tick() == (EXPECTED, [])
    assert Path(f"{bench.path}.args").read_text() == "--json\n"
    bench.clock.now += 0.1
    until(lambda: bench.tick() and Path(f"{bench.path}.args").read_text() == "--json\n--json\n")
    assert bench.tick() == (EXPECTED, [])


def test_a_program_that_hangs_is_reported_and_delays_nothing(bench, until):
    text = json.dumps(DEVICES)
    bench.program(f"[ -e {bench.path}.hang ] && exec sleep 60; echo '{text}'").open(path=bench.path)
    until(lambda: bench.tick()[0])
    Path(f"{bench.path}.hang").touch()
    bench.clock.now += 10
    assert bench.tick() == (EXPECTED, [])
    bench.clock.now += 20
    assert bench.tick() == ({}, [])
    bench.clock.now += 20
    assert bench.tick() == ({}, ["gc-monitor prints nothing; it is started again later"])


def test_the_output_of_a_failed_run_is_discarded(bench, until):
    text = json.dumps(DEVICES, indent=1)
    bench.program(f"[ -e {bench.path}.well ] || {{ printf '[\\n{{\\n'; exit 5; }}; cat <<'END'\n{text}\nEND").open(
        path=bench.path
    )
    assert until(lambda: bench.tick()[1]) == ["gc-monitor ended with 5; it is started again later"]
    Path(f"{bench.path}.well").touch()
    bench.clock.now += 2
    assert until(lambda: bench.tick()[0]) == EXPECTED


def test_an_error_text_and_a_clean_end_are_reported(bench, until):
    bench.program("echo 'No partition 7'").open(path=bench.path)
    assert until(lambda: bench.tick()[1]) == ["gc-monitor printed no device: No partition N"]
    assert bench.tick()[1] == ["gc-monitor printed no device: No partition N"], "as long as it lasts"


def test_too_much_output_is_discarded_and_reported(bench):
    bench.program("exec yes [").open(path=bench.path)
    said = []
    while not said:
        said += bench.tick()[1]
        assert sum(map(len, bench.collector._source._lines)) <= 4 << 20
    assert said == ["gc-monitor printed more than 4 MiB, which are ignored"]


# -- neither of both ----------------------------------------------------------------------------------------------------


def test_missing_library_and_program_are_both_named(bench, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match=r"no IPU: gcipuinfo: .*gcipuinfo.*; no gc-monitor: neither in PATH nor"):
        bench.open()


def test_without_devices_in_the_library_the_program_is_used(bench, monkeypatch, until):
    monkeypatch.setenv("PATH", f"{bench.folder}:{os.environ['PATH']}")
    bench.program(f"echo '{json.dumps(DEVICES)}'").library([]).open()
    assert until(lambda: bench.tick()[0]) == EXPECTED


def test_a_program_that_cannot_be_run_is_unavailable(bench):
    bench.path.write_text("no program")
    with pytest.raises(Unavailable, match="gc-monitor cannot be started: Permission denied"):
        bench.open(path=bench.path)
