"""The key of a device or a partition, by which jobs and views tell devices apart."""

from __future__ import annotations

from functools import lru_cache

from chipwatch.contract.datapoint import DEVICES, Dimensions

WHOLE = {"mig": "gpu", "neuron_core": "neuron_device"}
"""Dimension of a partition -> dimension of its device."""
DeviceKey = tuple[tuple[str, str], ...]
"""A device or a partition: its dimensions and their numbers, as in (("gpu", "0"), ("mig", "1"))."""


@lru_cache(maxsize=20_000)
def device_of(dims: Dimensions) -> DeviceKey:
    """Return the device or partition that dimensions name; () if they name none."""
    return tuple((key, dims[key]) for key in DEVICES if dims.get(key) and WHOLE.get(key, key) in dims)


def device_label(key: DeviceKey) -> str:
    """Return the numbers of a device and its partition: 0.1."""
    return ".".join(number for _, number in key)


def device_order(key: DeviceKey) -> list[tuple[str, bool, int, str]]:
    """Return a sort key for a device: by family, then by number."""
    return [(dimension, not number.isdecimal(), len(number), number) for dimension, number in key]
