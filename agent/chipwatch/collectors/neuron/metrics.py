"""The metrics of AWS Trainium and Inferentia."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from typing import Final

from chipwatch.contract.datapoint import Level, Metric, counter, gauge

BASIC, DETAILED, ALL = Level.BASIC, Level.DETAILED, Level.ALL
TAG: Final = "neuron_runtime_tag"
CORE: Final = ("neuron_core", "neuron_device")

# fmt: off
RUNTIMES = gauge("neuron.runtimes", "{runtime}", "Applications that use the Neuron devices.", BASIC)
CORE_UTILIZATION = gauge(
    "neuron.core.utilization", "%", "Share of time in which a core computed; maximum over runtimes.", BASIC, CORE)
CORE_FLOPS = gauge(
    "neuron.core.flops", "{flop}/s", "Floating point operations a second of a core, over all runtimes.", DETAILED, CORE)
CORE_MEMORY = gauge(
    "neuron.core.memory.used", "By", "Device memory allocated for a core, by category.", DETAILED, (*CORE, "category"))
PHYSICAL_UTILIZATION = gauge(
    "neuron.core.physical.utilization", "%",
    "Share of time in which one of the physical cores behind a logical core computed (Trn2).", ALL,
    (*CORE, "physical_core"))
HOST_MEMORY = gauge("neuron.host.memory.used", "By", "Host memory used by all runtimes.", BASIC)
HOST_CATEGORY = gauge(
    "neuron.host.memory.category.used", "By", "Host memory used by all runtimes, by category.", DETAILED, ("category",))
DEVICE_MEMORY = gauge("neuron.device.memory.used", "By", "Device memory used by all runtimes.", BASIC)
DEVICE_MEMORY_TOTAL = gauge("neuron.device.memory.total", "By", "Memory of all Neuron devices.", DETAILED)
OUTCOMES = counter(
    "neuron.execution.outcomes", "{execution}", "Executions that ended, by outcome.", BASIC, ("outcome",))
ERRORS = counter("neuron.execution.errors", "{error}", "Errors of executions, by kind.", BASIC, ("error",))
LATENCY = gauge(
    "neuron.execution.latency", "s", "Percentile of the time of an execution; maximum over runtimes.", BASIC,
    ("scope", "percentile"))
LATENCY_DETAIL = replace(LATENCY, level=DETAILED)
VCPU = gauge(
    "neuron.runtime.vcpu.utilization", "%", "CPU use of a runtime; maximum over runtimes.", DETAILED, ("mode",))
ECC = counter(
    "neuron.ecc.events", "{event}", "ECC events in the memory of a device.", DETAILED,
    ("neuron_device", "memory", "corrected"))
ECC_UNCORRECTED = replace(ECC, level=BASIC)
ECC_REPAIRABLE = counter(
    "neuron.ecc.repairable", "{event}", "Uncorrected but repairable ECC events in the memory of a device.", DETAILED,
    ("neuron_device",))
ERRORS_OF_DEVICE = counter(
    "neuron.device.errors", "{error}", "Hardware errors on the cores of a device, by the driver and the runtime.", ALL,
    ("neuron_device", "error"))
LINKS = gauge(
    "neuron.device.links", "{link}", "Devices that a device is connected to by NeuronLink.", ALL, ("neuron_device",))
NODE = gauge("neuron.ultraserver.node", "1", "Number of this instance in its UltraServer, from 0.", ALL)
LOGICAL = gauge(
    "neuron.core.logical.size", "{core}", "Physical cores of which a logical core consists (LNC).", ALL)
POWER = gauge(
    "neuron.device.power.utilization", "%", "Mean power of a device in the last full minute, of its maximum.",
    DETAILED, ("neuron_device",))
# fmt: on

METRICS: Final = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
OF_MACHINE: Final = frozenset(
    {RUNTIMES, DEVICE_MEMORY_TOTAL, ECC, ECC_UNCORRECTED, ECC_REPAIRABLE, POWER, ERRORS_OF_DEVICE, LINKS, NODE, LOGICAL}
)
"""Metrics of the whole machine. With neuron_runtime_tag, all others have the runtime's tag as a dimension."""


@cache
def shaped(metric: Metric, keys: Iterable[str]) -> Metric:
    """Return `metric` with the dimensions `keys` (a tuple)."""
    return metric if set(keys) == set(metric.dims) else replace(metric, dims=tuple(keys))


def declared(*, tagged: bool) -> tuple[Metric, ...]:
    """Return all metrics; with `tagged`, metrics of runtimes have the tag as a dimension."""
    return tuple(shaped(m, (*m.dims, TAG)) if tagged and m not in OF_MACHINE else m for m in METRICS)
