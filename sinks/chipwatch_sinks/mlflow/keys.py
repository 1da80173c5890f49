"""Turns a series into the key under which an MLflow run stores it."""

from __future__ import annotations

import re
import zlib
from typing import Final

from chipwatch.contract.datapoint import Dimensions, Metric

PREFIX: Final = "system/"
"""Beginning of the keys that MLflow shows on its page of system metrics."""
LONGEST: Final = 250
"""Most characters of a key: MAX_ENTITY_KEY_LENGTH of mlflow/utils/validation.py."""
FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_.-]+")
"""Characters that are replaced in keys. MLflow would take spaces, and slashes, which end a node's name."""


def prefix_of(node: str) -> str:
    """Return the beginning of a node's keys, as MLflow's own monitor writes it."""
    return f"{PREFIX}{node}/" if node else PREFIX


def key_of(prefix: str, metric: Metric, dims: Dimensions) -> str:
    """
    Return the key of a series: `gpu.temperature` of GPU 0 becomes `gpu_0_temperature`, as in MLflow's monitor.

    A dimension's value is put after the part of the name that equals its key, or at the end if there is none. The
    machine's dimensions are left out, since the node's name stands for them.
    """
    first, _, rest = metric.name.removeprefix(PREFIX).partition(".")
    words = [_word(first), _word(rest.replace(".", "_"))]
    for key in sorted(metric.dims):
        if value := _word(dims.get(key, "")):
            shown = f"{key}_{value}" if value.isdecimal() and key != first else value
            words.insert(1 if key == first else len(words), shown)
    return prefix + "_".join(filter(None, words))


def _word(value: str) -> str:
    """Return `value` as a part of a key; where characters are replaced, a digest keeps different values apart."""
    text = FORBIDDEN.sub("_", value.removeprefix("/"))
    return text if text == value.removeprefix("/") else f"{text}_{zlib.crc32(value.encode(errors='replace')):08x}"
