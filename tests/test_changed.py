"""`make check` runs the tests of what changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.changed import ROOT, paths_for


@pytest.mark.parametrize(
    ("name", "tests"),
    [
        ("agent/chipwatch/spool/ledger.py", {"tests/agent/spool/test_ledger.py"}),
        ("agent/chipwatch/pipeline/window.py", {"tests/agent/pipeline/test_window.py"}),
        ("tests/agent/pipeline/test_window.py", {"tests/agent/pipeline/test_window.py"}),
        ("tests/agent/pipeline/test_gone.py", set()),
        ("README.md", set()),
        ("helm/chipwatch/values.yaml", set()),
    ],
)
def test_a_changed_file_has_the_paths_for_its_name(name, tests):
    found = paths_for(name)
    assert {str(path) for path in found} >= tests
    assert all((ROOT / path).exists() for path in found)
    assert bool(found) == bool(tests)


def test_what_is_no_module_of_ours_has_none():
    assert paths_for(str(Path("elsewhere/agent.py"))) == []
