"""
Counts lines of code by room, and writes the table into CONTRIBUTING.md (`make size`); says what is over its budget.

With `--lower` it writes today's figures into tools/size_budgets.json instead, where they are lower.

Blank lines, comments and docstrings are not code; a string that stands alone below a constant is a docstring, too.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- lines of code, by `make size` -->\n", "<!-- end of lines of code -->\n"
SINKS = "sinks/chipwatch_sinks"  # one room, as the collectors are: a sink in it knows no other
PACKAGES = ("agent/chipwatch", SINKS)
NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
ROW = re.compile(r"^\| `([\w/]+)/` \| ([\d,]+) \|$", re.MULTILINE)


def lines_of(source: str) -> int:
    """Return the lines of code of a module."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    code = {line for token in tokens if token.type not in NOT_CODE for line in range(token.start[0], token.end[0] + 1)}
    return len(code - docstrings)


def room(path: str) -> str:
    """Return the room of a file, by its path below the root."""
    depth = 2 if path.startswith(SINKS) else min(path.count("/"), 3) if path.startswith(PACKAGES) else 1
    return "/".join(path.split("/")[:depth])


def sizes(root: Path = ROOT) -> dict[str, int]:
    """Return the lines of code of each room; the modules beside the rooms count as their package."""
    rooms: Counter[str] = Counter()
    for package in PACKAGES:
        for path in (root / package).rglob("*.py"):
            rooms[room(path.relative_to(root).as_posix())] += lines_of(path.read_text(encoding="utf-8"))
    return {name: lines for name, lines in sorted(rooms.items()) if lines}


def table(rooms: dict[str, int]) -> str:
    """Return the table of rooms and their sum."""
    rows = "".join(f"| `{name}/` | {lines:,} |\n" for name, lines in rooms.items())
    return f"| room | lines of code |\n|---|---|\n{rows}| all | {sum(rooms.values()):,} |\n"


def stated() -> dict[str, int]:
    """Return the lines of code that CONTRIBUTING.md states, by room."""
    return {name: int(lines.replace(",", "")) for name, lines in ROW.findall(_parts()[1])}


def _parts() -> tuple[str, str, str]:
    """Return CONTRIBUTING.md before, in and after its table."""
    head, begin, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    rows, end, tail = rest.partition(END)
    if not (begin and end):
        raise LookupError(f"{PAGE.name} has no longer: {BEGIN} and {END}")
    return head + begin, rows, end + tail


def main(words: Sequence[str]) -> int:
    """Write the table, or lower the budgets; return 1 if something is over its budget."""
    from tools import budget  # noqa: PLC0415  # which counts by this module

    figures, budgets = budget.measured(), budget.read()
    if "--lower" in words:
        budget.write(budget.lowered(figures, budgets))
        budgets = budget.read()
    else:
        before, _, after = _parts()
        print(text := table(sizes()), end="")
        PAGE.write_text(f"{before}{text}{after}", encoding="utf-8")
    faults = [*budget.excesses(figures, budgets), *budget.raised(budgets)]
    print(*faults, sep="\n", end="\n" if faults else "")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
