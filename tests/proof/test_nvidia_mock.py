"""
The collector reads from NVIDIA's own stand-in for NVML what its profiles say.

With MOCK_NVML_SOURCE=FOLDER, a clone of NVIDIA/k8s-test-infra, `make proof` builds it with a compiler of the index.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import yaml
from tests.proof import parts

pytestmark = pytest.mark.proof

PROFILES = ("t4", "a100", "l40s", "h100", "b200", "gb200", "gb300")


@pytest.fixture
def mock():
    """The folder of the stand-in, which has been built."""
    return parts.mock()


def expected(config):
    """Return the values of a GPU by name and further dimensions, from a profile."""
    gpu = config["device_defaults"]
    memory, thermal, power, clocks, pcie = (gpu[key] for key in ("memory", "thermal", "power", "clocks", "pcie"))
    nvlink = config.get("nvlink", {})
    links = nvlink.get("links_per_gpu", 0)
    up = links if nvlink.get("switches") else 0
    return {
        "gpu.utilization": gpu["utilization"]["gpu"],
        "gpu.memory.total": memory["total_bytes"],
        "gpu.memory.used": memory["used_bytes"],
        "gpu.memory.reserved": memory["reserved_bytes"],
        "gpu.temperature": thermal["temperature_gpu_c"],
        "gpu.power": power["current_draw_mw"] / 1e3,
        "gpu.power.limit": power["enforced_limit_mw"] / 1e3,
        "gpu.clock.sm": clocks["sm_current"],
        "gpu.clock.memory": clocks["memory_current"],
        "gpu.clock.graphics": clocks["graphics_current"],
        "gpu.pcie.width": pcie["current_link_width"],
        "gpu.pcie.generation": pcie["current_link_gen"],
        "gpu.state": 1,
        "gpu.ecc.uncorrected": gpu["ecc"]["errors"]["volatile"]["double_bit"]["total"],
        "gpu.ecc.lifetime kind=uncorrected": gpu["ecc"]["errors"]["aggregate"]["double_bit"]["total"],
        "gpu.rows.failed": int(gpu["remapped_rows"]["failure_occurred"]),
        "gpu.fault fault=rows_pending": int(gpu["remapped_rows"]["pending"]),
        "gpu.clock.reduced reason=idle": int(gpu["clocks_throttle_reasons"]["gpu_idle"]),
        **({"gpu.links kind=nvlink state=up": up, "gpu.links kind=nvlink state=down": links - up} if links else {}),
    }


@pytest.mark.parametrize("profile", PROFILES)
def test_each_gpu_of_a_profile_has_the_values_of_the_profile(mock, tmp_path, profile):
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidiactl").touch()
    file = mock / f"configs/mock-nvml-config-{profile}.yaml"
    zeros = {"CHIPWATCH_SINKS__STDOUT__ZEROS": "true"}
    env = os.environ | zeros | {"LD_LIBRARY_PATH": str(mock), "MOCK_NVML_CONFIG": str(file)}
    words = ["--once", "--collector", "nvidia", "--level", "all", "--format", "json", "--root", tmp_path]
    done = subprocess.run(
        [sys.executable, "-m", "chipwatch", *words, "--spool", tmp_path / "spool"],
        env=env, capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    config = yaml.safe_load(file.read_text())
    gpus: dict[str, dict[str, float]] = {}
    for point in map(json.loads, done.stdout.splitlines()):
        if gpu := point["dims"].pop("gpu", None):
            further = [f"{key}={value}" for key, value in sorted(point["dims"].items())]
            gpus.setdefault(gpu, {})[" ".join([point["name"], *further])] = point["value"]
    assert len(gpus) == len(config["devices"])
    wanted = expected(config)
    for gpu, values in gpus.items():
        read = {name: values[name] for name in wanted if name in values}
        assert {name: value for name, value in read.items() if value != wanted[name]} == {}, gpu
        assert wanted.keys() == read.keys(), gpu
        faults = {
            name: value for name, value in values.items() if value and name.startswith(("gpu.fault", "gpu.link.e"))
        }
        assert faults == {}, gpu
