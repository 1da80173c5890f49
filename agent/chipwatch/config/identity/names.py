"""
The table of all words of `--common-dims`, the dimensions that identify a machine; its rows are in names.json.

Kubernetes prescribes no names of variables: ours come first, then names in its documentation and of common agents. The
variables of Slurm are in https://slurm.schedmd.com/srun.html. Paths in documents: AWS, "Instance
identity documents" and "Amazon ECS task metadata endpoint version 4"; Google,
https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple


class DimensionName(NamedTuple):
    """A word of `--common-dims`."""

    name: str
    text: str
    """A description for the docs."""
    sources: Mapping[str, Any] = {}
    """
    The sources that may have the value, each with its place: a path in a document, variables, or a file.

    The place is None if code computes the value. There is no source if a collector adds the dimension to its points.
    """
    per_host: bool = False
    """True if each host has another value, and so its own series."""
    passing: bool = False
    """True if each start of a task, pod, job or agent has another value."""
    late: bool = False
    """True if reading it may need a permission. Points then wait a few seconds for it, and are sent without it."""
    in_pod: str = ""
    """The field in a pod's specification that has the value for the first variable."""


NAMES: Final = tuple(
    DimensionName(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
)
"""All words, in the order in which they are listed."""
WORDS: Final = tuple(name.name for name in NAMES)
OF_POINTS: Final = frozenset(name.name for name in NAMES if not name.sources)
LATE: Final = frozenset(name.name for name in NAMES if name.late)
PER_HOST: Final = frozenset(name.name for name in NAMES if name.per_host)
PASSING: Final = frozenset(name.name for name in NAMES if name.passing)


def places(source: str) -> dict[str, Any]:
    """Return the places at which a source has its values, by word."""
    return {name.name: place for name in NAMES if (place := name.sources.get(source))}
