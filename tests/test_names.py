"""No two public classes of the program share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]


def classes(source: str) -> list[str]:
    """Return the public classes that a module defines at its top level."""
    return [node.name for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name[0] != "_"]


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
