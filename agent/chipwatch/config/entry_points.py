"""Reads which plugins the installed distributions offer: packaging.python.org/en/latest/specifications/entry-points."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from functools import reduce
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple


class EntryPoint(NamedTuple):
    """A name of a group, and the object that it stands for."""

    name: str
    value: str
    """`module:attribute`, perhaps with extras in brackets after it."""

    def load(self) -> Any:
        """Import and return the object; raise ImportError or AttributeError."""
        module, _, attributes = self.value.partition("[")[0].partition(":")
        return reduce(getattr, filter(None, attributes.strip().split(".")), import_module(module.strip()))


def entry_points(group: str) -> list[EntryPoint]:
    """
    Return the entry points of `group`, of each distribution as it stands first on `sys.path`.

    importlib.metadata, which takes 3 MB, is asked only where a part of the path is no folder, but an archive.
    """
    found, seen = list[EntryPoint](), set[str]()
    for place in dict.fromkeys(sys.path):
        try:
            folders = sorted(os.scandir(place or "."), key=lambda folder: folder.name)
        except NotADirectoryError:
            return _of_library(group)
        except OSError:
            continue
        for folder in folders:
            stem, dot, kind = folder.name.rpartition(".")
            if dot and kind in ("dist-info", "egg-info") and (of := _normalized(stem)) not in seen:
                seen.add(of)
                found += _read(Path(folder.path, "entry_points.txt"), group)
    return found


def _normalized(stem: str) -> str:
    """Return the name of the distribution whose folder is `NAME-VERSION.dist-info`."""
    return re.sub(r"[-_.]+", "-", stem.partition("-")[0]).lower()


def _read(file: Path, group: str) -> Iterator[EntryPoint]:
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return
    section = ""
    for line in map(str.strip, text.splitlines() if group in text else ()):
        if line.startswith("["):
            section = line.strip("[]")
        elif section == group and not line.startswith("#"):
            name, is_pair, value = line.partition("=")
            if is_pair:
                yield EntryPoint(name.strip(), value.strip())


def _of_library(group: str) -> list[EntryPoint]:
    from importlib import metadata  # noqa: PLC0415  # see above

    return [EntryPoint(found.name, found.value) for found in metadata.entry_points(group=group)]
