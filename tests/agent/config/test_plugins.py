import email.message  # noqa: F401  # importlib.metadata loads it late, when a test has taken it off the path
import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chipwatch.config import plugins
from chipwatch.contract.errors import ConfigError

MODULE = """
from optionless import *

class Thing(Optionless, BASE):
    def collect(self, at):
        return ()
"""


def test_every_plugin_of_this_project_is_installed():
    assert set(plugins.installed(plugins.COLLECTORS)) >= {
        "container", "cpu", "disk", "memory", "network", "pressure", "process",
    }  # fmt: skip
    assert "stdout" in plugins.installed(plugins.SINKS)


def test_a_plugin_of_another_distribution_is_found_as_soon_as_it_is_installed(others):
    assert "thing" not in plugins.installed(plugins.COLLECTORS)
    others.add("thing", MODULE.replace("BASE", "Collector"), collectors=[("thing", "Thing")])
    assert plugins.load(plugins.COLLECTORS, "thing").__module__ == "thing"


@pytest.mark.parametrize("group", [plugins.COLLECTORS, plugins.PROCESSORS])
@pytest.mark.parametrize("metrics", ["None", "LOAD", "('x.load',)", "(metric for metric in [LOAD])"])
def test_metrics_are_a_tuple_of_metrics(others, group, metrics):
    many, base = group.partition(".")[2], plugins.CONTRACTS[group].__name__
    module = f"{MODULE}\n    metrics, derive = METRICS, collect\n"
    module = module.replace("METRICS", metrics).replace("LOAD", "gauge('x.load', '1', 'The load.')")
    others.add("thing", module.replace("BASE", base), **{many: [("thing", "Thing")]})
    cls = plugins.load(group, "thing")
    cls.__init__ = lambda self, config: None
    with pytest.raises(ConfigError, match="metrics: expected a tuple of Metric, got "):
        plugins.build(group, "thing", cls, None)


def test_no_plugin_is_imported_before_it_is_loaded():
    program = """
import sys
from chipwatch.config import plugins
plugins.installed(plugins.COLLECTORS), plugins.installed(plugins.SINKS)
loaded = {"chipwatch.collectors", "chipwatch_sinks"} & set(sys.modules)
plugins.load(plugins.COLLECTORS, "memory")
print(loaded, sorted(m for m in sys.modules if m.startswith("chipwatch.collectors.")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "set() ['chipwatch.collectors.memory']\n"


# -- entry points are those that importlib.metadata finds


@pytest.fixture
def path(tmp_path, monkeypatch):
    """Two folders, and nothing else on the path."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    monkeypatch.setattr(sys, "path", [*map(str, folders)])
    return folders


def install(folder, info, text, name="thing"):
    (folder / info).mkdir()
    (folder / info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (folder / info / "entry_points.txt").write_text(text, encoding="utf-8")


def by_library(group):
    return {point.name: point.value for point in importlib.metadata.entry_points(group=group)}


def found(group):
    return {name: point.value for name, point in plugins.installed(group).items()}


@pytest.mark.parametrize(
    "text",
    [
        "[a]\nx = m:C\n",
        "[a]\nx=m:C\n[b]\ny = m:D\n",
        "# note\n\n[ b ]\n[a]\n  x  =  m.n:C.D  \n#y = m:D\n",
        "[a]\r\nx = m:C [extra, other]\r\n",
        "[a]\nö = m:Ä\n[a]\ny = m:D\n",
        "x = m:C\n[ab]\nz = m:E\n",
        "",
    ],
)
def test_the_file_is_read_as_the_library_reads_it(path, text):
    install(path[0], "thing-1.dist-info", text)
    assert found("a") == by_library("a")


def test_a_distribution_counts_where_it_stands_first(path):
    install(path[0], "some_thing-2.dist-info", "[a]\nnew = m:C\n", "some-thing")
    install(path[1], "Some.Thing-1.dist-info", "[a]\nold = m:C\n", "Some.Thing")
    install(path[1], "other.egg-info", "[a]\nother = m:C\n", "other")
    assert found("a") == by_library("a") == {"new": "m:C", "other": "m:C"}


def test_the_files_are_read_once_until_a_folder_changes(path, monkeypatch):
    install(path[0], "thing-1.dist-info", "[a]\nx = m:C\n[b]\ny = m:D\n")
    os.utime(path[0], ns=(1, 1))
    reads = []
    glob = Path.glob
    monkeypatch.setattr(Path, "glob", lambda place, pattern: reads.append(place) or glob(place, pattern))
    assert (found("a"), found("b")) == ({"x": "m:C"}, {"y": "m:D"})
    assert len(reads) == len(path)
    install(path[0], "later-1.dist-info", "[a]\nz = m:E\n", "later")
    os.utime(path[0], ns=(2, 2))
    assert found("a") == {"x": "m:C", "z": "m:E"}
    assert len(reads) == 2 * len(path)


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"\xff"), lambda file: (file.unlink(), file.mkdir())])
def test_a_file_that_cannot_be_read_costs_only_its_own_plugins(path, damage):
    install(path[0], "broken-1.dist-info", "", "broken")
    damage(path[0] / "broken-1.dist-info/entry_points.txt")
    install(path[1], "thing-1.dist-info", "[a]\nx = m:C\n")
    sys.path.append(str(path[0] / "not there"))
    assert found("a") == {"x": "m:C"}


def test_the_object_may_be_part_of_another():
    assert plugins.EntryPoint("pathlib:Path.home [extra]").load() == plugins.EntryPoint("pathlib:Path").load().home
    assert plugins.EntryPoint(" json ").load().__name__ == "json"
    with pytest.raises(ModuleNotFoundError):
        plugins.EntryPoint("no_such_module:C").load()
    with pytest.raises(ImportError, match="module 'json' has no attribute 'nothing'"):
        plugins.EntryPoint("json:nothing").load()
