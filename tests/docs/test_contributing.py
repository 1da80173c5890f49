"""What CONTRIBUTING.md and SECURITY.md point at is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
NAMED = re.findall(r"`((?:agent|sinks|docs|tests|tools|requirements|\.ci)/[\w./-]*)`", TEXT)


@pytest.mark.parametrize("path", sorted(set(NAMED)))
def test_each_path_that_is_named_is_there(path):
    assert (ROOT / path).exists()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"`make ([\w-]+)`", TEXT))))
def test_each_target_of_make_that_is_named_is_there(target):
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_each_room_has_a_line():
    table = TEXT[TEXT.index("| room |") : TEXT.index("## Where do I find")]
    rooms = {
        f"agent/chipwatch/{path.name}/"
        for path in (ROOT / "agent/chipwatch").iterdir()
        if (path / "__init__.py").exists()
    }
    assert rooms | {"sinks/chipwatch_sinks/"} <= set(re.findall(r"`([\w/]+)`", table))
