"""Paths, targets and figures that CONTRIBUTING.md names are right."""

import re
from pathlib import Path

from tools import size

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
STALE = "`make size` counts again"
NAMED = re.findall(r"`((?:agent|sinks|docs|tests|tools|requirements|\.ci)/[\w./-]*)`", TEXT)


def test_each_path_and_each_target_of_make_that_is_named_is_there():
    makefile = (ROOT / "Makefile").read_text()
    assert [path for path in NAMED if not (ROOT / path).exists()] == []
    targets = re.findall(r"`make ([\w-]+)`", TEXT)
    assert [target for target in targets if not re.search(rf"^{target}:", makefile, re.MULTILINE)] == []


def test_each_room_has_a_line():
    table = TEXT[TEXT.index("| room |") : TEXT.index("## Where do I find")]
    rooms = {
        f"agent/chipwatch/{path.name}/"
        for path in (ROOT / "agent/chipwatch").iterdir()
        if (path / "__init__.py").exists()
    }
    assert rooms | {"sinks/chipwatch_sinks/"} <= set(re.findall(r"`([\w/]+)`", table))


def test_the_lines_of_code_that_it_states_are_counted():
    counted, stated = size.sizes(), size.stated()
    assert stated.keys() == counted.keys(), STALE
    assert {room: (stated[room], lines) for room, lines in counted.items() if not near(stated[room], lines)} == {}, (
        STALE
    )
    assert near(sum(stated.values()), sum(counted.values()), rooms=0), STALE


def test_neither_blank_lines_nor_comments_nor_docstrings_are_code():
    source = '"""Doc."""\n\n# why\nX = """a\n\nb"""\n"""About X."""\n\ndef f(\n    a,\n):\n    """Do."""\n    return a  # so\n'
    assert size.lines_of(source) == 7


def near(stated, counted, rooms=15):
    """Return True within 2 %, or within a few lines for a small room."""
    return abs(stated - counted) <= max(rooms, counted * 0.02)


def test_the_words_are_each_explained_once():
    table = TEXT[TEXT.index("## The words") :]
    words = [
        word for cell in re.findall(r"^\| ([a-z, -]+) \| (?!meaning)", table, re.MULTILINE) for word in cell.split(", ")
    ]
    assert len(words) == len(set(words)) >= 30
