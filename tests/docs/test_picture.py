"""The picture in README is what `make picture` makes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.doubles.nvml.driver import CannotBuild, build

ROOT = Path(__file__).parents[2]


def test_the_picture_in_the_tree_is_what_the_command_makes(tmp_path):
    try:
        build(tmp_path)
    except CannotBuild as reason:
        pytest.skip(str(reason))
    command = [sys.executable, "-m", "tools.picture", tmp_path / "top.svg"]

    subprocess.run(command, cwd=ROOT, check=True, timeout=120)

    assert (tmp_path / "top.svg").read_text() == (ROOT / "docs/top.svg").read_text(), "renew it with `make picture`"
