"""Windows' subsystem for Linux: a driver without its files in /proc and /dev, behind /dev/dxg."""

import pytest

from chipwatch.collectors.nvidia import NvidiaCollector
from chipwatch.contract.errors import Unavailable
from chipwatch.contract.plugin import Given


def test_a_gpu_in_wsl_is_read_without_what_its_driver_does_not_support(driver, watch, proc, tmp_path):
    """
    NVML in WSL lacks lists of processes and most counters (NVIDIA's CUDA on WSL guide, known limitations).

    The library is in /usr/lib/wsl/lib, which the loader of WSL's distributions searches.
    """
    fake = driver("rtx4080s")
    fake.gpus[0] |= {"processes": "!3", "field": None}
    fake.tell()
    (proc / "driver/nvidia/version").unlink()
    with pytest.raises(Unavailable, match="no NVIDIA driver"):
        NvidiaCollector(NvidiaCollector.Config(proc=proc, root=tmp_path)).open(Given())
    (tmp_path / "dev").mkdir(exist_ok=True)
    (tmp_path / "dev/dxg").touch()
    gpu = watch()
    read = gpu.read()
    assert read["gpu.state{gpu=0}"] == 1
    assert {"gpu.utilization{gpu=0}", "gpu.memory.used{gpu=0}", "gpu.temperature{gpu=0}"} <= read.keys()
    assert gpu.problems == []
