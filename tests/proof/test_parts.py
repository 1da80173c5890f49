"""Each part of `make proof` is there, or a log says why not."""

import re

import pytest
from tests.proof import parts


@pytest.mark.proof
@pytest.mark.parametrize("name", parts.PARTS)
def test_a_part_is_installed_or_its_log_says_why_not(name):
    assert (parts.FOLDER / f"{name}.stamp").exists() or (parts.FOLDER / f"{name}.log").stat().st_size


@pytest.mark.parametrize("name", [*parts.PARTS, parts.GO])
def test_every_pin_of_a_part_has_hashes_and_no_address(name):
    text = (parts.ROOT / f"requirements/constraints-proof-{name}.txt").read_text()
    assert "://" not in text
    for requirement in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[a-z0-9.-]+==\S+", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement
