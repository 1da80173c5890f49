from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from agent.collectors import apple
from agent.collectors.apple import CLOCK, GPU, POWER, TEMPERATURE, UTILIZATION, AppleCollector, parse
from agent.collectors.nvidia.metrics import of_gpu
from agent.errors import PartlyCollected, Unavailable
from agent.testing import check_collector

RECORD = json.loads((Path(__file__).parents[2] / "fixtures/apple/macmon_pipe_v08.json").read_text())
LINE = json.dumps(RECORD).encode()
ALIASES = {"ecpu_usage": [1100, 0.08], "pcpu_usage": [1800, 0.015], "gpu_usage": [461, 0.021497859]}
OLD = {k: RECORD[k] for k in ("timestamp", "temp", "memory", "gpu_power", "all_power", "sys_power")} | ALIASES
AT = 1_800_000_000_000_000_000
EXPECTED = [(UTILIZATION, 9.0), (TEMPERATURE, 36.95167), (POWER, 0.017451683), (CLOCK, 461)]


def line(record):
    return json.dumps(record).encode()


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


class Bench:
    def __init__(self, folder):
        self.path, self.clock, self.collector = folder / "macmon", Clock(), None

    def open(self, body, **config):
        self.path.write_text(f"#!/bin/sh\n{body}\n")
        self.path.chmod(0o755)
        self.collector = AppleCollector(AppleCollector.Config(path=self.path, **config), clock=self.clock)
        self.collector.open()

    def tick(self):
        points = []
        try:
            points.extend(self.collector.collect(AT))
        except PartlyCollected as partly:
            return points, list(partly.problems)
        return points, []


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path)
    yield made
    if made.collector:
        made.collector.close()


def test_the_names_are_those_of_every_gpu():
    assert set(AppleCollector.metrics) <= set(of_gpu())


def test_a_record_of_0_8_0_says_all_of_the_gpu():
    assert parse(LINE) == EXPECTED


def test_a_record_of_0_8_1_with_the_old_names_beside_the_new_ones_says_the_same():
    assert parse(line(RECORD | ALIASES)) == EXPECTED


def test_an_old_record_says_the_share_that_is_weighted_by_the_clock():
    assert parse(line(OLD)) == [(UTILIZATION, pytest.approx(2.1497859)), *EXPECTED[1:]]


def test_a_gpu_that_does_nothing_is_at_zero_without_a_clock():
    idle = RECORD | {"gpu_active_ratio": 0.0, "gpu_freq_mhz": 0, "gpu_power": 0.0}
    assert parse(line(idle)) == [(UTILIZATION, 0.0), (TEMPERATURE, 36.95167), (POWER, 0.0)]


def test_a_mean_of_no_sensors_is_no_temperature():
    assert TEMPERATURE not in dict(parse(line(RECORD | {"temp": {"gpu_temp_avg": 0.0}})))


def test_rounding_never_makes_more_than_the_whole():
    assert parse(line(RECORD | {"gpu_active_ratio": 1.0000001}))[0] == (UTILIZATION, 100.0)


def test_a_virtual_machine_has_no_value():
    zeros = {"gpu_active_ratio": 0, "gpu_power": 0, "gpu_freq_mhz": 0, "temp": {"gpu_temp_avg": 0}}
    with pytest.raises(ValueError, match="macmon tells only zeros, as in a virtual machine"):
        parse(line(zeros))


def test_there_is_no_share_of_an_invented_power_limit():
    assert "gpu.power.utilization" not in {metric.name for metric in AppleCollector.metrics}


@pytest.mark.parametrize(
    "bad", [None, "N/A", "9", True, -0.1, float("nan"), float("inf"), 10**400, [], [1, 2], {}, 1.5e9]
)
def test_what_is_no_reading_is_absent_and_costs_only_itself(bad):
    for key, metric in {"gpu_active_ratio": UTILIZATION, "gpu_power": POWER, "gpu_freq_mhz": CLOCK}.items():
        record = {k: v for k, v in RECORD.items() if k != "gpu_scaled_ratio"} | {key: bad}
        try:
            text = line(record)
        except ValueError:  # json of this Python writes no such number
            continue
        assert parse(text) == [pair for pair in EXPECTED if pair[0] is not metric]
    assert dict(parse(json.dumps(RECORD | {"temp": bad}, default=str).encode() if bad != 10**400 else LINE))[POWER]


@pytest.mark.parametrize("bad", ["N/A", None, 7, [0.1], ["a", "b"], {}])
def test_an_old_pair_of_another_shape_is_absent(bad):
    assert parse(line(OLD | {"gpu_usage": bad})) == EXPECTED[1:3]


def test_nothing_at_all_of_a_gpu_is_said():
    with pytest.raises(ValueError, match="macmon tells nothing of a GPU"):
        parse(b'{"memory": {}}')


@pytest.mark.parametrize("bad", [b"[]", b"7", b"Error: no IOReport", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_what_is_no_record_is_refused(bad):
    with pytest.raises(ValueError, match="macmon printed what is no record"):
        parse(bad)


def test_a_record_that_is_cut_anywhere_is_refused():
    for end in range(len(LINE)):
        with pytest.raises(ValueError, match="no record"):
            parse(LINE[:end])


def test_readings_come_from_the_kept_child(bench, until):
    bench.open(f"echo \"$@\" > {bench.path}.args; echo '{LINE.decode()}'; exec sleep 60", interval=2.5)
    points, problems = until(lambda: (ticked := bench.tick())[0] and ticked)
    assert points == [metric.point(AT, value, GPU) for metric, value in EXPECTED]
    assert problems == []
    assert Path(f"{bench.path}.args").read_text() == "--interval 2500 pipe\n"
    assert bench.collector.describe() == f"{bench.path} every 2.5 s"


def test_a_record_is_told_until_it_is_three_periods_old(bench, until):
    bench.open(f"echo '{LINE.decode()}'; exec sleep 60")
    until(lambda: bench.tick()[0])
    bench.clock.now += 14.9
    assert len(bench.tick()[0]) == 4
    bench.clock.now += 0.1
    assert bench.tick()[0] == []


def test_a_warning_before_the_record_costs_nothing_but_a_word(bench, until):
    bench.open(f"echo 'warning: 3 sensors'; echo '{LINE.decode()}'; exec sleep 60")
    said = []

    def heard():
        points, problems = bench.tick()
        said.extend(problems)
        return points

    assert len(until(heard)) == 4
    assert said == ["macmon printed what is no record: warning: N sensors"]


def test_a_macmon_that_fails_is_said_with_its_last_words(bench, until):
    bench.open('echo "Error: Failed to open IOReport" >&2; exit 1')
    points, problems = until(lambda: (ticked := bench.tick())[1] and ticked)
    assert points == []
    assert problems == ["macmon ended with 1; it is started again later (it said: Error: Failed to open IOReport)"]


def test_the_contract_is_kept(bench, until):
    bench.open(f"echo '{LINE.decode()}'; exec sleep 60")

    class Patient(AppleCollector):
        def collect(self, at):
            until(lambda: self._values or list(super(Patient, self).collect(at)))
            yield from super().collect(at)

    assert len(check_collector(Patient(bench.collector._config))) == 12


@pytest.mark.skipif(sys.platform == "darwin", reason="there it may be")
def test_elsewhere_there_is_no_apple_gpu():
    with pytest.raises(Unavailable, match=r"no Apple GPU: this is .*, not macOS"):
        AppleCollector(AppleCollector.Config()).open()


def test_without_macmon_there_is_nothing_to_read(monkeypatch):
    monkeypatch.setattr(apple.sys, "platform", "darwin")
    monkeypatch.setattr(apple, "PLACES", (Path("/nowhere/macmon"),))
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Unavailable, match="no macmon: neither in PATH nor /nowhere/macmon"):
        AppleCollector(AppleCollector.Config()).open()


def test_a_macmon_that_cannot_be_run_is_unavailable(tmp_path):
    (tmp_path / "macmon").write_text("no program")
    with pytest.raises(Unavailable, match="macmon cannot be started: Permission denied"):
        AppleCollector(AppleCollector.Config(path=tmp_path / "macmon")).open()
