"""Names of the program: public classes are unique, variables say what they hold, each word of the glossary means one thing."""

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
VAGUE = frozenset(("found", "of", "one", "made", "apart", "held", "told", "known"))
LONG = 3
"""Lines from the first use of a variable to the last one, above which its name must say what it holds."""
parsed = cache(ast.parse)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def classes(source: str) -> list[str]:
    """Return the public classes that a module defines at its top level."""
    return [node.name for node in parsed(source).body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


def vague(source: str) -> Iterator[tuple[str, int]]:
    """Yield the vague names of variables and arguments that live long, each with its first line."""
    for function in ast.walk(parsed(source)):
        lines = defaultdict[str, list[int]](list)
        bound = set()
        for node in ast.walk(function) if isinstance(function, FUNCTIONS) else ():
            if isinstance(node, ast.Name):
                lines[node.id].append(node.lineno)
                bound |= set() if isinstance(node.ctx, ast.Load) else {node.id}
            elif isinstance(node, ast.arg):
                lines[node.arg].append(node.lineno)
                bound.add(node.arg)
        for name in sorted(bound & VAGUE):
            if max(lines[name]) - min(lines[name]) > LONG:
                yield name, min(lines[name])


def homes() -> dict[str, list[str]]:
    """Return the modules that define each public class, by its name."""
    modules = defaultdict(list)
    for room in ("agent", "sinks"):
        for path in sorted((ROOT / room).rglob("*.py")):
            for name in classes(path.read_text(encoding="utf-8")):
                modules[name].append(str(path.relative_to(ROOT)))
    return modules


def test_only_public_classes_at_the_top_level_count():
    source = "class A: ...\nclass _B: ...\ndef f():\n    class C: ...\nclass D:\n    class E: ...\n"
    assert classes(source) == ["A", "D"]


def test_no_two_public_classes_share_a_name():
    repeated = {name: modules for name, modules in homes().items() if len(modules) > 1}
    assert repeated == {}


def test_a_vague_name_counts_where_it_lives_longer_than_three_lines():
    long = "def f(one):\n    a = 1\n    b = 2\n    c = 3\n    return one\n"
    short = "def f():\n    found = 1\n    return found\ndef g():\n    found = 2\n    return found\n"
    only_read = "def f():\n    a = of(1)\n    b = 2\n    c = 3\n    d = 4\n    return of(2)\n"
    assert [*vague(long)] == [("one", 1)]
    assert [*vague(short), *vague(only_read)] == []


def test_no_variable_that_lives_long_has_a_vague_name():
    paths = [path for room in ("agent", "sinks") for path in sorted((ROOT / room).rglob("*.py"))]
    places = [f"{path}:{line} {name}" for path in paths for name, line in vague(path.read_text(encoding="utf-8"))]
    assert places == []


def test_the_glossary_gives_each_of_its_words_one_meaning():
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## The words\n")[2]
    words = Counter(word for row in re.findall(r"^\| ([^|]+) \| ", page, re.MULTILINE) for word in row.split(", "))
    del words["word"]
    assert len(words) >= 30
    assert [word for word, count in words.items() if count > 1] == []
