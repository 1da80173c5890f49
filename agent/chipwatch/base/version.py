"""The version, in the one place where it is written, and the commit that a build has."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"

USER_AGENT = f"chipwatch/{__version__}"
"""Names this program in requests."""


def build() -> str:
    """Return the version and the commit that the build hook wrote, for people."""
    try:
        return f"{__version__} ({Path(__file__).with_name('commit').read_text(encoding='utf-8').strip()})"
    except OSError:
        return f"{__version__} (a checkout)"
