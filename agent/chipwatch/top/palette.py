"""Colours of the screen, and how a line becomes text for a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from rich.color import ColorSystem
from rich.style import Style

from chipwatch.top.draw import Line

DARK: Final = {
    "title": "bold bright_white", "dim": "bright_black", "label": "cyan", "bar": "green", "good": "green",
    "warn": "yellow", "bad": "bold bright_red", "graph": "cyan", "key": "bold cyan", "head": "bold",
}  # fmt: skip
LIGHT: Final = DARK | {
    "title": "bold black", "dim": "bright_black", "label": "blue", "bar": "green", "warn": "bold rgb(150,90,0)",
    "bad": "bold red", "graph": "blue", "key": "bold blue",
}  # fmt: skip
COLOR_BLIND: Final = DARK | {
    "title": "bold", "label": "rgb(0,114,178)", "bar": "rgb(0,114,178)", "good": "rgb(0,114,178)",
    "warn": "rgb(230,159,0)", "bad": "bold rgb(213,94,0)", "graph": "rgb(86,180,233)", "key": "bold",
}  # fmt: skip
"""Blue, orange and vermilion of https://jfly.uni-koeln.de/color/, which most people can tell apart."""
NONE: Final = {"title": "bold", "head": "bold", "key": "bold", "warn": "bold", "bad": "reverse"}
PALETTES: Final[Mapping[str, Mapping[str, str]]] = {
    "dark": DARK, "light": LIGHT, "color-blind": COLOR_BLIND, "none": NONE,
}  # fmt: skip


def chosen(name: str | None, env: Mapping[str, str]) -> str:
    """Return the name of the palette: as asked for, none with NO_COLOR, light if the terminal says so, else dark."""
    if name:
        return name
    if env.get("NO_COLOR"):
        return "none"
    return "light" if env.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15") else "dark"


def color_system(env: Mapping[str, str]) -> ColorSystem:
    """Return how many colours the terminal shows."""
    if env.get("COLORTERM", "").lower() in ("truecolor", "24bit"):
        return ColorSystem.TRUECOLOR
    return ColorSystem.EIGHT_BIT if "256" in env.get("TERM", "") else ColorSystem.STANDARD


@lru_cache(maxsize=64)
def codes(style: str, colors: ColorSystem) -> tuple[str, str]:
    """Return what a terminal needs before and after a text of this style."""
    before, _, after = Style.parse(style).render("\0", color_system=colors).partition("\0")
    return before, after


def render(line: Line, palette: Mapping[str, str], colors: ColorSystem) -> str:
    """Return `line` with the codes of a terminal."""
    parts = []
    for text, role in line:
        before, after = codes(palette[role], colors) if role in palette else ("", "")
        parts.append(f"{before}{text}{after}")
    return "".join(parts)
