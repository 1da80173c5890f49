"""The names that people import and run."""

import ast
import json
import os
import subprocess
import sys
import zipfile
from importlib import import_module
from pathlib import Path

import pytest

import chipwatch

BIN = Path(sys.executable).parent
LONG = 60


@pytest.fixture
def crowded(tmp_path):
    """Return the environment of a training container that has its own `agent.py` and package `sinks`."""
    (tmp_path / "agent.py").write_text("raise SystemExit('the wrong agent')\n")
    (tmp_path / "sinks").mkdir()
    (tmp_path / "sinks/__init__.py").write_text("raise SystemExit('the wrong sinks')\n")
    return {**os.environ, "PYTHONPATH": str(tmp_path)}


def run(*words, env=None, cwd=None):
    done = subprocess.run([*words], capture_output=True, text=True, timeout=LONG, env=env, cwd=cwd, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_zip_file_says_what_to_use_instead(tmp_path):
    package = Path(chipwatch.__file__).parent
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name in ("__init__.py", "__main__.py"):
            archive.write(package / name, f"chipwatch/{name}")
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "all.zip")}
    code, _, said = run(sys.executable, "-m", "chipwatch", "--version", env=env)
    assert (code, said.startswith("chipwatch: it cannot run from a zip file")) == (1, True)


def test_importing_it_loads_nothing_else():
    code = (
        "import sys, chipwatch; print(sorted(n for n in sys.modules if n.partition('.')[0] in"
        " {'chipwatch', 'chipwatch_sinks', 'msgspec', 'psutil', 'rich', 'botocore', 'google'}))"
    )
    assert run(sys.executable, "-c", code) == (0, "['chipwatch']\n", "")


def homes():
    """Return the module of each name that a type checker sees."""
    tree = ast.parse(Path(chipwatch.__file__).read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "__future__"]
    return {alias.name: node.module for node in imports for alias in node.names if node.module.startswith("chipwatch.")}


@pytest.mark.parametrize("name", chipwatch.__all__)
def test_each_name_is_that_of_the_contract(name):
    assert getattr(chipwatch, name) is getattr(import_module(homes()[name]), name)


def test_the_list_of_names_is_that_of_their_modules():
    assert {*chipwatch.__all__} == {*homes()}
    assert {*homes().values()} == {f"chipwatch.{module}" for module in chipwatch.MODULES}


def test_a_name_that_it_does_not_have_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        chipwatch.nonsense  # noqa: B018
    assert "Collector" in dir(chipwatch)


@pytest.mark.parametrize("words", [[BIN / "agent"], [BIN / "chipwatch"], [sys.executable, "-m", "chipwatch"]])
def test_the_command_finds_its_own_packages_where_others_have_their_names(words, crowded, tmp_path):
    assert run(*words, "--version", env=crowded, cwd=tmp_path)[0] == 0
    code, out, err = run(*words, "--once", "--collector", "cpu", env=crowded, cwd=tmp_path)
    assert (code, err) == (0, "")
    assert {json.loads(line)["name"] for line in out.splitlines()} >= {"cpu.utilization"}


def test_a_plugin_author_finds_the_contract_where_others_have_the_names(crowded, tmp_path):
    code = "from chipwatch import gauge; print(gauge('a.b', 'W', 'Power.').unit)"
    assert run(sys.executable, "-c", code, env=crowded, cwd=tmp_path) == (0, "W\n", "")


def test_another_agent_and_ours_live_in_one_process(tmp_path):
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/policy.py").write_text("ACT = 1\n")
    code = "import agent.policy\nfrom chipwatch import gauge\nprint(agent.policy.ACT, gauge('a.b', 'W', 'Power.').unit)"
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    assert run(sys.executable, "-c", code, env=env, cwd=tmp_path) == (0, "1 W\n", "")


def test_ctrl_c_while_the_program_is_loaded_gives_no_traceback():
    program = """if True:
        import signal, sys
        from chipwatch.__main__ import main
        class Finder:
            def find_spec(self, name, path=None, target=None):
                if name == "chipwatch.commands.cli":
                    signal.raise_signal(signal.SIGINT)
        sys.meta_path.insert(0, Finder())
        main()
    """
    assert run(sys.executable, "-c", program) == (130, "", "")
