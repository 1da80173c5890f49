"""
The names of dcgm-exporter 4: https://github.com/NVIDIA/dcgm-exporter, etc/default-counters.csv with its comments.

Clocks are MHz, framebuffer is MiB, energy mJ, violations ns, *_UTIL 0 to 100 and PROF_* 0 to 1.

DCGM 4.6 renamed fields and kept their ids and values, also of *_RATIO: https://github.com/NVIDIA/DCGM, v4.6.0,
dcgmlib/dcgm_fields.h, where the former names are aliases to be removed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.naming.name import MIB, NONE, Copy, ToolName

_DCGM: Final = {
    "gpu": "{gpu}",
    "device": "nvidia{gpu}",
    "UUID": "{uuid}",
    "modelName": "{model}",
    "DCGM_FI_DRIVER_VERSION": "{driver}",
}
_VIOLATIONS: Final = {
    "board_limit": "BOARD_LIMIT_VIOLATION",
    "hw_thermal": "CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS",
    "low_utilization": "LOW_UTIL_VIOLATION",
    "power": "POWER_VIOLATION",
    "power_brake": "CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
    "reliability": "RELIABILITY_VIOLATION",
    "sw_thermal": "CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
    "sync_boost": "SYNC_BOOST_VIOLATION",
    "thermal": "THERMAL_VIOLATION",
}


def _field(name: str, unit: str | None = None, factor: float = 1.0, words: Mapping[str, str] = NONE) -> ToolName:
    """Return the name of a field of DCGM."""
    return ToolName(f"DCGM_FI_{name}", unit, factor, _DCGM, words)


DCGM: Final[Mapping[str, ToolName]] = {
    "gpu.clock.sm": _field("DEV_SM_CLOCK"),
    "gpu.clock.memory": _field("DEV_MEM_CLOCK"),
    "gpu.memory.temperature": _field("DEV_MEMORY_TEMP"),
    "gpu.temperature": _field("DEV_GPU_TEMP"),
    "gpu.power": _field("DEV_POWER_USAGE"),
    "gpu.power.limit": _field("DEV_ENFORCED_POWER_LIMIT"),
    "gpu.energy": _field("DEV_TOTAL_ENERGY_CONSUMPTION", "mJ", 1e3),
    "gpu.utilization": _field("DEV_GPU_UTIL"),
    "gpu.memory.activity": _field("DEV_MEM_COPY_UTIL"),
    "gpu.encoder.utilization": _field("DEV_ENC_UTIL"),
    "gpu.decoder.utilization": _field("DEV_DEC_UTIL"),
    "gpu.fan.utilization": _field("DEV_FAN_SPEED"),
    "gpu.memory.used": _field("DEV_FB_USED", "MiBy", MIB),
    "gpu.memory.total": _field("DEV_FB_TOTAL", "MiBy", MIB),
    "gpu.memory.available": _field("DEV_FB_FREE", "MiBy", MIB),
    "gpu.memory.reserved": _field("DEV_FB_RESERVED", "MiBy", MIB),
    "gpu.pcie.replays": _field("DEV_PCIE_REPLAY_COUNTER"),
    "gpu.rows.failed": _field("DEV_ROW_REMAP_FAILURE"),
    "gpu.ecc.corrected": _field("DEV_ECC_SBE_VOL_TOTAL"),
    "gpu.ecc.uncorrected": _field("DEV_ECC_DBE_VOL_TOTAL"),
    "gpu.rows.remapped": _field(
        "DEV_{cause}_REMAPPED_ROWS", words={"correctable": "CORRECTABLE", "uncorrectable": "UNCORRECTABLE"}
    ),
    "gpu.throttled": _field("DEV_{reason}", "ns", 1e9, _VIOLATIONS),
    "gpu.engine.active": _field("PROF_GR_ENGINE_ACTIVE", "1", 0.01),
    "gpu.sm.active": _field("PROF_SM_ACTIVE", "1", 0.01),
    "gpu.sm.occupancy": _field("PROF_SM_OCCUPANCY", "1", 0.01),
    "gpu.tensor.active": _field("PROF_PIPE_TENSOR_ACTIVE", "1", 0.01),
    "gpu.dram.active": _field("PROF_DRAM_ACTIVE", "1", 0.01),
    "gpu.fp64.active": _field("PROF_PIPE_FP64_ACTIVE", "1", 0.01),
    "gpu.fp32.active": _field("PROF_PIPE_FP32_ACTIVE", "1", 0.01),
    "gpu.fp16.active": _field("PROF_PIPE_FP16_ACTIVE", "1", 0.01),
}
_XID_HELP: Final = "Code of the last Xid error that the driver reported."
DCGM_COPIES: Final[Mapping[str, Copy]] = {
    "gpu.xid": Copy(_field("DEV_XID_ERRORS")._replace(help=_XID_HELP), last_of="xid", drops=("action",)),
    "gpu.pcie.sent": Copy(_field("PROF_PCIE_TX_BYTES"), rate=True),
    "gpu.pcie.received": Copy(_field("PROF_PCIE_RX_BYTES"), rate=True),
    "gpu.nvlink.sent": Copy(_field("PROF_NVLINK_TX_BYTES"), rate=True),
    "gpu.nvlink.received": Copy(_field("PROF_NVLINK_RX_BYTES"), rate=True),
}

_RENAMED: Final = {
    "DCGM_FI_DEV_MEMORY_TEMP": "DCGM_FI_DEV_MEMORY_TEMP_CELSIUS",
    "DCGM_FI_DEV_GPU_TEMP": "DCGM_FI_DEV_GPU_TEMP_CELSIUS",
    "DCGM_FI_DEV_POWER_USAGE": "DCGM_FI_DEV_BOARD_POWER_WATTS",
    "DCGM_FI_DEV_POWER_MGMT_LIMIT": "DCGM_FI_DEV_BOARD_POWER_LIMIT_REQUESTED_WATTS",
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": "DCGM_FI_DEV_BOARD_POWER_LIMIT_ENFORCED_WATTS",
    "DCGM_FI_DEV_GPU_UTIL": "DCGM_FI_DEV_GPU_UTIL_RATIO",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "DCGM_FI_DEV_PCIE_REPLAY_TOTAL",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "DCGM_FI_DEV_ROW_REMAP_FAILED",
    "DCGM_FI_DEV_{cause}_REMAPPED_ROWS": "DCGM_FI_DEV_ROW_REMAP_{cause}_TOTAL",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO",
    "DCGM_FI_PROF_SM_ACTIVE": "DCGM_FI_PROF_SM_UTIL_RATIO",
    "DCGM_FI_PROF_SM_OCCUPANCY": "DCGM_FI_PROF_SM_OCCUPANCY_RATIO",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "DCGM_FI_PROF_TENSOR_UTIL_RATIO",
    "DCGM_FI_PROF_DRAM_ACTIVE": "DCGM_FI_PROF_DRAM_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_FP64_ACTIVE": "DCGM_FI_PROF_FP64_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_FP32_ACTIVE": "DCGM_FI_PROF_FP32_UTIL_RATIO",
    "DCGM_FI_PROF_PIPE_FP16_ACTIVE": "DCGM_FI_PROF_FP16_UTIL_RATIO",
    "DCGM_FI_DEV_XID_ERRORS": "DCGM_FI_DEV_XID_ERROR",
    "DCGM_FI_DRIVER_VERSION": "DCGM_FI_SYSTEM_DRIVER_VERSION",
}


def _in_4_6(name: ToolName) -> ToolName:
    labels = {_RENAMED.get(key, key): value for key, value in name.dims.items()}
    return name._replace(template=_RENAMED.get(name.template, name.template), dims=labels)


DCGM_4_6: Final[Mapping[str, ToolName]] = {metric: _in_4_6(name) for metric, name in DCGM.items()}
DCGM_4_6_COPIES: Final[Mapping[str, Copy]] = {
    metric: copy._replace(name=_in_4_6(copy.name)) for metric, copy in DCGM_COPIES.items()
}
