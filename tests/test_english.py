"""Comments, docstrings, messages, names of tests and pages are plain English."""

import pytest
from tests.english import in_page, in_python, turns


def test_a_turn_is_found_in_comments_docstrings_and_names_of_tests():
    source = '''"""Whether it works."""
x = "that there is"  # a table of its own
def test_those_of_today():
    """Return what is
    no file, anew."""
'''
    assert sorted(in_python(source, strings=False)) == [
        (1, "docstring begins with Whether"),
        (2, "of its own"),
        (3, "those of"),
        (4, "is no"),
        (5, "anew"),
    ]


def test_a_turn_is_found_in_the_messages_of_the_program():
    assert [*in_python('x = f"{a} is told"\nraise E(\n  "the path is no file")\n', strings=True)] == [
        (1, "is told"),
        (3, "is no"),
    ]


@pytest.mark.parametrize("text", ["The file is no longer there.", "There is no file.", "Are those office hours?"])
def test_plain_english_is_left_alone(text):
    assert [*in_page(text)] == []


def test_pairs_of_before_and_after_may_show_what_was_before():
    page = "First.\n\n| before | after |\n|---|---|\n| is told | gets |\n\nIt is told.\n"
    assert [*in_page(page)] == [(7, "is told")]


def test_the_tree_is_plain_english():
    assert turns() == {}
