"""The picture, the diagram and the outputs in README are what `make picture` makes."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.doubles.nvml.driver import CannotBuild, build

ROOT = Path(__file__).parents[2]
CHARTS = ("jobs", "dashboard", "prometheus")
SCREENS = ("why", "training-run", "verdict", "recording", "fleet-top")
MEDIA = tuple(f"docs/media/{name}.svg" for name in (*CHARTS, *SCREENS))
LOOKED_AT = (
    "top",
    "report",
    "dashboards",
    "fleet-top",
    "node-health",
    "prometheus",
    *CHARTS[:1],
    *SCREENS[:2],
    SCREENS[3],
)
MADE = ("README.md", *MEDIA, "docs/top.svg", "docs/diagram.svg")


@pytest.mark.proof
def test_readme_and_its_pictures_are_what_the_command_makes(tmp_path):
    try:
        build(tmp_path)
    except CannotBuild as reason:
        pytest.skip(str(reason))
    (tmp_path / "docs").mkdir()
    shutil.copy(ROOT / "README.md", tmp_path)

    subprocess.run([sys.executable, "-m", "tools.picture", tmp_path], cwd=ROOT, check=True, timeout=400)

    for name in MEDIA:
        assert (tmp_path / name).stat().st_size < 50_000
    for name in MADE:
        assert (tmp_path / name).read_text() == (ROOT / name).read_text(), f"{name}: renew it with `make picture`"


def test_no_picture_of_the_docs_is_large():
    pictures = [*(ROOT / "docs/media").iterdir(), ROOT / "docs/top.svg"]
    assert {"report.html", "report.png", "dashboard.svg", "top.svg"} <= {picture.name for picture in pictures}
    assert [picture.name for picture in pictures if picture.stat().st_size > 300_000] == []


@pytest.mark.parametrize("name", LOOKED_AT)
def test_a_page_that_people_rather_look_at_has_a_picture_with_words_for_those_who_cannot_see_it(name):
    page = ROOT / f"docs/{name}.md"
    pictures = re.findall(r"!\[([^]]*)\]\(([^)]+)\)", page.read_text())
    assert pictures
    assert all(len(words) > 20 and (page.parent / path).exists() for words, path in pictures)
