"""
Finds turns that are not plain English: in comments, docstrings, messages, names of tests, and pages.

`python -m tests.english` prints each with its line.
"""

import ast
import functools
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
TURNS = re.compile(
    r"""\b(?: those\s+of | (?:is|are|was|were|be|been)\s+told | (?:is|are|was|were|be|been)\s+said(?!\s+to) | anew
    | (?<!there\ )(?:is|are|was|were|be)\s+no(?=\s+(?!longer|more|less)) | that\s+there\s+(?:is|are) | (?:is|are)\s+such
    | (?:that|which|what)\s+(?:is|are|was|were)\s+none | costs?\s+itself | of\s+(?:its|their)\s+own | that\s+which
    | who(?:m?ever|soever) | whatsoever | (?:there|where|here)(?:of|in|by|upon) | (?:hence|thence)forth | lest | ere
    | adversar(?:y|ies) | at\s+hand | came\s+meanwhile )\b""",
    re.VERBOSE | re.IGNORECASE,
)
OPENINGS = re.compile(r"\s*(?:What|Whether|Who|How)\b")
"""Words with which no docstring begins."""
OPENING = re.compile(rf'(?:"""|\'\'\'|"|\'){OPENINGS.pattern}')
PARTS = re.compile(r"""["']\s+[fr]*["']""")
"""Where a string ends and its next part begins."""
PYTHON = ("agent", "sinks", "tools", "tests", "docs", "ecs-sidecar")
PAGES = (".md", ".toml", ".c")
STRINGS = ("agent/", "sinks/")
"""Folders whose strings are messages, help or labels that people read."""
NOT_OURS = ("tests/fixtures/", "tests/english", "tests/test_english")
BEFORE_AND_AFTER = re.compile(r"^\| before \| after \|\n(?:\|.*\n)+", re.MULTILINE)


class Turn(NamedTuple):
    """A turn that is not plain English."""

    line: int
    words: str


def in_python(source: str, *, strings: bool) -> Iterator[Turn]:
    """Yield the turns in a module's comments, docstrings and names of tests, and in all strings if `strings`."""
    tree = ast.parse(source)
    docstrings = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings[id(node.value)] = node.value
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
            yield from in_text(node.name.replace("_", " "), node.lineno)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and (strings or id(node) in docstrings):
            yield from in_text(node.value, node.lineno)
    for node in docstrings.values():
        if match := OPENINGS.match(node.value):
            yield Turn(node.lineno, f"docstring begins with {match[0].strip()}")
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield from in_text(token.string, token.start[0])


def may_have(source: str) -> bool:
    """Tell whether a module has a turn anywhere, in code too: a tenth of the work, after which most need no other look."""
    whole = PARTS.sub("", source.replace("_", " "))
    return bool(TURNS.search(whole) or OPENING.search(source))


def in_text(text: str, line: int = 1) -> Iterator[Turn]:
    """Yield the turns in a text whose first line has the number `line`."""
    for match in TURNS.finditer(text):
        yield Turn(line + text.count("\n", 0, match.start()), " ".join(match[0].lower().split()))


def in_page(text: str) -> Iterator[Turn]:
    """Yield the turns in a page, without its pairs of before and after."""
    return in_text(BEFORE_AND_AFTER.sub(lambda pairs: "\n" * pairs[0].count("\n"), text))


@functools.cache
def turns() -> dict[str, list[Turn]]:
    """Return the turns that stand in the tree, by file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    by_file = {}
    for name in sorted(listed.stdout.splitlines()):
        path = ROOT / name
        if name.startswith(NOT_OURS) or not path.is_file():
            continue
        if path.suffix == ".py" and name.startswith(PYTHON):
            source, strings = path.read_text(encoding="utf-8"), name.startswith(STRINGS)
            by_file[name] = [*in_python(source, strings=strings)] if may_have(source) else []
        elif path.suffix in PAGES or (path.suffix == ".json" and name.startswith(STRINGS)):
            by_file[name] = [*in_page(path.read_text(encoding="utf-8"))]
    return {name: found for name, found in by_file.items() if found}


if __name__ == "__main__":
    for name, lines in turns().items():
        print(*(f"{name}:{turn.line}: {turn.words}" for turn in sorted(lines)), sep="\n")  # noqa: T201  # a command
