from hypothesis import given
from hypothesis import strategies as st

from chipwatch.config.identity.source import fit


def test_only_valid_dimension_values_are_kept():
    values = {
        "a": " x ",
        "b": "",
        "c": "  ",
        "d": None,
        "e": 7,
        "f": "a\nb",
        "g": "\x1b[31m",
        "h": "x" * 1025,
        "i": "y" * 1024,
    }
    assert fit(values, "here") == {"a": ("x", "here"), "i": ("y" * 1024, "here")}


@given(st.dictionaries(st.text(), st.none() | st.text() | st.integers()))
def test_kept_values_are_printable_and_stripped(values):
    for found in fit(values, "").values():
        assert found.value.isprintable()
        assert found.value.strip() == found.value != ""
