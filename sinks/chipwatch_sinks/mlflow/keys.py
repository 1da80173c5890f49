"""The key under which a run has a series, by MLflow's rules."""

from __future__ import annotations

import re
import zlib
from typing import Final

from chipwatch.contract.datapoint import Dimensions, Metric

PREFIX: Final = "system/"
"""Prefix of the keys of MLflow's page of system metrics."""
LONGEST: Final = 250
"""Characters of a key: MAX_ENTITY_KEY_LENGTH of mlflow/utils/validation.py."""
FORBIDDEN: Final = re.compile(r"[^A-Za-z0-9_.-]+")
"""MLflow also takes spaces and slashes; a slash ends the name of a node."""


def prefix_of(node: str) -> str:
    """Return the prefix of a node's keys, as MLflow's own monitor writes it."""
    return f"{PREFIX}{node}/" if node else PREFIX


def key_of(prefix: str, metric: Metric, dims: Dimensions) -> str:
    """
    Return the key of a series: `gpu.temperature` of GPU 0 is `gpu_0_temperature`, as MLflow names its own.

    The value of a dimension follows the part of the name that equals its key, else the whole name. The dimensions
    of the machine are left out: the node stands for them.
    """
    first, _, rest = metric.name.removeprefix(PREFIX).partition(".")
    words = [_word(first), _word(rest.replace(".", "_"))]
    for key in sorted(metric.dims):
        if value := _word(dims.get(key, "")):
            shown = f"{key}_{value}" if value.isdecimal() and key != first else value
            words.insert(1 if key == first else len(words), shown)
    return prefix + "_".join(filter(None, words))


def fault_of(key: str) -> str | None:
    """Return why MLflow takes no point with this key, or None."""
    return f"its key has more than {LONGEST} characters" if len(key) > LONGEST else None


def _word(value: str) -> str:
    """Return `value` as a part of a key; a digest distinguishes values that differ only in forbidden characters."""
    text = FORBIDDEN.sub("_", value.removeprefix("/"))
    return text if text == value.removeprefix("/") else f"{text}_{zlib.crc32(value.encode(errors='replace')):08x}"
