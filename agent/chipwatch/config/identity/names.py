"""
The dimensions that identify a machine, all values of `--common-dims`: the table names.json.

Kubernetes prescribes no names of variables: ours come first, then names in its documentation and in common agents. The
variables of Slurm are in https://slurm.schedmd.com/srun.html. Paths of documents: AWS, "Instance
identity documents" and "Amazon ECS task metadata endpoint version 4"; Google,
https://cloud.google.com/compute/docs/metadata/predefined-metadata-keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple


class DimensionName(NamedTuple):
    """A dimension name."""

    name: str
    text: str
    """A description for the docs."""
    sources: Mapping[str, Any] = {}
    """
    Sources that may have the value, each with the place where it stands: a path of a document, variables, a file; None
    if it is not only read. No sources if a collector adds it to its own points.
    """
    per_host: bool = False
    """Each host has another value, and so its own series."""
    passing: bool = False
    """Each start of a task, pod, job or agent has a new value."""
    late: bool = False
    """Reading it may need a permission: points wait a few seconds for the value, then are sent without it."""
    in_pod: str = ""
    """Source of the first variable's value in the specification of a pod."""


NAMES: Final = tuple(
    DimensionName(**row) for row in json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
)
"""Listed in this order."""
WORDS: Final = tuple(name.name for name in NAMES)
OF_POINTS: Final = frozenset(name.name for name in NAMES if not name.sources)
LATE: Final = frozenset(name.name for name in NAMES if name.late)
PER_HOST: Final = frozenset(name.name for name in NAMES if name.per_host)
PASSING: Final = frozenset(name.name for name in NAMES if name.passing)


def known_by(source: str) -> tuple[str, ...]:
    """Return the names whose values the source may know."""
    return tuple(name.name for name in NAMES if source in name.sources)


def places(source: str) -> dict[str, Any]:
    """Return where the source has its values, by name."""
    return {name.name: place for name in NAMES if (place := name.sources.get(source))}
