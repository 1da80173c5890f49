"""docs/fleet.md shows what tools/fleet_requests.py reckons."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_the_program_prints():
    program = [sys.executable, ROOT / "tools/fleet_requests.py"]
    printed = subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True).stdout
    shown = (ROOT / "docs/fleet.md").read_text().partition("$ python tools/fleet_requests.py\n")[2]
    assert shown.startswith(f"{printed}```\n")


def test_its_host_is_the_one_that_the_plan_counts(agent):
    page = (ROOT / "docs/fleet.md").read_text()
    command = re.search(r"(\d+) series, a point a minute each, as `chipwatch ([^`]*)`", page)
    done = agent.run(*command[2].split())
    assert re.search(rf"(?m)^as configured +{command[1]} ", done.stdout)
    (total,) = re.findall(r"^as configured .* ([\d.]+)$", done.stdout, re.MULTILINE)
    assert f"({total} a host)" in page
