"""docs/fleet.md shows what docs/fleet.py reckons."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_the_program_prints():
    program = [sys.executable, ROOT / "docs/fleet.py"]
    printed = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    shown = (ROOT / "docs/fleet.md").read_text().partition("$ python docs/fleet.py\n")[2]
    assert shown.startswith("".join(f"    {line}" for line in printed.splitlines(keepends=True)))
