"""Colours of the screen; turns a line into text with the codes of a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from chipwatch.show.top.draw import Line

PALETTES: Final[Mapping[str, Mapping[str, str]]] = json.loads(Path(__file__).with_name("palettes.json").read_bytes())
"""
Palette -> role -> SGR codes (ECMA-48) for 16 colours, then after "|" for 256.

No code is 5 or 6, so nothing blinks. The palette color-blind has colours close to the blue, orange and vermilion of
https://jfly.uni-koeln.de/color/, which most people can tell apart.
"""


def chosen(name: str | None, env: Mapping[str, str]) -> str:
    """Return the name of the palette: `name`, mono with NO_COLOR, light if the terminal says so, or dark."""
    if name:
        return name
    if env.get("NO_COLOR"):
        return "mono"
    return "light" if env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def has_256_colors(env: Mapping[str, str]) -> bool:
    """Return True if the terminal shows more than 16 colours."""
    return "256" in env.get("TERM", "") or env.get("COLORTERM", "").lower() in ("truecolor", "24bit")


def render(line: Line, palette: Mapping[str, str], *, many: bool) -> str:
    """Return `line` as text with a terminal's codes; `many`: it shows 256 colours."""
    parts = []
    for text, role in line:
        if codes := palette.get(role):
            few, _, more = codes.partition("|")
            text = f"\x1b[{(more if many else '') or few}m{text}\x1b[0m"  # noqa: PLW2901
        parts.append(text)
    return "".join(parts)
