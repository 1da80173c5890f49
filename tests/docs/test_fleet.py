"""docs/fleet.md shows what tools/fleet_requests.py reckons."""

import re
from pathlib import Path

from tools import fleet_requests

ROOT = Path(__file__).parents[2]


def test_the_page_shows_what_the_program_prints_of_fleets_that_are_reckoned_soon(capsys):
    fleet_requests.main(100)
    shown = (ROOT / "docs/fleet.md").read_text().partition("$ python tools/fleet_requests.py\n")[2].partition("```")[0]
    small = [line for line in shown.splitlines() if ",000 hosts:" not in line]
    assert capsys.readouterr().out.splitlines() == small


def test_its_host_is_the_one_that_the_plan_counts(agent):
    page = (ROOT / "docs/fleet.md").read_text()
    command = re.search(r"(\d+) series, a point a minute each, as `chipwatch ([^`]*)`", page)
    done = agent.run(*command[2].split())
    assert re.search(rf"(?m)^as configured +{command[1]} ", done.stdout)
    (total,) = re.findall(r"^as configured .* ([\d.]+)$", done.stdout, re.MULTILINE)
    assert f"({total} a host)" in page
