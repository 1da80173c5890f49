"""NVIDIA's wheels say what the table in tests/fixtures says."""

import shutil

import pytest
from tests import nvml_versions

pytestmark = pytest.mark.proof


def test_the_table_is_what_the_wheels_say(tmp_path):
    if not shutil.which("cc"):
        pytest.skip("the structs of nvml.h are laid out by a C compiler (cc)")
    try:
        found = nvml_versions.table(tmp_path)
    except nvml_versions.CannotFetch as problem:
        pytest.skip(f"no wheels: {problem}")
    assert found == nvml_versions.captured()
