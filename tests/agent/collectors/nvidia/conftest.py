"""A machine with a fake driver, and a collector on it whose clock the test moves."""

from contextlib import closing

import pytest
from tests.doubles.nvml.driver import Loaded
from tests.told import reading

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.plugin import Given

START = 1_800_000_000_000_000_000
SECOND = 1_000_000_000
HEALTH = ("gpu.fault{", "gpu.link.errors{")
SELDOM = (
    "gpu.links{", "gpu.fabric{", "gpu.nvlink.bit_error_rate{", "gpu.ecc.lifetime{", "gpu.rows.banks{",
    "gpu.pages.retired{", "gpu.pcie.width{", "gpu.pcie.generation{", "gpu.temperature.margin{",
    "gpu.temperature.limit{", "gpu.clock.reduced{", "gpu.tensor.stalled{", "gpu.rows.inactive{", "gpu.banks.remapped{",
    "gpu.banks.groups{",
    "gpu.nvlink.corrected{", "gpu.nvlink.blocks{",
)  # fmt: skip


@pytest.fixture
def driver(library, tmp_path, monkeypatch):
    """Return a fake driver with GPUs of a profile."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def load(name="h100", many=1):
        monkeypatch.setenv("FAKE_NVML", "")  # so that it is put back
        load.last = Loaded(library, tmp_path, name, many)
        return load.last

    load.last = None
    return load


@pytest.fixture
def fake(driver):
    """A fake driver with one H100."""
    return driver()


@pytest.fixture
def two(driver):
    """A fake driver with two H100."""
    return driver("h100", 2)


@pytest.fixture
def watched(two, watch):
    """A collector of the level basic that has read two H100 once."""
    opened = watch(Level.BASIC)
    opened.read()
    return opened


@pytest.fixture
def proc(tmp_path):
    """A /proc of a machine with the driver."""
    folder = tmp_path / "proc"
    (folder / "driver/nvidia").mkdir(parents=True)
    (folder / "driver/nvidia/version").write_text("NVRM version: NVIDIA UNIX x86_64 Kernel Module  590.48.01\n")
    return folder


class Watch:
    """A collector that is open, the clock that it reads, and a fake driver whose answers a test may change."""

    def __init__(self, collector, level=Level.ALL, driver=None):
        self.driver = driver
        self.collector, self.now, self.at = collector, 10 * SECOND, START
        collector._clock = lambda: self.now
        self.points, self.problems, self.faults, self.seldom = [], [], {}, {}
        collector.open(Given(level=level))

    def processes(self):
        """Return the processes that the driver lists now."""
        self.driver.tell_changes()
        return [*self.collector._gpus.processes()]

    def read(self, seconds=1.0):
        """Let time pass, collect, and return the values by name and dimensions; but see `faults` and `seldom`."""
        if self.driver:
            self.driver.tell_changes()
        self.now += int(seconds * SECOND)
        self.at += int(seconds * SECOND)
        self.points, self.problems = reading(self.collector, self.at)
        read = {key(point): point.value for point in self.points}
        self.faults = {name: value for name, value in read.items() if name.startswith(HEALTH)}
        self.seldom = {name: value for name, value in read.items() if name.startswith(SELDOM)}
        return {name: value for name, value in read.items() if not name.startswith(HEALTH + SELDOM)}


def key(point):
    return f"{point.metric.name}{{{','.join(f'{k}={v}' for k, v in point.dims.items())}}}"


@pytest.fixture
def watch(proc, tmp_path, driver, at_the_end):
    """Return an open collector; it takes the options of Config."""

    def start(level=Level.ALL, **options):
        config = NvidiaCollector.Config(proc=proc, root=tmp_path, **options)
        collector = at_the_end.enter_context(closing(NvidiaCollector(config)))
        if driver.last:
            driver.last.tell_changes()
        return Watch(collector, level, driver.last)

    return start
