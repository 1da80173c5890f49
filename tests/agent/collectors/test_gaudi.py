import json
import sys
import time
from pathlib import Path

import pytest
from tests.doubles.program import Clock
from tests.told import reading

from chipwatch.collectors import gaudi
from chipwatch.collectors.gaudi import GaudiCollector, HlSmi, header
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.host import records
from chipwatch.host.gpu_metrics import plausible

CAPTURE = Path(__file__).parents[2] / "fixtures/gaudi/hl_smi_query_gaudi3.csv"
ROWS = CAPTURE.read_text().splitlines()
NAMES = ["index", "uuid", "name", "driver_version", "memory.total", "memory.used", "memory.free", "power.draw"]
NAMES += ["power.max", "temperature.aip", "utilization.aip"]
HEADER = ", ".join(NAMES)
ASKED = ["index", "memory.total", "memory.used", "power.draw", "temperature.aip", "utilization.aip", "power.max"]
ECC = ["ecc.errors.uncorrected.volatile.total", "ecc.errors.corrected.volatile.total"]
AT = 1_800_000_000_000_000_000
MIB = 2**20


def said(power, temperature):
    return sorted([
        ("gpu.utilization", 0.0),
        ("gpu.memory.used", 672 * MIB),
        ("gpu.memory.utilization", 100 * 672 / 131072),
        ("gpu.memory.total", 131072 * MIB),
        ("gpu.temperature", temperature),
        ("gpu.power", power),
        ("gpu.power.utilization", 100 * power / 850),
        ("gpu.power.limit", 850.0),
    ])  # fmt: skip


EXPECTED = {"0": said(226.0, 36.0), "1": said(230.0, 39.0)}
WITHOUT_LIMIT = {
    index: [(name, value) for name, value in values if name not in ("gpu.power.limit", "gpu.power.utilization")]
    for index, values in EXPECTED.items()
}


def reordered(row):
    """Return a captured row with the columns of our query."""
    cells = dict(zip(NAMES, row.split(", "), strict=True))
    return ", ".join(cells[name] for name in ASKED)


def by_device(points):
    found = {}
    for point in points:
        assert point.at == AT
        found.setdefault(point.dims["gpu"], []).append((point.metric.name, point.value))
    return {index: sorted(values) for index, values in found.items()}


class Bench:
    def __init__(self, folder):
        self.path, self.sys, self.clock, self.collector = folder / "hl-smi", folder / "sys", Clock(), None
        self.vendor = self.sys / "bus/pci/devices/0000:33:00.0/vendor"
        self.vendor.parent.mkdir(parents=True)
        self.vendor.write_text("0x1da3\n")

    def made(self, body="", **config):
        self.path.write_text(f"#!/bin/sh\n{body}\n")
        self.path.chmod(0o755)
        config = {"path": self.path, "sys": self.sys} | config
        self.collector = GaudiCollector(GaudiCollector.Config(**config), clock=self.clock)
        return self.collector

    def open(self, body, **config):
        self.made(body, **config).open(Given())

    def prints(self, *lines, then="exec sleep 60"):
        said = "\n".join(lines)
        self.open(f"cat <<'END'\n{said}\nEND\n{then}")

    def tick(self):
        points, problems = reading(self.collector, AT)
        return by_device(points), problems

    def take(self, *lines):
        """Return the values that the collector reads from lines, and the problems."""
        problems = []
        source = HlSmi(self.path, 5.0, lambda: 0.0)
        source._take_lines([line if isinstance(line, bytes) else line.encode() for line in lines], 0.0, problems)
        rows = {
            index: sorted((metric.name, value) for metric, value in plausible(row).items())
            for index, (_, _, row) in source._values.items()
        }
        return rows, problems


def took(bench):
    """Return the duration of a reading in seconds."""
    begun = time.monotonic()
    bench.tick()
    return time.monotonic() - begun


SHORT = [reordered(row).rpartition(",")[0] for row in ROWS]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([HEADER, *ROWS], EXPECTED),  # columns are found by their names
        ([", ".join(reversed(line.split(", "))) for line in (HEADER, *ROWS)], EXPECTED),
        ([*map(reordered, ROWS)], EXPECTED),  # without a header they are as requested
        (SHORT, WITHOUT_LIMIT),
        (
            ["index, memory.used [MiB], power.draw [W], utilization.aip [%]", "3, 672, 226, 7.5"],
            {"3": [("gpu.memory.used", 672 * MIB), ("gpu.power", 226.0), ("gpu.utilization", 7.5)]},
        ),
    ],
)
def test_columns_are_found_by_a_header_or_as_requested(bench, lines, expected):
    assert bench.take(*lines) == (expected, [])


@pytest.mark.parametrize("absent", ["N/A", "[N/A]", "[Not Supported]", "-", "", "n/a", "ERR!"])
def test_not_available_is_absent_in_any_spelling(bench, absent):
    assert bench.take(", ".join(["0", *[absent] * 6])) == ({"0": []}, [])


def test_impossible_values_are_absent(bench):
    rows, _ = bench.take("0, 100 MiB, 200 MiB, 226 W, 0 C, 101 %, 0 W")
    assert rows["0"] == [("gpu.memory.total", 100 * MIB), ("gpu.memory.used", 200 * MIB), ("gpu.power", 226.0)]


def test_patterns_for_not_available_are_absent(bench):
    rows, _ = bench.take("0, 100 MiB, 20 MiB, 65535 W, 255 C, 65535 %, 850 W")
    assert {name for name, _ in rows["0"]} == {
        "gpu.memory.used", "gpu.memory.total", "gpu.memory.utilization", "gpu.power.limit",
    }  # fmt: skip


def test_a_truncated_row_gives_no_false_value(bench):
    for head, rows in (([HEADER], ROWS), ([], list(map(reordered, ROWS)))):
        for row in rows:
            for end in range(len(row)):
                found, _ = bench.take(*head, row[:end])
                for index, values in found.items():
                    assert set(values) <= set(EXPECTED[index])


@pytest.mark.parametrize(
    "line",
    ["No Habana device was found", "0", "x, 1, 2", "-1" + reordered(ROWS[0])[1:], "٣" + reordered(ROWS[0])[1:], b"\xff\xfe\0"],
)  # fmt: skip
def test_a_line_that_is_not_a_row_is_reported_and_the_rest_is_read(bench, line):
    rows, problems = bench.take(reordered(ROWS[0]), line, reordered(ROWS[1]))
    assert rows == EXPECTED
    assert len(problems) == 1
    assert problems[0].startswith("hl-smi printed a line that is not a row: ")


def test_a_header_has_an_index_and_only_names():
    assert header(["Index", "memory.used [MiB]"]) == [("index", None), ("memory.used", "MiB")]
    assert header(["memory.used [MiB]"]) == []
    assert header(["index", "36 C"]) == []


@pytest.mark.parametrize("cell", ["36", "36 F", "-1 C", "1e3 C", "3 6 C", "0x1 C"])
def test_a_cell_without_the_right_number_and_unit_is_refused(bench, cell):
    rows, problems = bench.take("index, temperature.aip, power.draw", f"0, {cell}, 226 W")
    assert rows["0"] == [("gpu.power", 226.0)]
    assert [problem.partition(" is ")[0] for problem in problems] == ["hl-smi: temperature.aip"]


def test_the_first_reading_waits_for_the_first_rows_of_all_devices(bench):
    bench.open(f"sleep 0.2; echo '{HEADER}'; echo '{ROWS[0]}'; echo '{ROWS[1]}'; exec sleep 60")
    assert bench.tick() == (EXPECTED, [])


def test_a_program_that_hangs_is_awaited_until_the_limit(bench, monkeypatch):
    monkeypatch.setattr(records, "STARTUP_WAIT", 0.8)
    bench.open("exec sleep 60")
    assert 0.7 < took(bench) < 10
    assert bench.tick() == ({}, ["hl-smi has printed nothing yet"])
    assert min(took(bench) for _n in range(5)) < 0.5


def test_a_reading_waits_for_less_than_the_interval(bench, monkeypatch):
    monkeypatch.setattr(records, "STARTUP_WAIT", 60.0)
    bench.open("exec sleep 60", interval=0.2)
    assert min(took(bench) for _n in range(3)) < 1.5
    assert bench.tick() == ({}, [])


def test_once_prints_values_that_arrive_after_a_while(bench, agent, tmp_path):
    said = "\n".join([HEADER, *ROWS])
    bench.made(f"sleep 0.5; cat <<'END'\n{said}\nEND\nexec sleep 60")
    config = tmp_path / "agent.toml"
    config.write_text(f'collector = ["gaudi"]\nsys = "{bench.sys}"\n[collectors.gaudi]\npath = "{bench.path}"\n')
    done = agent.run("--once", "--interval", "5", "--level", "all", "--format", "json", "--config", config)
    assert done.returncode == 0
    names = {(point["name"], point["dims"].get("gpu")) for point in map(json.loads, done.stdout.splitlines())}
    assert {(name, index) for index, said in EXPECTED.items() for name, _ in said} <= names


@pytest.mark.skipif(sys.platform != "linux", reason="the pid is looked up in /proc")
def test_close_does_not_wait_for_a_program_that_hangs_and_ends_it(bench, agent, tmp_path, until):
    bench.made(f"echo $$ > {tmp_path}/pid; exec sleep 60")
    config = tmp_path / "agent.toml"
    config.write_text(f'collector = ["gaudi"]\nsys = "{bench.sys}"\n[collectors.gaudi]\npath = "{bench.path}"\n')
    running = agent.start("--format", "json", "--config", config)
    pid = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    code, seconds = running.stop()
    assert code == 0
    assert seconds < 2
    until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())


def test_the_program_is_started_once(bench, until):
    bench.open(
        f"echo \"$@\" >> {bench.path}.args; cat <<'END'\n{HEADER}\n{ROWS[0]}\n{ROWS[1]}\nEND\nexec sleep 60",
        interval=7.9,
    )
    assert bench.collector.describe() == f"{bench.path} every 7 s, 0 devices"
    assert until(lambda: bench.tick()[0]) == EXPECTED
    assert bench.tick() == (EXPECTED, [])
    assert Path(f"{bench.path}.args").read_text() == f"-Q {','.join(ASKED + ECC)} -f csv -l 7\n"
    assert bench.collector.describe() == f"{bench.path} every 7 s, 2 devices"


@pytest.mark.parametrize("cells", [["0", "12"], ["N/A", "12"], ["0", "N/A"]])
def test_memory_errors_are_counted_where_the_program_tells_them(bench, until, cells):
    """Columns of hl-smi's documentation of 1.22; no capture has them."""
    row = f"{reordered(ROWS[0])}, {', '.join(cells)}"
    bench.prints(", ".join(ASKED + ECC), row)
    (values,) = until(lambda: bench.tick()[0]).values()
    counts = dict(zip(("gpu.ecc.uncorrected", "gpu.ecc.corrected"), cells, strict=True))
    assert dict(values) == dict(EXPECTED["0"]) | {name: int(cell) for name, cell in counts.items() if cell != "N/A"}
    assert bench.tick()[1] == []


def test_a_row_is_yielded_until_it_is_three_periods_old(bench, until):
    bench.prints(HEADER, *ROWS)
    until(lambda: len(bench.tick()[0]) == 2)
    bench.clock.now += 14.9
    assert bench.tick()[0] == EXPECTED
    bench.clock.now += 0.1
    assert bench.tick()[0] == {}


def test_a_program_without_the_power_limit_is_queried_without_it(bench, until, monkeypatch):
    monkeypatch.setattr(records, "STARTUP_WAIT", 0.1)
    bench.open(
        f'case "$2" in *power.max*) echo "unknown query power.max"; exit 1;; esac\n'
        f"cat <<'END'\n{SHORT[0]}\n{SHORT[1]}\nEND\nexec sleep 60"
    )
    problems, told = set(), {
        "hl-smi printed a line that is not a row: unknown query power.max",
        "hl-smi ended with 1; it is started again later",
    }  # fmt: skip
    until(lambda: problems.update(bench.tick()[1]) or told <= problems)
    bench.clock.now += 2
    assert until(lambda: bench.tick()[0]) == WITHOUT_LIMIT


def test_the_contract_is_kept(bench):
    bench.prints(HEADER, *ROWS)
    assert len(check_collector(GaudiCollector(bench.collector._config))) == 48


def test_the_first_reading_waits_for_the_query_without_the_power_limit(bench, monkeypatch):
    monkeypatch.setattr(records, "STARTUP_WAIT", 20.0)
    made = bench.made(
        f"case \"$2\" in *power.max*) exit 1;; esac\ncat <<'END'\n{SHORT[0]}\n{SHORT[1]}\nEND\nexec sleep 60",
        interval=30.0,
    )
    made._clock = time.monotonic
    made.open(Given())
    assert bench.tick() == (WITHOUT_LIMIT, ["hl-smi ended with 1; it is started again later"])


def test_without_a_device_on_the_bus_the_program_is_not_searched(bench):
    bench.vendor.write_text("0x10de\n")
    with pytest.raises(Unavailable, match=rf"no Gaudi: no device of vendor 0x1da3 in {bench.sys}/bus/pci/devices"):
        bench.open("exit 1")


def test_a_missing_program_is_named(bench, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(gaudi, "PLACE", Path("/nowhere/else/hl-smi"))
    with pytest.raises(Unavailable, match="no hl-smi: neither in PATH nor /nowhere/else/hl-smi"):
        bench.open("", path=None)


def test_a_program_that_cannot_be_run_is_unavailable(bench):
    collector = bench.made()
    bench.path.write_text("no program")
    with pytest.raises(Unavailable, match="hl-smi cannot be started: Exec format error"):
        collector.open(Given())
