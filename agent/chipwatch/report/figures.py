"""What commands show of accelerators, and which metrics tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

FAMILIES: Final = {"gpu": "GPU", "neuron_device": "Neuron", "tpu": "TPU", "ipu": "IPU"}
"""What accelerators are called, by the dimension that numbers them."""
FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "utilization": ("gpu.utilization", "neuron.core.utilization", "ipu.utilization", "tpu.duty_cycle"),
    "memory": ("gpu.memory.utilization", "tpu.memory.utilization"),
    "used": ("gpu.memory.used", "tpu.memory.used", "neuron.core.memory.used"),
    "total": ("gpu.memory.total", "tpu.memory.total"),
    "tensor": ("gpu.tensor.active", "tpu.tensorcore.utilization"),
    "power": ("gpu.power", "ipu.power"),
    "limit": ("gpu.power.limit",),
    "power share": ("gpu.power.utilization", "neuron.device.power.utilization"),
    "temperature": ("gpu.temperature", "ipu.die.temperature", "ipu.board.temperature"),
    "clock": ("gpu.clock.sm", "gpu.clock.graphics", "ipu.clock"),
    "state": ("gpu.state",),
}
"""What is shown of an accelerator -> metrics that tell it, the best one first."""
