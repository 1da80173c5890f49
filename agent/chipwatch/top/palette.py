"""Colours of the screen, and how a line becomes text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from chipwatch.top.draw import Line

DARK: Final = {
    "title": "1;97", "dim": "90|38;5;242", "label": "36|38;5;73", "good": "32|38;5;77", "warn": "33|38;5;214",
    "bad": "1;91", "graph": "36|38;5;73", "key": "1;36", "head": "1", "cursor": "7",
    "load0": "34|38;5;67", "load1": "36|38;5;37", "load2": "32|38;5;71", "load3": "92|38;5;119",
}  # fmt: skip
"""
Role -> its SGR codes (ECMA-48) for 16 colours, and after a bar for 256.

None is 5 or 6: nothing blinks.
"""
LIGHT: Final = DARK | {
    "title": "1;30", "dim": "90|38;5;245", "label": "34|38;5;25", "good": "32|38;5;28", "warn": "1;33|1;38;5;94",
    "bad": "1;31|1;38;5;160", "graph": "34|38;5;25", "key": "1;34",
    "load0": "34|38;5;110", "load1": "34|38;5;31", "load2": "32|38;5;34", "load3": "32|38;5;22",
}  # fmt: skip
COLOR_BLIND: Final = DARK | {
    "title": "1", "label": "34|38;5;25", "good": "34|38;5;25", "warn": "33|38;5;178", "bad": "1;31|1;38;5;166",
    "graph": "36|38;5;74", "key": "1", "load0": "34|38;5;24", "load1": "34|38;5;25", "load2": "36|38;5;74",
    "load3": "96|38;5;117",
}  # fmt: skip
"""Near the blue, orange and vermilion of https://jfly.uni-koeln.de/color/, which most people can tell apart."""
HIGH_CONTRAST: Final = {
    "title": "1;97", "label": "97", "good": "1;92", "warn": "1;93", "bad": "1;97;41", "graph": "97", "key": "1;93",
    "head": "1;97", "cursor": "30;107", "load0": "97", "load1": "96", "load2": "92", "load3": "93",
}  # fmt: skip
MONO: Final = {"title": "1", "head": "1", "key": "1", "warn": "1", "bad": "7", "cursor": "7"}
PALETTES: Final[Mapping[str, Mapping[str, str]]] = {
    "dark": DARK, "light": LIGHT, "color-blind": COLOR_BLIND, "high-contrast": HIGH_CONTRAST, "mono": MONO,
    "none": MONO,
}  # fmt: skip


def chosen(name: str | None, env: Mapping[str, str]) -> str:
    """Return the name of the palette: as asked for, mono with NO_COLOR, light if the terminal says so, else dark."""
    if name:
        return name
    if env.get("NO_COLOR"):
        return "mono"
    return "light" if env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def has_256_colors(env: Mapping[str, str]) -> bool:
    """Return whether the terminal shows more than 16 colours."""
    return "256" in env.get("TERM", "") or env.get("COLORTERM", "").lower() in ("truecolor", "24bit")


def render(line: Line, palette: Mapping[str, str], *, many: bool) -> str:
    """Return `line` with the codes of a terminal, which shows 256 colours if there are `many`."""
    parts = []
    for text, role in line:
        if codes := palette.get(role):
            few, _, more = codes.partition("|")
            text = f"\x1b[{(more if many else '') or few}m{text}\x1b[0m"  # noqa: PLW2901
        parts.append(text)
    return "".join(parts)
