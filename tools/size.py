"""
Counts lines of code by room, and writes the table into CONTRIBUTING.md (`make size`); says what is over its budget.

With `--lower` it writes today's figures into tools/size_budgets.json instead, where they are lower.

Blank lines, comments and docstrings are not code; a string that stands alone below a constant is a docstring, too.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "CONTRIBUTING.md"
BEGIN, END = "<!-- lines of code, by `make size` -->\n", "<!-- end of lines of code -->\n"
SINKS = "sinks/chipwatch_sinks"  # one room, as the collectors are: a sink in it knows no other
PACKAGES = ("agent/chipwatch", SINKS)
ROW = re.compile(r"^\| `([\w/]+)/` \| ([\d,]+) \|$", re.MULTILINE)


def lines_of(source: str) -> int:
    """Return the lines of code of a module."""
    code = {n for n, line in enumerate(source.splitlines(), 1) if line.strip() and not line.lstrip().startswith("#")}
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        lines = range(getattr(node, "lineno", 0), (getattr(node, "end_lineno", 0) or 0) + 1)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.update(lines)
        elif isinstance(node, ast.JoinedStr | ast.Constant) and len(lines) > 1:
            code.update(lines)
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
