"""Parses durations as people write them. It imports no library, since `chipwatch status --health` must be quick."""

from __future__ import annotations

import re
from typing import Final

UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Return the seconds of a text such as 5, 0.5, 500ms, 5s, 1m, 2h or 7d; raise ValueError."""
    number, unit = re.fullmatch(r"(.*?)\s*(ms|s|m|h|d)?\s*", text, re.DOTALL).groups()  # type: ignore[union-attr]
    return float(number) * UNITS[unit or "s"]
