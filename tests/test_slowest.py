"""The slowest tests start first."""

from pathlib import Path

from tests import slowest

ROOT = Path(__file__).parents[1]


def test_the_listed_tests_come_first_and_the_others_stay_in_order():
    ids = ["a.py::quick", "b.py::slow[1]", "a.py::other", "c.py::slowest", "b.py::slow[2]"]
    order = slowest.first(ids, ["c.py::slowest", "b.py::slow"])
    assert [ids[n] for n in order] == ["c.py::slowest", "b.py::slow[1]", "b.py::slow[2]", "a.py::quick", "a.py::other"]


def test_the_list_is_made_from_what_pytest_prints():
    printed = [
        "= slowest 3 durations =",
        "2.50s call     b.py::slow[a b]",
        "9.10s setup    c.py::x",
        "7.00s call b.py::slow[1]",
    ]
    assert slowest.from_durations(printed) == ["c.py::x", "b.py::slow"]


def test_most_listed_tests_are_there():
    """A stale line costs nothing but the moment at which a test starts, so some may be."""

    def is_there(name):
        path, *names = name.split("::")
        return (ROOT / path).exists() and f"def {names[-1]}(" in (ROOT / path).read_text(encoding="utf-8")

    listed = slowest.listed()
    assert sum(map(is_there, listed)) >= 0.8 * len(listed) > 0
