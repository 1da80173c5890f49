"""Formats amounts and moments for people: bytes, times, energy."""

from __future__ import annotations

import time
from collections.abc import Mapping

from chipwatch.base.redaction import one_line


def binary(number: float) -> str:
    """Format bytes: 61.2 GiB."""
    if number < 1024:
        return f"{number:.0f} B"
    power = min(4, (int(number).bit_length() - 1) // 10)
    return f"{number / 1024**power:.1f} {'KMGT'[power - 1]}iB"


def clock(seconds: float) -> str:
    """Format seconds: 1:02:03, or 3 d 1:02 from a day on."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours // 24} d {hours % 24}:{minute:02}" if hours >= 24 else f"{hours}:{minute:02}:{second:02}"


def utc(at: int, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    """Format a time (ns since the epoch) in UTC, cut to seconds; `form` is a format of `time.strftime`."""
    return time.strftime(form, time.gmtime(at // 10**9))


def energy(joules: float) -> str:
    """Format joules: 0.71 kWh, or 35.20 Wh."""
    return f"{joules / 3.6e6:.2f} kWh" if joules >= 3.6e5 else f"{joules / 3600:.2f} Wh"


def shares(parts: Mapping[str, float], total: float = 0.0) -> str:
    """Format parts of a total or of their sum, the largest first, without those below 0.5 %: busy 92 %, held 8 %."""
    percents = [(100 * part / (total or sum(parts.values()) or 1.0), word) for word, part in parts.items()]
    return ", ".join(f"{plain(word)} {share:.0f} %" for share, word in sorted(percents, reverse=True) if share >= 0.5)


def plain(name: str) -> str:
    """Return a state, a cause or a reason as words for a line of text, of at most 60 characters."""
    return one_line(name.replace("_", " "), 60)


def spent(seconds: float, noun: str) -> str:
    """Format the time (s) of CPUs or accelerators: 4.9 CPU hours."""
    size, unit = next((row for row in ((3600, "hours"), (60, "minutes")) if seconds >= row[0]), (1, "seconds"))
    return f"{seconds / size:,.1f} {noun} {unit}"
