"""The budgets of tools/size_budgets.json: they are kept, they only fall, and a fault says what to do."""

import shutil
import subprocess

import pytest
from tools import budget

HAS_GIT = pytest.mark.skipif(not shutil.which("git"), reason="git is not installed")
EMPTY = {table: {} for table in budget.ADVICE}


@pytest.fixture
def tree(tmp_path):
    """Make a tree with these files; return its root."""

    def make(files):
        for name in ("agent/chipwatch", "sinks/chipwatch_sinks", "tests", "tools", "dashboards"):
            (tmp_path / name).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return tmp_path

    return make


@pytest.fixture
def commit(tmp_path):
    """Commit budgets in a repository at `tmp_path`."""

    def do(budgets):
        budget.write(EMPTY | budgets, tmp_path)
        if not (tmp_path / ".git").exists():
            subprocess.run(["git", "init", "-q", tmp_path], check=True)
        who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        subprocess.run(["git", "-C", tmp_path, "add", "-A"], check=True)
        subprocess.run(["git", "-C", tmp_path, *who, "commit", "-qm", "a budget"], check=True)

    (tmp_path / "tools").mkdir()
    return do


def test_lines_arrows_and_floors_are_counted(tree):
    figures = budget.measured(tree({
        "agent/chipwatch/show/top/a.py": "from chipwatch.net import b\nX = b\n",
        "agent/chipwatch/net/b.py": "def f():\n    from chipwatch.contract.c import C\n    return C\n",
        "agent/chipwatch/contract/c.py": "C = 1\n",
        "agent/chipwatch/net/table.json": "{}\n" + "x" * 241 + "\n",
        "sinks/chipwatch_sinks/out/__init__.py": "import chipwatch.contract.c\n",
        "dashboards/a.json": "{}\n", "tests/test_a.py": "\n\n\n", "tools/x.py": "A = 1\n",
    }))  # fmt: skip
    assert figures["lines"] == {
        "agent/chipwatch/contract": 1, "agent/chipwatch/net": 3, "agent/chipwatch/show": 2, "sinks/chipwatch_sinks": 1,
        "tests/": 3, "tools/": 1,
    }  # fmt: skip
    assert figures["data"] == {"agent/chipwatch/net": 4, "dashboards": 1}
    assert figures["house"] == {"rooms": 4, "arrows": 3, "floors": 3, "lines of code": 7}


def test_classes_functions_and_modules_above_a_limit_are_named(tree):
    body = "".join(f"        self.a{n} = n\n" for n in range(14))
    methods = "".join(f"    def m{n}(self): ...\n" for n in range(20))
    many = ", ".join(f"a{n}" for n in range(8))
    text = f"class A:\n    x: int\n    y = 1\n    def __init__(self, n):\n{body}{methods}"
    few = text.replace("        self.a13 = n\n", "").replace("    def m19(self): ...\n", "")
    figures = budget.measured(tree({
        "agent/chipwatch/net/a.py": f"{text}def f({many}): ...\nclass B:\n    def g(self, *, {many}): ...\n",
        "agent/chipwatch/net/b.py": f"{few}def f({many[4:]}): ...\n", "agent/chipwatch/net/long.py": "\n" * 401,
    }))  # fmt: skip
    at = "agent/chipwatch/net/a.py"
    assert figures["attributes"] == {f"{at}:A": 16}
    assert figures["methods"] == {f"{at}:A": 21}
    assert figures["parameters"] == {f"{at}:f": 8, f"{at}:B.g": 8}
    assert figures["modules"] == {"agent/chipwatch/net/long.py": 401}


def test_an_excess_says_where_by_how_many_and_what_to_do():
    budgets = EMPTY | {"lines": {"agent/chipwatch/net": 700}, "house": {"rooms": 3}}
    figures = EMPTY | {"lines": {"agent/chipwatch/net": 712}, "parameters": {"a.py:f": 9}, "house": {"rooms": 3}}
    over, new = budget.excesses(figures, budgets)
    assert over.startswith("agent/chipwatch/net: 712 lines of code, 12 over its budget: take out as many")
    assert new.startswith("a.py:f: 9 parameters, and no budget: take a struct")
    assert "tools/size_budgets.json" in over
    assert budget.excesses(budgets, budgets) == []


def test_today_is_written_only_where_it_is_lower():
    budgets = EMPTY | {"lines": {"a": 5, "b": 3}, "attributes": {"old/a.py:A": 20}, "house": {"rooms": 2}}
    today = EMPTY | {"lines": {"a": 7, "b": 2}, "attributes": {"a.py:A": 18, "b.py:B": 16}, "house": {"rooms": 1}}
    assert budget.lowered(today, budgets) == EMPTY | {
        "lines": {"a": 5, "b": 2}, "attributes": {"a.py:A": 18}, "house": {"rooms": 1},
    }  # fmt: skip
    for others in ({"a": 5, "gone": 4}, {"a": 5, "b": 5}):
        assert budget.lowered(today, budgets | {"lines": others})["lines"] == today["lines"]


@HAS_GIT
def test_a_budget_above_any_that_was_committed_is_named(commit, tmp_path):
    commit({"lines": {"a": 5, "b": 4}})
    commit({"lines": {"a": 3, "b": 4}})
    assert budget.raised(budget.read(tmp_path), tmp_path) == []
    commit({"lines": {"a": 4, "b": 4}})
    (line,) = budget.raised(budget.read(tmp_path), tmp_path)
    assert line == "tools/size_budgets.json: lines: all rooms: 8, and was 7: lower it; a budget only falls"


@HAS_GIT
def test_what_moves_keeps_its_budget_and_the_rooms_have_one_sum(commit, tmp_path):
    commit({"lines": {"a": 5}, "attributes": {"a/x.py:X": 17}})
    moved = EMPTY | {"lines": {"a": 5}, "attributes": {"b/x.py:X": 17}}
    assert budget.raised(moved, tmp_path) == []
    assert len(budget.raised(moved | {"attributes": {"b/x.py:X": 18}}, tmp_path)) == 1
    assert budget.raised(EMPTY | {"lines": {"a": 3, "b": 2}}, tmp_path) == []
    commit({"lines": {"a": 3, "b": 2}})
    assert budget.raised(EMPTY | {"lines": {"a": 1, "b": 4}}, tmp_path) == []
    assert len(budget.raised(EMPTY | {"lines": {"a": 5, "b": 2}}, tmp_path)) == 1
    assert len(budget.raised(EMPTY | {"lines": {"a": 3}, "attributes": {"a.py:A": 16}}, tmp_path)) == 1


def test_nothing_is_over_its_budget_and_no_budget_was_raised():
    budgets = budget.read()
    assert not [*budget.excesses(budget.measured(), budgets), *budget.raised(budgets)]
