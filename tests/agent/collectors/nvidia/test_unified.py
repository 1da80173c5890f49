"""GPUs that share the machine's memory: DGX Spark, Jetson with and without NVML, Grace."""

import pytest

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.datapoint import Level
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.facts import Unlisted
from chipwatch.contract.plugin import Given
from chipwatch.contract.testing import check_collector

GIB = 1 << 30
TOTAL = 127_600_748 << 10
"""MemTotal of a DGX Spark (XuehaiPan/nvitop pull request 208)."""
UNIFIED = "gpu.unified_memory{gpu=0}"
UTILIZATION, TEMPERATURE = "gpu.utilization{gpu=0}", "gpu.temperature{gpu=0}"
USED = "gpu.memory.used{gpu=0}"
ORIN = "class/devfreq/17000000.gpu/device/load"


@pytest.fixture
def sys(tmp_path):
    return tmp_path / "sys"


@pytest.fixture
def machine(proc, sys):
    """Return a function that writes a file of /sys; the machine has memory."""
    (proc / "meminfo").write_text(f"MemTotal:       {TOTAL >> 10} kB\nMemFree:        1 kB\n")

    def write(name, text):
        (sys / name).parent.mkdir(parents=True, exist_ok=True)
        (sys / name).write_text(text)

    return write


def orin(driver):
    """Return a driver as on a Jetson Orin: it returns zeros and nonsense, and no error."""
    fake = driver("gb10")
    fake.gpus[0] |= {
        "name": "Orin (nvgpu)", "temperature": 0, "power": "!3", "processes": f"4294967295:17,0:9,77:{GIB}",
        "memory": {"total": 2**63, "reserved": 0, "used": 2**62}, "field": None, "clock": None,
    }  # fmt: skip
    fake.tell()
    return fake


@pytest.mark.usefixtures("machine")
def test_a_dgx_spark_has_the_memory_of_its_processes_of_all_the_machine_has(driver, watch, sys):
    driver("gb10")
    gpu = watch(Level.DETAILED, sys=sys)
    read = gpu.read()
    assert (read[UNIFIED], read[USED], read["gpu.memory.total{gpu=0}"]) == (1, 3 * GIB // 2, TOTAL)
    assert read["gpu.memory.utilization{gpu=0}"] == pytest.approx(100 * 1.5 * GIB / TOTAL)
    assert (read[UTILIZATION], read[TEMPERATURE], read["gpu.power{gpu=0}"]) == (0, 35, 11.17)
    assert gpu.problems == []


@pytest.mark.usefixtures("machine")
@pytest.mark.parametrize("processes", [None, "!3", "4242:!"])
def test_memory_that_the_driver_does_not_tell_is_absent(driver, watch, sys, processes):
    fake = driver("gb10")
    fake.gpus[0]["processes"] = processes or ""
    if processes is None:
        fake.gpus[0] |= {"processes": "!13", "graphics": "!13", "mps": "!13"}
    gpu = watch(sys=sys)
    read = gpu.read()
    assert (USED in read) is (processes == "!3"), "the other lists are empty"
    assert read[UNIFIED] == 1
    assert gpu.problems == []


def test_a_jetson_has_its_load_from_the_kernel_and_nothing_from_a_driver_that_returns_zeros(
    driver, watch, machine, sys
):
    orin(driver)
    machine(ORIN, "437\n")
    machine("class/devfreq/17000000.emc/device/load", "999\n")
    machine("class/thermal/thermal_zone0/type", "CPU-therm\n")
    machine("class/thermal/thermal_zone1/type", "GPU-therm\n")
    machine("class/thermal/thermal_zone1/temp", "48500\n")
    gpu = watch(sys=sys)
    read = gpu.read()
    assert (read[UTILIZATION], read[TEMPERATURE], read[UNIFIED]) == (43.7, 48.5, 1)
    assert (read[USED], read["gpu.memory.total{gpu=0}"]) == (GIB, TOTAL), "of the one process that can exist"
    assert [process.pid for process in gpu.collector._gpus.processes()] == [77]
    assert gpu.problems == []


def test_a_load_that_appears_after_the_start_is_read_and_until_then_absent(driver, watch, machine, sys):
    orin(driver)
    gpu = watch(sys=sys)
    for _ in range(3):
        read = gpu.read(5)
        assert UTILIZATION not in read, "never 0 for want of a file"
        assert TEMPERATURE not in read
    machine(ORIN, "0\n")
    assert gpu.read(5)[UTILIZATION] == 0
    machine(ORIN, "1000\n")
    assert gpu.read(5)[UTILIZATION] == 100
    (sys / ORIN).unlink()
    assert UTILIZATION not in gpu.read(5)
    machine("devices/gpu.0/load", "15\n")
    assert gpu.read(5)[UTILIZATION] == 1.5


@pytest.mark.parametrize("text", ["", "high\n", "-1\n", "1001\n"])
def test_a_load_out_of_range_is_absent(driver, watch, machine, sys, text):
    orin(driver)
    machine(ORIN, text)
    assert UTILIZATION not in watch(sys=sys).read()


def test_a_jetson_thor_whose_devfreq_has_no_load_is_read_by_nvml(driver, watch, machine, sys):
    fake = driver("gb10")
    fake.gpus[0] |= {"name": "NVIDIA Thor", "utilization": {"gpu": 97, "memory": 3}}
    fake.tell()
    machine("class/devfreq/gpu-gpc-0/cur_freq", "1575000000\n")
    assert watch(sys=sys).read()[UTILIZATION] == 97


def test_a_jetson_without_nvml_has_load_temperature_and_memory(machine, sys, tmp_path):
    config = NvidiaCollector.Config(proc=tmp_path / "proc", sys=sys, root=tmp_path, dimensions=("model",))
    (tmp_path / "proc/driver/nvidia/version").unlink()
    collector = NvidiaCollector(config)
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        collector.open(Given())
    machine("class/devfreq/57000000.gpu/device/load", "250\n")
    machine("class/devfreq/17000000.emc/cur_freq", "204000000\n")
    machine("class/devfreq/57000000.gpu/cur_freq", "921600000\n")
    machine("class/thermal/thermal_zone0/type", "GPU-therm\n")
    machine("class/thermal/thermal_zone0/temp", "41000\n")
    machine("firmware/devicetree/base/model", "NVIDIA Jetson Xavier NX Developer Kit\0")
    collector.open(Given())
    assert {point.metric.name: point.value for point in collector.collect(7)} == {
        "gpu.utilization": 25, "gpu.temperature": 41, "gpu.memory.total": TOTAL, "gpu.unified_memory": 1,
        "gpu.clock.graphics": 921.6,
    }  # fmt: skip
    assert [device.model for device in collector._gpus.devices()] == ["NVIDIA Jetson Xavier NX Developer Kit"]
    assert [(part.active, part.lost) for part in collector._gpus.activity()] == [(0.25, False)]
    assert [*collector._gpus.processes()] == [Unlisted("the kernel lists none")]
    collector.close()
    assert check_collector(NvidiaCollector(config))


@pytest.mark.parametrize("node", [3, 4, 5])
def test_memory_that_is_a_numa_node_without_cpus_is_the_machines_too(fake, watch, machine, sys, node):
    fake.gpus[0]["numa"] = node
    fake.tell()
    machine("devices/system/node/node3/cpulist", "0-71\n")
    machine("devices/system/node/node4/cpulist", "\n")
    read = watch(Level.BASIC, sys=sys).read()
    assert (UNIFIED in read) is (node == 4)
    assert read[USED] == 19818 << 20, "its own, from NVML"


def test_a_total_that_no_gpu_has_is_absent(fake, watch):
    fake.gpus[0]["memory"]["total"] = 2**62
    assert USED not in watch().read()
