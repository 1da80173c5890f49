import pytest
from tests.told import reading

from chipwatch.collectors import apple
from chipwatch.collectors.apple import GPU, AppleCollector, statistics
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector
from chipwatch.host.gpu_metrics import MEMORY_USED, UNIFIED, UTILIZATION

AT = 1_800_000_000_000_000_000
ENTRY = """\
+-o AGXAcceleratorG16X  <class AGXAcceleratorG16X, id 0x100000a1c, registered, matched, active, busy 0 (8 ms), retain 155>
    {
      "IOReportLegend" = ({"IOReportChannels"=((1,2,"In use system memory")),"IOReportGroupName"="GPU Stats"})
      "model" = "Apple M4 Max"
      "gpu-core-count" = 40
      "PerformanceStatistics" = {"In use system memory (driver)"=0,"Alloc system memory"=52967440384,"Tiler Utilization %"=10,"recoveryCount"=0,"Device Utilization %"=16,"In use system memory"=2363801600}
    }

"""


@pytest.fixture
def mac(monkeypatch, tmp_path):
    """Make a collector on a Mac without macmon whose ioreg is a script."""
    monkeypatch.setattr(apple.sys, "platform", "darwin")
    monkeypatch.setattr(apple.platform, "machine", lambda: "arm64")
    monkeypatch.setattr(apple, "MACMON", ())
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    program = tmp_path / "ioreg"

    def make(body):
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
        return AppleCollector(AppleCollector.Config(), ioreg=[program])

    return make


def test_each_reading_has_the_values_of_its_moment(mac, tmp_path):
    page = tmp_path / "page"
    page.write_text(ENTRY)
    collector = mac(f"exec cat {page}")
    collector.open(Given())
    assert collector.describe() == "ioreg"
    values = {UTILIZATION: 16, MEMORY_USED: 2363801600, UNIFIED: 1}
    assert reading(collector, AT) == ([metric.point(AT, value, GPU) for metric, value in values.items()], [])
    page.write_text(ENTRY.replace('Utilization %"=16', 'Utilization %"=0'))
    points, _ = reading(collector, AT)
    assert points[0].value == 0
    page.write_text("")
    assert reading(collector, AT) == ([], ["ioreg reports no GPU value"])


def test_a_value_that_cannot_be_true_or_is_not_there_is_absent():
    assert statistics(ENTRY.replace("=16", "=101").encode()) == {MEMORY_USED: 2363801600}
    assert statistics(ENTRY.replace('"In use system memory"=2363801600', '"Other"=1').encode()) == {UTILIZATION: 16}


def test_a_virtual_machine_has_no_value(mac):
    zeros = ENTRY.replace("=16", "=0").replace("=2363801600", "=0")
    with pytest.raises(Unavailable, match="no Apple GPU: ioreg reports only zeros, as in a virtual machine"):
        mac(f"cat <<'END'\n{zeros}END").open(Given())


def test_a_machine_without_a_gpu_or_without_ioreg_has_nothing_to_read(mac, tmp_path):
    with pytest.raises(Unavailable, match="no Apple GPU: ioreg reports no GPU value"):
        mac("exit 0").open(Given())
    collector = mac("exit 0")
    (tmp_path / "ioreg").unlink()
    with pytest.raises(Unavailable, match="no Apple GPU: ioreg cannot be started: No such file or directory"):
        collector.open(Given())


def test_the_contract_is_kept(mac):
    assert check_collector(mac(f"cat <<'END'\n{ENTRY}END"))
