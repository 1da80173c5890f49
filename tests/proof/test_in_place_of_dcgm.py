"""A real Prometheus scrapes our page and dcgm-exporter's of the same GPUs: its published dashboard and rules answer alike."""

from __future__ import annotations

import re
import time

import pytest
import yaml
from tests.doubles.fleet import FleetDouble, answer
from tests.doubles.nvml.driver import machine_with
from tests.e2e.test_owner_labels import DASHBOARD
from tests.ports import free_port
from tests.proof.scraping import LONG, Prometheus, start

pytestmark = pytest.mark.proof
HOST = "gpu-17"
RECORDED = {
    "accelerator_gpu_utilization": "DCGM_FI_DEV_GPU_UTIL",
    "accelerator_memory_used_bytes": "DCGM_FI_DEV_MEM_COPY_UTIL",
    "accelerator_memory_total_bytes": "DCGM_FI_DEV_FB_TOTAL",
    "accelerator_power_usage_watts": "DCGM_FI_DEV_POWER_USAGE",
    "accelerator_temperature_celcius": "DCGM_FI_DEV_GPU_TEMP",
    "accelerator_sm_clock_hertz": "DCGM_FI_DEV_SM_CLOCK",
    "accelerator_memory_cloc_hertz": "DCGM_FI_DEV_MEM_CLOCK",
}
"""Rules of NVIDIA/gpu-operator, as they are written: assets/state-dcgm-exporter/1000_prometheus_rule.yaml."""
ABSENT = {
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", "DCGM_FI_DEV_VGPU_LICENSE_STATUS",
    "DCGM_FI_DEV_XID_ERRORS",  # until there is one
    "DCGM_FI_PROF_PCIE_TX_BYTES", "DCGM_FI_PROF_PCIE_RX_BYTES",  # rates of a moment, which two readers never have alike
}  # fmt: skip
COUNTERS = {"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
            "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"}  # fmt: skip
ENERGY = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
"""A counter whose total begins with the holder on our page, so that its rate is compared."""
POWER, SHARE = "DCGM_FI_DEV_POWER_USAGE", 0.01
"""Ours is the mean between two readings, by the counter of energy; theirs is the driver's last value."""


def settle(driver):
    """Give the GPUs different values that do not move by themselves."""
    for number, gpu in enumerate(driver.gpus):
        gpu.pop("samples", None)
        gpu["utilization"] = {"gpu": 87 - 40 * number, "memory": 41 - number}
        gpu["temperature"], gpu["power"] = 61 + number, 612_400 + number
        gpu["memory"]["used"] = (71_680 + number) << 20
        gpu["field"] |= {"83": f"0@{gpu['power']}", "94": f"{3 + number}u", "142": "1u", "143": f"{2 * number}u"}
    driver.write()


def theirs(driver, seconds=0.0):
    """Return the page of dcgm-exporter 4.8.2 for what the driver says: its default fields, by its template of a page."""
    lines = []
    for number, gpu in enumerate(driver.gpus):
        memory, field, clock, gpm = gpu["memory"], gpu["field"], gpu["clock"], gpu["gpm"]
        whole = {key: int(str(value).rstrip("u").rpartition("@")[2]) for key, value in field.items()}
        mib = {key: value >> 20 for key, value in memory.items()}
        values = {
            "DEV_SM_CLOCK": clock["1"], "DEV_MEM_CLOCK": clock["2"], "DEV_MEMORY_TEMP": whole["82"],
            "DEV_GPU_TEMP": gpu["temperature"], "DEV_POWER_USAGE": gpu["power"] / 1000,
            "DEV_TOTAL_ENERGY_CONSUMPTION": round(gpu["power"] * seconds), "DEV_PCIE_REPLAY_COUNTER": whole["94"],
            "DEV_GPU_UTIL": gpu["utilization"]["gpu"], "DEV_MEM_COPY_UTIL": gpu["utilization"]["memory"],
            "DEV_ENC_UTIL": gpu["encoder"], "DEV_DEC_UTIL": gpu["decoder"], "DEV_XID_ERRORS": 0,
            "DEV_FB_FREE": (memory["total"] - memory["used"] - memory["reserved"]) >> 20, "DEV_FB_USED": mib["used"],
            "DEV_FB_RESERVED": mib["reserved"], "DEV_FB_TOTAL": mib["total"], "DEV_NVLINK_BANDWIDTH_TOTAL": 0,
            "DEV_VGPU_LICENSE_STATUS": 0, "DEV_CORRECTABLE_REMAPPED_ROWS": whole["142"],
            "DEV_UNCORRECTABLE_REMAPPED_ROWS": whole["143"], "DEV_ROW_REMAP_FAILURE": 0,
            "PROF_GR_ENGINE_ACTIVE": gpm["1"] / 100, "PROF_PIPE_TENSOR_ACTIVE": gpm["5"] / 100,
            "PROF_DRAM_ACTIVE": gpm["10"] / 100, "PROF_PCIE_TX_BYTES": 250_000_000, "PROF_PCIE_RX_BYTES": 1_500_000_000,
        }  # fmt: skip
        labels = (
            f'gpu="{number}",UUID="{gpu["uuid"]}",pci_bus_id="00000000:{number}B:00.0",device="nvidia{number}",'
            f'modelName="{gpu["name"]}",Hostname="{HOST}",DCGM_FI_DRIVER_VERSION="{driver.machine["driver"]}",'
            'container="",namespace="",pod=""'
        )
        lines += [(f"DCGM_FI_{name}", f"DCGM_FI_{name}{{{labels}}} {value}") for name, value in values.items()]
    text = []
    for name in dict.fromkeys(name for name, _ in lines):
        text += [f"# HELP {name} Help.", f"# TYPE {name} {'counter' if name in COUNTERS else 'gauge'}"]
        text += [line for of, line in lines if of == name]
    return "\n".join([*text, ""])


def found(server, query):
    """Return the values that a query gives, by labels; without the labels of the target and the one that ours has not."""
    apart = {"instance", "job", "pci_bus_id"}
    result = (server.ask("query", query=query) or {}).get("result") or []
    return {
        tuple(sorted((key, value) for key, value in one["metric"].items() if key not in apart)): float(one["value"][1])
        for one in result
    }


def same_rate(mine, expected):
    """Tell whether both have a rate of two GPUs; a tick and a scrape are a second each, of twenty."""
    return len(mine) == 2 and mine == pytest.approx(expected, rel=0.12)


def alike(mine, expected):
    """Tell whether both answer a query with the same series and, but for a hundredth of a mean, the same values."""
    return bool(expected) and mine == pytest.approx(expected, rel=SHARE)


def test_each_default_field_each_query_and_each_rule_gives_the_same(programs, agent, until, tmp_path):
    driver, env = machine_with(tmp_path, 2)
    settle(driver)
    page, port, began = theirs(driver), free_port(), time.monotonic()
    rules = [{"record": name, "expr": expr, "labels": {"vendor": "nvidia"}} for name, expr in RECORDED.items()]
    (tmp_path / "rules.yml").write_text(
        yaml.safe_dump({"groups": [{"name": "dcgm.accelerator.metrics", "rules": rules}]})
    )
    # as the chart sets it with `compatibility: dcgm-exporter`
    words = f"--names dcgm --level detailed --common-dims hostname --dim hostname={HOST} --interval 1".split()
    env |= {"CHIPWATCH_SINKS__PROMETHEUS__MACHINE_LABELS": "true", "CHIPWATCH_COLLECTOR": "nvidia"}
    running = start(agent, port, *words, **env)
    with FleetDouble(lambda _: answer(theirs(driver, 1e5 + time.monotonic() - began).encode())) as double:
        ours, other = f"127.0.0.1:{port}", f"127.0.0.2:{double.port}"
        with Prometheus(
            programs, tmp_path, "", static_configs=[{"targets": [ours, other]}], rules=[tmp_path / "rules.yml"]
        ) as server:

            def both(query):
                return [
                    found(server, query.replace("$instance", place).replace("$gpu", ".*")) for place in (ours, other)
                ]

            until(lambda: server.value("count(up == 1)") == 2, LONG)
            until(lambda: all(len(one) == 2 for one in both('DCGM_FI_PROF_DRAM_ACTIVE{instance="$instance"}')), LONG)
            for name in dict.fromkeys(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)):
                mine, expected = both(f'{name}{{instance="$instance"}}')
                assert len(expected) == 2, name
                if name in {*ABSENT, ENERGY}:
                    continue
                assert mine.keys() == expected.keys(), name
                assert name == POWER or mine == pytest.approx(expected, rel=1e-9), name
            told = {name: {entry["type"] for entry in told} for name, told in server.ask("metadata").items()}
            energy = f'rate({ENERGY}{{instance="$instance"}}[20s])'
            until(lambda: same_rate(*both(energy)), LONG)
            # OpenMetrics, which a Prometheus asks us for, calls a counter unknown if its name has no _total
            assert {name: kinds for name, kinds in told.items() if name.startswith("DCGM_") and len(kinds) > 1} == {
                name: {"counter", "unknown"} for name in COUNTERS
            }
            queries = [*DASHBOARD, *(f'{name}{{instance="$instance",vendor="nvidia"}}' for name in RECORDED)]
            for query in queries:  # again and again, since power is a mean over a moment that a busy machine stretches
                until(lambda query=query: alike(*both(query)), LONG)
            for label in ("instance", "gpu"):  # the dashboard's variables
                known = server.ask(f"label/{label}/values", **{"match[]": f'DCGM_FI_DEV_GPU_TEMP{{instance="{ours}"}}'})
                assert known == {"instance": [ours], "gpu": ["0", "1"]}[label]
    assert running.stop()[0] == 0
