import json
import sys
from pathlib import Path

import pytest
from tests.doubles.program import Clock, gone
from tests.told import reading

from chipwatch.collectors import apple
from chipwatch.collectors.apple import GPU, AppleCollector, parse
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.host import records
from chipwatch.host.gpu_metrics import CLOCK_GRAPHICS, POWER, TEMPERATURE, UTILIZATION

RECORD = json.loads((Path(__file__).parents[3] / "fixtures/apple/macmon_pipe_v08.json").read_text())
LINE = json.dumps(RECORD).encode()
ALIASES = {"ecpu_usage": [1100, 0.08], "pcpu_usage": [1800, 0.015], "gpu_usage": [461, 0.021497859]}
OLD = {k: RECORD[k] for k in ("timestamp", "temp", "memory", "gpu_power", "all_power", "sys_power")} | ALIASES
AT = 1_800_000_000_000_000_000
EXPECTED = {UTILIZATION: 9.0, TEMPERATURE: 36.95167, POWER: 0.017451683, CLOCK_GRAPHICS: 461}


def line(record):
    return json.dumps(record).encode()


linux = pytest.mark.skipif(sys.platform != "linux", reason="the pids are looked up in /proc")


class Bench:
    def __init__(self, folder):
        self.path, self.clock, self.collector = folder / "macmon", Clock(), None

    def open(self, body, **config):
        self.path.write_text(f"#!/bin/sh\n{body}\n")
        self.path.chmod(0o755)
        self.collector = AppleCollector(AppleCollector.Config(path=self.path, **config), clock=self.clock)
        self.collector.open(Given())

    def tick(self):
        return reading(self.collector, AT)


@pytest.fixture
def startup_wait(monkeypatch):
    """Set the time (s) for which readings wait for the first record."""
    return lambda seconds: monkeypatch.setattr(records, "STARTUP_WAIT", seconds)


IDLE = {"gpu_active_ratio": 0.0, "gpu_freq_mhz": 0, "gpu_power": 0.0}


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (RECORD, EXPECTED),
        (RECORD | ALIASES, EXPECTED),  # macmon 0.8.1 has the old names beside the new ones
        (OLD, EXPECTED | {UTILIZATION: pytest.approx(2.1497859)}),  # the share that is weighted by the clock
        (RECORD | IDLE, {UTILIZATION: 0.0, TEMPERATURE: 36.95167, POWER: 0.0}),
        (RECORD | {"gpu_active_ratio": 1.0000001}, EXPECTED | {UTILIZATION: 100.0}),
        (RECORD | {"temp": {"gpu_temp_avg": 0.0}}, {m: v for m, v in EXPECTED.items() if m is not TEMPERATURE}),
    ],
)
def test_a_record_of_each_version_is_parsed(record, expected):
    assert parse(line(record)) == expected


def test_a_virtual_machine_has_no_value():
    zeros = {"gpu_active_ratio": 0, "gpu_power": 0, "gpu_freq_mhz": 0, "temp": {"gpu_temp_avg": 0}}
    with pytest.raises(ValueError, match="macmon reports only zeros, as in a virtual machine"):
        parse(line(zeros))


@pytest.mark.parametrize(
    "bad", [None, "N/A", "9", True, -0.1, float("nan"), float("inf"), 10**400, [], [1, 2], {}, 1.5e9]
)
def test_an_invalid_value_is_absent_and_the_others_are_reported(bad):
    for key, metric in {"gpu_active_ratio": UTILIZATION, "gpu_power": POWER, "gpu_freq_mhz": CLOCK_GRAPHICS}.items():
        record = {k: v for k, v in RECORD.items() if k != "gpu_scaled_ratio"} | {key: bad}
        try:
            text = line(record)
        except ValueError:  # json of this Python writes no such number
            continue
        assert parse(text) == {other: value for other, value in EXPECTED.items() if other is not metric}
    assert parse(json.dumps(RECORD | {"temp": bad}, default=str).encode() if bad != 10**400 else LINE)[POWER]


@pytest.mark.parametrize("bad", ["N/A", None, 7, [0.1], ["a", "b"], {}])
def test_an_old_pair_of_an_unknown_shape_is_absent(bad):
    assert parse(line(OLD | {"gpu_usage": bad})) == {metric: EXPECTED[metric] for metric in (TEMPERATURE, POWER)}


def test_a_record_without_any_value_of_a_gpu_is_refused():
    with pytest.raises(ValueError, match="macmon reports no GPU value"):
        parse(b'{"memory": {}}')


@pytest.mark.parametrize("bad", [b"[]", b"7", b"Error: no IOReport", b"\xff\xfe", b"[" * 100_000, b"null"])
def test_a_line_that_is_not_a_record_is_refused(bad):
    with pytest.raises(ValueError, match="macmon printed a line that is not a record"):
        parse(bad)


def test_a_record_that_is_cut_anywhere_is_refused():
    for end in range(len(LINE)):
        with pytest.raises(ValueError, match="not a record"):
            parse(LINE[:end])


def test_the_first_reading_waits_for_the_first_record(bench):
    bench.open(f"sleep 0.3; echo '{LINE.decode()}'; exec sleep 60")
    assert bench.tick() == ([metric.point(AT, value, GPU) for metric, value in EXPECTED.items()], [])
    assert bench.collector.describe() == f"{bench.path} every 5 s"


def test_a_record_of_half_a_second_is_reported_until_the_first_period_ends(bench, until):
    bench.open(
        f"""echo "$@" >> {bench.path}.args
case "$*" in *--samples*) echo warning; sleep 0.2; echo '{LINE.decode()}'; exit 0;; esac
while [ ! -e {bench.path}.later ]; do sleep 0.01; done
echo '{line(RECORD | {"gpu_power": 30}).decode()}'; exec sleep 60""",
        interval=2.5,
    )
    points, problems = bench.tick()
    assert [point.value for point in points] == list(EXPECTED.values())
    assert problems == ["macmon printed a line that is not a record: warning"]
    assert bench.tick() == (points, [])
    asked = sorted(Path(f"{bench.path}.args").read_text().splitlines())
    assert asked == ["--interval 2500 pipe", "--interval 500 pipe --samples 1"]
    Path(f"{bench.path}.later").touch()
    until(lambda: 30 in {point.value for point in bench.tick()[0]})
    assert len(Path(f"{bench.path}.args").read_text().splitlines()) == 2


def test_an_old_macmon_without_the_option_samples_is_waited_for_silently(bench, startup_wait):
    startup_wait(0.2)
    bench.open("""case "$*" in *--samples*) echo "unexpected argument" >&2; exit 2;; esac; sleep 0.05; exec sleep 60""")
    assert bench.tick() == ([], ["macmon has printed nothing yet"])


@linux
def test_closing_ends_every_macmon(bench, tmp_path, until):
    bench.open(f"echo $$ >> {tmp_path}/pids; exec sleep 60")
    until(lambda: bench.tick() and (tmp_path / "pids").exists() and len(pids(tmp_path)) == 2)
    bench.collector.close()
    assert until(lambda: all(map(gone, pids(tmp_path))))


def test_with_a_short_interval_there_is_one_macmon(bench, until):
    bench.open(f"echo \"$@\" >> {bench.path}.args; echo '{LINE.decode()}'; exec sleep 60", interval=0.5)
    until(lambda: bench.tick()[0])
    assert Path(f"{bench.path}.args").read_text() == "--interval 1000 pipe\n"


def test_the_contract_is_kept(bench):
    bench.open(f"echo '{LINE.decode()}'; exec sleep 60")
    assert len(check_collector(AppleCollector(bench.collector._config))) == 12


@pytest.mark.skipif(sys.platform == "darwin", reason="there it may be")
def test_another_system_has_no_apple_gpu():
    with pytest.raises(Unavailable, match=r"no Apple GPU: this is .*, not macOS"):
        AppleCollector(AppleCollector.Config()).open(Given())


def test_without_macmon_an_intel_mac_has_nothing_to_read(monkeypatch):
    monkeypatch.setattr(apple.sys, "platform", "darwin")
    monkeypatch.setattr(apple.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(apple, "MACMON", (Path("/nowhere/macmon"),))
    monkeypatch.setenv("PATH", "/nowhere")
    reason = "no macmon: neither in PATH nor /nowhere/macmon; and no Apple silicon: this is x86_64"
    with pytest.raises(Unavailable, match=reason):
        AppleCollector(AppleCollector.Config()).open(Given())


def test_a_configured_macmon_that_is_absent_is_unavailable(tmp_path):
    with pytest.raises(Unavailable, match=r"macmon is absent"):
        AppleCollector(AppleCollector.Config(path=tmp_path / "macmon")).open(Given())


def pids(folder):
    return [int(pid) for pid in (folder / "pids").read_text().split()]
