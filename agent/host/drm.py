"""Graphics cards as Linux's DRM shows them: the cards under /sys, and what processes say of their use (fdinfo)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

CARD: Final = re.compile(r"card\d+")
UNITS: Final = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def text(path: Path) -> str:
    """Return what a small file says, or nothing where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def cards(sys: Path, vendor: str) -> Iterator[tuple[str, Path]]:
    """Yield the kernel's number and the folder of each card of a PCI vendor (0x1002), in order; nothing is woken."""
    folder = sys / "class/drm"
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    for index in sorted(int(name[4:]) for name in names if CARD.fullmatch(name)):
        if text(folder / f"card{index}/device/vendor") == vendor:
            yield str(index), folder / f"card{index}"


def size(words: str) -> int:
    """Return the bytes of `12 KiB`; raise ValueError, KeyError."""
    value, _, unit = words.partition(" ")
    return int(value) * UNITS[unit]


def fdinfo(proc: Path, pids: Iterable[int]) -> Iterator[tuple[int, dict[str, str]]]:
    """
    Yield pid and fields of each card file that some processes have open; those of other users only for root.

    https://docs.kernel.org/gpu/drm-usage-stats.html
    """
    for pid in pids:
        folder = f"{proc}/{pid}"
        try:
            names = os.listdir(f"{folder}/fd")  # noqa: PTH208  no Path for each of a thousand files
        except OSError:
            continue
        for name in names:
            try:
                if not os.readlink(f"{folder}/fd/{name}").startswith("/dev/dri/"):  # noqa: PTH115  the same
                    continue
                lines = Path(f"{folder}/fdinfo/{name}").read_text(errors="replace").splitlines()
            except OSError:
                continue  # closed meanwhile
            yield pid, {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
