"""A machine with AMD cards, made of files."""

import struct

import pytest
from tests.told import reading

from chipwatch.collectors.amd import AmdCollector

SECOND = 1_000_000_000


class Machine:
    def __init__(self, root):
        self.sys, self.proc = root / "sys", root / "proc"
        for folder in (self.sys / "class/drm", self.proc):
            folder.mkdir(parents=True)
        (self.proc / "stat").write_text("btime 1790000000\n")
        self.now = SECOND

    def put(self, path, value):
        path = self.sys / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(value if isinstance(value, bytes) else f"{value}\n".encode())

    def card(self, index, files=(), **hwmon):
        """Values of an RX 6700 XT and an MI210; see tests/fixtures/SOURCES.amd.txt."""
        content = {
            "vendor": "0x1002",
            "uevent": f"DRIVER=amdgpu\nPCI_SLOT_NAME=0000:0{index}:00.0",
            "power/runtime_status": "active",
            "gpu_busy_percent": 91,
            "mem_busy_percent": 66,
            "mem_info_vram_total": 12868124672,
            "mem_info_vram_used": 1564491776,
            "ras/umc_err_count": "ue: 0\nce: 3",
            "gpu_metrics": struct.pack("<HBB20xQ", 120, 1, 3, 6122129286992),
        } | dict(files)
        sensors = {
            "name": "amdgpu",
            "power1_average": 41000000,
            "power1_cap": 300000000,
            "temp1_input": 45000,
            "temp1_label": "edge",
            "temp2_input": 47000,
            "temp2_label": "junction",
            "temp3_input": 46000,
            "temp3_label": "mem",
            "freq1_input": 500000000,
            "freq2_input": 96000000,
            "pwm1": 51,
        } | hwmon
        for name, value in content.items():
            if value is not None:
                self.put(f"class/drm/card{index}/device/{name}", value)
        for name, value in sensors.items():
            if value is not None:
                self.put(f"class/drm/card{index}/device/hwmon/hwmon{index}/{name}", value)

    def process(self, pid, parent, *fdinfo):
        folder = self.proc / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "fdinfo").mkdir()
        (folder / "stat").write_text(f"{pid} (train) S {parent} " + " ".join(["0"] * 45) + "\n")
        for n, content in enumerate(fdinfo, 3):
            (folder / f"fd/{n}").symlink_to("/dev/dri/renderD128")
            (folder / f"fdinfo/{n}").write_text(content)
        (folder / "fd/0").symlink_to("/dev/null")

    def collector(self, **more):
        config = AmdCollector.Config(sys=self.sys, proc=self.proc, **more)
        collector = AmdCollector(config)
        collector._clock = lambda: self.now
        return collector


@pytest.fixture
def machine(tmp_path):
    return Machine(tmp_path)


@pytest.fixture
def read():
    """Return the values of a tick by name and card, and the problems."""

    def tick(collector, at=7):
        points, problems = reading(collector, at)
        return {(point.metric.name, point.dims["gpu"]): point.value for point in points}, problems

    return tick
