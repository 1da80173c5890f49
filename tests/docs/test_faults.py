"""The tests that docs/maintain/faults.md names exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_row_of_the_table_of_faults_names_a_test_that_exists():
    shown = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", (ROOT / "docs/maintain/faults.md").read_text())
    assert len(shown) > 60
    texts = {file: (ROOT / file).read_text() for file, _ in shown}
    assert [f"{file}::{name}" for file, name in shown if f"def {name}(" not in texts[file]] == []
