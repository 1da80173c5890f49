"""The version of this program, and the commit that it was built from."""

from __future__ import annotations

from pathlib import Path

__version__ = "0.1.0"

USER_AGENT = f"chipwatch/{__version__}"
"""Name of this program in HTTP requests."""


def build() -> str:
    """Return the version for people, with the commit that the build hook wrote into the package."""
    try:
        return f"{__version__} ({Path(__file__).with_name('commit').read_text(encoding='utf-8').strip()})"
    except OSError:
        return f"{__version__} (a checkout)"
