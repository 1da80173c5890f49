"""
Measures what may only fall, and compares it with the budgets of tools/size_budgets.json.

`lines` has lines of code by room, and all lines of tests and tools; `data` the lines of JSON, TOML and the like; a line of these has at most WIDTH characters,
so that nothing gets smaller by longer lines. The other tables name what exceeds a limit today. A budget is never raised:
git has the lowest one that was ever committed.
"""

from __future__ import annotations

import ast
import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import cache
from math import ceil
from pathlib import Path
from typing import Final

from tools.size import PACKAGES, ROOT, room, sizes

FILE: Final = "tools/size_budgets.json"
ATTRIBUTES, METHODS, PARAMETERS, LINES = 15, 20, 7, 400
"""Limits of a class, a function and a module; above them they are named."""
WIDTH: Final = 120
DATA: Final = frozenset({".css", ".html", ".js", ".json", ".sql", ".tftpl", ".toml"})
BESIDE, ONLY_DATA = ("tests", "tools"), ("dashboards",)
"""Folders whose lines have a budget, but are not part of the program."""
ROOMS: Final = ("lines", "data")
"""Tables by room."""
ADVICE: Final = {
    "lines": "take out as many",
    "data": "take out as many",
    "attributes": f"split the class; {ATTRIBUTES} are enough",
    "methods": f"split the class; {METHODS} are enough",
    "parameters": f"take a struct; {PARAMETERS} are enough",
    "modules": f"split the module; {LINES} lines are enough",
    "house": "take away as many elsewhere",
}
UNITS: Final = {"lines": "lines of code", "data": "lines of data", "modules": "lines", "house": ""}
Figures = dict[str, dict[str, int]]
"""Table -> name -> figure."""


def measured(root: Path = ROOT) -> Figures:
    """Return the figures of a tree; of classes, functions and modules those above the limits."""
    figures: Figures = {table: {} for table in ADVICE}
    figures["lines"] = sizes(root) | {
        f"{folder}/": sum(path.read_bytes().count(b"\n") for path in (root / folder).rglob("*.py")) for folder in BESIDE
    }
    for package in (*PACKAGES, *ONLY_DATA):
        for path in sorted((root / package).rglob("*")):
            if path.suffix in DATA:
                place = room(path.relative_to(root).as_posix())
                rows = path.read_text("utf-8").splitlines()
                figures["data"][place] = figures["data"].get(place, 0) + sum(ceil(len(row) / WIDTH) for row in rows)
    arrows: set[tuple[str, str]] = set()
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*.py")):
            name, source = path.relative_to(root).as_posix(), path.read_text("utf-8")
            tree = ast.parse(source)
            if (count := source.count("\n")) > LINES:
                figures["modules"][name] = count
            for table, where, figure in _exceeding(tree):
                figures[table][f"{name}:{where}"] = figure
            arrows |= {(room(name), other) for other in _imported(tree) if other != room(name)}
    rooms = figures["lines"].keys() - {f"{folder}/" for folder in BESIDE}
    arrows = {(source, target) for source, target in arrows if target in rooms}
    figures["house"] = {"rooms": len(rooms), "arrows": len(arrows), "floors": _floors(arrows)}
    figures["house"]["lines of code"] = sum(figures["lines"][each] for each in rooms)
    return figures


def _exceeding(tree: ast.Module) -> Iterator[tuple[str, str, int]]:
    """Yield table, name and figure of classes and functions above the limits."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
            for table, figure, most in (
                ("attributes", len(_attributes(node)), ATTRIBUTES), ("methods", len(functions), METHODS),
            ):  # fmt: skip
                if figure > most:
                    yield table, node.name, figure
            for function in functions:
                yield from _parameters(function, f"{node.name}.{function.name}")
    methods = {each for node in ast.walk(tree) if isinstance(node, ast.ClassDef) for each in node.body}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node not in methods:
            yield from _parameters(node, node.name)


def _parameters(function: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> Iterator[tuple[str, str, int]]:
    of = function.args
    names = [each.arg for each in (*of.posonlyargs, *of.args, *of.kwonlyargs, of.vararg, of.kwarg) if each]
    if (figure := len([each for each in names if each not in ("self", "cls")])) > PARAMETERS:
        yield "parameters", name, figure


def _attributes(node: ast.ClassDef) -> set[str]:
    """Return the names that a class has in its body, or sets on `self`."""
    targets = [
        target for each in node.body if isinstance(each, ast.Assign | ast.AnnAssign)
        for target in (each.targets if isinstance(each, ast.Assign) else [each.target])
    ]  # fmt: skip
    own = {target.id for target in targets if isinstance(target, ast.Name)}
    return own | {
        each.attr for each in ast.walk(node)
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name) and each.value.id == "self"
    }  # fmt: skip


def _imported(tree: ast.Module) -> Iterator[str]:
    """Yield the room of each module of ours that a module imports, wherever it does."""
    of_package = {package.rpartition("/")[2]: package for package in PACKAGES}
    for node in ast.walk(tree):
        names = [each.name for each in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{each.name}" for each in node.names]
        for name in names:
            package, *rest = name.split(".")
            if package in of_package:
                yield of_package[package] + (f"/{rest[0]}" if len(rest) > 1 and package == "chipwatch" else "")


def _floors(arrows: set[tuple[str, str]]) -> int:
    """Return how many rooms stand on each other at most; an arrow back counts as none."""
    below: dict[str, list[str]] = {}
    for source, target in sorted(arrows):
        below.setdefault(source, []).append(target)

    @cache
    def height(room: str, above: frozenset[str] = frozenset()) -> int:
        return 1 + max((height(each, above | {room}) for each in below.get(room, ()) if each not in above), default=0)

    return max(map(height, below), default=0)


def read(root: Path = ROOT) -> Figures:
    """Return the budgets."""
    return json.loads((root / FILE).read_text("utf-8"))


def excesses(figures: Figures, budgets: Figures) -> list[str]:
    """Return a line for each figure above its budget: where, by how many, and what to do."""
    lines = []
    for table, rows in figures.items():
        most = budgets.get(table, {})
        for name, figure in rows.items():
            if figure > most.get(name, -1):
                over = f"{figure - most[name]} over its budget" if name in most else "and no budget"
                what = f"{figure} {UNITS.get(table, table)}".rstrip()
                lines.append(f"{name}: {what}, {over}: {ADVICE[table]} ({FILE} has the budgets, which only fall)")
    return lines


def raised(budgets: Figures, root: Path = ROOT) -> list[str]:
    """
    Return a line for each budget that is higher than one that git has, or that is new.

    A class, function or module that moves keeps its budget, and lines that move to another room take theirs with them: of
    the rooms, the sum is compared.
    """
    lines = []
    for before in _committed(root):
        for table, rows in budgets.items():
            today, old = (_summed(each) if table in ROOMS else each for each in (rows, before.get(table, {})))
            old = _kept(old, today)
            for name in [name for name in today if today[name] > old.get(name, -1)]:
                says = f"was {old[name]}" if name in old else "is new"
                lines.append(f"{FILE}: {table}: {name}: {today[name]}, and {says}: lower it; a budget only falls")
    return [*dict.fromkeys(lines)]


def _kept(old: Mapping[str, int], rows: Mapping[str, int]) -> dict[str, int]:
    """Return the budgets of what is still there, by today's names: a class that moves keeps its file's name."""
    by_tail = {name.rpartition("/")[2]: figure for name, figure in old.items() if ".py" in name}
    by_name = {name: old.get(name, by_tail.get(name.rpartition("/")[2])) for name in rows}
    return {name: figure for name, figure in by_name.items() if figure is not None}


def _summed(rows: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of all rooms, and what stands beside the program as it is."""
    beside = {name: figure for name, figure in rows.items() if name.rstrip("/") in (*BESIDE, *ONLY_DATA)}
    return beside | {"all rooms": sum(rows.values()) - sum(beside.values())}


def _committed(root: Path) -> Iterator[Figures]:
    """Yield the budgets of all commits that git has; none without git, or where it cannot be asked."""
    for commit in (_git(root, "log", "--format=%H", "--", FILE) or "").split():
        try:
            yield json.loads(_git(root, "show", f"{commit}:{FILE}") or "")
        except ValueError:  # deleted, or cut off
            continue


def _git(root: Path, *words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", root, *words], check=False, capture_output=True, text=True, timeout=60)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def lowered(figures: Figures, budgets: Figures) -> Figures:
    """Return today's figures where they are below the budgets; what is gone goes. The rooms have today's if their sum is."""
    return {
        table: rows
        if table in ROOMS and all(of <= _summed(budgets[table]).get(name, -1) for name, of in _summed(rows).items())
        else {name: min(rows[name], most) for name, most in _kept(budgets[table], rows).items()}
        for table, rows in figures.items()
    }


def write(budgets: Mapping[str, Mapping[str, int]], root: Path = ROOT) -> None:
    """Write the budgets, one a line, so that a change is a line."""
    tables = (
        f' "{table}": {{\n' + ",\n".join(f"  {json.dumps(name)}: {rows[name]}" for name in sorted(rows)) + "\n }"
        for table, rows in budgets.items()
    )
    (root / FILE).write_text("{\n" + ",\n".join(tables) + "\n}\n", encoding="utf-8")
