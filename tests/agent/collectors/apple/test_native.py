"""The reader of the hardware as a child process of the agent."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doubles.apple.mac import CannotBuild, build
from tests.doubles.program import Clock
from tests.told import reading

from chipwatch.collectors.apple import AppleCollector
from chipwatch.collectors.apple.source import READER
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

AT = 1_800_000_000_000_000_000
ROOT = Path(__file__).parents[4]
MAC = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from pathlib import Path
from chipwatch.collectors.apple import hardware
from tests.doubles.apple.mac import Mac
mac = Mac(Path(sys.argv[1]))
read = hardware.AppleHardware.read
def reading(self, problems):
    mac.pass_by(1.0, 20.0, P1=0.5)
    return read(self, problems)
hardware.AppleHardware.read = reading
hardware.main(*mac.libraries)
"""
PRINTS = 'echo \'{"source": "a fake", "values": {"gpu.power": 7.5}, "problems": []}\''


class Bench:
    """A collector whose reader is a program of the test."""

    def __init__(self):
        self.clock, self.collector = Clock(), None

    def open(self, *command):
        self.collector = AppleCollector(AppleCollector.Config(), clock=self.clock, reader=command)
        self.collector.open(Given())
        return self

    def shell(self, body):
        return self.open("sh", "-c", body)

    def tick(self):
        """Return the values by name, and the problems."""
        points, problems = reading(self.collector, AT)
        return {point.metric.name: point.value for point in points}, problems


@pytest.fixture
def bench(monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")  # without macmon
    made = Bench()
    yield made
    if made.collector:
        made.collector.close()


@pytest.fixture(scope="session")
def library(tmp_path_factory):
    try:
        return build(tmp_path_factory.mktemp("apple"))
    except CannotBuild as reason:
        pytest.skip(str(reason))


def test_a_mac_is_read_through_the_child(bench, library, until):
    bench.open(sys.executable, "-c", MAC, library)
    assert bench.collector.describe() == "IOReport, IOAccelerator, 3 sensors of the SMC"
    found = until(lambda: (found := bench.tick()[0]) and "gpu.power" in found and found)
    assert found.keys() == {
        "gpu.utilization",
        "gpu.memory.used",
        "gpu.unified_memory",
        "gpu.temperature",
        "gpu.power",
        "gpu.clock.graphics",
    }
    assert found["gpu.utilization"] == pytest.approx(50.0)


def test_the_contract_is_kept(library):
    command = [sys.executable, "-c", MAC, library]
    assert check_collector(AppleCollector(AppleCollector.Config(), reader=command))


def test_a_reader_that_crashes_at_the_start_is_unavailable(bench):
    with pytest.raises(Unavailable, match=r"the reader of Apple's GPU was ended by signal 11"):
        bench.shell("kill -SEGV $$")


def test_a_reader_that_finds_no_gpu_is_unavailable_and_leaves_no_process(bench):
    with pytest.raises(Unavailable, match=r"^no Apple GPU: this is a virtual machine$"):
        bench.shell('echo \'{"unavailable": "no Apple GPU: this is a virtual machine"}\'; exec sleep 60')
    assert bench.collector._source is None


def test_the_collector_reports_the_problems_of_the_reader(bench, until):
    odd = PRINTS.replace("[]", '["IOReport returned no sample"]')
    bench.shell(f"{PRINTS}; {PRINTS}; read x; {odd}; exec sleep 60".replace("read x", "sleep 0.3"))
    assert until(lambda: bench.tick() == ({"gpu.power": 7.5}, ["IOReport returned no sample"]))


@pytest.mark.skipif(sys.platform == "darwin", reason="there macOS has them")
def test_the_real_reader_starts_even_where_another_agent_could_be_imported(bench, tmp_path, monkeypatch):
    (tmp_path / "chipwatch.py").write_text("raise SystemExit('the wrong chipwatch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(Unavailable, match="CoreFoundation cannot be used"):
        bench.open(*READER)


def test_the_agent_itself_does_not_load_apples_libraries():
    words = f"""
import sys; sys.path.insert(0, {str(ROOT)!r})
from chipwatch.collectors.apple import AppleCollector
from chipwatch.contract.plugin import Given
body = {PRINTS + "; " + PRINTS + "; exec sleep 60"!r}
collector = AppleCollector(AppleCollector.Config(), reader=["/bin/sh", "-c", body])
collector.open(Given())
assert list(collector.collect(1))
collector.close()
print({{"ctypes", "chipwatch.collectors.apple.hardware", "chipwatch.collectors.apple.foundation"}} & {{*sys.modules}})
"""
    environment = {**os.environ, "PATH": "/usr/bin:/bin"}
    ran = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout == "set()\n"


def test_the_reader_ends_when_the_agent_has_been_killed(library):
    read, write = os.pipe()
    os.close(read)
    ran = subprocess.run([sys.executable, "-c", MAC, library, "1"], stdout=write, timeout=60, check=False)
    os.close(write)
    assert ran.returncode in (0, 120)  # 120: Python could not flush its output at the end
