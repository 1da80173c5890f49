"""The checkers are installed and found, without a network."""

import re
import sys
from contextlib import nullcontext

import pytest
from tests.deploy import tools


@pytest.mark.parametrize(
    "find", [tools.helm, tools.helm4_python, tools.checkov, tools.python_of_tools, tools.actionlint, tools.cloud_init]
)
def test_what_is_not_installed_skips_with_the_command_that_brings_it(find, tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "TOOLS", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(pytest.skip.Exception, match=r"make tools|apt-get install cloud-init"):
        find()


def test_what_cannot_be_had_is_left_out_with_a_reason_and_leaves_nothing_half_made(tmp_path, monkeypatch, capsys):
    """No index, no npm: still no failure, since `make test` goes on."""
    for name, value in {"PATH": str(tmp_path), "PIP_NO_INDEX": "1", "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tools, "TOOLS", tmp_path / "tools")
    monkeypatch.setattr(tools, "ATTEMPTS", 1)
    assert tools.install() == ["venv", "helm", "helm4"]
    left_out = r"^tools: (\w+) is left out, and the checks that need it are skipped: (.*)"
    said = dict(re.findall(left_out, capsys.readouterr().out, re.MULTILINE))
    assert "No matching distribution" in said["venv"]
    assert "npm" in said["helm"]
    assert {path.name for path in (tmp_path / "tools").iterdir()} == {f"{name}.log" for name in said}


@pytest.mark.parametrize(
    ("left_out", "fails"), [([], False), (["helm"], True), (["other"], False), (["helm", "venv", "helm4"], False)]
)
def test_ci_fails_if_one_of_its_checkers_alone_is_left_out(left_out, fails, tmp_path, monkeypatch):
    listed = tmp_path / "checkers"
    listed.write_text("# why\n\nvenv\nhelm\n")
    monkeypatch.setattr(sys, "argv", ["tools.py", "--expect", str(listed)])
    with pytest.raises(SystemExit, match="names helm: install it") if fails else nullcontext():
        tools.check(left_out, parts=3)


@pytest.mark.parametrize("pins", sorted(tools.PINS.parent.glob("*.txt")), ids=lambda path: path.stem)
def test_every_pin_has_hashes_and_no_address(pins):
    text = pins.read_text()
    assert not re.search("://|--(extra-)?index", text)
    for requirement in re.split(r"\n(?=\S)", text.strip()):
        assert re.match(r"[a-z0-9.-]+(\[[a-z]+\])?==\S+", requirement), requirement
        assert "--hash=sha256:" in requirement, requirement
