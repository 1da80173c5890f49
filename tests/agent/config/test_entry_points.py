"""Reads what importlib.metadata reads of the same folders."""

from __future__ import annotations

import email.message  # noqa: F401  # importlib.metadata loads it late, when a test has taken it off the path
import importlib.metadata
import os
import sys

import pytest

from chipwatch.config.entry_points import EntryPoint, entry_points


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
    return [(point.name, point.value) for point in importlib.metadata.entry_points(group=group)]


@pytest.mark.parametrize(
    "group", ["console_scripts", "pytest11", "chipwatch.collectors", "chipwatch.sinks", "nothing.of.the.kind"]
)
def test_all_that_is_installed_here_is_found(group):
    assert sorted(entry_points(group)) == sorted(by_library(group))
    assert group == "nothing.of.the.kind" or by_library(group)


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
    assert [*entry_points("a")] == by_library("a")


def test_a_distribution_counts_where_it_stands_first(path):
    install(path[0], "some_thing-2.dist-info", "[a]\nnew = m:C\n", "some-thing")
    install(path[1], "Some.Thing-1.dist-info", "[a]\nold = m:C\n", "Some.Thing")
    install(path[1], "other.egg-info", "[a]\nother = m:C\n", "other")
    assert [*entry_points("a")] == by_library("a") == [("new", "m:C"), ("other", "m:C")]


def test_the_files_are_read_once_until_a_folder_changes(path, monkeypatch):
    install(path[0], "thing-1.dist-info", "[a]\nx = m:C\n[b]\ny = m:D\n")
    os.utime(path[0], ns=(1, 1))
    reads = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda place: reads.append(place) or scandir(place))
    assert ([*entry_points("a")], [*entry_points("b")]) == ([("x", "m:C")], [("y", "m:D")])
    assert len(reads) == len(path)
    install(path[0], "later-1.dist-info", "[a]\nz = m:E\n", "later")
    os.utime(path[0], ns=(2, 2))
    assert sorted(entry_points("a")) == [("x", "m:C"), ("z", "m:E")]
    assert len(reads) == 2 * len(path)


@pytest.mark.parametrize("damage", [lambda file: file.write_bytes(b"\xff"), lambda file: (file.unlink(), file.mkdir())])
def test_a_file_that_cannot_be_read_costs_only_its_own_plugins(path, damage):
    install(path[0], "broken-1.dist-info", "", "broken")
    damage(path[0] / "broken-1.dist-info/entry_points.txt")
    install(path[1], "thing-1.dist-info", "[a]\nx = m:C\n")
    sys.path.append(str(path[0] / "not there"))
    assert [*entry_points("a")] == [("x", "m:C")]


def test_the_object_may_be_part_of_another():
    assert EntryPoint("x", "pathlib:Path.home [extra]").load() == EntryPoint("x", "pathlib:Path").load().home
    assert EntryPoint("x", " json ").load().__name__ == "json"
    with pytest.raises(ModuleNotFoundError):
        EntryPoint("x", "no_such_module:C").load()
    with pytest.raises(ImportError, match="module 'json' has no attribute 'nothing'"):
        EntryPoint("x", "json:nothing").load()
