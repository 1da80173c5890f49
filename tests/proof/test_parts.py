"""Each part of `make proof` is there, or a log says why not."""

from __future__ import annotations

import re

import pytest
from tests.proof import parts


@pytest.mark.proof
@pytest.mark.parametrize("name", parts.PARTS)
def test_a_part_is_installed_or_its_log_says_why_not(name):
    assert (parts.FOLDER / f"{name}.stamp").exists() or (parts.FOLDER / f"{name}.log").stat().st_size


@pytest.mark.parametrize("name", parts.PARTS)
def test_a_part_that_is_not_installed_skips_with_the_command_that_installs_it(name, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "FOLDER", tmp_path)
    with pytest.raises(pytest.skip.Exception, match=f"{name} is not installed: `make proof`"):
        parts.python(name)


def test_the_mock_of_nvml_skips_with_what_builds_it(tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "MOCK", tmp_path)
    monkeypatch.delenv("MOCK_NVML", raising=False)
    monkeypatch.delenv(parts.SOURCE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no index has its source: MOCK_NVML_SOURCE=CLONE"):
        parts.mock()


@pytest.mark.parametrize("name", [*parts.PARTS, parts.GO])
def test_every_pin_of_a_part_has_hashes_and_no_address(name):
    text = (parts.ROOT / f"requirements/constraints-proof-{name}.txt").read_text()
    assert "://" not in text
    for requirement in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[a-z0-9.-]+==\S+", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement
