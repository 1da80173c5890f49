"""The tests that docs/faults.md names exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SHOWN = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/faults.md").read_text())


@pytest.mark.parametrize(("file", "name"), sorted(set(SHOWN)))
def test_each_row_of_the_table_of_faults_names_a_test_that_exists(file, name):
    assert f"def {name}(" in (ROOT / file).read_text()


def test_the_table_of_faults_is_there():
    assert len(SHOWN) > 60
